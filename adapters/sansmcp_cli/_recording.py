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
the token in the first event of HTTP+SSE. Exchanges with authorization servers are never recorded.
Arguments and results are recorded, so a recording is as confidential as they are.
"""

from __future__ import annotations

import base64
import json
import os
import re
import stat
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

import attrs

import sansmcp
from sansmcp.codecs.headers import Headers
from sansmcp.codecs.json import as_object
from sansmcp.effects import AbortExchange, ClientEffect, CloseStdin, OpenExchange, WriteStdin
from sansmcp.http import BodyData, BodyEnd, ConnectionLost, RequestPart, ResponseHead, ResponsePart
from sansmcp.observer import Observer
from sansmcp.process import ProcessExited, ProcessPart, StderrData, StdoutClosed, StdoutData
from sansmcp.types import hide_secrets

from ._compare import events_in
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

_ENDPOINT = re.compile(rb"(event: ?endpoint(?:\r\n|\r|\n)data:)([^\r\n]*)")
_HELD = 1 << 16
"""Bytes of the first event of a stream that wait until it is complete, since it may be a token."""


@contextmanager
def open_recording(path: str) -> Generator[TextIO, None, None]:
    """Open a new recording, which only this user can read. Raises UsageError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
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
        self._held: dict[int, bytes] = {}
        """The beginning of responses to GET, whose first event is not complete."""
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
                if self._redacts and head.method == b"GET":
                    self._held[exchange] = b""
                if body:
                    self._record(CLIENT, exchange, body=_encoded(body))
                self._record(CLIENT, exchange, end=True)
            case AbortExchange(exchange=exchange) if exchange not in self._hidden:
                self._release(exchange)
                self._record(CLIENT, exchange, abort=True)
            case WriteStdin(data):
                self._record(CLIENT, None, body=_encoded(data))
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
        """Record a piece of a response; the first event of a stream in one piece."""
        held = self._held.get(exchange)
        if held is None:
            self._record(SERVER, exchange, body=_encoded(data))
            return
        self._held[exchange] = held + data
        is_complete = any(event.data is not None for event in events_in(held + data))
        if is_complete or len(held + data) > _HELD:
            self._release(exchange)

    def _release(self, exchange: int) -> None:
        held = self._held.pop(exchange, b"")
        held = _ENDPOINT.sub(
            lambda found: found[1] + _hidden(found[2].decode("latin-1")).encode("latin-1"), held
        )
        if held:
            self._record(SERVER, exchange, body=_encoded(held))

    def _headers(self, headers: Headers) -> list[list[str]]:
        shown: list[list[str]] = []
        for raw_name, raw_value in headers:
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
        print(json.dumps(line, ensure_ascii=False), file=self._file, flush=True)


def _hidden(url: str) -> str:
    """Return a URL or target without what may be a credential."""
    return hide_secrets(url).replace("...", REDACTED)


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
    body: bytes = b""
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
                    headers=[(name, value) for name, value in step.members["headers"]],
                    began=place,
                )
            elif step.exchange in found:
                _add(found[step.exchange], step, place)
        return list(found.values())


def _add(exchange: RecordedExchange, step: Step, place: int) -> None:
    members = step.members
    if "status" in members:
        exchange.status, exchange.answered = members["status"], place
        exchange.response_headers = [(name, value) for name, value in members["headers"]]
    elif "body" in members and step.is_client:
        exchange.body += step.data()
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
    lines = text.splitlines()
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
        side, t = members.pop("from", None), members.pop("t", None)
        exchange = members.pop("exchange", None)
        known = {"method", "status", "body", "end", "abort", "lost", "stderr", "exit"}
        is_sound = side in (CLIENT, SERVER) and isinstance(t, int | float) and known & {*members}
        if not is_sound:
            raise UsageError(f"Line {number} of {path!r} is not one of a recording")
        yield Step(t=float(t), is_client=side == CLIENT, exchange=exchange, members=members)


def _parsed(line: str) -> dict[str, Any]:
    try:
        return dict(as_object(json.loads(line)) or {})
    except ValueError:
        return {}
