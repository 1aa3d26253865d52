"""Bytes in, whole pieces out, in linear time.

Two things make a splitter slow: searching again what was searched before (quadratic when a long
piece arrives in small chunks), and the loop of Python around each piece. So the buffer remembers
how far it has searched, and gives whole *runs* of pieces to those who split them in C.
"""

from __future__ import annotations

from ..errors import LocalProtocolError, RemoteProtocolError, check_type

CR_BYTE, LF_BYTE = b"\r\n"
"""Searched for as numbers: ``in`` takes five times as long for a string of one byte."""

_WINDOW = 16 * 1024
"""Bytes of a run at most: what is made of them takes many times as much memory."""


class DelimitedBuffer:
    """Collects chunks and gives back pieces, which end with a mark: lines, or blocks of lines.

    Ask for :meth:`next_complete` first, and for :meth:`next_delimited` where that has nothing.
    """

    def __init__(self, limit: int) -> None:
        """``limit``: bytes that a piece may have, without its mark.

        Raises LocalProtocolError for a limit that is no number above zero.
        """
        check_type(int, limit=limit)
        if limit < 1:
            raise LocalProtocolError(f"limit must be above zero, and is {limit}")
        self._limit = limit
        self.window = min(limit, _WINDOW)
        """Bytes among which :meth:`next_complete` has found everything that is complete."""
        self._searched = 0  # no mark begins before this
        self.waiting = bytearray()
        """What has come and was not taken. Chunks are added here."""

    def next_complete(self, mark: bytes) -> bytearray:
        """All pieces, with their marks, that are surely within the limit."""
        found = self.waiting.rfind(mark, self._searched, self.window)
        return bytearray() if found < 0 else self.take(found + len(mark))

    def next_delimited(self, mark: bytes) -> bytearray:
        """The next piece with its mark, or nothing if it is not complete.

        Raises RemoteProtocolError (413, ``message_too_large``) as soon as the piece is known to be
        beyond the limit.
        """
        found = self.waiting.find(mark, self._searched)
        if found < 0:
            self._searched = max(len(self.waiting) - len(mark) + 1, 0)
        if max(found, self._searched) > self._limit:
            raise message_too_large(self._limit)
        return bytearray() if found < 0 else self.take(found + len(mark))

    def skip_delimited(self, mark: bytes) -> bool:
        """Drop the rest of a piece that is too large; False if there may be more of it."""
        found = self.waiting.find(mark)
        self.take(len(self.waiting) if found < 0 else found + len(mark))
        return found >= 0

    def take(self, count: int) -> bytearray:
        """Take out so many bytes."""
        taken = self.waiting[:count]
        del self.waiting[:count]
        self._searched = 0
        return taken


def message_too_large(limit: int) -> RemoteProtocolError:
    """The error for a message beyond :attr:`~sansmcp.limits.Limits.max_message_bytes`.

    Or, at a server, beyond :attr:`~sansmcp.limits.Limits.max_request_bytes`.
    """
    return RemoteProtocolError(
        f"The message is larger than the limit of {limit} bytes",
        reason="message_too_large",
        http_status=413,
        data={"limit": limit},
    )


def as_bytes(data: bytes) -> bytes:
    """A chunk of input as bytes, whichever of the types with a buffer it is.

    Raises LocalProtocolError for what has none, such as text.
    """
    if type(data) is bytes:
        return data
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise not_bytes(data) from None


def not_bytes(data: object) -> LocalProtocolError:
    """What to raise where bytes were expected: text has to be encoded first."""
    return LocalProtocolError(f"data must be bytes, and is {type(data).__name__}")
