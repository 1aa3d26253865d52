"""The server process of a client: a task for each of its streams, and one for its end."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from subprocess import PIPE, Popen
from typing import IO, Any

from sansmcp import effects
from sansmcp import process as parts
from sansmcp.types import never
from sansmcp_local import signal_group

from ._loop import READ, WRITE, Loop, Steps, Task, Wait

_LOOK = 0.02
"""Seconds between two looks whether it has ended, where the system has no better way."""


class ServerProcess:
    """Does what the machine wants with the process; it may want another one after the first."""

    def __init__(
        self,
        loop: Loop,
        tell: Callable[[parts.ProcessPart], None],
        is_full: Callable[[], bool],
        popen: Callable[..., Popen[Any]],
    ) -> None:
        """``popen``: Popen, as far as the application has given its arguments."""
        self._is_full = is_full
        self._loop = loop
        self._tell = tell
        self._popen = popen
        self._process: Popen[bytes] | None = None
        self._is_killed = False  # what has its number after that may be somebody else
        self._tasks: list[Task] = []
        self.to_write: deque[bytes | None] = deque()
        """What it has not read yet; None is the end of its input."""

    def perform(self, effect: effects.ProcessEffect) -> None:
        """Perform an effect; what takes time happens in tasks."""
        match effect:
            case effects.StartProcess(command):
                self.close()
                self._start(command)
            case effects.WriteInput(data):
                self._write(data)
            case effects.CloseInput():
                self._write(None)
            case effects.TerminateProcess() | effects.KillProcess():
                self._signal(kill=isinstance(effect, effects.KillProcess))
            case _ as impossible:
                never(impossible)

    def close(self) -> None:
        """Let nothing be left of it."""
        if self._process is not None:
            self._signal(kill=True)
            for task in self._tasks:
                self._loop.stop(task)
            with self._process:  # closes its streams, and waits
                self._process = None

    def _start(self, command: tuple[str, ...]) -> None:
        try:
            process = self._popen(
                command, bufsize=0, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
            )
        except (OSError, ValueError) as error:  # a command with a NUL is a ValueError
            self._tell(parts.ProcessFailed(str(error)))
            return
        self._process, self._is_killed, self.to_write = process, False, deque()
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        steps = (
            self._feed(process.stdin),
            self._read(process.stdout, parts.Output, parts.OutputEnd),
            self._read(process.stderr, parts.ErrorOutput, parts.ErrorEnd),
            self._watch(process),
        )
        self._tasks = [self._loop.start(each) for each in steps]

    def _write(self, data: bytes | None) -> None:
        self.to_write.append(data)
        if self._tasks:
            self._loop.wake(self._tasks[0])

    def _signal(self, *, kill: bool) -> None:
        """Ask it to end, or make it, with all that it has started."""
        if self._process is not None and not self._is_killed:
            self._is_killed = kill
            signal_group(self._process.pid, kill=kill)

    def _feed(self, stream: IO[bytes]) -> Steps[None]:
        os.set_blocking(stream.fileno(), False)
        try:
            while True:
                while not self.to_write:
                    yield Wait()
                data = self.to_write[0]
                if data is None:
                    return
                view = memoryview(data)
                while view:
                    yield Wait(stream.fileno(), WRITE)
                    with contextlib.suppress(BlockingIOError):  # woken, and not by the pipe
                        view = view[os.write(stream.fileno(), view) :]
                self.to_write.popleft()
        except OSError:
            pass  # it reads no more; how it ends will tell why
        finally:
            self.to_write = deque(maxlen=0)
            stream.close()

    def _read(
        self,
        stream: IO[bytes],
        some: type[parts.Output | parts.ErrorOutput],
        end: type[parts.OutputEnd | parts.ErrorEnd],
    ) -> Steps[None]:
        data = b"?"
        while data:
            while some is parts.Output and self._is_full():
                yield Wait()
            yield Wait(stream.fileno(), READ)
            data = os.read(stream.fileno(), 65536)
            self._tell(some(data) if data else end())

    def _watch(self, process: Popen[bytes]) -> Steps[None]:
        try:
            handle = os.pidfd_open(process.pid)
        except (AttributeError, OSError):
            while process.poll() is None:
                yield Wait(deadline=time.monotonic() + _LOOK)
        else:
            with contextlib.closing(os.fdopen(handle)):
                yield Wait(handle, READ)
        self._tell(parts.ProcessExit(process.wait()))
