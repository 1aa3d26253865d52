"""Public names that a package imports when they are first used (PEP 562).

So an import costs what is used of it: a client brings no server along, a parser neither of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names(
    package: dict[str, Any], homes: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make ``__getattr__`` and ``__dir__`` of a package, whose ``globals()`` are given.

    ``homes`` says which names are found in which of its modules. Type checkers cannot see that, so
    the same stands as imports under ``TYPE_CHECKING``; a test compares the two.
    """
    home = {name: module for module, found in homes.items() for name in found}

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        value = getattr(import_module(home[name], package["__name__"]), name)
        package[name] = value  # so that it is found without asking the next time
        return value

    return get, lambda: sorted({*package, *home})
