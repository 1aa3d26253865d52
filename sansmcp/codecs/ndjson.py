"""Lines of stdio: one message per line, LF-terminated, UTF-8.

Only the framing is done here. A line that is too long is reported once and skipped up to its end;
the next line is read as if nothing had happened, since one bad line must never end a session.

Source: every revision, basic/transports: stdio.
"""

from __future__ import annotations

from ..errors import LocalProtocolError, RemoteProtocolError
from ..types import Idle
from .buffer import LF, LineBuffer


class NdjsonDecoder:
    """Bytes in, lines out.

    Blank lines are dropped, and the CR of a CR LF (Python on Windows writes them).
    """

    def __init__(self, limit: int) -> None:
        """``limit``: bytes that a line may have."""
        self._lines = LineBuffer(LF, limit)
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
        while not self._skipping or self._lines.skip_line():
            self._skipping = False
            try:
                line = self._lines.next_line()
            except RemoteProtocolError:
                self._skipping = True
                raise
            if line is None and self._eof:
                line = self._lines.rest()
                if not line:
                    break
            if line is None:
                break
            if line.strip(b" \t\r"):
                return line.removesuffix(b"\r")
        return Idle.NEED_DATA


def encode_line(message: bytes) -> bytes:
    """An encoded message as one line. Raises LocalProtocolError if it contains a line feed."""
    if b"\n" in message:
        raise LocalProtocolError("A message on stdio must not contain a line feed")
    return message + b"\n"
