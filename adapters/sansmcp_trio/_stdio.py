"""Standard input and output as a trio stream."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from functools import partial
from typing import Any

import trio

from sansmcp_local import PendingResult, StandardStreams


class StdioStream(trio.abc.Stream):
    """Reads standard input and writes standard output.

    The event loop waits for pipes and sockets; for a file or a terminal, a thread waits.
    """

    def __init__(self, streams: StandardStreams) -> None:
        self._input = _Input(streams.input)
        self._output = _Output(streams.output)

    def fileno(self) -> int:
        """Return the descriptor to write to without blocking; -1 if it may block, or is closed."""
        return self._output.fileno()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return received bytes; empty at the end."""
        return await self._input.read(max_bytes or 65536)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of ``data``. Raises OSError or trio.BrokenResourceError."""
        await self._output.write(data)

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close the copies of both descriptors; the originals stay open."""
        try:
            await self._input.aclose()
        finally:
            await self._output.aclose()


def _pipe_of(descriptor: int) -> Any:
    """Return the FdStream of a pipe or socket, which trio has on POSIX only; None for others."""
    if sys.platform != "win32":
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            return trio.lowlevel.FdStream(descriptor)
    return None


class _Input:
    """A copy of the descriptor, to read from."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)
        self._stream = _pipe_of(self._descriptor)
        self._coming: PendingResult | None = None
        """The bytes that a thread reads. If the reader is cancelled, the next one gets them."""
        self._is_closed = False

    async def read(self, most: int) -> bytes:
        while self._stream is not None:
            # Its own method does that, too, but only after a checkpoint.
            await trio.lowlevel.wait_readable(self._descriptor)
            with contextlib.suppress(BlockingIOError):  # another process has read it
                return os.read(self._descriptor, most)
        if self._coming is None:
            self._coming = PendingResult(trio.Event())
            trio.lowlevel.spawn_system_task(self._read_in_thread, self._coming, most)
        data: bytes = await self._coming.wait()
        self._coming = None
        return data

    async def aclose(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()
        else:
            self._is_closed = True
            if self._coming is None or self._coming.is_done:
                os.close(self._descriptor)

    async def _read_in_thread(self, coming: PendingResult, most: int) -> None:
        try:
            read = partial(os.read, self._descriptor, most)
            coming.set_result(await trio.to_thread.run_sync(read, abandon_on_cancel=True))
        except OSError as error:
            coming.set_exception(error)
        # Not while the thread may read it: the number could belong to another file by then.
        if self._is_closed:
            os.close(self._descriptor)


class _Output:
    """A copy of the descriptor, to write to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)
        self._stream = _pipe_of(self._descriptor)

    def fileno(self) -> int:
        return -1 if self._stream is None else self._stream.fileno()

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._stream is not None:
            await self._stream.send_all(data)
        else:
            await trio.to_thread.run_sync(self._write_all, bytes(data))

    async def aclose(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()
        else:
            os.close(self._descriptor)

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]
