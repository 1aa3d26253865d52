"""The server process of a client: a task for each of its streams, and one for its end."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from subprocess import Popen
from typing import IO, Any

from sansmcp import process as parts
from sansmcp_local import START_ERRORS, ChildProcess

from ._loop import READ, WRITE, Loop, Steps, Task, Wait

_POLL_INTERVAL = 0.02
"""Seconds between two checks whether it has ended, where the system offers only polling."""


class BlockingProcess(ChildProcess):
    """One process, and its pipes."""

    def __init__(
        self,
        feed: Callable[[parts.ProcessPart], None],
        is_full: Callable[[], bool],
        loop: Loop,
        arguments: Mapping[str, Any],
    ) -> None:
        """Set up the process; while ``is_full``, its output is not read."""
        super().__init__(feed)
        self._is_full = is_full
        self._loop = loop
        self._arguments = arguments
        self._process: Popen[bytes] | None = None
        self._tasks: list[Task] = []
        self.to_write: deque[bytes | None] = deque()
        """Bytes that are not written yet; None is the end of the input."""

    def start(self, command: tuple[str, ...]) -> None:
        """Start the process, and the tasks of its streams."""
        try:
            process: Popen[Any] = Popen(command, bufsize=0, **self._arguments)
        except START_ERRORS as error:
            self._report(parts.ProcessStartFailed(str(error)))
            return
        self._process, self._pid = process, process.pid
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        steps = (
            self._write_to(process.stdin),
            self._read(process.stdout, parts.StdoutData, parts.StdoutClosed),
            self._read(process.stderr, parts.StderrData, parts.StderrClosed),
            self._watch(process),
        )
        self._tasks = [self._loop.start(each) for each in steps]

    def write(self, data: bytes | None) -> None:
        """Write to its standard input without waiting; None closes it."""
        self.to_write.append(data)
        if self._tasks:
            self._loop.wake(self._tasks[0])

    def leave(self) -> None:
        """End the process and wait for that, without further reports."""
        self._is_left = True
        self.signal(kill=True)
        for task in self._tasks:
            self._loop.stop(task)
        if self._process is not None:
            with self._process:  # closes its streams, and waits
                pass

    def _write_to(self, stream: IO[bytes]) -> Steps[None]:
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
            pass  # it has closed its input; its exit status will tell why
        finally:
            self.to_write = deque(maxlen=0)
            stream.close()

    def _read(
        self,
        stream: IO[bytes],
        some: type[parts.StdoutData | parts.StderrData],
        end: type[parts.StdoutClosed | parts.StderrClosed],
    ) -> Steps[None]:
        data = b"?"
        while data:
            while some is parts.StdoutData and self._is_full():
                yield Wait()
            yield Wait(stream.fileno(), READ)
            data = os.read(stream.fileno(), 65536)
            self._report(some(data) if data else end())

    def _watch(self, process: Popen[bytes]) -> Steps[None]:
        try:
            handle = os.pidfd_open(process.pid)
        except (AttributeError, OSError):
            while process.poll() is None:
                yield Wait(deadline=time.monotonic() + _POLL_INTERVAL)
        else:
            with contextlib.closing(os.fdopen(handle)):
                yield Wait(handle, READ)
        self._report(parts.ProcessExited(process.wait()))
