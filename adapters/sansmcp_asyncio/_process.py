"""The server process of a client."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Mapping
from subprocess import PIPE
from typing import Any, cast

from sansmcp import effects
from sansmcp import process as parts
from sansmcp.types import never
from sansmcp_local import signal_group

from ._machine import Task, Tasks, surely

_INPUT, _OUTPUT = 0, 1


class ServerProcess:
    """Does what the machine wants with the process; it may want another one after the first."""

    def __init__(
        self,
        feed: Callable[[parts.ProcessPart], None],
        tasks: Tasks,
        environment: Mapping[str, str],
        directory: str | os.PathLike[str] | None,
    ) -> None:
        """``feed`` is told what the process says."""
        self._feed = feed
        self._tasks = tasks
        self._task: Task | None = None
        self._process = _Process(feed)
        self._spawn = functools.partial(
            asyncio.get_running_loop().subprocess_exec,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=environment,
            cwd=directory,
            start_new_session=True,
        )

    def perform(self, effect: effects.ProcessEffect) -> None:
        """Perform an effect; what takes time happens in a task."""
        match effect:
            case effects.StartProcess(command):
                if self._task is not None:
                    self._process.is_left = True
                    self._process = _Process(self._feed)
                    self._task.cancel()
                self._task = self._tasks.start(self._process.run(self._spawn, command))
            case effects.WriteInput(data):
                self._process.write(data)
            case effects.CloseInput():
                self._process.write(None)
            case effects.TerminateProcess() | effects.KillProcess():
                self._process.signal(kill=isinstance(effect, effects.KillProcess))
            case _ as impossible:
                never(impossible)

    def pause(self, *, is_paused: bool) -> None:
        """Read none of its output, or go on."""
        self._process.pause(is_paused=is_paused)


class _Process(asyncio.SubprocessProtocol):
    """One process, and what it says."""

    def __init__(self, feed: Callable[[parts.ProcessPart], None]) -> None:
        self._feed = feed
        self._to_write: list[bytes | None] = []
        self._transport: asyncio.SubprocessTransport | None = None
        self._exited = asyncio.get_running_loop().create_future()
        self._gone = asyncio.get_running_loop().create_future()
        self._has_input = True
        self._is_killed = False  # what has its number after that may be somebody else
        self.is_left = False
        """Nobody wants to hear of it."""

    async def run(self, spawn: Callable[..., Awaitable[Any]], command: tuple[str, ...]) -> None:
        """Start it, and stay with it. Nothing of it is left when this ends, or is cancelled."""
        starting = asyncio.ensure_future(self._start(spawn, command))
        try:
            await surely([starting])
            await asyncio.shield(self._gone)
        finally:
            self.is_left = True
            if self._transport is not None:
                await self._end(self._transport)

    async def _start(self, spawn: Callable[..., Awaitable[Any]], command: tuple[str, ...]) -> None:
        try:
            await spawn(lambda: self, *command)
        except (OSError, ValueError) as error:  # a command with a NUL is a ValueError
            self._tell(parts.ProcessFailed(str(error)))
            self._gone.set_result(None)

    async def _end(self, transport: asyncio.SubprocessTransport) -> None:
        self.signal(kill=True)
        try:
            await surely([self._exited])
        finally:
            transport.close()
            await surely([self._gone])

    def write(self, data: bytes | None) -> None:
        """Let it read this, or (None) the end of its input."""
        if self._transport is None:
            self._to_write.append(data)
        elif data is None:
            _stdin(self._transport).close()
        elif self._has_input and not _stdin(self._transport).is_closing():
            # uvloop raises RuntimeError otherwise, and closes before it calls pipe_connection_lost.
            _stdin(self._transport).write(data)

    def pause(self, *, is_paused: bool) -> None:
        """Read none of its output, or go on."""
        if self._transport is not None:
            stdout = cast(asyncio.ReadTransport, self._transport.get_pipe_transport(_OUTPUT))
            if is_paused:
                stdout.pause_reading()
            else:
                stdout.resume_reading()

    def signal(self, *, kill: bool) -> None:
        """Ask it to end, or make it, with all that it has started."""
        if self._transport is not None and not self._is_killed:
            self._is_killed = kill
            signal_group(self._transport.get_pid(), kill=kill)

    def _tell(self, part: parts.ProcessPart) -> None:
        if not self.is_left:
            self._feed(part)

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        for data in self._to_write:
            self.write(data)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._tell(parts.Output(data) if fd == _OUTPUT else parts.ErrorOutput(data))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """It has closed one of its streams."""
        if fd == _INPUT:
            self._has_input = False
        else:
            self._tell(parts.OutputEnd() if fd == _OUTPUT else parts.ErrorEnd())

    def process_exited(self) -> None:
        """It has ended; what it has started may still write."""
        assert self._transport is not None
        status = self._transport.get_returncode()
        assert status is not None
        _drop(_stdin(self._transport))
        self._exited.set_result(None)
        self._tell(parts.ProcessExit(status))

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended, and so have all its streams."""
        self._gone.set_result(None)


def _stdin(process: asyncio.SubprocessTransport) -> asyncio.WriteTransport:
    return cast(asyncio.WriteTransport, process.get_pipe_transport(_INPUT))


def _drop(stdin: asyncio.WriteTransport) -> None:
    """Write no more, not even what is waiting: who is left may never read it."""
    # asyncio cannot abort a pipe that has closed itself already, and says so a turn later.
    if stdin.get_write_buffer_size():
        stdin.abort()
    else:
        stdin.close()
