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

_LINGER = 0.2
"""Seconds that a thread waits for more: to start one takes longer than most handlers do."""


class Workers:
    """Runs what it is given; when all threads are busy, it waits its turn.

    One thread at a time is on its way to what waits, and when it has come, it summons the next one.
    So a few threads do what takes no time, however much comes at once.
    """

    def __init__(self, most: int) -> None:
        """Set up for so many threads at most. Raises LocalProtocolError if that is none."""
        if most < 1:
            raise LocalProtocolError(f"There must be a thread for handlers, not {most}")
        self._most = most
        self._linger = _LINGER
        self._begin()

    def run(self, work: _Work) -> None:
        """Run it in a thread, soon, with the context variables of its caller. It must not raise."""
        work = partial(contextvars.copy_context().run, work)
        if self._process != os.getpid():
            self._begin()  # a fork has left the threads behind
        with self._moved:
            self._waiting.append(work)
            self._summon()

    def end(self, seconds: float) -> bool:
        """Wait until all threads have ended, as each does now that has no work; False if not."""
        with self._moved:
            self._linger = 0.0
            for bell in self._idle:
                bell.release()
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

    def _summon(self) -> None:
        """Let one more thread come to what waits, if there may be one and none is on its way."""
        if self._coming is not None or not self._waiting:
            return
        if self._idle:
            self._coming = self._idle.pop()  # the others will have waited long enough
            self._coming.release()
        elif self._threads < self._most:
            bell = threading.Lock()
            # What a handler never comes back from must not keep the program from ending.
            thread = threading.Thread(target=self._work, args=(bell,), name="sansmcp", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no more
                if not self._threads:
                    raise
            else:
                self._coming = bell
                self._threads += 1

    def _work(self, bell: threading.Lock) -> None:
        bell.acquire()
        while (work := self._next(bell)) is not None:
            work()

    def _next(self, bell: threading.Lock) -> _Work | None:
        """What the thread of a bell is to do; None: it is to end."""
        while True:
            with self._moved:
                if self._coming is bell:
                    self._coming = None
                if self._waiting:
                    work = self._waiting.popleft()
                    self._summon()
                    return work
                self._idle.append(bell)
            if not self._is_summoned(bell):
                return None

    def _is_summoned(self, bell: threading.Lock) -> bool:
        """Wait to be summoned; False if it takes too long, and there is a thread less."""
        if bell.acquire(timeout=self._linger):
            return True
        with self._moved:
            if bell not in self._idle:
                return bell.acquire()  # it has just been summoned
            self._idle.remove(bell)
            self._threads -= 1
            self._moved.notify_all()
            return False
