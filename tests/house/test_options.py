"""Each setting is written once: in a class of options. What repeats it agrees with that."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from inspect import cleandoc
from typing import Any

import attrs
import pytest

import sansmcp_asgi
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_httpx
import sansmcp_pyodide
import sansmcp_pytest
import sansmcp_trio
import sansmcp_wsgi
from sansmcp import ClientOptions, ClientSettings, ServerOptions, ServerSettings
from sansmcp_local import (
    ConnectOptions,
    ConnectSettings,
    DriverOptions,
    DriverSettings,
    ServeOptions,
    ServeSettings,
)

from ..docs.settings import explanations

SETTINGS: dict[type, list[type]] = {
    ClientSettings: [ClientOptions],
    ConnectSettings: [ClientOptions, ConnectOptions],
    ServerSettings: [ServerOptions],
    DriverSettings: [ServerOptions, DriverOptions],
    ServeSettings: [ServerOptions, DriverOptions, ServeOptions],
}
"""Keyword arguments, and the options that are made of them."""

OPTIONS = [ClientOptions, ConnectOptions, ServerOptions, DriverOptions, ServeOptions]

SHOWN: list[tuple[Callable[..., Any], list[type]]] = [
    (sansmcp_asyncio.connect, [ConnectOptions, ClientOptions]),
    (sansmcp_blocking.connect, [ConnectOptions, ClientOptions]),
    (sansmcp_trio.connect, [ConnectOptions, ClientOptions]),
    (sansmcp_httpx.connect, [ClientOptions]),
    (sansmcp_httpx.connect_blocking, [ClientOptions]),
    (sansmcp_pyodide.connect, [ClientOptions]),
    (sansmcp_blocking.connect_in_steps, [ConnectOptions, ClientOptions]),
    (sansmcp_blocking.serve_in_steps, [ServeOptions, DriverOptions, ServerOptions]),
    (sansmcp_asyncio.serve, [ServeOptions, DriverOptions, ServerOptions]),
    (sansmcp_blocking.serve, [ServeOptions, DriverOptions, ServerOptions]),
    (sansmcp_trio.serve, [ServeOptions, DriverOptions, ServerOptions]),
    (sansmcp_asgi.asgi_app, [DriverOptions, ServerOptions]),
    (sansmcp_wsgi.WsgiApp.__init__, [DriverOptions, ServerOptions]),
]
"""What takes settings, and the options that ``help()`` of it explains."""


def hints_of(options: Any) -> dict[str, Any]:
    """The keyword arguments of a class of options, and their types."""
    hints = typing.get_type_hints(options.__init__)
    del hints["return"]
    return hints


@pytest.mark.parametrize(("settings", "options"), SETTINGS.items())
def test_keyword_arguments_have_the_names_and_types_of_options(
    settings: type, options: list[type]
) -> None:
    expected = [item for kind in options for item in hints_of(kind).items()]
    assert list(typing.get_type_hints(settings).items()) == expected


@pytest.mark.parametrize("options", OPTIONS)
def test_every_setting_is_explained_and_has_a_default(options: Any) -> None:
    fields = attrs.fields(options)
    assert list(explanations(options)) == [field.name for field in fields]
    assert [field.name for field in fields if field.default is attrs.NOTHING] == []


@pytest.mark.parametrize(("function", "options"), SHOWN)
def test_help_explains_the_settings(function: Any, options: list[type]) -> None:
    assert function.__doc__.endswith("\n\n".join(cleandoc(kind.__doc__ or "") for kind in options))


@pytest.mark.parametrize("function", [sansmcp_asgi.asgi_app, sansmcp_pytest.Serve.__call__])
def test_the_grace_is_the_same_everywhere(function: Callable[..., Any]) -> None:
    """It is a setting of ``serve()``, and an argument of what takes no other setting of that."""
    graceful_timeout = inspect.signature(function).parameters["graceful_timeout"]
    assert graceful_timeout.default == attrs.fields(ServeOptions).graceful_timeout.default
