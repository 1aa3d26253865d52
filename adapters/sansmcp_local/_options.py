"""What classes of options have in common: how they are made of settings, and where they are shown.

A setting of adapters is written in a class of options, with its type, default and explanation, and
its name and type once more in a typed dict, for the signatures of what takes settings; a test
compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc
from typing import Any, TypeVar

import attrs

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Options = TypeVar("_Options", bound=attrs.AttrsInstance)


def options_of(kind: type[_Options], settings: dict[str, Any]) -> _Options:
    """Make options of the settings that are theirs, and remove those from ``settings``."""
    names = [name for name in attrs.fields_dict(kind) if name in settings]
    return kind(**{name: settings.pop(name) for name in names})


def explains(*options: type) -> Callable[[_Function], _Function]:
    """Append the docstrings of classes of options to that of a function, for ``help()``."""

    def explain(function: _Function) -> _Function:
        if function.__doc__ is not None:  # python -OO keeps none
            function.__doc__ = "\n\n".join(
                cleandoc(documented.__doc__ or "") for documented in (function, *options)
            )
        return function

    return explain
