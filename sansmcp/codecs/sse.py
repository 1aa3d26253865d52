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

import re
from collections import deque
from typing import Any

import attrs

from ..errors import LocalProtocolError, RemoteProtocolError
from ..types import Idle, elide, redact
from .buffer import CR_BYTE, CR_LF_CRLF, LF_BYTE, LineBuffer, too_large

KEEP_ALIVE = b":\n\n"
"""A comment: bytes that keep a quiet connection alive and mean nothing. WHATWG: about every 15
seconds.
"""

_BLOCK = re.compile(
    r"(?:id: ?([^\n\0 ][^\n\0]*)\n)?"
    r"(?:event: ?([^\n ][^\n]*)\n)?"
    r"(?:id: ?([^\n\0 ][^\n\0]*)\n)?"
    r"data: ?(.*)\n\n"
    r"|(.*\n)"
)
"""A block as nearly all servers write it, or else one line."""

_PATIENCE = 1024
"""Bytes of an unfinished block that may wait to be read together with the rest of it."""


@attrs.define
class _Fields:
    """The attributes of an event, not yet frozen: made in a third of the time.

    A frozen class has to go round its own ``__setattr__`` for each of them.
    """

    event: str = "message"
    data: str | None = attrs.field(default=None, repr=elide)
    id: str | None = attrs.field(default=None, repr=redact)
    retry: int | None = None
    last_event_id: str = attrs.field(default="", repr=redact)


@attrs.frozen  # pyright: ignore[reportGeneralTypeIssues]  # freezes what is mutable
class SseEvent(_Fields):
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

    @property
    def dispatched(self) -> bool:
        """Whether the standard would hand this block to the application."""
        return self.data is not None


class SseDecoder:
    """Bytes in, :class:`SseEvent` out.

    Feed with :meth:`receive_data`, then call :meth:`next_event` until it returns
    ``Idle.NEED_DATA``; or use :meth:`feed`, which does both. :attr:`last_event_id` and
    :attr:`reconnection_time` are what a reconnecting client needs.

    There are two ways to read. *Blocks*: all whole blocks that have arrived are decoded at once and
    taken apart by one regular expression. *Lines*: one after the other, as the standard tells it,
    with the limit checked for each; for what arrives in pieces, and what is close to the limit. A
    line of a block that is not as usual goes through the same code in both.
    """

    last_event_id: str
    """The id to send as ``Last-Event-ID`` on reconnection; empty when there is none."""

    def __init__(self, limit: int, *, last_event_id: str = "") -> None:
        """Begin at the start of a body.

        Args:
            limit: bytes that one event may have.
            last_event_id: where an earlier connection of the same stream ended.
        """
        self.last_event_id = last_event_id
        self._last_id = last_event_id  # of what is read, taken or not
        self._retry_taken: int | None = None
        self._retry_read: int | None = None
        self._limit = limit
        self._patience = min(limit, _PATIENCE)
        self._lines = LineBuffer(CR_LF_CRLF, limit)
        self._ready: deque[SseEvent] = deque()  # read and not yet taken
        self._is_due = False  # something has come that was not looked at
        self._is_drained = True  # whoever takes blocks knows that there are no more
        self._enough = -1  # what may wait without being looked at, if no line ends in it
        self._at_start = True
        self._eof = False
        self._failed = False
        self._data: list[str]
        self._event: str | None
        self._id: str | None
        self._retry: int | None
        self._begin_block()

    @property
    def reconnection_time(self) -> int | None:
        """Milliseconds to wait before reconnecting, as the server last asked; None if it never did.

        It counts as soon as its line is there, before its block is complete.
        """
        if self._ready or not (self._is_drained or self._failed):
            return self._retry_taken
        while self._is_drained and not self._by_line:
            self._read_lines()  # of the block that waits for its end
        return self._retry_read

    def receive_data(self, data: bytes) -> None:
        """Add a chunk of the body. Raises LocalProtocolError after :meth:`receive_eof`."""
        if self._eof:
            raise LocalProtocolError("receive_data() after receive_eof()")
        if self._failed:
            return
        self._lines.append(data)
        self._is_due = True
        self._is_drained = False
        self._enough = -1

    def receive_eof(self) -> None:
        """The body has ended, in whatever way; an unfinished block is dropped."""
        self._eof = True
        self._enough = -1

    def next_event(self) -> SseEvent | Idle:
        """The next block, or ``Idle.NEED_DATA``.

        Raises RemoteProtocolError (``message_too_large``) for a block beyond the limit; the stream
        cannot be read further, and every later call raises the same.
        """
        while not self._ready:
            if not self._is_due:
                self._is_drained = True
                return Idle.NEED_DATA
            self._read()
        event = self._ready.popleft()
        self.last_event_id = event.last_event_id
        if event.retry is not None:
            self._retry_taken = event.retry
        return event

    def feed(self, data: bytes) -> list[SseEvent]:
        """All blocks that this chunk completes.

        Raises like :meth:`next_event`, but never instead of giving blocks: those before an error
        come first, and the next call raises it.
        """
        waiting = self._lines.waiting
        if (
            len(waiting) + len(data) <= self._enough
            and LF_BYTE not in data
            and CR_BYTE not in data
            and not self._ready
        ):
            waiting += data  # as most of what comes byte by byte: nothing to look at
            return []
        self.receive_data(data)
        try:
            while self._is_due:
                self._read()
        except RemoteProtocolError:
            if not self._ready:
                raise
        else:
            self._is_drained = True
        if not self._ready:
            return []
        events = list(self._ready)
        self._ready.clear()
        self.last_event_id = self._last_id
        self._retry_taken = self._retry_read
        return events

    def _read(self) -> None:
        """Make some blocks ready, or find that there is nothing more to read."""
        if self._by_line:
            self._read_lines()
            return
        lines = self._lines
        blocks = lines.next_run(b"\n\n")
        if blocks:
            self._read_blocks(blocks)
        if (
            len(blocks) + len(lines.waiting) <= lines.window
            and len(lines.waiting) <= self._patience
        ):
            self._rest(self._patience)
        elif not blocks:
            self._read_lines()

    def _read_blocks(self, blocks: bytearray) -> None:
        """Read some whole blocks."""
        text = blocks.decode("utf-8", "replace")
        if self._at_start:
            text = self._without_bom(text)
        block: Any
        is_open = False
        for id_before, event, id_after, data, line in _BLOCK.findall(text):
            id = id_after or id_before
            if line:
                is_open = line != "\n"
                if is_open:
                    self._field(line[:-1])
                else:
                    self._end_block()
            elif is_open:  # there were lines before, so this is not all of the block
                self._event = event or self._event
                self._id = id or self._id
                self._data.append(data)
                self._end_block()
                is_open = False
            else:
                if id:
                    self._last_id = id
                block = _Fields(event or "message", data, id or None, None, self._last_id)
                block.__class__ = SseEvent
                self._ready.append(block)

    def _read_lines(self) -> None:
        """Read line by line until a block ends, or there is no line any more."""
        self._by_line = True
        while (line := self._next_line()) is not None:
            text = self._without_bom(line.decode("utf-8", "replace"))
            if not text:
                self._end_block()
                return
            if self._field(text):
                self._held += len(line)
        self._rest(self._limit - self._held)

    def _rest(self, enough: int) -> None:
        """Nothing is to be read before so many bytes wait, or a line ends."""
        self._is_due = False
        self._enough = -1 if self._lines.after_cr else enough

    def _next_line(self) -> bytes | None:
        if self._failed:
            raise too_large(self._limit)
        try:
            return self._lines.next_line(self._held)
        except RemoteProtocolError:
            self._failed = True
            self._lines.rest()  # nobody will read it
            raise

    def _without_bom(self, text: str) -> str:
        if self._at_start:
            self._at_start = False
            return text.removeprefix("\ufeff")
        return text

    def _begin_block(self) -> None:
        self._data = []
        self._event = self._id = self._retry = None
        self._held = 0  # bytes of this block that are kept
        self._by_line = False

    def _field(self, line: str) -> bool:
        """Read a line of a block; False for a comment, an unknown field or a void value."""
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            # Sixteen digits are 30,000 years; more would only serve to make int() slow.
            self._retry = self._retry_read = int(value.lstrip("0")[:16] or "0")
        else:
            return False
        return True

    def _end_block(self) -> None:
        """Make the block ready that ends here, if it says anything."""
        if self._id is not None:
            self._last_id = self._id
        data = "\n".join(self._data) if self._data else None
        event = SseEvent(self._event or "message", data, self._id, self._retry, self._last_id)
        if (data, self._event, self._id, self._retry) != (None, None, None, None):
            self._ready.append(event)
        self._begin_block()


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
