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
from .delimited_buffer import (
    CR_BYTE,
    LF_BYTE,
    NUL_BYTE,
    as_bytes,
    check_limit,
    message_too_large,
)

KEEP_ALIVE = b":\n\n"
"""A comment, which readers ignore, to keep a quiet connection alive. WHATWG advises one every 15
seconds or so.
"""

FORGET_ID = b"id:\n\n"
"""A block that resets the reader's last event id, so that the stream cannot be resumed from here.
It has no data, so it is not dispatched.
"""

_BOM = b"\xef\xbb\xbf"

_SAMPLE_BYTES, _SAMPLE_LINES = 1024, 6
"""A chunk that does not begin with so many line ends in so many bytes is parsed line by line up to
the first short block, which is faster for long lines.
"""

_SHORT_BYTES = 1024
"""Up to this size a chunk is tried as one whole block, and a cut block waits as it is. A block is
short if it ends its first data line in so many bytes.
"""

_LONG_CHARACTERS = 4096
"""Blocks of short lines are parsed one by one if the first is longer."""

_WINDOW_BYTES = 16 * 1024
"""The most bytes that :meth:`SseDecoder.next_event` parses at once, because the events that are
made of them can take many times as much memory.
"""

_SHOWN = 200
"""The most characters of :attr:`SseDecoder.unfinished`."""

_LONE_CR = re.compile(rb"\r[^\n]")
"""Finds a CR without LF in a chunk that does not end with CR."""

_RETRY = re.compile(rb"^retry: ?([0-9]+)\r?\n", re.MULTILINE)

_EVENT, _ID, _DATA = r"event: ?(\S.*)\n", r"id: ?(\S.*)\n", r"data: ?(.*)\n\n"
_USUAL = rf"(?:{_EVENT}{_ID}|{_ID}{_EVENT}|{_EVENT}|{_ID}|){_DATA}"
"""A block in the form that nearly all servers write.

``.`` is fast; a set of characters takes ten times as long, optional groups a tenth more.
"""
_USUAL_CRLF = _USUAL.replace(r"\n", r"\r\n")

_USUAL_BLOCK = re.compile(_USUAL)
_USUAL_CRLF_BLOCK = re.compile(_USUAL_CRLF)

_HEAD = re.compile(
    _USUAL.replace(r"(\S.*)\n", r"([^\s\0][^\r\n\0]*)\r?\n").replace(_DATA, "(?=data: )").encode()
)
"""The lines before the data line of such a block, with either line ending."""

_BLOCK = re.compile(rf"{_USUAL}|((?:.+\n)*\n)")
_CRLF_BLOCK = re.compile(rf"{_USUAL_CRLF}|((?:(?!\r\n).*\n)*\r\n)")
"""A block in that form, or any other.

The other one ends at the first CR LF that is a blank line. Before that it can have blank lines with
an LF alone, which end blocks, too.
"""


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


_new_object = SseEvent.__new__


class SseDecoder:
    """Decodes the bytes of an event stream to :class:`SseEvent` objects.

    Feed with :meth:`receive_data`, then call :meth:`next_event` until it returns
    ``Idle.NEED_DATA``; or use :meth:`feed`, which does both. A client that reconnects needs
    :attr:`last_event_id` and :attr:`reconnection_time`.

    One regular expression parses all blocks that are complete in a chunk. Where a chunk begins with
    long lines, or within a long block, it is parsed line by line up to the next short block.
    """

    last_event_id: str
    """The id to send as ``Last-Event-ID`` on reconnection; empty if there is none."""
    has_comments: bool
    """True if a comment was parsed."""

    def __init__(self, limit: int, *, last_event_id: str = "") -> None:
        """Begin at the start of a body.

        Args:
            limit: the most bytes of one block. Comments before it do not count.
            last_event_id: the last event id of an earlier connection of the same stream.

        Raises:
            LocalProtocolError: ``limit`` is not an int above zero.
        """
        check_limit(limit)
        self.last_event_id = last_event_id
        self.has_comments = False
        self._limit = limit
        self._last_id = last_event_id  # of the last parsed block, taken or not
        self._chunks: deque[bytes] = deque()  # not yet parsed
        self._ready: deque[SseEvent] = deque()  # parsed and not yet taken
        self._start = b""  # what may be a byte order mark
        self._after_cr = False  # the LF of a CR LF may follow
        self._eof = False
        self._failed = False
        self._is_plain = False  # a chunk can be parsed from its first byte on
        self._is_between = False  # and that begins a block
        self._short = min(limit, _SHORT_BYTES)
        self._tail = b""  # the block that is not complete, while it is short
        self._last_retry: int | None = None
        # A longer block that is not complete: the start of its last line,
        self._line = bytearray()
        # the bytes of the lines before, with an LF each, and their fields.
        self._block_size = 0
        self._block: SseEvent | None = None  # None without another field than data
        self._data: list[str] = []

    @property
    def reconnection_time(self) -> int | None:
        """The latest reconnection time of the server, in milliseconds; None if it sent none.

        It counts as soon as its line has arrived, before its block is complete.
        """
        while self._chunks:
            self._read(self._chunks.popleft(), self._ready)
        found = _RETRY.findall(self._tail)
        return _milliseconds(found[-1].decode()) if found else self._last_retry

    @property
    def unfinished(self) -> str:
        """The beginning of the block that has not ended; "" if there is none."""
        data = "\n".join(each[:_SHOWN] for each in self._data[:_SHOWN])
        rest = self._tail or self._start or bytes(self._line[:_SHOWN])
        return (data + rest[:_SHOWN].decode("utf-8", "replace"))[:_SHOWN]

    def receive_data(self, data: bytes) -> None:
        """Add a chunk of the body: bytes, or another object with a buffer.

        Raises:
            LocalProtocolError: :meth:`receive_eof` was called before, or ``data`` has no buffer.
        """
        if self._eof:
            raise _already_ended()
        data = as_bytes(data)
        for start in range(0, len(data), _WINDOW_BYTES):
            self._chunks.append(data[start : start + _WINDOW_BYTES])

    def receive_eof(self) -> None:
        """Record the end of the body, however it ended. An unfinished block is discarded."""
        self._eof = True

    def next_event(self) -> SseEvent | Idle:
        """Return the next block, or ``Idle.NEED_DATA`` if none is complete.

        Raises:
            RemoteProtocolError: ``message_too_large`` for a block above the limit. The rest of the
                stream cannot be read; every later call raises the same.
        """
        while not self._ready:
            if self._failed:
                raise message_too_large(self._limit)
            if not self._chunks:
                return Idle.NEED_DATA
            self._read(self._chunks.popleft(), self._ready)
        event = self._ready.popleft()
        self.last_event_id = event.last_event_id
        return event

    def feed(self, data: bytes) -> list[SseEvent]:
        """Add a chunk of the body, and return all blocks that are now complete.

        Raises as :meth:`receive_data` and :meth:`next_event` do. If there are blocks before an
        error, they are returned, and the next call raises the error.
        """
        if self._eof:
            raise _already_ended()
        events: list[SseEvent] = []
        if self._ready or self._chunks:
            events += self._ready
            self._ready.clear()
            while self._chunks:
                self._read(self._chunks.popleft(), events)
        self._read(data if type(data) is bytes else as_bytes(data), events)
        if not events and self._failed:
            raise message_too_large(self._limit)
        self.last_event_id = self._last_id
        return events

    def _read(self, data: bytes, events: MutableSequence[SseEvent]) -> None:
        """Parse a chunk."""
        if self._is_between and len(data) <= self._short:
            # Most often it is one block in the usual form.
            has_crlf = CR_BYTE in data
            usual = _USUAL_CRLF_BLOCK if has_crlf else _USUAL_BLOCK
            block = usual.fullmatch(data.decode("utf-8", "replace"))
            if block and NUL_BYTE not in data:
                event, id, id_2, event_2, event_3, id_3, value = block.groups()
                event = event or event_2 or event_3 or "message"
                id = id or id_2 or id_3
                if not (has_crlf and ("\r" in value or "\r" in event or (id and "\r" in id))):
                    each = _new_object(SseEvent)
                    each.event = event
                    each.data = value
                    each.id = id
                    each.retry = None
                    each.last_event_id = self._last_id = id or self._last_id
                    events.append(each)
                    return
        try:
            if not self._is_plain:
                data = self._without_start(data)
            if LF_BYTE in data or CR_BYTE in data:
                self._read_chunk(data, events)
            elif data:
                self._continue_line(data, events)
        except RemoteProtocolError:
            self._failed = True
            self._is_plain = False
            self._line.clear()
            self._data.clear()
        self._is_between = self._is_plain and not (self._tail or self._line or self._block_size)

    def _continue_line(self, data: bytes, events: MutableSequence[SseEvent]) -> None:
        """Keep a chunk that ends no line."""
        if self._line or self._block_size:
            self._keep(data)
        elif len(self._tail) + len(data) <= self._short:
            self._tail += data
        else:
            data, self._tail = self._tail + data, b""
            self._read_lines(data, events)

    def _read_chunk(self, data: bytes, events: MutableSequence[SseEvent]) -> None:
        """Parse a chunk that ends a line: all complete blocks of short lines together.

        A cut block waits for the next chunk while it is short.

        Raises:
            RemoteProtocolError: a block is larger than the limit.
        """
        if data.endswith(b"\r"):
            # The line ends here, so that an event does not wait for the byte after its blank line.
            # If the next chunk begins with LF, that LF is discarded.
            self._after_cr, self._is_plain = True, False
            data += b"\n"
        is_long = len(self._line) > _SHORT_BYTES or not _has_short_lines(data)
        if is_long and len(self._tail) + len(data) > self._short:
            data, self._tail = self._tail + data, b""
            data = self._read_lines(data, events, until_short=True)
            if not data:
                return
        has_crlf = CR_BYTE in data
        if has_crlf and _LONE_CR.search(data):
            data, has_crlf = _with_lf(data), False
        if self._tail:
            tail = self._tail if has_crlf else self._tail.replace(b"\r\n", b"\n")
            data, self._tail = tail + data, b""
        elif self._line or self._block_size:
            data, has_crlf = data.replace(b"\r\n", b"\n"), False
            data = self._end_long_block(data, events)
        mark = b"\r\n\r\n" if has_crlf else b"\n\n"
        end = data.rfind(mark)
        if end >= 0:
            end += len(mark)
            blocks, data = data[:end], data[end:]
            if end > self._limit or NUL_BYTE in blocks:
                self._read_lines(blocks, events)
            else:
                self._read_blocks(blocks.decode("utf-8", "replace"), has_crlf, events)
        has_blank_line = has_crlf and (b"\n\n" in data or b"\n\r" in data)  # of the other kind
        if len(data) <= self._short and not has_blank_line:
            self._tail = data
        elif has_blank_line or not _has_short_lines(data):
            self._read_lines(data, events)
        else:
            self._read_part(data.replace(b"\r\n", b"\n"), events)

    def _end_long_block(self, data: bytes, events: MutableSequence[SseEvent]) -> bytes:
        """Parse the rest of a long block in a chunk without CR, and return what is after it."""
        if data[0] == LF_BYTE and not self._line:
            end = 1
        else:
            end = data.find(b"\n\n") + 2
            if end == 1:  # not found
                end = len(data)
        self._read_part(data[:end], events)
        return data[end:]

    def _read_part(self, data: bytes, events: MutableSequence[SseEvent]) -> None:
        """Parse a part of one block, in which at most the last line is blank."""
        start = data.find(b"\n") + 1 if self._line else 0
        end = data.rfind(b"\n") + 1
        is_small = self._block_size + len(self._line) + end <= self._limit
        is_simple = start < end and data[start] not in b":\n" and NUL_BYTE not in data
        if not (is_small and is_simple):
            self._read_lines(data, events)
            return
        self._read_lines(data[:start], events)
        lines = data[start:end]
        self._block_size += len(lines)
        self._read_fields(lines.decode("utf-8", "replace").rstrip("\n"))
        if lines.endswith(b"\n\n"):
            self._end_block(events)
        if end < len(data):
            self._keep(data[end:])

    def _read_blocks(self, text: str, has_crlf: bool, events: MutableSequence[SseEvent]) -> None:
        """Parse complete blocks together."""
        if text.find("\r\n\r\n" if has_crlf else "\n\n", 0, _LONG_CHARACTERS) < 0:
            self._read_each(text, events)
            return
        append = events.append
        blocks = (_CRLF_BLOCK if has_crlf else _BLOCK).findall(text)
        for event, id, id_2, event_2, event_3, id_3, value, other in blocks:
            if other:
                self._read_each(other, events)
                continue
            # SseEvent(...) takes 0.08 µs more, a tenth of the time for a small block.
            each = _new_object(SseEvent)
            each.event = event or event_2 or event_3 or "message"
            each.data = value
            each.id = id = id or id_2 or id_3 or None
            each.retry = None
            each.last_event_id = self._last_id = id or self._last_id
            append(each)

    def _read_each(self, text: str, events: MutableSequence[SseEvent]) -> None:
        """Parse complete blocks one by one."""
        for lines in text.replace("\r\n", "\n").split("\n\n")[:-1]:
            self._read_fields(lines)
            self._end_block(events)

    def _read_fields(self, lines: str) -> None:
        """Take the fields of some lines."""
        head, mark, body = lines.partition("data: ")
        data = body.replace("\ndata: ", "\n")
        is_start = bool(mark) and head[-1:] in ("", "\n")
        has_data_last = is_start and len(body) - len(data) == 6 * data.count("\n")
        for line in (head if has_data_last else lines).split("\n"):
            self._read_field(line)
        if has_data_last:
            self._data.append(data)

    def _read_lines(
        self, data: bytes, events: MutableSequence[SseEvent], *, until_short: bool = False
    ) -> bytes:
        """Parse a chunk line by line, and keep the line that is not complete.

        With ``until_short`` it stops where a block has ended and a short one follows, and returns
        the rest of the chunk.

        Raises:
            RemoteProtocolError: a block is larger than the limit.
        """
        start = 0
        view = memoryview(data)
        has_cr = CR_BYTE in data
        while True:
            if not (self._line or self._block_size):
                head = _HEAD.match(data, start)
                if until_short and start:
                    end = data.find(b"\n", head.end() if head else start)
                    if 0 <= end - start < _SHORT_BYTES:
                        return data[start:]
                if head:
                    start = self._end_head(head)
            next_lf = data.find(b"\n", start)  # quicker than split() with long lines
            end = len(data) if next_lf < 0 else next_lf
            if has_cr and start < end:
                if data[end - 1] == CR_BYTE:
                    end -= 1
                if data.find(b"\r", start, end) >= 0:  # one without LF
                    data, start, has_cr = _with_lf(data[start:]), 0, False
                    view = memoryview(data)
                    continue
            if next_lf < 0:
                break
            if self._line:
                self._end_line(data[start:end])
            elif start == end:
                self._end_block(events)
            elif data.startswith(b"data: ", start):
                self._check_size(end - start)
                self._block_size += end - start + 1
                self._data.append(str(view[start + 6 : end], "utf-8", "replace"))
            else:
                self._end_line(data[start:end])
            start = next_lf + 1
        if start < len(data):
            self._keep(data[start:])
        return b""

    def _end_head(self, head: re.Match[bytes]) -> int:
        """Take the lines before the data line of a block, and return where they end."""
        event, id, id_2, event_2, event_3, id_3 = head.groups()
        if event := event or event_2 or event_3:
            self._fields().event = event.decode("utf-8", "replace")
        if id := id or id_2 or id_3:
            self._fields().id = id.decode("utf-8", "replace")
        self._block_size = len(head[0]) - head[0].count(b"\r")
        return head.end()

    def _keep(self, data: bytes) -> None:
        """Keep a part of a line that is not complete."""
        self._line += data
        size = len(self._line)
        if self._block_size + size > self._limit:
            # One more byte may be the LF that ends the block, unless this is a comment.
            self._check_size(size - (not self._is_comment(self._line)))

    def _end_line(self, end: bytes) -> None:
        """Parse a line that is not blank and whose last bytes are these."""
        line: bytes | bytearray = end
        if self._line:
            line, self._line = self._line, bytearray()
            line += end
        self._check_size(len(line))
        if self._is_comment(line):
            self.has_comments = True
            return
        self._block_size += len(line) + 1
        if line.startswith(b"data:"):
            start = 6 if line.startswith(b"data: ") else 5
            self._data.append(str(memoryview(line)[start:], "utf-8", "replace"))
        else:
            self._read_field(line.decode("utf-8", "replace"))

    def _is_comment(self, line: bytes | bytearray) -> bool:
        """Return whether a line is a comment before a block, which is not part of it."""
        return not self._block_size and line.startswith(b":")

    def _check_size(self, size: int) -> None:
        """Raise RemoteProtocolError if the block is too large with a line of this size."""
        if self._block_size + size > self._limit:
            raise message_too_large(self._limit)

    def _read_field(self, line: str) -> None:
        """Take the field of a line."""
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
            case "event":
                self._fields().event = value or "message"
            case "id" if "\0" not in value:
                self._fields().id = value
            case "retry" if value.isascii() and value.isdigit():
                self._last_retry = self._fields().retry = _milliseconds(value)
            case "" if line:
                self.has_comments = True
            case _:
                pass

    def _end_block(self, events: MutableSequence[SseEvent]) -> None:
        """Report the block that a blank line has ended, if it has a field."""
        if self._data:
            self._fields().data = "\n".join(self._data)
            self._data.clear()
        block, self._block = self._block, None
        self._block_size = 0
        if block is not None:
            if block.id is not None:
                self._last_id = block.id
            block.last_event_id = self._last_id
            events.append(block)

    def _fields(self) -> SseEvent:
        """Return the block whose lines are parsed, to set a field of it."""
        if self._block is None:
            self._block = SseEvent()
        return self._block

    def _without_start(self, data: bytes) -> bytes:
        """Return a chunk without a byte order mark, or the LF of a CR LF, at its start."""
        if self._failed or not data:
            return b""
        if self._after_cr:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        elif len(self._start + data) < len(_BOM) and _BOM.startswith(self._start + data):
            self._start += data
            return b""
        else:
            data, self._start = (self._start + data).removeprefix(_BOM), b""
        self._is_plain = True
        return data


def _has_short_lines(data: bytes) -> bool:
    return data.count(b"\n", 0, _SAMPLE_BYTES) >= _SAMPLE_LINES


def _with_lf(data: bytes) -> bytes:
    """Return a chunk with an LF after each line."""
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _already_ended() -> LocalProtocolError:
    return LocalProtocolError("receive_data() after receive_eof()")


_LONGEST_RETRY = 10**16 - 1
"""Milliseconds. The decoder reads only the first 16 digits of a longer number."""


def _milliseconds(digits: str) -> int:
    """Parse at most 16 digits, 300,000 years, because int() is slow for very many."""
    return int(digits.lstrip("0")[:16] or "0")


def encode_event(
    data: bytes | None,
    *,
    event: str | None = None,
    id: str | None = None,
    retry: int | None = None,
    comment: str | None = None,
) -> bytes:
    """Return one block of an event stream, with the blank line that ends it.

    Args:
        data: UTF-8 text; its line breaks (CR, LF, CR LF) become several data lines. None writes no
            data line, b"" an empty one.
        event: the event type; None writes none, which readers take for ``message``.
        id: the event id. The empty string erases the reader's last event id, so that it cannot
            resume the stream from here. None writes no id.
        retry: the reconnection time in whole milliseconds, at most 16 digits.
        comment: a line that readers ignore; the first one of the block.

    Raises:
        LocalProtocolError: the event type is empty; the event type, id or comment has control
            characters (such as CR, LF and NUL), so that no argument can forge a line; the data is
            not UTF-8; ``retry`` is negative or too long; or an argument is of another type.
    """
    lines: list[bytes] = []
    if comment is not None:
        lines += b": ", _one_line(comment, "comment"), b"\n"
    if event is not None:
        if not event:
            raise LocalProtocolError("The event type must not be empty; leave it out for 'message'")
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
    if type(data) is not bytes:
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
    if _CONTROL.search(text):
        raise LocalProtocolError(f"The {what} must not have control characters, got {text[:50]!r}")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise LocalProtocolError(f"The {what} must be UTF-8, got {text[:50]!r}") from None
