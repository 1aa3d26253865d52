"""Server-sent events in both directions, as the WHATWG standard defines them.

An event stream is a sequence of *blocks* of lines, each ended by a blank line. A block can have an
event type, data, an id and a reconnection time. The standard passes a block to the application
("dispatches" it) only if it has a ``data`` line, even an empty one; the id of any block counts. MCP
uses blocks of both kinds: the priming event of SEP-1699 is dispatched and has empty data, the turn
events of SEP-1858 have no data. So the decoder reports *every* block with a known field, and
:attr:`SseEvent.dispatched` is what the standard would do with it.

Property tests check that the blocks and the error do not depend on how the input is cut, that the
cost is linear, and that an unfinished block at the end of the input is never reported. They also
check that :func:`encode_event` refuses its arguments or writes a block that is decoded to the same
values. (CVE-2026-44214 and others forged events by line breaks.)

Source: WHATWG HTML, 9.2 Server-sent events.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import MutableSequence

import attrs

from ..errors import LocalProtocolError, RemoteProtocolError, check_type
from ..types import Idle, elide, redact
from .delimited_buffer import CR_BYTE, LF_BYTE, DelimitedBuffer, as_bytes, message_too_large

KEEP_ALIVE = b":\n\n"
"""A comment, which readers ignore, to keep a quiet connection alive. WHATWG advises one every 15
seconds or so.
"""

FORGET_ID = b"id:\n\n"
"""A block that resets the reader's last event id, so that the stream cannot be resumed from here.
It has no data, so it is not dispatched.
"""

_BOM = b"\xef\xbb\xbf"

_SCAN_THRESHOLD_BYTES = 1024
"""Up to this size an unfinished block waits without being searched again."""

_USUAL_BLOCK = re.compile(
    r"(?:(?:id: ?(\S.*)|event: ?(\S.*))\n)*data: ?(.*)\n\n"
    r"|((?:.+\n)*\n)"
)
"""A block in the form that nearly all servers write, or any other block, in a text without NUL.

``.`` is fast; a set of characters takes ten times as long.
"""

_BLOCK = re.compile(r"(?:.+\n)*\n")

_FIELD = re.compile(r"(data|event|id|retry)(?:: ?(.*))?\n|.*\n")
"""A line of a block: a known field, or a line to ignore."""

_RETRY = re.compile(rb"^retry: ?([0-9]+)\n", re.MULTILINE)


@attrs.define
class SseEvent:
    """One block of an event stream.

    Attributes:
        event: the event type; ``"message"`` if the block has none.
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
        """True if the standard dispatches this block as an event."""
        return self.data is not None


class SseDecoder:
    """Decodes the bytes of an event stream to :class:`SseEvent` objects.

    Feed with :meth:`receive_data`, then call :meth:`next_event` until it returns
    ``Idle.NEED_DATA``; or use :meth:`feed`, which does both. A client that reconnects needs
    :attr:`last_event_id` and :attr:`reconnection_time`.

    The bytes wait until their block is complete. Then one regular expression parses all blocks that
    have arrived together, which is fast. An unusual or long block is parsed field by field.
    """

    last_event_id: str
    """The id to send as ``Last-Event-ID`` on reconnection; empty if there is none."""

    def __init__(self, limit: int, *, last_event_id: str = "") -> None:
        """Begin at the start of a body.

        Args:
            limit: the most bytes of one block. Comments before it do not count.
            last_event_id: the last event id of an earlier connection of the same stream.

        Raises:
            LocalProtocolError: ``limit`` is not an int above zero.
        """
        self._blocks = DelimitedBuffer(limit)
        self.last_event_id = last_event_id
        self._last_id = last_event_id  # of the last parsed block, taken or not
        self._retry: int | None = None
        self._limit = limit
        self._scan_threshold = min(limit, _SCAN_THRESHOLD_BYTES)
        self._waiting = self._blocks.waiting
        self._ready: deque[SseEvent] = deque()  # parsed and not yet taken
        self._quiet = -1  # up to this size, a chunk without line ends cannot complete a block
        self._after_cr = False  # the LF of a CR LF may follow
        self._at_start = True
        self._eof = False
        self._failed = False

    @property
    def reconnection_time(self) -> int | None:
        """The latest reconnection time of the server, in milliseconds; None if it sent none.

        It counts as soon as its line has arrived, before its block is complete.
        """
        found = _RETRY.findall(self._waiting)
        return _milliseconds(found[-1].decode()) if found else self._retry

    def receive_data(self, data: bytes) -> None:
        """Add a chunk of the body: bytes, or another object with a buffer.

        Raises:
            LocalProtocolError: :meth:`receive_eof` was called before, or ``data`` has no buffer.
        """
        if self._eof:
            raise LocalProtocolError("receive_data() after receive_eof()")
        self._quiet = -1
        if not self._failed:
            data = as_bytes(data)
            if self._after_cr or CR_BYTE in data:
                data = self._with_lf_only(data)
            self._waiting += data
            if self._at_start:
                self._skip_bom()

    def receive_eof(self) -> None:
        """Record the end of the body, however it ended. An unfinished block is discarded."""
        self._eof = True
        self._quiet = -1

    def next_event(self) -> SseEvent | Idle:
        """Return the next block, or ``Idle.NEED_DATA`` if none is complete.

        Raises:
            RemoteProtocolError: ``message_too_large`` for a block above the limit. The rest of the
                stream cannot be read; every later call raises the same.
        """
        while not self._ready and self._read(self._ready):
            pass
        if not self._ready:
            return Idle.NEED_DATA
        event = self._ready.popleft()
        self.last_event_id = event.last_event_id
        return event

    def feed(self, data: bytes) -> list[SseEvent]:
        """Add a chunk of the body, and return all blocks that are now complete.

        Raises as :meth:`receive_data` and :meth:`next_event` do. If there are blocks before an
        error, they are returned, and the next call raises the error.
        """
        waiting, data = self._waiting, as_bytes(data)
        if len(waiting) + len(data) <= self._quiet and CR_BYTE not in data:
            waiting += data
            if LF_BYTE not in data:
                return []
        else:
            self.receive_data(data)
        events = list(self._ready)
        self._ready.clear()
        try:
            while self._read(events):
                pass
        except RemoteProtocolError:
            if not events:
                raise
        else:
            if not (self._after_cr or self._at_start or self._eof):
                self._quiet = self._limit
        self.last_event_id = self._last_id
        return events

    def _read(self, events: MutableSequence[SseEvent]) -> bool:
        """Parse some blocks. Return False if no other complete block is left."""
        run = self._blocks.next_complete(b"\n\n")
        if run:
            self._read_blocks(run.decode("utf-8", "replace"), events)
            return len(run) + len(self._waiting) > self._blocks.window
        if self._failed:
            raise message_too_large(self._limit)
        if self._at_start or len(self._waiting) <= self._scan_threshold:
            return False
        try:
            block = self._next_block()
        except RemoteProtocolError:
            self._failed = True
            self._waiting.clear()  # never parsed
            raise
        self._read_block(block, events)
        return bool(block)

    def _next_block(self) -> str:
        """Return a block of any size up to the limit, without the comments before it."""
        while self._waiting.startswith((b":", b"\n")):
            if not self._blocks.next_delimited(b"\n"):
                return ""
        return self._blocks.next_delimited(b"\n\n").decode("utf-8", "replace")

    def _read_blocks(self, text: str, events: MutableSequence[SseEvent]) -> None:
        """Parse some blocks together."""
        if "\0" in text:  # an id with NUL is ignored
            for block in _BLOCK.findall(text):
                self._read_block(block, events)
            return
        for id, event, data, other in _USUAL_BLOCK.findall(text):
            if other:
                self._read_block(other, events)
                continue
            self._last_id = id or self._last_id
            events.append(SseEvent(event or "message", data, id or None, None, self._last_id))

    def _read_block(self, text: str, events: MutableSequence[SseEvent]) -> None:
        """Parse one block field by field."""
        event = id = retry = None
        lines: list[str] = []
        for field in _FIELD.finditer(text):
            value = field[2] or ""
            match field[1]:
                case "data":
                    lines.append(value)
                case "event":
                    event = value
                case "id" if "\0" not in value:
                    self._last_id = id = value
                case "retry" if value.isascii() and value.isdigit():
                    self._retry = retry = _milliseconds(value)
                case _:
                    pass
        data = "\n".join(lines) if lines else None
        if (data, event, id, retry) != (None, None, None, None):
            events.append(SseEvent(event or "message", data, id, retry, self._last_id))

    def _skip_bom(self) -> None:
        """Discard a byte order mark, as soon as enough bytes have arrived to recognise it."""
        waiting = self._waiting
        if len(waiting) >= len(_BOM) or not _BOM.startswith(waiting):
            self._at_start = False
            if waiting.startswith(_BOM):
                self._blocks.take(len(_BOM))

    def _with_lf_only(self, data: bytes) -> bytes:
        """Return the chunk with each line ending replaced by LF.

        A CR ends its line at once, so that an event does not wait for the byte after its blank
        line. If the next chunk begins with LF, that LF is discarded.
        """
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if CR_BYTE in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data


_LONGEST_RETRY = 10**16 - 1
"""Milliseconds. The decoder reads only the first 16 digits of a longer number."""


def _milliseconds(digits: str) -> int:
    """Parse at most 16 digits, 300,000 years, because int() is slow for very many."""
    return int(digits.lstrip("0")[:16] or "0")


def encode_event(
    data: bytes | None, *, event: str | None = None, id: str | None = None, retry: int | None = None
) -> bytes:
    """Return one block of an event stream, with the blank line that ends it.

    Args:
        data: UTF-8 text; its line breaks (CR, LF, CR LF) become several data lines. None writes no
            data line, b"" an empty one.
        event: the event type; None writes none, which readers take for ``message``.
        id: the event id; must not be empty, since that would erase the reader's cursor.
        retry: the reconnection time in whole milliseconds, at most 16 digits.

    Raises:
        LocalProtocolError: the event type or id is empty or has control characters (such as CR, LF
            and NUL), so that no argument can forge a line; the data is not UTF-8; ``retry`` is
            negative or too long; or an argument is of another type.
    """
    lines: list[bytes] = []
    if event is not None:
        lines += b"event: ", _one_line(event, "event type"), b"\n"
    if id is not None:
        lines += b"id: ", _one_line(id, "event id"), b"\n"
    if retry is not None:
        check_type(int, retry=retry)
        if not 0 <= retry <= _LONGEST_RETRY:
            raise LocalProtocolError(f"retry must be from 0 to {_LONGEST_RETRY} milliseconds")
        lines.append(b"retry: %d\n" % retry)
    if data is not None:
        lines += b"data: ", _lines(data), b"\n"
    lines.append(b"\n")
    return b"".join(lines)


_CONTROL = re.compile("[\0-\x1f\x7f]")


def _lines(data: bytes) -> bytes:
    """Return the data with a field name before each line but the first."""
    check_type((bytes, bytearray), data=data)
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise LocalProtocolError(f"The data of an event must be UTF-8: {error}") from None
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data.replace(b"\n", b"\ndata: ")


def _one_line(text: str, what: str) -> bytes:
    check_type(str, **{what: text})
    if not text or _CONTROL.search(text):
        raise LocalProtocolError(
            f"An {what} must not be empty or have control characters, got {text[:50]!r}"
        )
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise LocalProtocolError(f"An {what} must be UTF-8, got {text[:50]!r}") from None
