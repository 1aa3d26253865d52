"""The server process of a client."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from subprocess import PIPE
from typing import Protocol

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


class Listener(Protocol):
    """Who is told what the process says."""

    def feed(self, part: ProcessPart) -> None:
        """It has said something."""

    async def may_read(self) -> None:
        """Wait until more of its output may be read."""


class ServerProcess:
    """Does what the machine wants with the process, and tells it what the process says."""

    def __init__(
        self,
        client: Listener,
        nursery: trio.Nursery,
        environment: Mapping[str, str] | None,
        directory: str | os.PathLike[str] | None,
    ) -> None:
        self._client = client
        self._nursery = nursery
        self._environment = environment
        self._directory = directory
        self._to_write: deque[bytes] = deque()
        self._written = trio.Event()
        self._process: trio.Process | None = None
        self._is_killed = False  # what has its number after that may be somebody else

    def perform(self, effect: ProcessEffect) -> None:
        """Perform an effect; what takes time happens in a task."""
        match effect:
            case StartProcess(command):
                self._nursery.start_soon(self._run, command)
            case WriteInput(data):
                self._write(data)
            case CloseInput():
                self._write(_END)
            case TerminateProcess():
                self._signal(kill=False)
            case KillProcess():
                self._signal(kill=True)
            case _ as impossible:
                never(impossible)

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
            self._client.feed(ProcessFailed(str(error)))
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
                self._client.feed(ProcessExit(await process.wait()))
        finally:  # also when the client was cancelled: nothing may go on without it
            self._signal(kill=True)
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
            self._client.feed(Output(data))
            await self._client.may_read()
        self._client.feed(OutputEnd())

    async def _read_log(self, stream: trio.abc.ReceiveStream) -> None:
        while data := bytes(await stream.receive_some(65536)):
            self._client.feed(ErrorOutput(data))
        self._client.feed(ErrorEnd())

    def _write(self, data: bytes) -> None:
        self._to_write.append(data)
        self._written.set()

    def _signal(self, *, kill: bool) -> None:
        if self._process is not None and not self._is_killed:
            self._is_killed = kill
            signal_group(self._process.pid, kill=kill)
