"""Threads for handlers: so many at a time, and none while there is nothing to do."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

_Work: TypeAlias = Callable[[], None]


class Workers:
    """Runs what it is given; when all threads are busy, it waits its turn."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[_Work] = deque()
        self._busy = 0
        self._moved = threading.Condition()

    def run(self, work: _Work) -> None:
        """Run it in a thread, soon. It must not raise."""
        with self._moved:
            if self._busy == self._most:
                self._waiting.append(work)
                return
            self._busy += 1
        # What a handler never comes back from must not keep the program from ending.
        threading.Thread(target=self._work, args=(work,), name="sansmcp", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Wait until nothing is running; False if something still is."""
        with self._moved:
            return self._moved.wait_for(lambda: not self._busy, seconds)

    def _work(self, work: _Work | None) -> None:
        while work is not None:
            work()
            with self._moved:
                work = self._waiting.popleft() if self._waiting else None
                if work is None:
                    self._busy -= 1
                    self._moved.notify_all()
