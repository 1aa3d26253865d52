"""Standard input and output as a trio stream."""

from __future__ import annotations

import os
import stat
import sys

import trio

from sansmcp_local import StandardStreams


class StdioStream(trio.abc.Stream):
    """Reads standard input and writes standard output.

    Pipes and sockets are waited for; for anything else, a file or a terminal, a thread waits.
    """

    def __init__(self, streams: StandardStreams) -> None:
        self._input = _Descriptor(streams.input)
        self._output = _Descriptor(streams.output)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """What has come; empty at the end."""
        return await self._input.read(max_bytes or 65536)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write it all. Raises OSError or trio.BrokenResourceError when nobody reads."""
        await self._output.write(data)

    async def wait_send_all_might_not_block(self) -> None:
        """It might at any time."""
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close both, for us; what they are copies of stays open."""
        await self._input.aclose()
        await self._output.aclose()


class _Descriptor:
    """One of the two."""

    def __init__(self, descriptor: int) -> None:
        mode = os.fstat(descriptor).st_mode
        own = os.dup(descriptor)
        self._stream: trio.lowlevel.FdStream | None = None
        self._descriptor = own
        if sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            self._stream = trio.lowlevel.FdStream(own)

    async def read(self, most: int) -> bytes:
        if self._stream is not None:
            return bytes(await self._stream.receive_some(most))
        return await trio.to_thread.run_sync(
            os.read, self._descriptor, most, abandon_on_cancel=True
        )

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
