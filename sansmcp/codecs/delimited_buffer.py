"""Split bytes at end marks, in linear time.

If a long piece arrives in small chunks, searching the same bytes again would take quadratic time,
so the buffer stores how far it has searched. A Python loop for each piece would also be slow, so
the buffer returns *runs* of whole pieces, which its callers split in C.
"""

from __future__ import annotations

from ..errors import LocalProtocolError, RemoteProtocolError, check_type

NUL_BYTE, CR_BYTE, LF_BYTE = b"\0\r\n"
"""Integers, because ``in`` takes five times as long with a string of one byte."""

_WINDOW = 16 * 1024
"""The most bytes of a run. The objects that are made of it take many times as much memory."""


class DelimitedBuffer:
    """Collects chunks and returns pieces that end with a mark: lines, or blocks of lines.

    Call :meth:`next_complete` first; if it returns nothing, call :meth:`next_delimited`.
    """

    def __init__(self, limit: int) -> None:
        """``limit``: the most bytes of a piece, without its mark.

        Raises LocalProtocolError if ``limit`` is not an int above zero.
        """
        check_limit(limit)
        self._limit = limit
        self.window = min(limit, _WINDOW)
        """How many bytes, from the first one on, :meth:`next_complete` searches."""
        self._searched = 0  # no mark begins before this
        self.waiting = bytearray()
        """Bytes that have arrived and were not taken. Add chunks here."""

    def next_complete(self, mark: bytes) -> bytearray:
        """Return the complete pieces, with their marks, that are known to be within the limit."""
        found = self.waiting.rfind(mark, self._searched, self.window)
        return bytearray() if found < 0 else self.take(found + len(mark))

    def next_delimited(self, mark: bytes) -> bytearray:
        """Return the next piece with its mark, or nothing if it is not complete.

        Raises RemoteProtocolError (413, ``message_too_large``) as soon as the piece is known to be
        above the limit.
        """
        found = self.waiting.find(mark, self._searched)
        if found < 0:
            self._searched = max(len(self.waiting) - len(mark) + 1, 0)
        if max(found, self._searched) > self._limit:
            raise message_too_large(self._limit)
        return bytearray() if found < 0 else self.take(found + len(mark))

    def skip_delimited(self, mark: bytes) -> bool:
        """Discard the rest of a piece that is too large. Return False if it may continue."""
        found = self.waiting.find(mark)
        self.take(len(self.waiting) if found < 0 else found + len(mark))
        return found >= 0

    def take(self, count: int) -> bytearray:
        """Remove and return the first ``count`` bytes."""
        taken = self.waiting[:count]
        del self.waiting[:count]
        self._searched = 0
        return taken


def check_limit(limit: int) -> None:
    """Raise LocalProtocolError if a limit is not an int above zero."""
    check_type(int, limit=limit)
    if limit < 1:
        raise LocalProtocolError(f"limit must be above zero, and is {limit}")


def message_too_large(limit: int) -> RemoteProtocolError:
    """Return the error for a message above :attr:`~sansmcp.limits.Limits.max_message_bytes`.

    At a server the limit can also be :attr:`~sansmcp.limits.Limits.max_request_bytes`.
    """
    return RemoteProtocolError(
        f"The message is larger than the limit of {limit} bytes",
        reason="message_too_large",
        http_status=413,
        data={"limit": limit},
    )


def as_bytes(data: bytes) -> bytes:
    """Return a chunk of input as bytes; any object with a buffer is accepted.

    Raises LocalProtocolError if the object has no buffer, such as a str.
    """
    if type(data) is bytes:
        return data
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise not_bytes(data) from None


def not_bytes(data: object) -> LocalProtocolError:
    """Return the error for input that is not bytes, such as a str."""
    return LocalProtocolError(f"data must be bytes, and is {type(data).__name__}")
