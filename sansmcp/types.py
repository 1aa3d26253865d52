"""Small types of all layers: idle results, eras, secrets, and text that is safe to show."""

from __future__ import annotations

import enum
import hmac
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NoReturn, Protocol

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


class Shown:
    """A class of attrs whose ``__repr__`` is not generated.

    Generating it, ``__eq__`` and ``__hash__`` takes more than half of the time in which a class is
    created, and an import of a client or server creates two hundred.
    """

    __slots__ = ()
    __attrs_attrs__: ClassVar[Any]

    def __repr__(self) -> str:
        shown: list[str] = []
        for field in self.__attrs_attrs__:
            if field.repr:
                show = field.repr if callable(field.repr) else repr
                shown.append(f"{field.name}={show(getattr(self, field.name))}")
        return f"{type(self).__qualname__.rpartition('>.')[2]}({', '.join(shown)})"


class Value(Shown):
    """The same for ``__eq__`` and ``__hash__``: values of one class with equal fields are equal."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            getattr(self, field.name) == getattr(other, field.name)
            for field in self.__attrs_attrs__
            if field.eq
        )

    def __hash__(self) -> int:
        values = (getattr(self, field.name) for field in self.__attrs_attrs__ if field.eq)
        return hash((type(self), *values))


class FastEnum(enum.Enum):
    """An enum for keys of tables. It hashes by identity, which is faster than by name.

    Python 3.11 takes twenty times as long to get a member from the class of an enum as to get a
    name of a module (its metaclass has ``__getattr__``). So what is compared for each call, of any
    enum, is bound to a name of the module that compares it.
    """

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


STREAMABLE_HTTP: Final = "streamable-http"
HTTP_SSE: Final = "http+sse"
STDIO: Final = "stdio"
STDIO_V2: Final = "stdio-v2"
"""The names of the transports."""

URL_TRANSPORTS: Final = (STREAMABLE_HTTP, HTTP_SSE)
"""Those of a server at a URL, the newest first."""
PIPE_TRANSPORTS: Final = (STDIO, STDIO_V2)
"""Those of a server process, on its standard input and output."""


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


class SecretBytes(bytes):
    """Bytes whose ``repr`` shows their length only: the form of a token request."""

    def __repr__(self) -> str:
        return f"<secret of {len(self)} bytes>"


def shown_call(method: str, params: Mapping[str, Any] | None) -> str:
    """Return the method of a call, and the name or URI that it is for, in short, for a ``repr``."""
    known = params or {}
    target = known.get("name", known.get("uri"))
    shown = escape_controls(method[:75])
    return shown if target is None else f"{shown} {elide(target)}"


def elide(value: Any, limit: int = 75) -> str:
    """Return ``repr(value)`` cut to about ``limit`` characters, for payloads in events and effects.

    Only the start of a long byte string is read, so the cost does not grow with the payload.
    """
    if isinstance(value, SecretBytes):
        return repr(value)
    if isinstance(value, bytes | bytearray | str) and len(value) > limit:
        return f"{value[:limit]!r}... ({len(value)} in all)"
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def redact(value: str | bytes | None) -> str:
    """Return the text that replaces a secret string in a ``repr``: its length only."""
    return "None" if value is None else f"<secret of {len(value)} characters>"


_ACTED_ON = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u2028\u2029\ufff9-\ufffb\ud800-\udfff"  # separators, annotations, surrogates
    # Default_Ignorable_Code_Point, the same in Unicode 14 to 17
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
_EMOJI_SELECTOR = re.compile(
    "(?<=[\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001faff])\ufe0f|\ufe0f(?=\u20e3)"
)
"""U+FE0F where it gives a symbol, or a keycap, its shape as emoji."""


def escape_controls(text: str) -> str:
    r"""Replace every character that a terminal acts on or hides by ``\uXXXX``.

    Text of a peer passes through here before it goes into a trace line, the message of an
    exception, a log line or the output of a command. Otherwise it could begin a line that looks
    like one of ours, move the cursor, change the order in which a line is read, or look like
    another text. These are the control characters C0, DEL and C1, line separators, surrogates,
    which cannot be printed, and all that Unicode lists as shown by nothing
    (Default_Ignorable_Code_Point): the marks of bidirectional text, fillers, tags, variation
    selectors but the one of an emoji, and joiners, also those of emoji and of some scripts. A JSON
    text means the same afterwards.
    """
    return _ACTED_ON.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    is_of_emoji = _EMOJI_SELECTOR.match(found.string, found.start())
    return found[0] if is_of_emoji else escaped(found[0])


def escaped(char: str) -> str:
    r"""Return ``\uXXXX`` for a character, as JSON writes it."""
    code = ord(char)
    if code > 0xFFFF:  # JSON writes such a character as a pair of surrogates
        return f"\\u{0xD7C0 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"


_SCHEMES = (
    r"https?|http\+unix|wss?|ftp|socks[0-9]?[ah]?|rediss?|unix|sqlite|mysql|postgres(?:ql)?|"
    r"mongodb(?:\+srv)?|amqps?"
)
_USER = re.compile(rf"^((?:{_SCHEMES}):)?(//)?.*@", re.DOTALL | re.IGNORECASE)
"""User and password, after a scheme. What is before a colon can be a token, as in ``TOKEN:@host``
and ``TOKEN://x@host``, unless it is the scheme of a server, a proxy or a store.
"""
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


_WORD = re.compile(r"[\w./@:+~,\\-]+")
_OPTION = re.compile(r"--?|-[A-Za-z]{1,4}|--[A-Za-z][A-Za-z_.-]*[0-9]?")
_FLAGS = frozenset({"-", "--", "-i", "-it", "-m", "-y", "--rm", "--stdio", "--yes"})
"""Options after which no value comes, or the name of what is run (Python, npx, Docker)."""
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_ARGUMENTS = re.compile(r"\s+(?:-|\S+://|[^/\\]*\Z).*", re.DOTALL)
"""What is no part of a program's path, which can contain spaces itself."""


def hide_arguments(command: Sequence[str]) -> str:
    """Return the command of a process, for traces and a ``repr``, with possible secrets as "...".

    Shown are the program, the names of options, and words that are neither the value of an option
    or variable (``--key VALUE``, ``--key=VALUE``, ``KEY=VALUE``), nor look like a header, like JSON
    or like a token: letters and digits mixed, without a dot or slash, or in a part of 20
    characters. Of URLs the user, the password and the query are hidden.
    """
    shown = [hide_program(command[0])] if command else []
    is_value = False
    for word in command[1:]:
        name, equals, _ = word.partition("=")
        if word.startswith("-"):
            shown.append((name if _OPTION.fullmatch(name) else "-...") + ("=..." if equals else ""))
            is_value = not equals and word not in _FLAGS
            continue
        if is_value:
            shown.append("...")
        elif equals and _NAME.fullmatch(name):
            shown.append(f"{name}=...")
        else:
            shown.append(_hide_argument(word))
        is_value = False
    return " ".join(shown)


def hide_program(word: str) -> str:
    """Return the program of a command, without arguments that were written into the same text."""
    found = _ARGUMENTS.search(word)
    return word if found is None else f"{word[: found.start()]} ..."


def _hide_argument(word: str) -> str:
    if "://" in word or (":" in word and "@" in word):
        word = hide_credentials(word)
        return word if " " not in word else "..."
    is_mixed = any(map(str.isdigit, word)) and any(map(str.isalpha, word))
    if not _WORD.fullmatch(word) or (is_mixed and not set("./@\\") & set(word)):
        return "..."
    return "/".join(_hide_token(part) if len(part) >= 20 else part for part in word.split("/"))
