"""Lines of stdio: one message per line, LF-terminated, UTF-8.

Lines end at LF alone: U+2028, U+2029 and U+0085 occur inside JSON text, where ``splitlines`` would
split. A line that is too long is reported once and skipped; reading continues with the next line,
because one bad line must not end a session.

Source: every revision, basic/transports: stdio.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ..errors import LocalProtocolError, RemoteProtocolError
from ..types import Idle
from .delimited_buffer import LF_BYTE, DelimitedBuffer, not_bytes

_NEED_DATA: Final = Idle.NEED_DATA

_GLIMPSE = 1024
"""The bytes of a line that is too long which are kept: most messages begin with their id."""


class NdjsonDecoder:
    """Splits bytes into lines.

    It discards blank lines, and the CR of a CR LF (Python on Windows writes them).
    """

    def __init__(self, limit: int) -> None:
        """``limit``: the most bytes of a line. Raises LocalProtocolError if not above zero."""
        self._lines = DelimitedBuffer(limit)
        self._ready: deque[bytes] = deque()
        self.skipped = b""
        """The first kilobyte of the line that was skipped last."""
        self._shown = min(limit, _GLIMPSE)  # so that chunking does not matter
        self._skipping = False
        self._eof = False

    def receive_data(self, data: bytes) -> None:
        """Add a chunk of input. Call :meth:`next_event` afterwards until it returns ``Idle``.

        Raises:
            LocalProtocolError: ``data`` is not bytes, or :meth:`receive_eof` was called before.
        """
        if self._eof:
            raise LocalProtocolError("receive_data() after receive_eof()")
        try:
            self._lines.waiting += data
        except TypeError:
            raise not_bytes(data) from None

    def receive_eof(self) -> None:
        """Record the end of the input. The rest without a line ending counts as a line."""
        self._eof = True

    def next_event(self) -> bytes | Idle:
        """Return the next line without its ending, or ``Idle.NEED_DATA`` if none is complete.

        Raises:
            RemoteProtocolError: ``message_too_large``, once for each line beyond the limit. The
                next call returns the line after it.
        """
        while not self._ready:
            run = self._next_run()
            if not run:
                return _NEED_DATA
            lines = run.split(b"\n")
            self._ready += [line.removesuffix(b"\r") for line in lines if line.strip(b" \t\r")]
        return self._ready.popleft()

    def _next_run(self) -> bytes:
        """Return some whole lines; b"" if there are none."""
        lines = self._lines
        if not lines.waiting:
            return b""
        if self._skipping and not lines.skip_delimited(b"\n"):
            return b""
        self._skipping = False
        try:
            run = lines.next_complete(b"\n") or lines.next_delimited(b"\n")
        except RemoteProtocolError:
            self._skipping = True
            self.skipped = bytes(lines.waiting[: self._shown])
            raise
        if self._eof and not run:
            run = lines.take(len(lines.waiting))
        return bytes(run)


def encode_line(message: bytes) -> bytes:
    """Return an encoded message as one line.

    Raises LocalProtocolError if it contains a line feed or is not bytes.
    """
    try:
        if LF_BYTE in message:
            raise LocalProtocolError("A message on stdio must not contain a line feed")
        return message + b"\n"
    except TypeError:
        raise not_bytes(message) from None
