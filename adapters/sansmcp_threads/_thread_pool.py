"""Threads for handlers: so many at a time, and soon none when there is nothing to do."""

from __future__ import annotations

import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from sansmcp import LocalProtocolError

_Work: TypeAlias = Callable[[], None]

_IDLE_THREAD_TIMEOUT = 0.2
"""Seconds that a thread waits for more: to start one takes longer than most handlers do."""


class ThreadPool:
    """Runs what it is given; when all threads are busy, it waits its turn.

    One thread at a time is on its way to what waits, and when it has come, it summons the next one.
    So a few threads do what takes no time, however much comes at once.
    """

    def __init__(self, max_threads: int) -> None:
        """Set up for so many threads at most. Raises LocalProtocolError if that is none."""
        if max_threads < 1:
            raise LocalProtocolError(f"There must be a thread for handlers, not {max_threads}")
        self._max_threads = max_threads
        self._idle_timeout = _IDLE_THREAD_TIMEOUT
        self._begin()

    def submit(self, work: _Work) -> None:
        """Run it in a thread, soon, with the context variables of its caller. It must not raise."""
        work = partial(contextvars.copy_context().run, work)
        if self._process != os.getpid():
            self._begin()  # a fork has left the threads behind
        with self._moved:
            self._waiting.append(work)
            self._wake_thread()

    def join_all(self, seconds: float) -> bool:
        """Wait until all threads have ended, as each does now that has no work; False if not."""
        with self._moved:
            self._idle_timeout = 0.0
            for wakeup in self._idle:
                wakeup.release()
            self._idle.clear()
            return self._moved.wait_for(lambda: not self._threads, seconds)

    def _begin(self) -> None:
        self._process = os.getpid()
        self._waiting: deque[_Work] = deque()
        self._threads = 0
        self._idle: list[threading.Lock] = []
        """The bell of each idle thread: a lock, which is released to summon the thread."""
        self._coming: threading.Lock | None = None
        self._moved = threading.Condition(threading.Lock())

    def _wake_thread(self) -> None:
        """Let one more thread come to what waits, if there may be one and none is on its way."""
        if self._coming is not None or not self._waiting:
            return
        if self._idle:
            self._coming = self._idle.pop()  # the others will have waited long enough
            self._coming.release()
        elif self._threads < self._max_threads:
            wakeup = threading.Lock()
            # What a handler never comes back from must not keep the program from ending.
            thread = threading.Thread(
                target=self._work, args=(wakeup,), name="sansmcp", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # the system has no more
                if not self._threads:
                    raise
            else:
                self._coming = wakeup
                self._threads += 1

    def _work(self, wakeup: threading.Lock) -> None:
        wakeup.acquire()
        while (work := self._next(wakeup)) is not None:
            work()

    def _next(self, wakeup: threading.Lock) -> _Work | None:
        """What the thread of a bell is to do; None: it is to end."""
        while True:
            with self._moved:
                if self._coming is wakeup:
                    self._coming = None
                if self._waiting:
                    work = self._waiting.popleft()
                    self._wake_thread()
                    return work
                self._idle.append(wakeup)
            if not self._wait_for_wakeup(wakeup):
                return None

    def _wait_for_wakeup(self, wakeup: threading.Lock) -> bool:
        """Wait to be summoned; False if it takes too long, and there is a thread less."""
        if wakeup.acquire(timeout=self._idle_timeout):
            return True
        with self._moved:
            if wakeup not in self._idle:
                return wakeup.acquire()  # it has just been summoned
            self._idle.remove(wakeup)
            self._threads -= 1
            self._moved.notify_all()
            return False
