"""The public names are those that are promised, and what mirrors something else agrees with it."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from types import ModuleType
from typing import Any

import attrs
import pytest

import sansmcp
from sansmcp import CallSettings, Client, effects, events

from .sources import adapters

MIRRORS: list[tuple[type, Callable[..., Any], set[str]]] = [
    (CallSettings, Client.call, {"any_result", "detach", "wants_progress", "capabilities", "now"}),
]
"""A typed dict, what it mirrors, and the keywords that adapters fill in themselves."""

EVENTS: set[type] = {*typing.get_args(events.ClientEvent), *typing.get_args(events.ServerEvent)}
EFFECTS: set[type] = {
    *typing.get_args(effects.ClientEffect),
    *typing.get_args(effects.ConnectionEffect),
    *typing.get_args(effects.ExchangeEffect),
    *typing.get_args(effects.ServerEffect),
}

BY_NAME = {kind.__name__: kind for kind in sorted(EVENTS | EFFECTS, key=repr)}

MOST_BY_POSITION = 3
"""Events and effects with more fields than that take them by name only."""


def defined_in(module: ModuleType) -> set[type]:
    """The public classes that a module defines itself."""
    return {
        value
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__ and name[0] != "_"
    }


def test_every_promised_name_is_there_once() -> None:
    assert len(set(sansmcp.__all__)) == len(sansmcp.__all__)
    assert [name for name in sansmcp.__all__ if not hasattr(sansmcp, name)] == []


def test_nothing_else_is_public() -> None:
    found = {
        name
        for name, value in vars(sansmcp).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert found - set(sansmcp.__all__) == {"TYPE_CHECKING"}


def test_modules_of_adapters_have_an_underscore() -> None:
    inner = {
        module.name
        for modules in adapters().values()
        for module in modules
        if "." in module.name and not any(part[0] == "_" for part in module.name.split("."))
    }
    assert inner == {"sansmcp_cli.example"}  # of which users write the name on command lines


def test_an_unknown_name_is_an_error_as_usual() -> None:
    name = "nothing"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(sansmcp, name)


@pytest.mark.parametrize(("mirror", "function", "by_adapters"), MIRRORS)
def test_settings_mirror_the_keywords(
    mirror: type, function: Callable[..., Any], by_adapters: set[str]
) -> None:
    types = typing.get_type_hints(function)
    keywords = {
        name: types[name]
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name not in by_adapters
    }
    assert list(keywords.items()) == list(typing.get_type_hints(mirror).items())


def test_the_unions_of_events_are_closed() -> None:
    assert defined_in(events) == EVENTS


def test_the_unions_of_effects_are_closed() -> None:
    assert defined_in(effects) == EFFECTS


@pytest.mark.parametrize("kind", BY_NAME.values(), ids=BY_NAME)
def test_events_and_effects_are_frozen(kind: type[Any]) -> None:
    blank = object.__new__(kind)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        blank.anything = 1


@pytest.mark.parametrize("kind", BY_NAME.values(), ids=BY_NAME)
def test_many_fields_are_given_by_name(kind: type) -> None:
    fields = attrs.fields(kind)
    assert len(fields) <= MOST_BY_POSITION or all(field.kw_only for field in fields)
