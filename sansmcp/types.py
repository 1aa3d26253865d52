"""Small types of all layers: idle results, eras, secrets, and text that is safe to show."""

from __future__ import annotations

import enum
import hmac
import re
import sys
from typing import Any, NoReturn, Protocol

import attrs

if sys.version_info < (3, 11):
    from typing_extensions import NotRequired as NotRequired
    from typing_extensions import Self as Self
    from typing_extensions import TypedDict as TypedDict
    from typing_extensions import Unpack as Unpack
else:
    from typing import NotRequired as NotRequired
    from typing import Self as Self
    from typing import TypedDict as TypedDict
    from typing import Unpack as Unpack


class FastEnum(enum.Enum):
    """An enum for keys of tables. It hashes by identity, which is faster than by name."""

    __hash__ = object.__hash__


class Idle(enum.Enum):
    """The result of a ``next_...`` method that has nothing to return."""

    NEED_DATA = enum.auto()
    """Nothing until more is received: read from the peer and feed the bytes, or wait for the next
    deadline.
    """

    PAUSED = enum.auto()
    """Nothing until the application takes events. Do not read from the peer before; this is
    backpressure.
    """


STREAMABLE_HTTP = "streamable-http"
HTTP_SSE = "http+sse"
STDIO = "stdio"
"""The names of the transports."""


class Era(FastEnum):
    """The two eras of MCP: with a handshake, or without one."""

    LEGACY = "legacy"
    """2024-11-05 to 2025-11-25: a handshake (``initialize``), then sessions and streams."""

    MODERN = "modern"
    """2026-07-28: no handshake; every request is complete in itself."""


class Drivable(Protocol):
    """An object with a driver: a server exchange, or the pipe of stdio."""

    driver: Any
    """The driver's object for this exchange or pipe. The machine only stores it."""

    def wake(self) -> None:
        """Make the driver pull again if it has stopped."""


@attrs.frozen(repr=False, eq=False)
class Secret:
    """A string whose ``repr`` and ``str`` show its length only: session ids, cursors, tokens.

    Comparison takes the same time wherever two values differ, so that its duration does not help to
    guess one.
    """

    _value: str

    def reveal(self) -> str:
        """Return the string. Use it only to send it."""
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


def assert_never(value: NoReturn) -> NoReturn:
    """Raise TypeError. Type checkers report a ``match`` that can reach this call."""
    raise TypeError(f"Unexpected value: {elide(value)}")


def elide(value: Any, limit: int = 75) -> str:
    """Return ``repr(value)`` cut to about ``limit`` characters, for payloads in events and effects.

    Only the start of a long byte string is read, so the cost does not grow with the payload.
    """
    if isinstance(value, bytes | bytearray | str) and len(value) > limit:
        return f"{value[:limit]!r}... ({len(value)} in all)"
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def redact(value: str | bytes | None) -> str:
    """Return the text that replaces a secret string in a ``repr``: its length only."""
    return "None" if value is None else f"<secret of {len(value)} characters>"


_ACTED_ON = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str) -> str:
    r"""Replace every character that a terminal acts on, instead of showing it, by ``\uXXXX``.

    Text of a peer passes through here before it goes into a trace line, the message of an
    exception, a log line or the output of a command. Otherwise it could begin a line that looks
    like one of ours, move the cursor, or change the order in which a line is read. These are the
    control characters C0, DEL and C1, line separators, the embeddings, overrides and isolates of
    bidirectional text, and surrogates, which cannot be printed. A JSON text means the same
    afterwards.
    """
    return _ACTED_ON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_USER = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*:)?(//)?.*@", re.DOTALL)
_QUERY = re.compile(r"[?#].*", re.DOTALL)
_LONG_PART = re.compile(r"(?<=/)(?<!://)[^/]{20,}")


def hide_secrets(url: str) -> str:
    """Return a URL, or its path and query, for users and logs, with possible credentials removed.

    The query and the fragment become ``?...`` and ``#...``: API keys and the session token of
    HTTP+SSE travel there. So does, as ``...``, a part of the path that looks like a token: 20
    characters or more, with a digit or with letters of both cases.
    """
    without_query = _QUERY.sub(lambda found: f"{found[0][0]}...", url)
    return _LONG_PART.sub(lambda found: _hide_token(found[0]), without_query)


def _hide_token(part: str) -> str:
    is_word = part in (part.lower(), part.upper()) and not any(map(str.isdigit, part))
    return part if is_word else "..."


def hide_credentials(text: str) -> str:
    """Do the same for a text that is not a valid URL; also remove its user and password."""
    return hide_secrets(_USER.sub(r"\1\2...@", text))
