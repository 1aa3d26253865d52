"""The server on stdio: lines in, lines out.

One conversation with whoever started the process. A line that is no message (a stray print, broken
UTF-8, broken JSON) is answered with an error, shown to the application, and forgotten: the next
line is read as if nothing had happened. When the input ends, calls that still run get a moment to
finish, for ``echo '...' | server`` is a way to ask, too.

Source: every revision, basic/transports: stdio.
"""

from __future__ import annotations

from typing import Any

from ..codecs.ndjson import NdjsonDecoder, encode_line
from ..effects import CloseConnection, ConnectionEffect, SendBytes
from ..errors import RemoteProtocolError
from ..events import InvalidLine
from ..types import Idle
from .server import Server


class ServerPipe:
    """A server's two ends of stdio: bytes in, bytes out.

    It is driven as a :class:`~sansmcp.ServerConnection` is: feed ``receive_data``, ``receive_eof``
    and ``connection_lost``; pull ``next_effect`` until ``Idle`` and perform each effect before the
    next. ``Idle.NEED_DATA`` means read; ``Idle.PAUSED`` means do not, until woken: the server names
    this pipe in a ``Wake`` effect.
    """

    def __init__(
        self, server: Server, *, driver: Any = None, graceful_timeout: float = 5.0, now: float
    ) -> None:
        """Begin a conversation.

        Args:
            server: the machine that answers.
            driver: for whoever drives the pipe, to find its own things when the pipe is to be
                woken.
            graceful_timeout: seconds that running calls get when the input has ended.
            now: the time.
        """
        self.driver = driver
        self.head = None
        """There is no HTTP request; see :class:`~sansmcp.server.channel.Sink`."""
        self._grace = graceful_timeout
        server.now = now
        self._decoder = NdjsonDecoder(server.limits.request_bytes)
        self._server = server
        self._channel = server.open_channel(self)
        self._trace = server.trace
        self._limits = server.limits
        self._lines: list[bytes] = []
        self._unsent = 0
        self._is_idle = False
        self._is_closing = False
        self._is_closed = False
        self._deadline: float | None = None

    # Bytes in

    def receive_data(self, data: bytes, *, now: float) -> None:
        """Bytes have come from the client."""
        self._server.now = now
        self._is_idle = False  # who feeds it pulls afterwards: all answers go out in one piece
        if self._deadline is None and not self._is_closing:
            self._decoder.receive_data(data)
            self._read()

    def receive_eof(self, *, now: float) -> None:
        """The input has ended: the client wants to stop."""
        self._server.now = now
        if self._deadline is None and not self._is_closing:
            self._deadline = now + self._grace
            self._decoder.receive_eof()
            self._read()

    def connection_lost(self, *, now: float) -> None:
        """Nobody reads the output any more. May be called any number of times."""
        self._server.now = now
        self._is_closing = True
        self._lines.clear()
        self._end("the output is closed")

    # Bytes out

    def next_effect(self) -> ConnectionEffect | Idle:
        """What to do next with the pipe."""
        self._read()
        if self._lines:
            data = b"".join(self._lines)
            self._lines.clear()
            self._unsent = 0
            if self._trace is not None:
                self._trace.pipe(">", data)
            return SendBytes(data)
        if self._deadline is not None and not self._has_work:
            self._end("the input has ended")
        if self._is_closed:
            return Idle.NEED_DATA
        if self._is_closing:
            self._is_closed = True
            return CloseConnection()
        self._is_idle = True
        return Idle.PAUSED if self._channel.must_wait(self) else Idle.NEED_DATA

    def next_deadline(self) -> float | None:
        """When to call :meth:`handle_timeout`; None: no need."""
        return None if self._is_closing else self._deadline

    def handle_timeout(self, *, now: float) -> None:
        """Do what is due: calls that took too long to finish are left behind."""
        self._server.now = now
        if self._deadline is not None and now >= self._deadline:
            self._end("the input has ended")

    # What the conversation wants

    @property
    def is_above_high_water(self) -> bool:
        """Whether the client does not take what is sent to it."""
        return self._unsent >= self._limits.max_unsent_bytes

    def send(self, message: bytes) -> bool:
        """Send a message; False if nobody reads any more."""
        if self._is_closing:
            return False
        line = encode_line(message)
        self._lines.append(line)
        self._unsent += len(line)
        self.wake()
        return True

    def close(self) -> None:
        """Send what there is, and no more."""
        self._is_closing = True
        self.wake()

    def wake(self) -> None:
        """Let the driver pull again, if it has stopped."""
        if self._is_idle and not self._is_closed:
            self._is_idle = False
            self._channel.wake(self)

    @property
    def _has_work(self) -> bool:
        """Whether calls run, or there may be lines that could not be taken in yet."""
        return self._channel.is_busy or self._channel.is_full

    def _read(self) -> None:
        """Take in the lines that have arrived, as long as application and client keep up."""
        while not (self._is_closing or self._channel.is_full or self.is_above_high_water):
            line = b""
            try:
                next_line = self._decoder.next_event()
                if isinstance(next_line, Idle):
                    return
                line = next_line
                if self._trace is not None:
                    self._trace.pipe("<", line)
                self._channel.receive(line, now=self._server.now)
            except RemoteProtocolError as error:
                self._channel.refuse(error, InvalidLine(line, error))

    def _end(self, reason: str) -> None:
        # A batch that has lost its last call is sent now: before the closing.
        self._channel.end(reason, now=self._server.now)
        self._is_closing = True
