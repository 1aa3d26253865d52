"""Every name that a package exports has a docstring, and so has every public method of a class."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, get_origin

import pytest

from .test_type_hints import PACKAGES

ALL = [*PACKAGES, "sansmcp_cli"]

_METHODS = (FunctionType, property, staticmethod, classmethod)


def exported(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The classes and functions that a package exports."""
    for name in module.__all__:
        value = getattr(module, name)
        is_alias = get_origin(value) is not None  # at Python 3.10 some of these are classes
        if not is_alias and (inspect.isclass(value) or inspect.isfunction(value)):
            yield name, value


def public_methods(kind: type) -> Iterator[str]:
    """The public methods and properties of a class, without those of the standard library."""
    for name in dir(kind):
        home = next((each for each in kind.__mro__ if name in vars(each)), object)
        is_ours = name[0] != "_" and home.__module__.startswith("sansmcp")
        if is_ours and isinstance(vars(home)[name], _METHODS):
            yield name


def undocumented(module: ModuleType) -> Iterator[str]:
    """What has no docstring; that of a base class serves for a method that replaces another."""
    for name, value in exported(module):
        if not value.__doc__:
            yield name
        for method in public_methods(value) if inspect.isclass(value) else ():
            if not any(
                method in vars(base) and vars(base)[method].__doc__ for base in value.__mro__
            ):
                yield f"{name}.{method}"


@pytest.mark.parametrize("package", ALL)
def test_what_is_exported_has_a_docstring(package: str) -> None:
    assert list(undocumented(importlib.import_module(package))) == []


def test_what_has_no_docstring_is_found() -> None:
    class Base:
        """A base."""

        def told(self) -> None:
            """Do this."""

        def silent(self) -> None: ...

    class Derived(Base, dict[str, int]):
        """Another."""

        def told(self) -> None: ...

        @property
        def size(self) -> int:
            return 0

        @classmethod
        def made(cls) -> None: ...

        def _private(self) -> None: ...

    class Silent: ...

    def function() -> None: ...

    for kind in (Base, Derived, Silent, function):
        kind.__module__ = "sansmcp_example"
    module = ModuleType("sansmcp_example")
    vars(module).update(Derived=Derived, Silent=Silent, function=function, number=1)
    vars(module)["__all__"] = ["Derived", "Silent", "function", "number"]
    assert set(undocumented(module)) == {
        "Derived.made",
        "Derived.silent",
        "Derived.size",
        "Silent",
        "function",
    }
