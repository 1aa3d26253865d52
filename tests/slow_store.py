"""An asynchronous store that a test lets wait, fail, and lose replies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from sansmcp import AppendResult, Entry, MemoryStore, Page, StreamKey
from sansmcp_local import current_loop


class SlowStore:
    """A store in memory that works in whatever loop it is used, a little later."""

    def __init__(self) -> None:
        self.memory = MemoryStore()
        self.threads: set[str] = set()
        """The names of the threads in which it was used."""
        self.most = 0
        """How many uses were under way at a time, at most."""
        self.appended = 0
        """How many entries were appended."""
        self._lock = threading.Lock()
        self._active = 0
        self._failures = 0
        self._lost_replies = 0
        self._is_held = False
        self._held: list[Callable[[], object]] = []
        self._arrived = threading.Condition(self._lock)

    # For the test, in its thread

    def fail(self, times: int) -> None:
        """Let the next appends fail."""
        self._failures = times

    def lose_replies(self, times: int) -> None:
        """Let the next appends be done, and seem to fail."""
        self._lost_replies = times

    def hold(self) -> None:
        """Let what comes from now on wait."""
        self._is_held = True

    def wait_held(self, count: int, seconds: float) -> bool:
        """Wait until so many uses are held; False if that takes too long."""
        with self._lock:
            return self._arrived.wait_for(lambda: len(self._held) >= count, seconds)

    def release(self) -> None:
        """Let all go on, the one that came last first."""
        with self._lock:
            self._is_held = False
            held, self._held = self._held, []
        for let_go in reversed(held):
            let_go()

    # For servers, in their loops

    async def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        await self._wait()
        if self._failures:
            self._failures -= 1
            raise ConnectionError("the store is away")
        with self._lock:
            count = self.memory.count
            result = self.memory.append(key, entries, token=token, now=now)
            self.appended += self.memory.count - count
        self.told(key)
        if self._lost_replies:
            self._lost_replies -= 1
            raise ConnectionError("the reply is lost")
        return result

    async def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        await self._wait()
        with self._lock:
            return self.memory.read(key, after, limit=limit, max_bytes=max_bytes)

    async def drop(self, principal: str, session: str) -> None:
        await self._wait()
        with self._lock:
            self.memory.drop(principal, session)
        self.told_of_drop(principal, session)

    def told(self, key: StreamKey) -> None:
        """Something was appended."""

    def told_of_drop(self, principal: str, session: str) -> None:
        """A session was deleted."""

    async def _wait(self) -> None:
        loop = current_loop()
        with self._lock:
            self.threads.add(threading.current_thread().name)
            self._active += 1
            self.most = max(self.most, self._active)
        try:
            await loop.checkpoint()
            if self._is_held:
                event = loop.event()
                with self._lock:
                    self._held.append(partial(loop.run_soon, event.set))
                    self._arrived.notify_all()
                await event.wait()
        finally:
            with self._lock:
                self._active -= 1


class TellingStore(SlowStore):
    """One that tells of changes, by a thread that nobody knows."""

    def __init__(self) -> None:
        super().__init__()
        self.watched: dict[StreamKey, list[Any]] = {}

    def watch(self, key: StreamKey, changed: Callable[[], None]) -> Callable[[], None]:
        current_loop()  # it may use the loop
        self.watched.setdefault(key, []).append(changed)
        _in_thread(changed)

        def end() -> None:
            current_loop()
            self.watched[key].remove(changed)
            if not self.watched[key]:
                del self.watched[key]

        return end

    def told(self, key: StreamKey) -> None:
        for changed in tuple(self.watched.get(key, ())):
            _in_thread(changed)

    def told_of_drop(self, principal: str, session: str) -> None:
        for key in tuple(self.watched):
            if (key.principal, key.session) == (principal, session):
                self.told(key)


def _in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()
