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
from collections.abc import MutableSequence

import attrs

from ..errors import LocalProtocolError, RemoteProtocolError, check_type
from ..types import Idle, elide, redact
from .delimited_buffer import CR_BYTE, LF_BYTE, DelimitedBuffer, as_bytes, message_too_large

KEEP_ALIVE = b":\n\n"
"""A comment: bytes that keep a quiet connection alive and mean nothing. WHATWG: about every 15
seconds.
"""

FORGET_ID = b"id:\n\n"
"""A block that empties the reader's last event id: from here on the stream cannot be resumed. It
has no data, so it is not dispatched.
"""

_BOM = b"\xef\xbb\xbf"

_SCAN_THRESHOLD_BYTES = 1024
"""Bytes of an unfinished block that may wait without a closer look."""

_USUAL_BLOCK = re.compile(
    r"(?:(?:id: ?(\S.*)|event: ?(\S.*))\n)*data: ?(.*)\n\n"
    r"|((?:.+\n)*\n)"
)
"""A block as nearly all servers write it, or else any block; where there is no NUL.

``.`` is quick, and a set of characters takes ten times as long.
"""

_BLOCK = re.compile(r"(?:.+\n)*\n")

_FIELD = re.compile(r"(data|event|id|retry)(?:: ?(.*))?\n|.*\n")
"""A line of a block: a field that is known, or something to ignore."""

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
    ``Idle.NEED_DATA``; or use :meth:`feed`, which does both. :attr:`last_event_id` and
    :attr:`reconnection_time` are what a reconnecting client needs.

    The bytes wait until their block is complete. Then all blocks that have arrived are taken apart
    together by one regular expression, which is what makes it fast; a block that is not as usual,
    or that is long, is read field by field.
    """

    last_event_id: str
    """The id to send as ``Last-Event-ID`` on reconnection; empty when there is none."""

    def __init__(self, limit: int, *, last_event_id: str = "") -> None:
        """Begin at the start of a body.

        Args:
            limit: bytes that one block may have. Comments before it do not count.
            last_event_id: where an earlier connection of the same stream ended.

        Raises LocalProtocolError for a limit that is no number above zero.
        """
        self._blocks = DelimitedBuffer(limit)
        self.last_event_id = last_event_id
        self._last_id = last_event_id  # of what is read, taken or not
        self._retry: int | None = None
        self._limit = limit
        self._patience = min(limit, _SCAN_THRESHOLD_BYTES)
        self._waiting = self._blocks.waiting
        self._ready: deque[SseEvent] = deque()  # read and not yet taken
        self._quiet = -1  # with so many bytes at most, a chunk without line ends completes nothing
        self._after_cr = False  # the LF of a CR LF may still come
        self._at_start = True
        self._eof = False
        self._failed = False

    @property
    def reconnection_time(self) -> int | None:
        """Milliseconds to wait before reconnecting, as the server last asked; None if it never did.

        It counts as soon as its line has come, before its block is complete.
        """
        found = _RETRY.findall(self._waiting)
        return _milliseconds(found[-1].decode()) if found else self._retry

    def receive_data(self, data: bytes) -> None:
        """Add a chunk of the body: bytes, or another object with a buffer.

        Raises LocalProtocolError after :meth:`receive_eof`, and for what is not bytes.
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
        """The body has ended, in whatever way; an unfinished block is dropped."""
        self._eof = True
        self._quiet = -1

    def next_event(self) -> SseEvent | Idle:
        """The next block, or ``Idle.NEED_DATA``.

        Raises RemoteProtocolError (``message_too_large``) for a block beyond the limit; the stream
        cannot be read further, and every later call raises the same.
        """
        while not self._ready and self._read(self._ready):
            pass
        if not self._ready:
            return Idle.NEED_DATA
        event = self._ready.popleft()
        self.last_event_id = event.last_event_id
        return event

    def feed(self, data: bytes) -> list[SseEvent]:
        """All blocks that this chunk completes.

        Raises like :meth:`receive_data` and :meth:`next_event`, but never instead of giving blocks:
        those before an error come first, and the next call raises it.
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
        """Read some blocks; False if there is surely none left."""
        run = self._blocks.next_complete(b"\n\n")
        if run:
            self._read_blocks(run.decode("utf-8", "replace"), events)
            return len(run) + len(self._waiting) > self._blocks.window
        if self._failed:
            raise message_too_large(self._limit)
        if self._at_start or len(self._waiting) <= self._patience:
            return False
        try:
            block = self._next_block()
        except RemoteProtocolError:
            self._failed = True
            self._waiting.clear()  # nobody will read it
            raise
        self._read_block(block, events)
        return bool(block)

    def _next_block(self) -> str:
        """A block, without the comments before it, that may be as long as the limit allows."""
        while self._waiting.startswith((b":", b"\n")):
            if not self._blocks.next_delimited(b"\n"):
                return ""
        return self._blocks.next_delimited(b"\n\n").decode("utf-8", "replace")

    def _read_blocks(self, text: str, events: MutableSequence[SseEvent]) -> None:
        """Read some blocks at once."""
        if "\0" in text:  # which voids an id
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
        """Read one block field by field."""
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
        """Drop a byte order mark, as soon as it is known whether there is one."""
        waiting = self._waiting
        if len(waiting) >= len(_BOM) or not _BOM.startswith(waiting):
            self._at_start = False
            if waiting.startswith(_BOM):
                self._blocks.take(len(_BOM))

    def _with_lf_only(self, data: bytes) -> bytes:
        """Make each line ending one LF.

        A CR ends its line at once: an event must not wait for the byte after its blank line. The LF
        that may follow is then skipped when it comes.
        """
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if CR_BYTE in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data


_LONGEST_RETRY = 10**16 - 1
"""Milliseconds; what our decoder reads of a longer number is another one."""


def _milliseconds(digits: str) -> int:
    """Sixteen digits are 30,000 years; more would only serve to make int() slow."""
    return int(digits.lstrip("0")[:16] or "0")


def encode_event(
    data: bytes | None, *, event: str | None = None, id: str | None = None, retry: int | None = None
) -> bytes:
    """One block of an event stream, closed by its blank line.

    Args:
        data: UTF-8 text; its line breaks (CR, LF, CR LF) become several data lines. None writes no
            data line, b"" an empty one.
        event: the event type; None writes none, which readers take for ``message``.
        id: the event id; must not be empty, since that would erase the reader's cursor.
        retry: the reconnection time in whole milliseconds, at most 16 digits.

    Raises LocalProtocolError for an event type or id that is empty or has control characters (CR,
    LF and NUL among them), for data that is not UTF-8, and for a reconnection time that is negative
    or longer: nothing a caller passes can forge a line; and for arguments of another kind.
    """
    lines: list[bytes] = []
    if event is not None:
        lines += b"event: ", _one_line(event, "event type"), b"\n"
    if id is not None:
        lines += b"id: ", _one_line(id, "event id"), b"\n"
    if retry is not None:
        check_type(int, retry=retry)
        if not 0 <= retry <= _LONGEST_RETRY:
            what = "is negative" if retry < 0 else "has more than 16 digits"
            raise LocalProtocolError(f"Not usable as a reconnection time: it {what}")
        lines.append(b"retry: %d\n" % retry)
    if data is not None:
        lines += b"data: ", _lines(data), b"\n"
    lines.append(b"\n")
    return b"".join(lines)


_CONTROL = re.compile("[\0-\x1f\x7f]")


def _lines(data: bytes) -> bytes:
    """The data of an event, a data line for each of its lines."""
    check_type((bytes, bytearray), data=data)
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise LocalProtocolError(f"The data of an event is UTF-8 text: {error}") from None
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data.replace(b"\n", b"\ndata: ")


def _one_line(text: str, what: str) -> bytes:
    check_type(str, **{what: text})
    if not text or _CONTROL.search(text):
        raise LocalProtocolError(f"Not usable as an {what}: {text[:50]!r}")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise LocalProtocolError(f"Not usable as an {what}: {text[:50]!r}") from None
