"""Recordings of conversations: JSON lines with the bytes and times of both sides.

The first line describes the recording. Each other line is something that one side sent:

* ``t``: seconds since the beginning.
* ``from``: ``client`` or ``server``.
* ``exchange``: the number of the HTTP exchange; absent on stdio.
* one of: ``method``, ``target`` and ``headers`` (the head of a request); ``status`` and ``headers``
  (that of a response); ``body`` (bytes of a body, or of stdin or stdout); ``end`` (the body is
  complete, or the pipe closed); ``abort`` (the client needs no more of the response); ``lost`` (why
  the connection ended early); ``stderr`` (bytes of a server process); ``exit`` (its status).

Bytes are text if they are UTF-8, and else ``{"base64": "..."}``.

Credentials are left out unless ``redacts`` is False: values of headers that are not known to be
harmless become ``REDACTED``, and so do queries of URLs, parts of paths that look like tokens, and
the token in the first event of HTTP+SSE. Exchanges with authorization servers are never recorded,
nor are the keys of calls (docs/reclaim.md), for which there is "...".
Arguments and results are recorded, so a recording is as confidential as they are.
"""

from __future__ import annotations

import base64
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

import attrs

import sansmcp
from sansmcp.codecs.headers import EVENT_STREAM, Headers, response_media_type
from sansmcp.codecs.json import as_object, is_array
from sansmcp.effects import AbortExchange, ClientEffect, CloseStdin, OpenExchange, WriteStdin
from sansmcp.http import (
    COOKIE_HEADERS,
    BodyData,
    BodyEnd,
    ConnectionLost,
    RequestPart,
    ResponseHead,
    ResponsePart,
)
from sansmcp.observer import Observer
from sansmcp.process import ProcessExited, ProcessPart, StderrData, StdoutClosed, StdoutData
from sansmcp.reclaim import hide_key
from sansmcp.types import escape_controls, hide_secrets
from sansmcp_local import load_json

from ._compare import LONGEST
from ._output import UsageError

FORMAT = 1
REDACTED = "REDACTED"
CLIENT, SERVER = "client", "server"

_HARMLESS = frozenset(
    (
        "accept",
        "accept-encoding",
        "allow",
        "cache-control",
        "connection",
        "content-length",
        "content-type",
        "date",
        "host",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "retry-after",
        "server",
        "transfer-encoding",
        "user-agent",
        "vary",
        "x-accel-buffering",
    )
)
"""The headers whose values are recorded. Any other might carry a credential."""

_HELD = 1 << 16
"""Bytes that wait for the end of an event before comments that they begin with are let go."""
_BLANK_LINES = (b"\n\n", b"\r\r", b"\n\r\n", b"\n\r")
_COMMENTS = re.compile(rb"(?::[^\r\n]*[\r\n]+)+")

_METHOD = re.compile(r"[A-Z]{1,20}")
_TARGET = re.compile(r"[!-~]{1,65536}")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_VALUE = re.compile(r"[\t -~\x80-\xff]*")


@contextmanager
def open_recording(path: str) -> Generator[TextIO, None, None]:
    """Open a new recording, which only this user can read. Raises UsageError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
        if sys.platform != "win32" and stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, 0o600)  # the file may have existed
    except OSError as error:
        raise UsageError(f"Cannot record to {path!r}: {error}") from error
    with open(descriptor, "w", encoding="utf-8") as file:
        yield file


class Recorder(Observer):
    """Writes what a client sends and receives to a recording."""

    def __init__(self, file: TextIO, target: str, *, redacts: bool) -> None:
        """Write the first line; ``target`` is the URL of the server or the name of its command."""
        self._file, self._redacts = file, redacts
        self._start = time.monotonic()
        self._hidden: set[int] = set()
        """Exchanges of the authorization."""
        self._streams: dict[int, _EventStream] = {}
        """The event streams that are open, if credentials are left out."""
        began = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._write_line(
            {
                "recording": FORMAT,
                "target": _hidden(target) if redacts else target,
                "began": began,
                "redacted": redacts,
                "by": f"sansmcp {sansmcp.__version__}",
            }
        )

    def part_received(self, exchange: int, part: RequestPart | ResponsePart) -> None:
        if exchange in self._hidden:
            return
        match part:
            case ResponseHead():
                if self._redacts and response_media_type(part.headers) == EVENT_STREAM:
                    self._streams[exchange] = _EventStream()
                headers = self._headers(part.headers)
                self._record(SERVER, exchange, status=part.status, headers=headers)
            case BodyData(data):
                self._record_piece(exchange, data)
            case BodyEnd():
                self._release(exchange)
                self._record(SERVER, exchange, end=True)
            case ConnectionLost(reason):
                self._release(exchange)
                self._record(SERVER, exchange, lost=reason)
            case _:  # of a request, which a client does not receive
                pass

    def effect_pulled(self, effect: ClientEffect) -> None:
        match effect:
            case OpenExchange(exchange=exchange) if effect.address_policy is not None:
                self._hidden.add(exchange)
            case OpenExchange(exchange=exchange, head=head, body=body):
                target = head.target.decode("latin-1")
                self._record(
                    CLIENT,
                    exchange,
                    method=head.method.decode("latin-1"),
                    target=_hidden(target) if self._redacts else target,
                    headers=self._headers(head.headers),
                )
                if body:
                    self._record(CLIENT, exchange, body=_encoded(_without_keys(body)))
                self._record(CLIENT, exchange, end=True)
            case AbortExchange(exchange=exchange) if exchange not in self._hidden:
                self._release(exchange)
                self._record(CLIENT, exchange, abort=True)
            case WriteStdin(data):
                self._record(CLIENT, None, body=_encoded(_without_keys(data)))
            case CloseStdin():
                self._record(CLIENT, None, end=True)
            case _:
                pass

    def process_part_received(self, part: ProcessPart) -> None:
        match part:
            case StdoutData(data):
                self._record(SERVER, None, body=_encoded(data))
            case StderrData(data):
                self._record(SERVER, None, stderr=_encoded(data))
            case StdoutClosed():
                self._record(SERVER, None, end=True)
            case ProcessExited(status):
                self._record(SERVER, None, exit=status)
            case _:
                pass

    def _record_piece(self, exchange: int, data: bytes) -> None:
        """Record a piece of a response; of an event stream the events that are complete."""
        stream = self._streams.get(exchange)
        self._record_body(exchange, data if stream is None else stream.receive(data))

    def _release(self, exchange: int) -> None:
        stream = self._streams.pop(exchange, None)
        if stream is not None:
            self._record_body(exchange, stream.end())

    def _record_body(self, exchange: int, data: bytes) -> None:
        if data:
            self._record(SERVER, exchange, body=_encoded(data))

    def _headers(self, headers: Headers) -> list[list[str]]:
        shown: list[list[str]] = []
        for raw_name, raw_value in headers:
            if raw_name in COOKIE_HEADERS:
                continue
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            is_shown = not self._redacts or name in _HARMLESS
            shown.append([name, value if is_shown else REDACTED])
        return shown

    def _record(self, side: str, exchange: int | None, **members: Any) -> None:
        line: dict[str, Any] = {"t": round(time.monotonic() - self._start, 6), "from": side}
        if exchange is not None:
            line["exchange"] = exchange
        self._write_line({**line, **members})

    def _write_line(self, line: dict[str, Any]) -> None:
        text = escape_controls(json.dumps(line, ensure_ascii=False))  # the same JSON
        print(text, file=self._file, flush=True)


@attrs.define(eq=False)
class _EventStream:
    """Removes the token of HTTP+SSE from an event stream: the URL in an event ``endpoint``.

    The event may be spelled in any way, and come after others, so the stream is parsed. Bytes are
    held back until their event is complete. A stream with an event that no client reads, since it
    is longer than LONGEST, is not recorded any further.
    """

    _decoder: sansmcp.SseDecoder | None = attrs.field(
        factory=lambda: sansmcp.SseDecoder(LONGEST), init=False
    )
    _held: bytearray = attrs.field(factory=bytearray, init=False)
    _searched: int = attrs.field(default=0, init=False)
    """The bytes of them in which no event ends."""

    def receive(self, data: bytes) -> bytes:
        """Return what can be recorded now."""
        self._hide(data)
        start = max(self._searched - 2, 0)
        ends = [(self._held.rfind(end, start), len(end)) for end in _BLANK_LINES]
        place = max((found + length for found, length in ends if found >= 0), default=0)
        if not place and len(self._held) > _HELD:
            comments = _COMMENTS.match(self._held)
            place = 0 if comments is None else comments.end()
        self._searched = len(self._held) - place
        return self._release(place)

    def end(self) -> bytes:
        """Return the rest, at the end of the stream; its last event may be incomplete."""
        self._hide(b"\n\n", is_held=False)
        return self._release(len(self._held))

    def _release(self, place: int) -> bytes:
        released = bytes(self._held[:place])
        del self._held[:place]
        return released

    def _hide(self, data: bytes, *, is_held: bool = True) -> None:
        """Hold bytes, and remove the token from them once their event is complete."""
        if self._decoder is None:
            return
        if is_held:
            self._held += data
        try:
            events = [*self._decoder.feed(data)]
        except sansmcp.RemoteProtocolError:
            self._decoder, self._held = None, bytearray(f": {REDACTED}\n\n".encode())
            return
        for event in events:
            if event.event == "endpoint" and event.data:
                self._hide_endpoint(event.data)

    def _hide_endpoint(self, url: str) -> None:
        lines = url.split("\n")
        for line in lines:
            hidden = _hidden(line) if len(lines) == 1 else REDACTED
            if line.encode() not in self._held:  # it was no UTF-8
                self._held[:] = sansmcp.encode_event(hidden.encode(), event="endpoint")
            self._held = self._held.replace(line.encode(), hidden.encode())


def _hidden(url: str) -> str:
    """Return a URL or target without what may be a credential."""
    return hide_secrets(url).replace("...", REDACTED)


def _without_keys(data: bytes) -> bytes:
    """Return whole messages of a client without the keys of its calls."""
    return hide_key(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _encoded(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


@attrs.frozen(kw_only=True)
class Step:
    """A line of a recording."""

    t: float
    is_client: bool
    exchange: int | None
    members: dict[str, Any]

    def data(self, name: str = "body") -> bytes:
        """Return bytes of the line; empty if it has none."""
        value = self.members.get(name, "")
        if isinstance(value, str):
            return value.encode(errors="surrogatepass")
        return base64.b64decode(value["base64"])


@attrs.define(kw_only=True)
class RecordedExchange:
    """One HTTP exchange of a recording."""

    number: int
    method: str
    target: str
    headers: list[tuple[str, str]]
    parts: list[bytes] = attrs.field(factory=list[bytes])
    """Those of the body of the request."""
    status: int | None = None
    """None if no response came."""
    response_headers: list[tuple[str, str]] = attrs.field(factory=list[tuple[str, str]])
    pieces: list[tuple[int, float, bytes]] = attrs.field(factory=list[tuple[int, float, bytes]])
    """The body of the response: the line of each piece, its time, and its bytes."""
    ending: str | None = None
    """``end``, ``abort`` or ``lost``; None if the recording ends before."""
    began: int = 0
    """The line on which the request begins, counted in all exchanges."""
    answered: int | None = None
    """The line of the head of the response."""
    ended: int | None = None
    """The line on which it ends."""

    @property
    def body(self) -> bytes:
        """The body of the request."""
        return b"".join(self.parts)

    @property
    def response(self) -> bytes:
        """The body of the response."""
        return b"".join(data for *_, data in self.pieces)

    def header(self, name: str) -> str:
        """Return the value of a header of the response; empty if there is none."""
        return next((value for key, value in self.response_headers if key == name), "")


@attrs.frozen(kw_only=True)
class Recording:
    """A conversation that was recorded."""

    steps: tuple[Step, ...]

    @property
    def is_http(self) -> bool:
        """True if it was a conversation over HTTP, else on stdio."""
        return any(step.exchange is not None for step in self.steps)

    def exchanges(self) -> list[RecordedExchange]:
        """Return the HTTP exchanges in the order in which they began."""
        found: dict[int, RecordedExchange] = {}
        for place, step in enumerate(self.steps):
            if step.exchange is None:
                continue
            if step.is_client and "method" in step.members:
                found[step.exchange] = RecordedExchange(
                    number=step.exchange,
                    method=step.members["method"],
                    target=step.members["target"],
                    headers=_pairs(step.members["headers"]),
                    began=place,
                )
            elif step.exchange in found:
                _add(found[step.exchange], step, place)
        return list(found.values())


def _pairs(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name.lower(), value) for name, value in headers]


def _add(exchange: RecordedExchange, step: Step, place: int) -> None:
    members = step.members
    if "status" in members:
        exchange.status, exchange.answered = members["status"], place
        exchange.response_headers = _pairs(members["headers"])
    elif "body" in members and step.is_client:
        exchange.parts.append(step.data())
    elif "body" in members:
        exchange.pieces.append((place, step.t, step.data()))
    elif not (step.is_client and "end" in members):
        exchange.ending = next(name for name in ("end", "abort", "lost") if name in members)
        exchange.ended = place


def read_recording(path: str) -> Recording:
    """Read a recording. Raises UsageError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"Cannot read {path!r}: {error}") from error
    lines = text.removesuffix("\n").split("\n")  # not at other separators, which a text may have
    head = _parsed(lines[0]) if lines else {}
    if head.get("recording") != FORMAT:
        raise UsageError(
            f"{path!r} is no recording of this release: its first line must have "
            f'"recording": {FORMAT}; make one with: sansmcp call --record FILE ...'
        )
    return Recording(steps=tuple(_steps(lines[1:], path)))


def _steps(lines: Iterable[str], path: str) -> Iterator[Step]:
    for number, line in enumerate(lines, 2):
        members = _parsed(line)
        reason = _fault(members)
        if reason is not None:
            raise UsageError(f"Line {number} of {path!r} is not one of a recording: {reason}")
        side, t = members.pop("from"), members.pop("t")
        exchange = members.pop("exchange", None)
        yield Step(t=float(t), is_client=side == CLIENT, exchange=exchange, members=members)


def _fault(members: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a line; None if it is sound. A recording may come from anywhere."""
    if members.get("from") not in (CLIENT, SERVER):
        return '"from" must be client or server'
    t: Any = members.get("t")
    if not _is_number(t) or not abs(t) < 1e9:
        return '"t" must be a number of seconds'
    exchange = members.get("exchange")
    if exchange is not None and not (_is_number(exchange) and isinstance(exchange, int)):
        return '"exchange" must be a whole number'
    kinds = [name for name in _KINDS if name in members]
    if len(kinds) != 1:
        return f"it must have one of {', '.join(_KINDS)}"
    (kind,) = kinds
    sides, is_sound = _KINDS[kind]
    if members["from"] not in sides:
        return f'"{kind}" comes from {" or ".join(sides)}'
    if kind in ("method", "status", "abort", "lost") and exchange is None:
        return f'"{kind}" needs an exchange'
    if kind in ("stderr", "exit") and exchange is not None:
        return "what a process does has no exchange"
    wrong = None if is_sound(members[kind]) else kind
    if wrong is None and kind == "method" and not _is_text(_TARGET)(members.get("target")):
        wrong = "target"
    if wrong is None and kind in ("method", "status") and not _are_headers(members):
        wrong = "headers"
    return None if wrong is None else f'"{wrong}" is not as it must be'


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(pattern: re.Pattern[str]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _are_headers(members: Mapping[str, Any]) -> bool:
    headers: Any = members.get("headers")
    return is_array(headers) and all(
        is_array(pair) and len(pair) == 2 and _is_text(_NAME)(pair[0]) and _is_text(_VALUE)(pair[1])
        for pair in headers
    )


def _are_bytes(value: Any) -> bool:
    if isinstance(value, str):
        return True
    try:
        base64.b64decode((as_object(value) or {})["base64"], validate=True)
    except (KeyError, TypeError, ValueError):
        return False
    return True


_KINDS: Mapping[str, tuple[tuple[str, ...], Callable[[Any], bool]]] = {
    "method": ((CLIENT,), _is_text(_METHOD)),
    "status": ((SERVER,), lambda value: type(value) is int and value in range(200, 600)),
    "body": ((CLIENT, SERVER), _are_bytes),
    "end": ((CLIENT, SERVER), lambda value: value is True),
    "abort": ((CLIENT,), lambda value: value is True),
    "lost": ((SERVER,), lambda value: isinstance(value, str)),
    "stderr": ((SERVER,), _are_bytes),
    "exit": ((SERVER,), lambda value: value is None or _is_number(value)),
}
"""The members that say what a line is: the sides that write it, and the check of its value."""


def _parsed(line: str) -> dict[str, Any]:
    try:
        return dict(as_object(load_json(line)) or {})
    except ValueError:
        return {}
