"""What the page on programs with loops of their own uses of Blender's module ``bpy``."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

data = SimpleNamespace(objects=[SimpleNamespace(name=name) for name in ("Camera", "Cube")])

_timers: list[Callable[[], float | None]] = []


def _register(function: Callable[[], float | None], *, persistent: bool = False) -> None:
    assert persistent  # else it ends when another file is opened
    _timers.append(function)


app = SimpleNamespace(timers=SimpleNamespace(register=_register))


def run() -> None:
    """Call a timer again after the seconds that it returns, until it returns None."""
    (function,) = _timers
    while (seconds := function()) is not None:
        time.sleep(seconds)
