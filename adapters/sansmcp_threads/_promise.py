"""A result that comes later."""

from __future__ import annotations

from typing import Any


class Promise:
    """Delivered once; later deliveries change nothing. Who waits, and how, is not said here."""

    def __init__(self) -> None:
        self.is_delivered = False
        self._value: Any = None
        self._error: Exception | None = None

    def deliver(self, value: Any = None, error: Exception | None = None) -> None:
        """Give the value, or an exception instead."""
        if not self.is_delivered:
            self.is_delivered, self._value, self._error = True, value, error

    def get(self) -> Any:
        """Return the value or raise the exception; it has been delivered."""
        if self._error is not None:
            raise self._error
        return self._value
