"""Standard input and output as an asyncio transport."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from sansmcp_local import StandardStreams

_Result = TypeVar("_Result")


class StdioTransport(asyncio.Transport):
    """Reads standard input and writes standard output.

    The event loop waits for pipes and sockets; for a file or a terminal, a thread waits. The
    protocol must not write while it is paused. Closing does not wait for unsent bytes.
    """

    def __init__(self, streams: StandardStreams, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._input = _Input(streams.input, protocol)
        self._output = _Output(streams.output, protocol, self._lose)
        self._is_closed = False
        protocol.connection_made(self)
        self._input.resume()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of ``data``. The protocol is paused if that takes time."""
        self._output.write(memoryview(data))

    def get_write_buffer_size(self) -> int:
        return self._output.unwritten

    def pause_reading(self) -> None:
        self._input.pause()

    def resume_reading(self) -> None:
        self._input.resume()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits: the transport has no buffer."""

    def is_closing(self) -> bool:
        """Return True once the transport is closed."""
        return self._is_closed

    def close(self) -> None:
        """Close the copies of both descriptors; the originals stay open."""
        self._lose(None)

    abort = close

    def _lose(self, error: OSError | None) -> None:
        if not self._is_closed:
            self._is_closed = True
            # In this order: if both are one socket, the input has found it as it was.
            self._output.close()
            self._input.close()
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)


class _Copy:
    """A copy of a descriptor, and how to wait for it."""

    def __init__(self, original: int) -> None:
        mode = os.fstat(original).st_mode
        self.loop = asyncio.get_running_loop()
        self.descriptor = os.dup(original)
        self.is_pipe = sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
        self.has_thread = False
        self.is_closed = False
        if sys.platform != "win32" and self.is_pipe:
            self._was_blocking = os.get_blocking(original)
            os.set_blocking(self.descriptor, False)

    def close(self) -> None:
        """Close the copy; the original stays open."""
        self.is_closed = True
        if sys.platform != "win32" and self.is_pipe:
            self.loop.remove_reader(self.descriptor)
            self.loop.remove_writer(self.descriptor)
            os.set_blocking(self.descriptor, self._was_blocking)
        # Not while a thread may use it: the number could belong to another file by then.
        if not self.has_thread:
            os.close(self.descriptor)

    def in_thread(self, work: Callable[[], _Result], done: Callable[[_Result], None]) -> None:
        """Call ``work`` in a daemon thread, then ``done`` in the loop unless this is closed."""

        def run() -> None:
            result = work()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(finish, result)

        def finish(result: _Result) -> None:
            self.has_thread = False
            if self.is_closed:
                os.close(self.descriptor)
            else:
                done(result)

        self.has_thread = True
        threading.Thread(target=run, daemon=True).start()


class _Input(_Copy):
    """The copy of the descriptor to read from."""

    def __init__(self, original: int, protocol: asyncio.Protocol) -> None:
        super().__init__(original)
        self._protocol = protocol
        self._is_wanted = False
        self._has_ended = False

    def resume(self) -> None:
        self._is_wanted = not self._has_ended
        if self._is_wanted and self.is_pipe:
            self.loop.add_reader(self.descriptor, lambda: self._came(self._read()))
        elif self._is_wanted and not self.has_thread:
            self.in_thread(self._read, self._came)

    def pause(self) -> None:
        """Pause reading. Bytes that a thread is already reading are still passed on."""
        self._is_wanted = False
        if self.is_pipe:
            self.loop.remove_reader(self.descriptor)

    def _read(self) -> bytes | None:
        try:
            return os.read(self.descriptor, 65536)
        except BlockingIOError:  # another process has read it
            return None
        except OSError:  # such as a terminal that was closed
            return b""

    def _came(self, data: bytes | None) -> None:
        if data:
            self._protocol.data_received(data)
        elif data is not None:
            self._has_ended = True
            self.pause()
            self._protocol.eof_received()
        if self._is_wanted and not self.is_pipe and not self.is_closed:
            self.resume()


class _Output(_Copy):
    """The copy of the descriptor to write to."""

    def __init__(
        self, original: int, protocol: asyncio.Protocol, lose: Callable[[OSError], None]
    ) -> None:
        super().__init__(original)
        self._protocol = protocol
        self._lose = lose
        self._rest = memoryview(b"")

    @property
    def unwritten(self) -> int:
        """Number of bytes that are not written yet."""
        return len(self._rest)

    def write(self, data: memoryview) -> None:
        """Write all of ``data``, at once or when there is room."""
        self._rest = data
        if not self.is_pipe:
            self._protocol.pause_writing()
            self.in_thread(self._write, self._written)
        elif (error := self._write()) is not None:
            self._lose(error)
        elif self._rest:
            self._protocol.pause_writing()
            self.loop.add_writer(self.descriptor, self._ready)

    def _ready(self) -> None:
        error = self._write()
        if error is not None or not self._rest:
            self.loop.remove_writer(self.descriptor)
            self._written(error)

    def _write(self) -> OSError | None:
        try:
            while self._rest:
                self._rest = self._rest[os.write(self.descriptor, self._rest) :]
        except BlockingIOError:
            pass  # there is no room
        except OSError as error:
            return error
        return None

    def _written(self, error: OSError | None) -> None:
        if error is not None:
            self._lose(error)
        else:
            self._protocol.resume_writing()
