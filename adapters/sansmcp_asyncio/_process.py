"""The server process of a client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from sansmcp import process as parts
from sansmcp_local import START_ERRORS, AsyncioTask, ChildProcess, start_failure, wait_all_shielded

from ._piped_process import PipedProcess
from ._tasks import Tasks

_INPUT, _OUTPUT = 0, 1

_LOOK_INTERVAL = 0.05
"""Seconds after which to look again if a process has read its input."""


class _Output(asyncio.Protocol):
    """Takes standard output when it is read. asyncio would pass it on in the loop's next turn."""

    def __init__(self, received: Callable[[bytes], None], own: asyncio.BaseProtocol) -> None:
        self._received = received
        self._own = own
        """The protocol of asyncio, which has to know when the pipe is closed."""

    def data_received(self, data: bytes) -> None:
        self._received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._own.connection_lost(exc)


class AsyncioProcess(ChildProcess, asyncio.SubprocessProtocol):
    """One process, and its pipes."""

    def __init__(
        self,
        feed: Callable[[parts.ProcessPart], None],
        tasks: Tasks,
        arguments: Mapping[str, Any],
    ) -> None:
        super().__init__(feed)
        self._tasks = tasks
        self._arguments = arguments
        loop = asyncio.get_running_loop()
        self._task: AsyncioTask | None = None
        self._to_write: list[bytes | None] = []
        self._transport: asyncio.SubprocessTransport | None = None
        self._exited = loop.create_future()
        self._gone = loop.create_future()
        self._has_input = True
        self._is_full = False
        """True if the client takes no output at present."""
        self.is_behind = False
        """True if the process has to read its input first."""

    def start(self, command: tuple[str, ...]) -> None:
        """Start the process, in a task that runs until it ends."""
        self._task = self._tasks.start(self._run(command))

    def leave(self) -> None:
        """End the process, without further reports."""
        self._is_left = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self, command: tuple[str, ...]) -> None:
        """Start the process and wait for its end. If cancelled, end the process."""
        starting = asyncio.ensure_future(self._start(command))
        try:
            await wait_all_shielded([starting])
            await asyncio.shield(self._gone)
        finally:
            self._is_left = True
            if self._transport is not None:
                await self._end(self._transport)

    async def _start(self, command: tuple[str, ...]) -> None:
        loop = asyncio.get_running_loop()
        try:
            try:
                await loop.subprocess_exec(lambda: self, *command, **self._arguments)
            except (NotImplementedError, RuntimeError):  # a loop that cannot, or not in this thread
                await PipedProcess.start(self, command, self._arguments)
        except START_ERRORS as error:
            self._report(start_failure(error))
            self._gone.set_result(None)

    async def _end(self, transport: asyncio.SubprocessTransport) -> None:
        self.signal(kill=True)
        try:
            await wait_all_shielded([self._exited])
        finally:
            transport.close()
            await wait_all_shielded([self._gone])

    def write(self, data: bytes | None) -> None:
        """Write to its standard input without waiting; None closes it."""
        if self._transport is None:
            self._to_write.append(data)
        elif data is None:
            _stdin(self._transport).close()
        elif self._has_input and not _stdin(self._transport).is_closing():
            # uvloop raises RuntimeError otherwise, and closes before it calls pipe_connection_lost.
            _stdin(self._transport).write(data)
            if not self.is_behind:
                self._look_at_input()

    def _look_at_input(self) -> None:
        """Read no output while too much of the input is unread."""
        if self._is_left:
            return
        assert self._transport is not None, "something was written to it"
        unread = _stdin(self._transport).get_write_buffer_size()
        is_behind = unread > self.max_unread
        if is_behind is not self.is_behind:
            self.is_behind = is_behind
            self._pause()
        if is_behind:
            asyncio.get_running_loop().call_later(_LOOK_INTERVAL, self._look_at_input)

    def pause(self, *, is_paused: bool) -> None:
        """Pause or resume reading its output."""
        self._is_full = is_paused
        self._pause()

    def _pause(self) -> None:
        if self._transport is not None:
            stdout = _stdout(self._transport)
            if self._is_full or self.is_behind:
                stdout.pause_reading()
            else:
                stdout.resume_reading()

    # The methods that asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._has_started(self._transport.get_pid())
        stdout = _stdout(self._transport)
        stdout.set_protocol(
            _Output(partial(self.pipe_data_received, _OUTPUT), stdout.get_protocol())
        )
        for data in self._to_write:
            self.write(data)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._report(parts.StdoutData(data) if fd == _OUTPUT else parts.StderrData(data))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Report that the process has closed one of its streams."""
        if fd == _INPUT:
            self._has_input = False
        else:
            self._report(parts.StdoutClosed() if fd == _OUTPUT else parts.StderrClosed())

    def process_exited(self) -> None:
        """Report that the process has ended; its children may still write."""
        assert self._transport is not None
        status = self._transport.get_returncode()
        assert status is not None
        _drop(_stdin(self._transport))
        self._exited.set_result(None)
        self._report(parts.ProcessExited(status))

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the process and of all its streams."""
        self._gone.set_result(None)


def _stdout(process: asyncio.SubprocessTransport) -> asyncio.ReadTransport:
    return cast(asyncio.ReadTransport, process.get_pipe_transport(_OUTPUT))


def _stdin(process: asyncio.SubprocessTransport) -> asyncio.WriteTransport:
    return cast(asyncio.WriteTransport, process.get_pipe_transport(_INPUT))


def _drop(stdin: asyncio.WriteTransport) -> None:
    """Drop the unsent bytes: a remaining child may never read them."""
    # asyncio raises in a later callback if a pipe that is closed already is aborted.
    if stdin.get_write_buffer_size():
        stdin.abort()
    else:
        stdin.close()
