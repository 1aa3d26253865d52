"""The server process of a client."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from sansmcp.process import (
    ProcessExited,
    ProcessPart,
    StderrClosed,
    StderrData,
    StdoutClosed,
    StdoutData,
)
from sansmcp_local import START_ERRORS, ChildProcess, start_failure


class TrioProcess(ChildProcess):
    """One process, and its pipes."""

    def __init__(
        self,
        feed: Callable[[ProcessPart], None],
        may_read: Callable[[], Awaitable[None]],
        nursery: trio.Nursery,
        arguments: Mapping[str, Any],
    ) -> None:
        """Set up the process; ``may_read`` lets its reader wait."""
        super().__init__(feed)
        self._may_read = may_read
        self._nursery = nursery
        self._arguments = arguments
        self._scope = trio.CancelScope()
        self._to_write: deque[bytes | None] = deque()
        self._written = trio.Event()
        self._unread = 0
        """Bytes that were not written to its input yet."""
        self._was_read = trio.Event()

    def start(self, command: tuple[str, ...]) -> None:
        """Start the process, in a task that runs until it ends."""
        self._nursery.start_soon(self._run, command)

    def write(self, data: bytes | None) -> None:
        """Write to its standard input without waiting; None closes it."""
        self._to_write.append(data)
        self._unread += len(data or b"")
        self._written.set()

    def leave(self) -> None:
        """End the process, without further reports."""
        self._is_left = True
        self._scope.cancel()

    async def _run(self, command: tuple[str, ...]) -> None:
        with self._scope:
            try:
                process = await trio.lowlevel.open_process(command, **self._arguments)
            except START_ERRORS as error:
                self._report(start_failure(error))
            else:
                await self._stay_with(process)

    async def _stay_with(self, process: trio.Process) -> None:
        self._has_started(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_to, process.stdin)
                nursery.start_soon(self._read_output, process.stdout)
                nursery.start_soon(self._read_log, process.stderr)
                self._report(ProcessExited(await process.wait()))
        finally:  # also if the client was cancelled: the process must not outlive it
            self.signal(kill=True)
            with trio.CancelScope(shield=True):
                await process.wait()
                for stream in (process.stdin, process.stdout, process.stderr):
                    await trio.aclose_forcefully(stream)

    async def _write_to(self, stream: trio.abc.SendStream) -> None:
        try:
            while True:
                await self._written.wait()
                self._written = trio.Event()
                while self._to_write:
                    data = self._to_write.popleft()
                    if data is None:
                        await stream.aclose()
                        return
                    await stream.send_all(data)
                    self._unread -= len(data)
                    self._was_read.set()
        except (OSError, trio.BrokenResourceError):
            pass  # it has closed its input; its exit status will tell why
        finally:
            self._unread = -sys.maxsize  # what comes now is dropped
            self._was_read.set()

    async def _read_output(self, stream: trio.abc.ReceiveStream) -> None:
        while data := bytes(await stream.receive_some(65536)):
            self._report(StdoutData(data))
            while self._unread > self.max_unread:
                self._was_read = trio.Event()
                await self._was_read.wait()
            await self._may_read()
        self._report(StdoutClosed())

    async def _read_log(self, stream: trio.abc.ReceiveStream) -> None:
        while data := bytes(await stream.receive_some(65536)):
            self._report(StderrData(data))
        self._report(StderrClosed())
