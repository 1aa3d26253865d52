"""``typing.get_type_hints`` works on public names: frameworks and documentation tools call it."""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Iterator
from typing import Any

import pytest

PACKAGES = [
    "sansmcp",
    "sansmcp.testing",
    "sansmcp_asgi",
    "sansmcp_asyncio",
    "sansmcp_blocking",
    "sansmcp_httpx",
    "sansmcp_local",
    "sansmcp_pyodide",
    "sansmcp_pytest",
    "sansmcp_stores",
    "sansmcp_tools",
    "sansmcp_trio",
    "sansmcp_wsgi",
]

MODULES = [
    "sansmcp.effects",
    "sansmcp.errors",
    "sansmcp.events",
    "sansmcp.http",
    "sansmcp.messages",
    "sansmcp.process",
    "sansmcp.store",
]
"""Modules whose names applications and adapters use beside those of the packages."""


def functions_in(package: str) -> Iterator[tuple[str, Any]]:
    """The public classes and functions of a package, and their public methods."""
    module = importlib.import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        yield name, value
        for key, member in inspect.getmembers(value) if inspect.isclass(value) else ():
            function = member.fget if isinstance(member, property) else member
            if inspect.isfunction(function) and (key[0] != "_" or key in ("__init__", "__call__")):
                yield f"{name}.{key}", function


def unreadable(name: str, value: Any) -> list[str]:
    """Why the hints of a class or function cannot be read, if so."""
    try:
        typing.get_type_hints(value)
    except NameError as error:
        return [f"{name}: {error}"]
    return []


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_have_hints_that_can_be_read(package: str) -> None:
    assert [line for each in functions_in(package) for line in unreadable(*each)] == []


def test_classes_of_other_modules_have_hints_that_can_be_read() -> None:
    classes = {
        name: value
        for module in map(importlib.import_module, MODULES)
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__
    }
    assert [line for each in classes.items() for line in unreadable(*each)] == []
