"""Standard input and output as a stream of the loop."""

from __future__ import annotations

import contextlib
import math
import os
import select
import stat
import sys

from sansmcp_local import StandardStreams, from_pipe, to_pipe

from ._loop import READ, WRITE, Steps, Wait

_FINAL_WRITE = 5.0
"""Seconds for the last bytes of a server that ends."""


def stdio_stream(streams: StandardStreams) -> StdioStream | PipedStdioStream:
    """Return the stream for this platform."""
    return PipedStdioStream(streams) if sys.platform == "win32" else StdioStream(streams)


class StdioStream:
    """Reads standard input and writes standard output, which the selector waits for.

    Both may be shared with other processes, so they stay in blocking mode. It reads only if bytes
    are there, and writes only if there is room.
    """

    def __init__(self, streams: StandardStreams) -> None:
        self._input, self._output = streams.input, streams.output
        self._awaited_input = _awaited(self._input)
        self._awaited_output = _awaited(self._output)
        if sys.platform != "win32":
            self._room = select.poll()
            self._room.register(self._output, select.POLLOUT)

    def reading(self, deadline: float = math.inf) -> Wait:
        """Return the wait before :meth:`receive`."""
        return Wait(self._awaited_input, READ, deadline)

    def receive(self) -> bytes | None:
        """Return received bytes; empty at the end, None if there are none."""
        try:
            return os.read(self._input, 65536)
        except BlockingIOError:  # another process has made it non-blocking
            return None

    def send_now(self, data: bytes) -> int:
        """Send as much as possible without waiting, and return how much. Raises OSError."""
        if sys.platform == "win32":
            raise NotImplementedError
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < len(data) and self._room.poll(0):
                sent += os.write(self._output, data[sent : sent + select.PIPE_BUF])
        return sent

    def send(self, data: bytes, timeout: float) -> Steps[None]:
        """Send all of ``data``, without a timeout. Raises OSError."""
        while data := data[self.send_now(data) :]:
            yield Wait(self._awaited_output, WRITE)

    def do_handshake(self, timeout: float) -> Steps[None]:
        """Do nothing: stdio has no handshake."""
        yield from ()

    def close(self) -> None:
        """Do nothing: StandardStreams restores the descriptors."""


def _awaited(descriptor: int) -> int | None:
    """Return the descriptor to wait for; None for a file, which is always ready."""
    mode = os.fstat(descriptor).st_mode
    can_wait = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
    return descriptor if can_wait else None


class PipedStdioStream:
    """The same on Windows, where nothing waits for pipes, consoles or files: by two threads."""

    def __init__(self, streams: StandardStreams) -> None:
        self._input = from_pipe(streams.input)
        self._output, self._writing = to_pipe(streams.output)
        self._input.settimeout(0)
        self._output.settimeout(0)

    def reading(self, deadline: float = math.inf) -> Wait:
        """Return the wait before :meth:`receive`."""
        return Wait(self._input.fileno(), READ, deadline)

    def receive(self) -> bytes | None:
        """Return received bytes; empty at the end, None if there are none."""
        try:
            return self._input.recv(65536)
        except BlockingIOError:
            return None

    def send_now(self, data: bytes) -> int:
        """Send as much as possible without waiting, and return how much. Raises OSError."""
        try:
            return self._output.send(data)
        except BlockingIOError:
            return 0

    def send(self, data: bytes, timeout: float) -> Steps[None]:
        """Send all of ``data``, without a timeout. Raises OSError."""
        while data := data[self.send_now(data) :]:
            yield Wait(self._output.fileno(), WRITE)

    def do_handshake(self, timeout: float) -> Steps[None]:
        """Do nothing: stdio has no handshake."""
        yield from ()

    def close(self) -> None:
        """Wait until the thread has written what it was sent, for a few seconds at most."""
        self._output.close()
        self._writing.join(_FINAL_WRITE)
        self._input.close()
