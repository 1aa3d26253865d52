"""A readable record of what a machine sends and receives: HTTP, events and ids.

A :class:`Tracer` writes a line for each part that a machine sends (``>``) or receives (``<``). It
shows event streams event by event, and the beginning of other bodies.

Credentials are omitted: headers are not shown, URLs without their query and without parts that look
like a token, of commands no values of options (:func:`sansmcp.types.hide_arguments`), and of event
ids only the first characters. Control characters are escaped, so that no peer can forge a line.
Arguments and results of calls are shown, so a trace is as confidential as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import attrs

from .codecs import headers, json
from .codecs.sse import SseDecoder, SseEvent
from .effects import (
    Abort,
    AbortExchange,
    ClientEffect,
    CloseStdin,
    ExchangeEffect,
    KillProcess,
    LoadCredentials,
    LockCredentials,
    MakeKey,
    OpenExchange,
    SaveCredentials,
    SendBody,
    SendEnd,
    SendHead,
    SignJwt,
    StartProcess,
    TerminateProcess,
    UnlockCredentials,
    WriteStdin,
)
from .errors import RemoteProtocolError
from .events import ClientEvent, Reconnecting, ServerEvent
from .http import (
    BodyData,
    BodyEnd,
    ConnectionLost,
    RequestHead,
    RequestPart,
    ResponseHead,
    ResponsePart,
)
from .observer import Observer
from .process import (
    ProcessExited,
    ProcessPart,
    ProcessStartFailed,
    StderrClosed,
    StderrData,
    StdoutClosed,
    StdoutData,
)
from .reclaim import hide_key
from .types import assert_never, escape_controls, hide_arguments, hide_secrets

_WIDTH = 100
_MOST_PARSED, _MOST_DEPTH = 64 * 1024, 64
"""Bytes and levels of a message of which ``_meta`` is left out."""
_MOST_BODIES = 256
"""Request bodies that are read at the same time; of more than that the oldest ones are left out."""
_NUMBER = re.compile(r"-[0-9]{1,10}$")


@attrs.define(eq=False, repr=False)
class Tracer(Observer):
    """Writes lines about one machine.

    Attributes:
        who: the name of the machine, at the start of each line.
        write: is called with each line.
        is_full: True to show bodies and events whole, with ``_meta``.
    """

    who: str
    write: Callable[[str], None]
    is_full: bool = False
    _decoders: dict[int, SseDecoder] = attrs.field(factory=dict[int, SseDecoder], init=False)
    _bodies: dict[int, bytearray] = attrs.field(factory=dict[int, bytearray], init=False)
    """The bodies of requests, as far as they have come. A piece of one may begin within a key."""
    _is_server: bool = attrs.field(default=False, init=False)
    """True if the machine has received a request."""

    def part_received(self, exchange: int, part: RequestPart | ResponsePart) -> None:
        """Write a line for a part that was received; one for the whole body of a request."""
        if isinstance(part, BodyData) and self._is_server:
            if exchange in self._bodies:
                self._bodies[exchange] += part.data
            return
        self._end_body(exchange)
        self._show(exchange, "<", part)
        if isinstance(part, RequestHead):
            self._is_server = True
            self._bodies[exchange] = bytearray()
            if len(self._bodies) > _MOST_BODIES:
                del self._bodies[next(iter(self._bodies))]

    def part_sent(self, exchange: int, effect: ExchangeEffect) -> None:
        """Write a line for an effect of an exchange of a server."""
        self._end_body(exchange)
        match effect:
            case SendHead(head):
                self._show(exchange, ">", head)
            case SendBody(data):
                self._show(exchange, ">", BodyData(data))
            case SendEnd():
                self._show(exchange, ">", BodyEnd())
            case Abort():
                self._line(exchange, ">", "connection aborted")
            case _ as impossible:
                assert_never(impossible)

    def effect_pulled(self, effect: ClientEffect) -> None:
        """Write lines for an effect of a client."""
        match effect:
            case OpenExchange():
                self._show(effect.exchange, ">", effect.head)
                if effect.address_policy is not None:
                    self._line(effect.exchange, ">", "a request of the authorization, not shown")
                elif effect.body:
                    self._line(effect.exchange, ">", self._text(effect.body))
            case AbortExchange():
                self._line(effect.exchange, ">", "aborted")
            case StartProcess(command):
                self._write(f"> starts {hide_arguments(command)}")
            case WriteStdin(data):
                self._write(f"> {self._text(data.rstrip())}")
            case CloseStdin():
                self._write("> end of input")
            case (
                TerminateProcess()
                | KillProcess()
                | LoadCredentials()
                | SaveCredentials()
                | LockCredentials()
                | UnlockCredentials()
                | MakeKey()
                | SignJwt()
            ):
                self._write(f"> {type(effect).__name__}")
            case _ as impossible:
                assert_never(impossible)

    def event_pulled(self, event: ClientEvent | ServerEvent) -> None:
        """Write a line for a retry of a client."""
        if isinstance(event, Reconnecting):
            what = "the session" if event.call is None else f"call {event.call}"
            self._write(f"retries {what} in {event.delay:.2f} s: {event.reason}")

    def process_part_received(self, part: ProcessPart) -> None:
        """Write lines for a part from the process of a client."""
        match part:
            case StdoutData(data) | StderrData(data):
                kind = "" if isinstance(part, StdoutData) else "stderr: "
                for line in data.splitlines():
                    self._write(f"< {kind}{self._text(line)}")
            case StdoutClosed() | StderrClosed():
                stream = "output" if isinstance(part, StdoutClosed) else "stderr"
                self._write(f"< end of {stream}")
            case ProcessExited(status):
                self._write(f"< exit status {status}")
            case ProcessStartFailed(reason):
                self._write(f"< not started: {reason}")
            case _ as impossible:
                assert_never(impossible)

    def lines_received(self, lines: bytes) -> None:
        """Write lines that a server on stdio receives."""
        self._pipe("<", lines)

    def lines_sent(self, lines: bytes) -> None:
        """Write lines that a server on stdio sends."""
        self._pipe(">", lines)

    def _pipe(self, arrow: str, lines: bytes) -> None:
        for line in lines.splitlines():
            self._write(f"{arrow} {self._text(line)}")

    def _show(self, exchange: int, arrow: str, part: RequestPart | ResponsePart) -> None:
        match part:
            case RequestHead():
                cursor = headers.single(part.values(b"last-event-id"))
                resumes = f" after event {_short(cursor)}" if cursor else ""
                target = hide_secrets(part.target.decode("latin-1"))
                what = f"{part.method.decode('latin-1')} {target}{resumes}"
                self._line(exchange, arrow, what)
            case ResponseHead():
                kind = headers.response_media_type(part.headers)
                self._line(exchange, arrow, f"{part.status} {(kind or b'').decode('latin-1')}")
                if kind == headers.EVENT_STREAM:
                    self._decoders[exchange] = SseDecoder(1 << 30)
            case BodyData(data):
                self._body(exchange, arrow, data)
            case BodyEnd():
                if self._decoders.pop(exchange, None) is not None:
                    self._line(exchange, arrow, "end of stream")
            case ConnectionLost(reason):
                self._decoders.pop(exchange, None)
                self._line(exchange, arrow, f"connection lost: {reason}")
            case _ as impossible:
                assert_never(impossible)

    def _body(self, exchange: int, arrow: str, data: bytes) -> None:
        decoder = self._decoders.get(exchange)
        if decoder is None:
            self._line(exchange, arrow, self._text(data))
            return
        for event in decoder.feed(data):
            self._line(exchange, arrow, self._describe(event))

    def _end_body(self, exchange: int) -> None:
        body = self._bodies.pop(exchange, None)
        if body:
            self._line(exchange, "<", self._text(bytes(body)))

    def _line(self, exchange: int, arrow: str, text: str) -> None:
        self._write(f"#{exchange} {arrow} {text}")

    def _write(self, text: str) -> None:
        self.write(f"{self.who} {escape_controls(text)}")

    def _describe(self, event: SseEvent) -> str:
        fields = [f"event {event.event}" if event.data else "no data"]
        if event.id is not None:
            fields.append(f"id {_short(event.id)}")
        if event.retry is not None:
            fields.append(f"retry {event.retry} ms")
        if event.data:
            # HTTP+SSE: the URI for POSTs contains the token, the session's only credential.
            is_endpoint = event.event == "endpoint"
            data = hide_secrets(event.data) if is_endpoint else event.data
            fields.append(self._text(data.encode()))
        return ", ".join(fields)

    def _text(self, data: bytes) -> str:
        """Return the start of a text, of a long message without ``_meta``; all of it if full."""
        if self.is_full:
            return hide_key(data.decode("utf-8", "replace"))
        is_long = _WIDTH < len(data) <= _MOST_PARSED
        shown = _without_meta(data) if is_long and b'"_meta"' in data else data
        text = hide_key(shown[: 4 * _WIDTH].decode("utf-8", "replace"))
        return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}... ({len(data)} bytes)"


def _short(id: str) -> str:
    """Return the start of an event id, and its sequence number if it is an id of ours."""
    number = _NUMBER.search(id)
    return f"{id[:4]}...{number[0] if number else ''}"


def _without_meta(data: bytes) -> bytes:
    """Return a message with "..." as its ``_meta``; what is none as it is."""
    try:
        message = json.as_object(json.decode(data, _MOST_DEPTH)) or {}
    except RemoteProtocolError:
        return data
    for name in ("params", "result"):
        members = json.as_object(message.get(name)) or {}
        if "_meta" in members:
            members["_meta"] = "..."
            return json.encode(message)
    return data
