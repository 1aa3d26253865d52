"""The server on stdio: lines in, lines out.

The peer is the process that started this one. A line that is no message (a stray print, broken
UTF-8, broken JSON) gets a JSON-RPC error as response and is reported to the application; reading
goes on with the next line. When the input ends, running calls get ``graceful_timeout`` seconds to
finish, so that ``echo '...' | server`` works, too.

Source: every revision, basic/transports: stdio.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ..codecs.ndjson import NdjsonDecoder, encode_line
from ..codecs.tolerant import glimpse
from ..effects import CloseConnection, ConnectionEffect, SendBytes
from ..errors import RemoteProtocolError
from ..events import InvalidLine
from ..states import PIPE, PipeEvent, PipeState, advance
from ..types import Idle
from . import refusals
from .server import Server

_NEED_DATA: Final = Idle.NEED_DATA

_HTTP2 = b"PRI * HTTP/2.0"
"""The first line of a client that speaks stdio-v2."""


_OPEN, _FINISHING, _CLOSING, _CLOSED = PipeState  # which are compared for each line
_ENDED = (_CLOSING, _CLOSED)


class ServerPipe:
    """The server's end of stdio: bytes in, bytes out.

    Drive it like a ``ServerConnection``: feed ``receive_data``, ``receive_eof`` and
    ``connection_lost``, then pull ``next_effect`` until ``Idle`` and perform each effect before the
    next. On ``Idle.NEED_DATA`` read from stdin. On ``Idle.PAUSED`` do not read until the server
    names this pipe in a Wake effect.

    Not thread-safe.
    """

    def __init__(
        self, server: Server, *, driver: Any = None, graceful_timeout: float = 5.0, now: float
    ) -> None:
        """Open a channel of the server on stdio.

        Args:
            server: the machine that handles the messages.
            driver: any object of the driver, to find its own data when a Wake effect names this
                pipe.
            graceful_timeout: seconds that running calls get to finish when the input has ended.
            now: the current time in seconds, on the machine's clock.
        """
        self.driver = driver
        self.head = None
        """Always None, because stdio has no HTTP request; see ``Sink.head``."""
        self._grace = graceful_timeout
        server.now = now
        self._decoder = NdjsonDecoder(server.limits.request_bytes)
        self._server = server
        self._channel = server.open_channel(self)
        self._observer = server.observer
        self._limits = server.limits
        self._lines: list[bytes] = []
        self._unsent = 0
        self._is_idle = False
        self._state = _OPEN
        self._deadline = math.inf
        """Until when running calls may go on, once the input has ended."""

    # Bytes in

    def receive_data(self, data: bytes, *, now: float) -> None:
        """Feed bytes that were read from stdin. Pull ``next_effect()`` afterwards."""
        self._server.now = now
        # The driver pulls after feeding, so all responses go out in one piece without a Wake.
        self._is_idle = False
        if self._state is _OPEN:
            self._decoder.receive_data(data)
            self._read()

    def receive_eof(self, *, now: float) -> None:
        """Report the end of stdin.

        Running calls get ``graceful_timeout`` seconds to finish; then the pipe is closed. Pull
        ``next_effect()`` afterwards.
        """
        self._server.now = now
        if self._state is _OPEN:
            self._advance(PipeEvent.INPUT_ENDED)
            self._deadline = now + self._grace
            self._decoder.receive_eof()
            self._read()

    def connection_lost(self, *, now: float) -> None:
        """Report that stdout is closed. Running calls are cancelled.

        Repeated calls are safe. Pull ``next_effect()`` afterwards.
        """
        self._server.now = now
        self._advance(PipeEvent.CLOSE)
        self._lines.clear()
        self._end("the output is closed")

    # Bytes out

    def next_effect(self) -> ConnectionEffect | Idle:
        """Return the next effect: SendBytes, CloseConnection, or ``Idle`` if there is none.

        ``Idle.PAUSED``: do not read from stdin until a Wake effect names this pipe.
        """
        self._read()
        if self._lines:
            data = b"".join(self._lines)
            self._lines.clear()
            self._unsent = 0
            if self._observer is not None:
                self._observer.lines_sent(data)
            return SendBytes(data)
        if self._state is _FINISHING and not self._has_work:
            self._end("the input has ended")
        if self._state is _CLOSED:
            return _NEED_DATA
        if self._state is _CLOSING:
            self._advance(PipeEvent.CLOSED)
            return CloseConnection()
        self._is_idle = True
        return Idle.PAUSED if self._channel.must_wait(self) else _NEED_DATA

    def next_deadline(self) -> float | None:
        """Return when to call ``handle_timeout()``, or None for never."""
        return self._deadline if self._state is _FINISHING else None

    def handle_timeout(self, *, now: float) -> None:
        """Close the pipe if the running calls took too long to finish; they are cancelled.

        Early, late and repeated calls are safe.
        """
        self._server.now = now
        if self._state is _FINISHING and now >= self._deadline:
            self._end("the input has ended")

    # What the conversation wants

    @property
    def is_above_high_water(self) -> bool:
        """True if ``Limits.max_unsent_bytes`` or more wait to be written to stdout."""
        return self._unsent >= self._limits.max_unsent_bytes

    def send(self, message: bytes) -> bool:
        """Send a message after all others. Returns False if the pipe is closing.

        The server calls this; a driver does not.
        """
        if self._state in _ENDED:
            return False
        line = encode_line(message)
        self._lines.append(line)
        self._unsent += len(line)
        self.wake()
        return True

    def close(self) -> None:
        """Close the pipe when everything that waits is sent. The server calls this."""
        self._advance(PipeEvent.CLOSE)
        self.wake()

    def wake(self) -> None:
        """Tell the driver to pull again, if it waits for a Wake effect. The server calls this."""
        if self._is_idle and self._state is not _CLOSED:
            self._is_idle = False
            self._channel.wake(self)

    @property
    def _has_work(self) -> bool:
        """True if calls run, or lines may wait because the event queue is full."""
        return self._channel.is_busy or self._channel.is_full

    def _read(self) -> None:
        """Handle the lines that have arrived, unless the application or the client is behind."""
        while not (self._state in _ENDED or self._channel.is_full or self.is_above_high_water):
            line = b""
            try:
                next_line = self._decoder.next_event()
                if isinstance(next_line, Idle):
                    return
                line = next_line
                if self._observer is not None:
                    self._observer.lines_received(line)
                self._channel.receive(line, now=self._server.now)
            except RemoteProtocolError as invalid:
                error = refusals.NOT_STDIO() if line.startswith(_HTTP2) else invalid
                if not line:  # it is too long, and its client waits for a response
                    error.request_id = glimpse(self._decoder.skipped).asked
                self._channel.refuse(error, InvalidLine(line, error))

    def _end(self, reason: str) -> None:
        # This may complete a batch whose last call is cancelled, and so send it. It must come
        # before CLOSE, after which send() drops messages.
        self._channel.end(reason, now=self._server.now)
        self._advance(PipeEvent.CLOSE)

    def _advance(self, event: PipeEvent) -> None:
        self._state = advance(PIPE, self._state, event)
