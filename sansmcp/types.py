"""Small words that every layer uses: how a pull says "nothing", secrets that hide themselves."""

from __future__ import annotations

import enum
import hmac
from typing import Any, NoReturn, Protocol

import attrs


class Member(enum.Enum):
    """A key of tables: found by what it is, which is quicker than by its name."""

    __hash__ = object.__hash__


class Idle(enum.Enum):
    """What a ``next_...`` method returns when it has nothing to give."""

    NEED_DATA = enum.auto()
    """Nothing until the peer says more: read from it and feed what arrives, or wait for the next
    deadline.
    """

    PAUSED = enum.auto()
    """Nothing until the application takes events: do not read from the peer before. This is
    backpressure.
    """


STREAMABLE_HTTP = "streamable-http"
HTTP_SSE = "http+sse"
STDIO = "stdio"
"""The names of the transports."""


class Era(Member):
    """The two ways in which MCP opens a conversation."""

    LEGACY = "legacy"
    """2024-11-05 to 2025-11-25: a handshake (``initialize``), then sessions and streams."""

    MODERN = "modern"
    """2026-07-28: no handshake, every request stands alone."""


class Driven(Protocol):
    """What somebody drives: an exchange, or a pipe."""

    host: Any
    """For whoever drives it, to find its own things."""

    def wake(self) -> None:
        """Let the driver pull again, if it has stopped."""


@attrs.frozen(repr=False, eq=False)
class Secret:
    """A string whose ``repr`` and ``str`` show its length only: session ids, cursors, tokens.

    Comparison takes the same time wherever two values differ, so that it cannot be used to guess
    one.
    """

    _value: str

    def reveal(self) -> str:
        """The string itself, for the one place that puts it on the wire."""
        return self._value

    def __repr__(self) -> str:
        return f"<secret of {len(self._value)} characters>"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash(self._value)


def never(value: NoReturn) -> NoReturn:
    """Stands where no value can come: type checkers complain when a case was forgotten."""
    raise TypeError(f"Nothing that is expected here: {elide(value)}")


def elide(value: Any, limit: int = 75) -> str:
    """``repr(value)`` cut to about ``limit`` characters: for payloads in events and effects.

    Only the start of a long byte string is looked at, so the cost does not grow with the payload.
    """
    if isinstance(value, bytes | bytearray | str) and len(value) > limit:
        return f"{value[:limit]!r}... ({len(value)} in all)"
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def redact(value: str | bytes | None) -> str:
    """What stands for a secret string in a ``repr``: its length, never its content."""
    return "None" if value is None else f"<secret of {len(value)} characters>"
