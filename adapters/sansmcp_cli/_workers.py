"""``sansmcp serve --workers``: several processes that accept connections from one socket. POSIX.

The parent listens, and starts the workers, which inherit its sockets. Each worker has an event loop
of its own; they share a store, so any of them may get the next request of a session. A socket that
is inherited gives a new connection to whichever worker is free. One that hangs or dies takes no new
connections with it, and the port is never closed while workers come and go.

Two pipes join a worker to the parent. The worker writes a byte to one of them when it serves. From
the other one it reads until the parent has ended, for whatever reason, and ends then, too.

The parent does nothing else, so it needs neither an event loop nor threads: signals, the ready
bytes and deadlines wake it, and then it looks at what has changed.
"""

from __future__ import annotations

import math
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager

import attrs

from ._output import UsageError, print_line

_HAS_SETTLED = 10.0
"""Seconds after which a worker that ends is replaced at once."""

_FIRST_DELAY, _MAX_DELAY = 1.0, 30.0
"""Seconds before a worker that ended sooner is replaced; doubled each time."""


@attrs.frozen
class Inherited:
    """What a worker gets from its parent; the option ``--worker`` names the descriptors."""

    listeners: list[socket.socket]
    _ready: int
    _life: int

    @classmethod
    def parse(cls, text: str) -> Inherited:
        """Take over the descriptors. The processes that a worker starts do not inherit them."""
        listeners, ready, life = text.split(":")
        sockets = [socket.socket(fileno=int(each)) for each in listeners.split(",")]
        for descriptor in (*(each.fileno() for each in sockets), int(ready), int(life)):
            os.set_inheritable(descriptor, False)  # noqa: FBT003 - it takes no name
        return cls(sockets, int(ready), int(life))

    def pause(self, seconds: float) -> None:
        """Wait before this worker serves. Raises UsageError if the parent has ended."""
        if select.select([self._life], [], [], seconds)[0]:
            raise UsageError("The process that has started this worker has ended")

    def report_ready(self, stop: Callable[[], object], stop_timeout: float) -> None:
        """Tell the parent that this worker serves, and stop it when the parent has ended.

        Args:
            stop: stops the server; called in another thread.
            stop_timeout: seconds after which the process ends in any case.
        """

        def stop_with_parent() -> None:
            while os.read(self._life, 1):
                pass
            stop()
            time.sleep(stop_timeout)
            os._exit(1)

        threading.Thread(target=stop_with_parent, daemon=True).start()
        os.write(self._ready, b"r")
        os.close(self._ready)


@attrs.define(eq=False)
class _Worker:
    """One process.

    Attributes:
        process: the process.
        ready: the descriptor from which its ready byte is read.
        began: time at which it was started.
        delay: seconds for which its start was delayed.
        is_ready: True once it serves.
        kill_at: time at which it is killed, once it was told to stop.
    """

    process: subprocess.Popen[bytes]
    ready: int
    began: float
    delay: float
    is_ready: bool = False
    kill_at: float = math.inf

    @property
    def is_told(self) -> bool:
        """True if it was told to stop."""
        return self.kill_at < math.inf

    def tell(self, timeout: float) -> None:
        """Tell it to stop, and give it ``timeout`` seconds."""
        if not self.is_told:
            self.kill_at = time.monotonic() + timeout
            self.process.terminate()


@attrs.define(eq=False)
class Workers:
    """Starts worker processes, and replaces those that end.

    SIGTERM and SIGINT stop all; SIGHUP replaces one after another, each by a worker that serves
    before the old one stops.

    Attributes:
        command: the command of a worker; ``--worker=...`` is added to it.
        count: how many there are.
        listeners: the sockets that they inherit.
        stop_timeout: seconds after which a worker is killed that was told to stop.
        on_serving: called when the first worker serves.
        stdin: True to stop when standard input ends.
    """

    command: Sequence[str]
    count: int
    listeners: Sequence[socket.socket]
    stop_timeout: float
    on_serving: Callable[[], None]
    stdin: bool = False
    _selector: selectors.DefaultSelector = attrs.field(
        factory=selectors.DefaultSelector, init=False
    )
    _life: tuple[int, int] = attrs.field(factory=os.pipe, init=False)
    """The pipe that ends with this process."""
    _workers: list[_Worker] = attrs.field(factory=lambda: [], init=False)
    _due: list[tuple[float, float]] = attrs.field(factory=lambda: [], init=False)
    """When to start workers in place of others that have ended, and the delays of these starts."""
    _outdated: list[_Worker] = attrs.field(factory=lambda: [], init=False)
    """Those that are still to be replaced after a SIGHUP."""
    _replacing: tuple[_Worker, _Worker] | None = attrs.field(default=None, init=False)
    """An old worker, and the one that replaces it, until the old one has ended."""
    _has_served: bool = attrs.field(default=False, init=False)
    _is_stopping: bool = attrs.field(default=False, init=False)

    def run(self) -> None:
        """Keep the workers running until a signal stops them.

        Raises:
            UsageError: the first worker has ended before it served.
        """
        with ExitStack() as stack:
            for end in self._life:
                stack.callback(os.close, end)
            stack.callback(self._selector.close)
            wake = stack.enter_context(_signals())
            stack.callback(self._kill_all)
            self._selector.register(wake, selectors.EVENT_READ)
            if self.stdin:
                self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
            self._start(0.0)
            while self._workers or not self._is_stopping:
                for key, _ in self._selector.select(self._pause()):
                    self._read(key.fd, is_wake=key.fd == wake)
                self._look()

    def _kill_all(self) -> None:
        for worker in self._workers:
            worker.process.kill()
            worker.process.wait()

    def _pause(self) -> float | None:
        """Return the seconds until something is due; None if nothing is."""
        due = min((worker.kill_at for worker in self._workers), default=math.inf)
        due = min((due, *(at for at, _ in self._due)))
        return None if due == math.inf else max(0.0, due - time.monotonic())

    # What wakes it

    def _read(self, descriptor: int, *, is_wake: bool) -> None:
        data = os.read(descriptor, 4096)
        if is_wake:
            for number in data:
                self._on_signal(number)
            return
        worker = next((each for each in self._workers if each.ready == descriptor), None)
        if worker is not None:
            self._forget_ready(worker)
            if data:
                self._on_ready(worker)
        elif not data:
            self._selector.unregister(descriptor)
            self._stop()

    def _on_signal(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop()
        elif sys.platform != "win32" and number == signal.SIGHUP and not self._is_stopping:
            old = None if self._replacing is None else self._replacing[0]
            running = (each for each in self._workers if not each.is_told)
            self._outdated = [each for each in running if each is not old]

    def _on_ready(self, worker: _Worker) -> None:
        worker.is_ready = True
        if not self._has_served:
            self._has_served = True
            self.on_serving()
            for _ in range(1, self.count):
                self._start(0.0)
        if self._replacing is not None and worker is self._replacing[1]:
            self._replacing[0].tell(self.stop_timeout)

    def _stop(self) -> None:
        self._is_stopping = True
        self._due.clear()
        for listener in self.listeners:
            listener.close()  # the workers close theirs: later connections are refused
        for worker in self._workers:
            worker.tell(self.stop_timeout)

    # What has changed

    def _look(self) -> None:
        now = time.monotonic()
        for worker in tuple(self._workers):
            if worker.process.poll() is not None:
                self._on_end(worker, now)
            elif worker.kill_at <= now:
                _say(f"worker {worker.process.pid} has not stopped in time, and is killed")
                worker.kill_at = now + self.stop_timeout
                worker.process.kill()
        if self._is_stopping:
            return
        due = [delay for at, delay in self._due if at <= now]
        self._due = [(at, delay) for at, delay in self._due if at > now]
        for delay in due:
            self._start(delay)
        if self._replacing is None and self._outdated:
            self._replacing = self._outdated.pop(0), self._start(0.0)

    def _on_end(self, worker: _Worker, now: float) -> None:
        self._workers.remove(worker)
        self._forget_ready(worker)
        if worker in self._outdated:
            self._outdated.remove(worker)  # what is started in its place is not outdated
        how = _ending(worker.process)
        if not self._has_served and not self._is_stopping:
            raise UsageError(f"The first worker {how} before it served")
        if self._replacing is not None and worker in self._replacing:
            old, _ = self._replacing
            self._replacing = None
            if worker is old:
                return  # the new one takes its place, ready or not
            if not old.is_told:
                _say(f"the new worker {how} before it served; the old ones go on")
                self._outdated.clear()
                return
        if worker.is_told:
            return
        delay = 0.0
        if now - worker.began < _HAS_SETTLED:
            delay = min(max(_FIRST_DELAY, 2 * worker.delay), _MAX_DELAY)
        then = f"in {delay:g} s" if delay else "now"
        _say(f"worker {worker.process.pid} {how}; another one is started {then}")
        self._due.append((now + delay, delay))

    def _start(self, delay: float) -> _Worker:
        ready, theirs = os.pipe()
        life = self._life[0]
        descriptors = [listener.fileno() for listener in self.listeners]
        inherited = f"{','.join(map(str, descriptors))}:{theirs}:{life}"
        try:
            process = subprocess.Popen(
                [*self.command, f"--worker={inherited}"],
                stdin=subprocess.DEVNULL,
                pass_fds=(*descriptors, theirs, life),
                start_new_session=True,  # signals of a terminal are for the parent
            )
        finally:
            os.close(theirs)
        worker = _Worker(process, ready, time.monotonic(), delay)
        self._workers.append(worker)
        self._selector.register(ready, selectors.EVENT_READ)
        return worker

    def _forget_ready(self, worker: _Worker) -> None:
        if worker.ready >= 0:
            self._selector.unregister(worker.ready)
            os.close(worker.ready)
            worker.ready = -1


@contextmanager
def _signals() -> Generator[int, None, None]:
    """Give a descriptor from which the numbers of signals are read as bytes."""
    if sys.platform == "win32":
        raise NotImplementedError
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    wake, theirs = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(theirs, False)
    before = {number: signal.getsignal(number) for number in numbers}
    written = signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
    try:
        for number in before:
            signal.signal(number, lambda number, frame: None)
        yield wake
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(written)
        os.close(wake)
        os.close(theirs)


def _ending(process: subprocess.Popen[bytes]) -> str:
    status: int = process.returncode
    if status >= 0:
        return f"has ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}"


def _say(text: str) -> None:
    print_line(f"sansmcp: {text}", sys.stderr)
