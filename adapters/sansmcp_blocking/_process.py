"""The server process of a client: a task for each of its streams, and one for its end."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from subprocess import Popen
from typing import IO, Any

import attrs

from sansmcp import process as parts
from sansmcp_local import START_ERRORS, ChildProcess, from_pipe, start_failure, to_pipe

from ._loop import READ, WRITE, Loop, Steps, Task, Wait

_POLL_INTERVAL = 0.02
"""Seconds between two checks whether it has ended, where the system offers only polling."""


@attrs.frozen
class _Pipe:
    """Our end of a pipe of the process, or the socket that stands for it on Windows."""

    descriptor: int
    """What the loop waits for."""
    read: Callable[[int], bytes]
    write: Callable[[memoryview], int]
    close: Callable[[], None]

    @classmethod
    def of(cls, stream: IO[bytes]) -> _Pipe:
        descriptor = stream.fileno()
        read, write = partial(os.read, descriptor), partial(os.write, descriptor)
        return cls(descriptor, read, write, stream.close)

    @classmethod
    def of_socket(cls, connected: socket.socket, stream: IO[bytes]) -> _Pipe:
        """Take over the socket, whose thread has a copy of the stream."""
        stream.close()
        return cls(connected.fileno(), connected.recv, connected.send, connected.close)


def _pipes_of(process: Popen[bytes]) -> tuple[_Pipe, _Pipe, _Pipe]:
    """Return what is written to the process, and what is read from it."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    if sys.platform == "win32":
        return socket_pipes_of(process)
    os.set_blocking(process.stdin.fileno(), False)
    return _Pipe.of(process.stdin), _Pipe.of(process.stdout), _Pipe.of(process.stderr)


def socket_pipes_of(process: Popen[bytes]) -> tuple[_Pipe, _Pipe, _Pipe]:
    """Return the same where nothing waits for pipes: sockets, fed by threads."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    written, _ = to_pipe(process.stdin.fileno())
    written.settimeout(0)
    return (
        _Pipe.of_socket(written, process.stdin),
        _Pipe.of_socket(from_pipe(process.stdout.fileno()), process.stdout),
        _Pipe.of_socket(from_pipe(process.stderr.fileno()), process.stderr),
    )


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
        self._unread = 0
        """Their number."""

    def start(self, command: tuple[str, ...]) -> None:
        """Start the process, and the tasks of its streams."""
        try:
            process: Popen[Any] = Popen(command, bufsize=0, **self._arguments)
        except START_ERRORS as error:
            self._report(start_failure(error))
            return
        self._process = process
        self._has_started(process.pid)
        stdin, stdout, stderr = _pipes_of(process)
        steps = (
            self._write_to(stdin),
            self._read(stdout, parts.StdoutData, parts.StdoutClosed),
            self._read(stderr, parts.StderrData, parts.StderrClosed),
            self._watch(process),
        )
        self._tasks = [self._loop.start(each) for each in steps]

    def write(self, data: bytes | None) -> None:
        """Write to its standard input without waiting; None closes it."""
        self.to_write.append(data)
        if self.to_write:  # it has not closed its input
            self._unread += len(data or b"")
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

    def _write_to(self, pipe: _Pipe) -> Steps[None]:
        try:
            while True:
                while not self.to_write:
                    yield Wait()
                data = self.to_write[0]
                if data is None:
                    return
                view = memoryview(data)
                while view:
                    yield Wait(pipe.descriptor, WRITE)
                    with contextlib.suppress(BlockingIOError):  # woken, and not by the pipe
                        view = view[pipe.write(view) :]
                self.to_write.popleft()
                self._unread -= len(data)
                if self._unread <= self.max_unread < self._unread + len(data):
                    self._loop.wake_idle()  # the output is read again
        except OSError:
            pass  # it has closed its input; its exit status will tell why
        finally:
            self.to_write = deque(maxlen=0)
            self._unread = 0
            pipe.close()

    def _read(
        self,
        pipe: _Pipe,
        some: type[parts.StdoutData | parts.StderrData],
        end: type[parts.StdoutClosed | parts.StderrClosed],
    ) -> Steps[None]:
        data = b"?"
        try:
            while data:
                while some is parts.StdoutData and (
                    self._is_full() or self._unread > self.max_unread
                ):
                    yield Wait()
                yield Wait(pipe.descriptor, READ)
                data = pipe.read(65536)
                self._report(some(data) if data else end())
        finally:
            pipe.close()

    def _watch(self, process: Popen[bytes]) -> Steps[None]:
        handle = _pidfd_of(process.pid)
        if handle is None:
            while process.poll() is None:
                yield Wait(deadline=time.monotonic() + _POLL_INTERVAL)
        else:
            with contextlib.closing(os.fdopen(handle)):
                yield Wait(handle, READ)
        self._report(parts.ProcessExited(process.wait()))


def _pidfd_of(pid: int) -> int | None:
    """Return a descriptor that is readable once the process has ended; None if there is none."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):  # an old kernel, or another libc
            return os.pidfd_open(pid)
    return None
