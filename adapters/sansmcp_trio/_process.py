"""The server process of a client."""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from subprocess import PIPE

import trio

from sansmcp.effects import (
    CloseInput,
    KillProcess,
    ProcessEffect,
    StartProcess,
    TerminateProcess,
    WriteInput,
)
from sansmcp.process import (
    ErrorEnd,
    ErrorOutput,
    Output,
    OutputEnd,
    ProcessExit,
    ProcessFailed,
    ProcessPart,
)
from sansmcp.types import never
from sansmcp_local import signal_group

_END = b""


class ServerProcess:
    """Does what the machine wants with the process; it may want another one after the first."""

    def __init__(
        self,
        feed: Callable[[ProcessPart], None],
        may_read: Callable[[], Awaitable[None]],
        nursery: trio.Nursery,
        environment: Mapping[str, str],
        directory: str | os.PathLike[str] | None,
    ) -> None:
        """``feed`` is told what the process says; ``may_read`` lets its reader wait."""
        self._nursery = nursery
        self._new = functools.partial(_Process, feed, may_read, environment, directory)
        self._process = self._new()

    def perform(self, effect: ProcessEffect) -> None:
        """Perform an effect; what takes time happens in a task."""
        match effect:
            case StartProcess(command):
                self._process.leave()
                self._process = self._new()
                self._nursery.start_soon(self._process.run, command)
            case WriteInput(data):
                self._process.write(data)
            case CloseInput():
                self._process.write(_END)
            case TerminateProcess():
                self._process.signal(kill=False)
            case KillProcess():
                self._process.signal(kill=True)
            case _ as impossible:
                never(impossible)


class _Process:
    """One process, and what it says."""

    def __init__(
        self,
        feed: Callable[[ProcessPart], None],
        may_read: Callable[[], Awaitable[None]],
        environment: Mapping[str, str],
        directory: str | os.PathLike[str] | None,
    ) -> None:
        self._feed = feed
        self._may_read = may_read
        self._environment = environment
        self._directory = directory
        self._scope = trio.CancelScope()
        self._to_write: deque[bytes] = deque()
        self._written = trio.Event()
        self._process: trio.Process | None = None
        self._is_killed = False  # what has its number after that may be somebody else

    def leave(self) -> None:
        self._scope.cancel()

    async def run(self, command: tuple[str, ...]) -> None:
        """Start it, and stay with it."""
        with self._scope:
            await self._run(command)

    async def _run(self, command: tuple[str, ...]) -> None:
        try:
            process = await trio.lowlevel.open_process(
                command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                cwd=self._directory,
                env=self._environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # a command with a NUL is a ValueError
            self._tell(ProcessFailed(str(error)))
            return
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_to, process.stdin)
                nursery.start_soon(self._read_output, process.stdout)
                nursery.start_soon(self._read_log, process.stderr)
                self._tell(ProcessExit(await process.wait()))
        finally:  # also when the client was cancelled: nothing may go on without it
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
                    if data == _END:
                        await stream.aclose()
                        return
                    await stream.send_all(data)
        except (OSError, trio.BrokenResourceError):
            pass  # it reads no more; how it ends will tell why

    async def _read_output(self, stream: trio.abc.ReceiveStream) -> None:
        while data := bytes(await stream.receive_some(65536)):
            self._tell(Output(data))
            await self._may_read()
        self._tell(OutputEnd())

    async def _read_log(self, stream: trio.abc.ReceiveStream) -> None:
        while data := bytes(await stream.receive_some(65536)):
            self._tell(ErrorOutput(data))
        self._tell(ErrorEnd())

    def _tell(self, part: ProcessPart) -> None:
        if not self._scope.cancel_called:
            self._feed(part)

    def write(self, data: bytes) -> None:
        """Let it read this, or the end of its input."""
        self._to_write.append(data)
        self._written.set()

    def signal(self, *, kill: bool) -> None:
        """Ask it to end, or make it, with all that it has started."""
        if self._process is not None and not self._is_killed:
            self._is_killed = kill
            signal_group(self._process.pid, kill=kill)
