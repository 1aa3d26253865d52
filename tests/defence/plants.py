"""Exceptions that are planted in the machines: at one public method, at its n-th use."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

MARK = b"x-victim"
"""What is sent by whom the exception is to hit."""


class Planted(Exception):
    """What no one has foreseen."""


class Plant:
    """One exception in one method of a machine. It is armed when the victim has been seen."""

    def __init__(
        self,
        kind: type[Any],
        name: str,
        use: int,
        counts: Callable[[Plant, Any], bool] = lambda plant, arguments: True,
    ) -> None:
        """``counts``: whether a use of the method is one, once the plant is armed."""
        self._is_one = counts
        self._kind, self._name, self._use = kind, name, use
        self._lock = threading.Lock()
        self.victims: list[Any] = []
        self._uses = 0
        self._is_armed = False
        self.has_raised = False

    def __str__(self) -> str:
        return f"{self._kind.__name__}.{self._name} ({self._use})"

    @contextmanager
    def sown(self) -> Generator[None]:
        """The method raises, in this block."""
        original = inspect.getattr_static(self._kind, self._name)
        raising: Any
        if isinstance(original, property):
            raising = property(self._raising(original.fget))
        else:
            raising = self._raising(original)
        is_own = self._name in vars(self._kind)
        setattr(self._kind, self._name, raising)
        try:
            yield
        finally:
            if is_own:
                setattr(self._kind, self._name, original)
            else:
                delattr(self._kind, self._name)

    def arm(self, *victims: Any) -> None:
        """From now on uses count."""
        self._is_armed = True
        self.victims += victims

    def _raising(self, original: Any) -> Callable[..., Any]:
        @functools.wraps(original)
        def method(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                if self._is_armed and self._is_one(self, arguments):
                    self._uses += 1
                    if self._uses == self._use:
                        self.has_raised = True
                        raise Planted(f"planted in {self}")
            return original(*arguments, **named)

        return method


def public_names(kind: type[Any]) -> list[str]:
    """The public methods of a machine."""
    names = [name for name in dir(kind) if not name.startswith("_")]
    return [name for name in names if inspect.isfunction(inspect.getattr_static(kind, name))]


def of_victims(plant: Plant, arguments: tuple[Any, ...]) -> bool:
    """Whether a victim is among the arguments of a method."""
    return any(one is each for one in arguments for each in plant.victims)
