"""A readable record of what a machine sends and receives: HTTP, events and ids.

A :class:`Tracer` writes a line for each part that a machine sends (``>``) or receives (``<``). It
shows event streams event by event, and the beginning of other bodies.

Credentials are omitted: headers are not shown, URLs without their query and without parts that look
like a token, and of event ids only the first characters. Control characters are escaped, so that no
peer can forge a line. Arguments and results of calls are shown, so a trace is as confidential as
they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import attrs

from .codecs import headers
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
from .types import assert_never, escape_controls, hide_secrets

_WIDTH = 100
_NUMBER = re.compile(r"-[0-9]{1,10}$")


@attrs.define(eq=False, repr=False)
class Tracer(Observer):
    """Writes lines about one machine.

    Attributes:
        who: the name of the machine, at the start of each line.
        write: is called with each line.
    """

    who: str
    write: Callable[[str], None]
    _decoders: dict[int, SseDecoder] = attrs.field(factory=dict[int, SseDecoder], init=False)

    def part_received(self, exchange: int, part: RequestPart | ResponsePart) -> None:
        """Write a line for a part that was received."""
        self._show(exchange, "<", part)

    def part_sent(self, exchange: int, effect: ExchangeEffect) -> None:
        """Write a line for an effect of an exchange of a server."""
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
                    self._line(effect.exchange, ">", _text(effect.body))
            case AbortExchange():
                self._line(effect.exchange, ">", "aborted")
            case StartProcess(command):
                self._write(f"> starts {' '.join(command)}")
            case WriteStdin(data):
                self._write(f"> {_text(data.rstrip())}")
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

    def process_part_received(self, part: ProcessPart) -> None:
        """Write lines for a part from the process of a client."""
        match part:
            case StdoutData(data) | StderrData(data):
                kind = "" if isinstance(part, StdoutData) else "stderr: "
                for line in data.splitlines():
                    self._write(f"< {kind}{_text(line)}")
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
            self._write(f"{arrow} {_text(line)}")

    def _show(self, exchange: int, arrow: str, part: RequestPart | ResponsePart) -> None:
        match part:
            case RequestHead():
                cursor = headers.single(part.values(b"last-event-id"))
                resumes = f" after event {_short(cursor)}" if cursor else ""
                target = hide_secrets(part.target.decode("latin-1"))
                what = f"{part.method.decode('latin-1')} {target}{resumes}"
                self._line(exchange, arrow, what)
            case ResponseHead():
                kind = headers.media_type(headers.get_all(part.headers, b"content-type"))
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
            self._line(exchange, arrow, _text(data))
            return
        for event in decoder.feed(data):
            self._line(exchange, arrow, _describe(event))

    def _line(self, exchange: int, arrow: str, text: str) -> None:
        self._write(f"#{exchange} {arrow} {text}")

    def _write(self, text: str) -> None:
        self.write(f"{self.who} {escape_controls(text)}")


def _describe(event: SseEvent) -> str:
    fields = [f"event {event.event}" if event.data else "no data"]
    if event.id is not None:
        fields.append(f"id {_short(event.id)}")
    if event.retry is not None:
        fields.append(f"retry {event.retry} ms")
    if event.data:
        # HTTP+SSE: the URI for POSTs contains the token, the session's only credential.
        is_endpoint = event.event == "endpoint"
        fields.append(_text((hide_secrets(event.data) if is_endpoint else event.data).encode()))
    return ", ".join(fields)


def _short(id: str) -> str:
    """Return the start of an event id, and its sequence number if it is an id of ours."""
    number = _NUMBER.search(id)
    return f"{id[:4]}...{number[0] if number else ''}"


def _text(data: bytes) -> str:
    text = data[: 4 * _WIDTH].decode("utf-8", "replace")
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}... ({len(data)} bytes)"
