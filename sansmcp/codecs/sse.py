"""Server-sent events, by the WHATWG standard, in both directions.

An event stream is a sequence of *blocks* of lines, each closed by a blank line. A block can carry
an event type, data, an id and a reconnection time. The standard hands a block to the application
("dispatches" it) only when it has a ``data`` line, even an empty one; the id of any block counts.
MCP lives on both sides of that rule: the priming event of SEP-1699 is dispatched and empty, the
turn events of SEP-1858 have no data at all. So the decoder reports *every* block that says
anything, with :attr:`SseEvent.dispatched` telling what the standard would do.

Invariants, each held by a property test: any way of cutting the input gives the same blocks and the
same error; the cost is linear; an unfinished block at the end of the input is never reported; what
:func:`encode_event` writes is read back as it was, whatever the text, or refused (CVE-2026-44214
and its kin forged events by line breaks).

Source: WHATWG HTML, 9.2 Server-sent events.
"""

from __future__ import annotations

import attrs

from ..errors import LocalProtocolError, RemoteProtocolError
from ..types import Idle, elide, redact
from .buffer import CR_LF_CRLF, LineBuffer, too_large

KEEP_ALIVE = b":\n\n"
"""A comment: bytes that keep a quiet connection alive and mean nothing. WHATWG: about every 15
seconds.
"""

_BOM = b"\xef\xbb\xbf"


@attrs.frozen
class SseEvent:
    """One block of an event stream.

    Attributes:
        event: the event type; ``"message"`` where the block names none.
        data: the data lines joined by LF, or None if the block has no data line (then it is not
            dispatched).
        id: the block's own id, or None if it has no (valid) id line. The empty string resets the
            last event id.
        retry: the block's reconnection time in milliseconds, or None.
        last_event_id: the last event id after this block; ids persist until the next one.
    """

    event: str = "message"
    data: str | None = attrs.field(default=None, repr=elide)
    id: str | None = attrs.field(default=None, repr=redact)
    retry: int | None = None
    last_event_id: str = attrs.field(default="", repr=redact)

    @property
    def dispatched(self) -> bool:
        """Whether the standard would hand this block to the application."""
        return self.data is not None


class SseDecoder:
    """Bytes in, :class:`SseEvent` out.

    Feed with :meth:`receive_data`, then call :meth:`next_event` until it returns
    ``Idle.NEED_DATA``; or use :meth:`feed`, which does both. :attr:`last_event_id` and
    :attr:`reconnection_time` are what a reconnecting client needs.
    """

    last_event_id: str
    """The id to send as ``Last-Event-ID`` on reconnection; empty when there is none."""

    reconnection_time: int | None
    """Milliseconds to wait before reconnecting, as the server last asked; None if it never did."""

    def __init__(self, limit: int, *, last_event_id: str = "") -> None:
        """Begin at the start of a body.

        Args:
            limit: bytes that one event may have.
            last_event_id: where an earlier connection of the same stream ended.
        """
        self.last_event_id = last_event_id
        self.reconnection_time = None
        self._limit = limit
        self._lines = LineBuffer(CR_LF_CRLF, limit)
        self._at_start = True
        self._eof = False
        self._failed = False
        self._begin_block()

    def receive_data(self, data: bytes) -> None:
        """Add a chunk of the body. Raises LocalProtocolError after :meth:`receive_eof`."""
        if self._eof:
            raise LocalProtocolError("receive_data() after receive_eof()")
        if not self._failed:
            self._lines.append(data)

    def receive_eof(self) -> None:
        """The body has ended, in whatever way; an unfinished block is dropped."""
        self._eof = True

    def next_event(self) -> SseEvent | Idle:
        """The next block, or ``Idle.NEED_DATA``.

        Raises RemoteProtocolError (``message_too_large``) for a block beyond the limit; the stream
        cannot be read further, and every later call raises the same.
        """
        while (line := self._next_line()) is not None:
            if self._at_start:
                self._at_start = False
                line = line.removeprefix(_BOM)
            if line:
                self._field(line)
            elif (event := self._end_block()) is not None:
                return event
        return Idle.NEED_DATA

    def feed(self, data: bytes) -> list[SseEvent]:
        """All blocks that this chunk completes.

        Raises like :meth:`next_event`, but never instead of giving blocks: those before an error
        come first, and the next call raises it.
        """
        self.receive_data(data)
        events: list[SseEvent] = []
        try:
            while isinstance(event := self.next_event(), SseEvent):
                events.append(event)
        except RemoteProtocolError:
            if not events:
                raise
        return events

    def _next_line(self) -> bytes | None:
        if self._failed:
            raise too_large(self._limit)
        try:
            return self._lines.next_line(self._held)
        except RemoteProtocolError:
            self._failed = True
            self._lines.rest()  # nobody will read it
            raise

    def _begin_block(self) -> None:
        self._data: list[str] = []
        self._event = ""
        self._id: str | None = None
        self._retry: int | None = None
        self._held = 0  # bytes of this block that are kept
        self._says_anything = False

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value.decode("utf-8", "replace"))
            case b"event":
                self._event = value.decode("utf-8", "replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
            case b"retry" if value.isdigit():
                # Sixteen digits are 30,000 years; more would only serve to make int() slow.
                self._retry = self.reconnection_time = int(value.lstrip(b"0")[:16] or b"0")
            case _:
                return  # a comment, an unknown field, or a value to be ignored
        self._held += len(line)
        self._says_anything = True

    def _end_block(self) -> SseEvent | None:
        if not self._says_anything:
            return None
        if self._id is not None:
            self.last_event_id = self._id
        event = SseEvent(
            self._event or "message",
            "\n".join(self._data) if self._data else None,
            self._id,
            self._retry,
            self.last_event_id,
        )
        self._begin_block()
        return event


def encode_event(
    data: bytes | None, *, event: str | None = None, id: str | None = None, retry: int | None = None
) -> bytes:
    """One block of an event stream, closed by its blank line.

    Args:
        data: UTF-8 text; its line breaks (CR, LF, CR LF) become several data lines. None writes no
            data line, b"" an empty one.
        event: the event type; None writes none, which readers take for ``message``.
        id: the event id; must not be empty, since that would erase the reader's cursor.
        retry: the reconnection time in milliseconds.

    Raises LocalProtocolError for an event type or id with control characters (CR, LF and NUL among
    them), an empty id, or a negative reconnection time: nothing a caller passes can forge a line.
    """
    block = b""
    if event is not None:
        block += b"event: " + _one_line(event, "event type") + b"\n"
    if id is not None:
        block += b"id: " + _one_line(id, "event id") + b"\n"
    if retry is not None:
        if retry < 0:
            raise LocalProtocolError(f"A reconnection time must not be negative: {retry}")
        block += b"retry: %d\n" % retry
    if data is not None:
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        block += b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n"
    return block + b"\n"


def _one_line(text: str, what: str) -> bytes:
    if not text or any(character < " " or character == "\x7f" for character in text):
        raise LocalProtocolError(f"Not usable as an {what}: {text[:50]!r}")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise LocalProtocolError(f"Not usable as an {what}: {text[:50]!r}") from None
