"""Bytes in, whole lines out, in linear time.

Two things make a line splitter slow: searching again what was searched before (quadratic when a
long line arrives in small pieces), and moving what is left after each line. So the buffer remembers
how far it has searched, and lets go of consumed bytes only when the next chunk arrives.
"""

from __future__ import annotations

import re

from ..errors import RemoteProtocolError

LF = re.compile(rb"\n")
"""Lines of stdio: LF only. U+2028, U+2029 and U+0085 occur inside JSON text, so ``splitlines`` is
never right here.
"""

CR_LF_CRLF = re.compile(rb"\r\n?|\n")
"""Lines of server-sent events. Source: WHATWG HTML, server-sent events: Parsing an event stream."""


class LineBuffer:
    """Collects chunks and gives back complete lines without their line ending.

    A CR ends its line at once, without waiting for the LF that may follow: an SSE event must not
    wait for the next byte after its blank line. That LF is then skipped when it comes.
    """

    def __init__(self, line_end: re.Pattern[bytes], limit: int) -> None:
        """``limit``: bytes a line may have; a longer one raises, whether it is complete or not."""
        self._line_end = line_end
        self._limit = limit
        self._buffer = bytearray()
        self._start = 0  # where the next line begins
        self._searched = 0  # no line ending before this
        self._after_cr = False  # the last line ended in a CR whose LF may still come

    def append(self, data: bytes) -> None:
        """Add a chunk."""
        del self._buffer[: self._start]
        self._searched -= self._start
        self._start = 0
        self._buffer += data

    def next_line(self, reserved: int = 0) -> bytes | None:
        """The next complete line, or None when there is none yet.

        ``reserved`` bytes of the limit are already used up by earlier lines of the same event.
        Raises RemoteProtocolError (413, ``message_too_large``) as soon as a line is known to be
        longer than the rest; :meth:`skip_line` goes on after it.
        """
        if self._after_cr and len(self._buffer) > self._start:
            self._after_cr = False
            if self._buffer[self._start] == 0x0A:
                self._start += 1
                self._searched = max(self._searched, self._start)
        match = self._line_end.search(self._buffer, self._searched)
        end = len(self._buffer) if match is None else match.start()
        if end - self._start + reserved > self._limit:
            raise too_large(self._limit)
        if match is None:
            self._searched = end
            return None
        line = bytes(memoryview(self._buffer)[self._start : end])
        self._consume(match)
        return line

    def skip_line(self) -> bool:
        """Drop bytes up to and including the next line ending; False if it has not arrived yet."""
        match = self._line_end.search(self._buffer, self._searched)
        if match is None:
            self._start = self._searched = len(self._buffer)
            return False
        self._consume(match)
        return True

    def rest(self) -> bytes:
        """The unfinished line at the end of the input; it is taken out."""
        line = bytes(self._buffer[self._start :])
        self._buffer.clear()
        self._start = self._searched = 0
        return line

    def _consume(self, match: re.Match[bytes]) -> None:
        self._start = self._searched = match.end()
        self._after_cr = match.group() == b"\r"


def too_large(limit: int) -> RemoteProtocolError:
    """The error for a message beyond :attr:`~sansmcp.limits.Limits.max_message_bytes`."""
    return RemoteProtocolError(
        f"The message is larger than the limit of {limit} bytes",
        reason="message_too_large",
        http_status=413,
        data={"limit": limit},
    )
