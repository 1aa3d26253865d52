"""A pool of threads that has an upper bound, and ends its threads when they are idle."""

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
"""Seconds after which an idle thread ends. Not at once: to start one costs more than most handlers
take.
"""


class ThreadPool:
    """Run functions in threads, up to ``max_threads`` at a time. Further ones wait in a queue.

    One thread at a time is woken or started. When it takes its first function from the queue, it
    wakes the next one. So a few threads handle many short functions, even if all come at once.
    """

    def __init__(self, max_threads: int) -> None:
        """Set up the pool. Raises LocalProtocolError if ``max_threads`` is below 1."""
        if max_threads < 1:
            raise LocalProtocolError(f"There must be a thread for handlers, not {max_threads}")
        self._max_threads = max_threads
        self._idle_timeout = _IDLE_THREAD_TIMEOUT
        self._begin()

    def submit(self, work: _Work) -> None:
        """Run ``work`` in a thread, with the caller's context variables. It must not raise.

        Raises:
            RuntimeError: the pool has no thread, and the system has none for it.
        """
        work = partial(contextvars.copy_context().run, work)
        if self._process != os.getpid():
            self._begin()  # this process was forked, and has none of the threads
        with self._moved:
            self._waiting.append(work)
            try:
                self._wake_thread()
            except RuntimeError:
                self._waiting.pop()  # the caller is told that it does not run
                raise

    def join_all(self, seconds: float) -> bool:
        """End all threads as soon as they are idle, and wait up to ``seconds`` for that.

        Returns:
            False if a thread is still running.
        """
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
        """The wakeup lock of each idle thread, which waits to acquire it. Release it to wake it."""
        self._coming: threading.Lock | None = None
        self._moved = threading.Condition(threading.Lock())

    def _wake_thread(self) -> None:
        """Wake or start a thread for the queue, unless one is on its way or all are busy."""
        if self._coming is not None or not self._waiting:
            return
        if self._idle:
            self._coming = self._idle.pop()  # the latest, so that surplus threads time out
            self._coming.release()
        elif self._threads < self._max_threads:
            wakeup = threading.Lock()
            # A daemon thread: a handler that never returns must not keep the program from exiting.
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
        """Wait for the next function of this thread; None if the thread is to end."""
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
        """Wait to be woken. Return False after the idle timeout: the thread must end."""
        if wakeup.acquire(timeout=self._idle_timeout):
            return True
        with self._moved:
            if wakeup not in self._idle:
                return wakeup.acquire()  # it has just been woken
            self._idle.remove(wakeup)
            self._threads -= 1
            self._moved.notify_all()
            return False
