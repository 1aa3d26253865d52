"""Making options from keyword arguments, and showing them in ``help()``.

Each setting of an adapter stands in an options class, with its type, default and explanation. Its
name and type stand again in a TypedDict, for the signatures of functions that take settings. A test
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
    """Make ``kind`` from its part of ``settings``, and remove that part from ``settings``."""
    names = [name for name in attrs.fields_dict(kind) if name in settings]
    return kind(**{name: settings.pop(name) for name in names})


def explains(*options: type) -> Callable[[_Function], _Function]:
    """Append the docstrings of options classes to that of a function, for ``help()``."""

    def explain(function: _Function) -> _Function:
        if function.__doc__ is not None:  # python -OO keeps none
            function.__doc__ = "\n\n".join(
                cleandoc(documented.__doc__ or "") for documented in (function, *options)
            )
        return function

    return explain
