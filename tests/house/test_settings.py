"""Each setting is written once: in a class of options. What repeats its name agrees with it."""

from __future__ import annotations

import re
import typing
from inspect import cleandoc
from typing import Any

import attrs
import pytest

from sansmcp import ClientOptions, ClientSettings, ServerOptions, ServerSettings

SETTINGS: list[tuple[type, type]] = [
    (ClientSettings, ClientOptions),
    (ServerSettings, ServerOptions),
]
"""Keyword arguments, and the options that are made of them."""


def documented(options: type) -> list[str]:
    """The names in the section ``Attributes`` of a docstring, in order."""
    _, _, section = cleandoc(options.__doc__ or "").partition("\nAttributes:\n")
    return re.findall(r"^    (\w+): \S", section, re.MULTILINE)


@pytest.mark.parametrize(("settings", "options"), SETTINGS)
def test_keyword_arguments_have_the_names_and_types_of_options(
    settings: type, options: Any
) -> None:
    expected = typing.get_type_hints(options.__init__)
    del expected["return"]
    assert list(typing.get_type_hints(settings).items()) == list(expected.items())


@pytest.mark.parametrize("options", [options for _, options in SETTINGS])
def test_every_setting_is_explained_and_has_a_default(options: Any) -> None:
    fields = attrs.fields(options)
    assert documented(options) == [field.name for field in fields]
    assert [field.name for field in fields if field.default is attrs.NOTHING] == []
    options()


def test_a_setting_without_explanation_is_found() -> None:
    class Options:
        """Some.

        Attributes:
            first: is explained,
                on two lines: like this.
            second:
            third: too.
        """

    assert documented(Options) == ["first", "third"]
