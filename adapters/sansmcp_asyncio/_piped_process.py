"""A process where the event loop cannot start one: its pipes are sockets, fed by threads.

Such loops are the SelectorEventLoop on Windows, which ``uvicorn --reload`` and others use, and
those of some applications with a loop of their own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from subprocess import Popen
from typing import Any

from sansmcp_local import from_pipe, to_pipe


class PipedProcess(asyncio.SubprocessTransport):
    """A process, and the transports of its pipes; calls the same methods as asyncio's own."""

    def __init__(self, protocol: asyncio.SubprocessProtocol, process: Popen[bytes]) -> None:
        super().__init__()
        self._protocol = protocol
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._pipes: dict[int, asyncio.BaseTransport] = {}
        self._left = {0, 1, 2, "exit"}
        """What has not ended yet."""

    @classmethod
    async def start(
        cls,
        protocol: asyncio.SubprocessProtocol,
        command: Sequence[str],
        arguments: Mapping[str, Any],
    ) -> None:
        """Start a process, and call ``protocol.connection_made()``.

        Args:
            protocol: what is told of its output and its end.
            command: the program, and its arguments.
            arguments: keyword arguments of ``Popen``; its three streams must be pipes.

        Raises what ``Popen`` raises.
        """
        process: Popen[Any] = Popen(command, bufsize=0, **arguments)
        self = cls(protocol, process)
        streams = (process.stdin, process.stdout, process.stderr)
        for number, stream in enumerate(streams):
            assert stream is not None
            descriptor = stream.fileno()
            end = to_pipe(descriptor)[0] if number == 0 else from_pipe(descriptor)
            stream.close()  # the thread has a copy
            pipe, _ = await self._loop.create_connection(partial(_Pipe, self, number), sock=end)
            self._pipes[number] = pipe
        protocol.connection_made(self)
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        self._process.wait()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._exited)

    def _exited(self) -> None:
        self._protocol.process_exited()
        self.ended("exit")

    def received(self, number: int, data: bytes) -> None:
        """Pass on what a pipe has received."""
        self._protocol.pipe_data_received(number, data)

    def lost(self, number: int, error: Exception | None) -> None:
        """Pass on the end of a pipe."""
        self._protocol.pipe_connection_lost(number, error)
        self.ended(number)

    def ended(self, which: int | str) -> None:
        """Note the end of a pipe or of the process; report the end of all."""
        self._left.discard(which)
        if not self._left:
            self._protocol.connection_lost(None)

    # What a SubprocessProtocol asks for

    def get_pid(self) -> int:
        """Return the number of the process."""
        return self._process.pid

    def get_returncode(self) -> int | None:
        """Return its status; None while it runs."""
        return self._process.returncode

    def get_pipe_transport(self, fd: int) -> asyncio.BaseTransport | None:
        """Return the transport of standard input, output or error."""
        return self._pipes.get(fd)

    def close(self) -> None:
        """Close the pipes. The caller has ended the process."""
        for pipe in self._pipes.values():
            pipe.close()


class _Pipe(asyncio.Protocol):
    """Tells a process what one of its pipes receives."""

    def __init__(self, process: PipedProcess, number: int) -> None:
        self._process = process
        self._number = number

    def data_received(self, data: bytes) -> None:
        self._process.received(self._number, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._process.lost(self._number, exc)
