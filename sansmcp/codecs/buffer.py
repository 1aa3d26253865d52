"""Bytes in, whole lines out, in linear time.

Two things make a line splitter slow: searching again what was searched before (quadratic when a
long line arrives in small pieces), and moving what is left after each line. So the buffer remembers
how far it has searched, and lets go of consumed bytes only when all lines were taken.

A third thing is Python itself: the loop around each line costs more than finding it. So whole runs
of lines can be taken at once (:meth:`LineBuffer.next_run`) by those who split them in C.
"""

from __future__ import annotations

import enum

from ..errors import RemoteProtocolError


class LineEnd(enum.Enum):
    """What ends a line."""

    LF = enum.auto()
    """Lines of stdio: LF only. U+2028, U+2029 and U+0085 occur inside JSON text, so ``splitlines``
    is never right here.
    """

    CR_LF_CRLF = enum.auto()
    """Lines of server-sent events. Source: WHATWG HTML, server-sent events: Parsing an event
    stream.
    """


LF = LineEnd.LF
CR_LF_CRLF = LineEnd.CR_LF_CRLF

CR_BYTE, LF_BYTE = b"\r\n"
"""Searched for as numbers: ``in`` takes five times as long for a string of one byte."""

_WINDOW = 16 * 1024
"""Bytes that are taken at once at most: what is made of them takes many times as much memory."""


class LineBuffer:
    """Collects chunks and gives back complete lines without their line ending.

    A CR ends its line at once, without waiting for the LF that may follow: an SSE event must not
    wait for the next byte after its blank line. That LF is then skipped when it comes. Each line
    ending becomes one LF as soon as it arrives, which never moves a line across a limit, since line
    endings do not count.
    """

    def __init__(self, line_end: LineEnd, limit: int) -> None:
        """``limit``: bytes a line may have; a longer one raises, whether it is complete or not."""
        self._ends_at_cr = line_end is CR_LF_CRLF
        self._limit = limit
        self.window = min(limit, _WINDOW)
        """Bytes that :meth:`next_run` takes at most."""
        self.waiting = bytearray()
        """What has come, and little of what was taken. Bytes that end no line may be added."""
        self._start = 0  # where the next line begins
        self._searched = 0  # no line ending before this
        self.after_cr = False
        """Whether the last chunk ended in a CR whose LF may still come."""

    def append(self, data: bytes) -> None:
        """Add a chunk."""
        if self._ends_at_cr and (self.after_cr or CR_BYTE in data):
            data = self._with_lf_only(data)
        self.waiting += data

    def next_line(self, reserved: int = 0) -> bytes | None:
        """The next complete line, or None when there is none yet.

        ``reserved`` bytes of the limit are already used up by earlier lines of the same event.
        Raises RemoteProtocolError (413, ``message_too_large``) as soon as a line is known to be
        longer than the rest; :meth:`skip_line` goes on after it.
        """
        start, found = self._start, self.waiting.find(b"\n", self._searched)
        end = len(self.waiting) if found < 0 else found
        if end - start + reserved > self._limit:
            raise too_large(self._limit)
        if found < 0:
            self._let_go()
            self._searched = len(self.waiting)
            return None
        self._start = self._searched = found + 1
        return bytes(memoryview(self.waiting)[start:found])

    def next_run(self, end: bytes) -> bytearray:
        """All lines up to the last ``end``, some line feeds, that no limit can strike.

        They are no more than :attr:`window` all together, and so each of them is within the limit.
        """
        self._let_go()
        found = self.waiting.rfind(end, max(self._searched - 1, 0), self.window)
        if found < 0:
            return bytearray()
        found += len(end)
        run = self.waiting[:found]
        del self.waiting[:found]
        self._searched = 0
        return run

    def skip_line(self) -> bool:
        """Drop bytes up to and including the next line ending; False if it has not arrived yet."""
        found = self.waiting.find(b"\n", self._searched)
        if found < 0:
            self.rest()
            return False
        self._start = self._searched = found + 1
        return True

    def rest(self) -> bytes:
        """The unfinished line at the end of the input; it is taken out."""
        line = bytes(self.waiting[self._start :])
        self.waiting.clear()
        self._start = self._searched = 0
        return line

    def _let_go(self) -> None:
        """Of what was consumed."""
        if self._start:
            del self.waiting[: self._start]
            self._searched = max(self._searched - self._start, 0)
            self._start = 0

    def _with_lf_only(self, data: bytes) -> bytes:
        if self.after_cr and data:
            data = data.removeprefix(b"\n")
            self.after_cr = False
        if CR_BYTE in data:
            self.after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data


def too_large(limit: int) -> RemoteProtocolError:
    """The error for a message beyond :attr:`~sansmcp.limits.Limits.max_message_bytes`."""
    return RemoteProtocolError(
        f"The message is larger than the limit of {limit} bytes",
        reason="message_too_large",
        http_status=413,
        data={"limit": limit},
    )
