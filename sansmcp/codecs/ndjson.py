"""Lines of stdio: one message per line, LF-terminated, UTF-8.

Only the framing is done here. A line that is too long is reported once and skipped up to its end;
the next line is read as if nothing had happened, since one bad line must never end a session.

Source: every revision, basic/transports: stdio.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import LocalProtocolError, RemoteProtocolError
from ..types import Idle
from .buffer import LF, LF_BYTE, LineBuffer


class NdjsonDecoder:
    """Bytes in, lines out.

    Blank lines are dropped, and the CR of a CR LF (Python on Windows writes them).
    """

    def __init__(self, limit: int) -> None:
        """``limit``: bytes that a line may have."""
        self._lines = LineBuffer(LF, limit)
        self._ready: Iterator[bytes] = iter(())
        self._skipping = False
        self._eof = False

    def receive_data(self, data: bytes) -> None:
        """Add a chunk of input. Raises LocalProtocolError after :meth:`receive_eof`."""
        if self._eof:
            raise LocalProtocolError("receive_data() after receive_eof()")
        self._lines.append(data)

    def receive_eof(self) -> None:
        """The input has ended; what is left counts as a line."""
        self._eof = True

    def next_event(self) -> bytes | Idle:
        """The next line without its ending, or ``Idle.NEED_DATA``.

        Raises RemoteProtocolError (``message_too_large``) once for a line beyond the limit; the
        lines after it follow.
        """
        while True:
            for line in self._ready:
                if line.strip(b" \t\r"):
                    return line.removesuffix(b"\r")
            lines = self._next_lines()
            if not lines:
                return Idle.NEED_DATA
            self._ready = iter(lines)

    def _next_lines(self) -> list[bytes]:
        """All lines that are surely within the limit, or else the next one; none if there is none.

        All at once and not one by one only because it is faster; the lines are the same.
        """
        if not self._skipping and (run := self._lines.next_run(b"\n")):
            return bytes(run).split(b"\n")
        if self._skipping and not self._lines.skip_line():
            return []
        self._skipping = False
        try:
            line = self._lines.next_line()
        except RemoteProtocolError:
            self._skipping = True
            raise
        if line is None and self._eof:
            line = self._lines.rest()
            if not line:
                return []
        return [] if line is None else [line]


def encode_line(message: bytes) -> bytes:
    """An encoded message as one line. Raises LocalProtocolError if it contains a line feed."""
    if LF_BYTE in message:
        raise LocalProtocolError("A message on stdio must not contain a line feed")
    return message + b"\n"
