"""A store in one file of SQLite.

Two threads use the file, one to read and one to write, so that no event loop waits for the disk,
and no reader for a writer. What waits meanwhile is written in one transaction, and synchronised to
the disk once. An append takes a few milliseconds on most disks.

What is stored is as confidential as the conversations: it includes session ids, which are
credentials. So the files belong to the user of the process, and to that user only.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, cast

from sansmcp import AppendResult, Entry, Limits, LocalProtocolError, Page, RateLimit, StreamKey
from sansmcp.effects import StoreAppend, StoreDrop, StoreEffect, StoreRead, StoreTake

from ._sqlite_file import Changes, Outcome, SqliteFile
from ._store_files import shared_key
from ._worker import StoreWorker

_logger = logging.getLogger("sansmcp")

_OPENING = 10.0
"""Seconds to wait for others who open the file at the same time. Nothing is served yet."""

_INTERVAL = 0.004
_IDLE_INTERVAL = 0.010
"""Seconds between two looks at the file while logs are watched: after a change, and when none has
been seen for ``_IDLE_AFTER``. A look takes 4 us and the wake-up of the thread about 100 us, so the
longer one costs one or two hundredths of a processor. Another process is woken within 20 ms all the
same: after 10 ms at the median and 17 at the 95th percentile, from before the append to the read.
"""
_IDLE_AFTER = 1.0
_INTERVAL_AFTER_ERROR = 0.25

_Submitted: TypeAlias = tuple[StoreEffect, float]
"""An operation, and the time at which it was submitted."""


class SqliteStore:
    """An asynchronous store in one SQLite file, within the limits ``stored_...``.

    Several processes of one machine may open the same file, but not over a network. They are told
    of each other's changes (:meth:`watch`). The content outlives them: adapters set
    ``shared_store`` for it, so that after a restart clients keep their sessions and resume their
    streams. When the file is full, the oldest entries are deleted of the principal that uses most
    of it, and there of the session that uses most.

    The file, and those that SQLite and the store keep beside it (``-wal``, ``-shm`` and ``-key``),
    are created for their owner only (mode 0600).

    Its methods may be called in any event loop of asyncio or trio, also in several at the same
    time. They raise sqlite3.Error if the file cannot be used, or is damaged. An operation whose
    caller is cancelled is performed all the same.

    A process may make a store and then fork; it must not have used the store before.
    """

    is_durable = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        limits: Limits | None = None,
        *,
        clock: Callable[[], float] = time.time,
        busy_timeout: float = 2.0,
    ) -> None:
        """Create the file, if it does not exist, and check it.

        Args:
            path: the file; up to three more, with names that begin alike, are kept beside it.
            limits: the bounds, the same in all processes that use the file.
            clock: returns seconds; the same clock in all processes that use the file.
            busy_timeout: seconds after which an append or a drop fails if another process locks the
                file all the time. Servers repeat it then, until ``Limits.store_retry_timeout``, and
                refuse new work meanwhile. Reading does not wait for others.

        Raises:
            PermissionError: a file is a symbolic link, belongs to another user, or can be used by
                others; or others can write the folder.
            LocalProtocolError: the path names no file, or the file of the key holds no key.
            sqlite3.Error: the file is no database, is damaged, or is in use for too long.
            OSError: a file cannot be created, read or written.
        """
        if os.fspath(path) in ("", ":memory:"):
            raise LocalProtocolError(
                f"path must name a file, got {os.fspath(path)!r}; MemoryStore keeps logs in memory"
            )
        path = os.path.abspath(path)
        limits = limits or Limits()
        self._busy_timeout = busy_timeout
        self._writing = SqliteFile(path, limits, clock)
        self._reading = SqliteFile(path, limits, clock)
        try:
            self._writing.create(time.monotonic() + _OPENING)
            self._secret = shared_key(path + "-key")
        finally:
            # The threads open it again: a process that forks must not have the file open.
            self._writing.close()
        self._writer = StoreWorker[_Submitted, Outcome](self._write, name="sansmcp SqliteStore")
        self._reader = StoreWorker[_Submitted, Outcome](
            self._read, look=self._look, name="sansmcp SqliteStore reader"
        )
        self._watches = _Watches()
        self._last_change = 0.0
        """Time at which a look at the file has found a change."""
        self._is_out_of_reach = False
        """The last look at the file has failed."""

    def close(self) -> None:
        """Finish what has been submitted, and close the file. Its content stays.

        Blocks the calling thread for that time. A second call has no effect.
        """
        self._watches.close()
        self._writer.close()
        self._reader.close()
        self._writing.close()
        self._reading.close()

    @property
    def secret(self) -> bytes:
        """32 random bytes, the same for all who use the file: a key of a StateSigner.

        They are in a file of their own beside it (``-key``), so that copies of the store do not
        give away the key.
        """
        return self._secret

    async def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        """Append entries to a log, all or none of them; see :meth:`sansmcp.Store.append`.

        Age is told by the clock of the store: ``now`` means nothing to other processes.
        """
        effect = StoreAppend(stream=key, entries=entries, token=token)
        size = sum(len(entry.data) for entry in entries)
        result = await self._writer.submit((effect, time.monotonic()), size)
        return cast("AppendResult", result)

    async def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        """Return the entries that follow number ``after``; see :meth:`sansmcp.Store.read`."""
        effect = StoreRead(stream=key, after=after, limit=limit, max_bytes=max_bytes)
        return cast("Page | None", await self._reader.submit((effect, time.monotonic())))

    async def drop(self, principal: str, session: str) -> None:
        """Delete all logs of a session."""
        effect = StoreDrop(principal=principal, session=session)
        await self._writer.submit((effect, time.monotonic()))

    async def take(self, bucket: str, count: int, limit: RateLimit, *, now: float) -> float:
        """Take tokens from a bucket; see :meth:`sansmcp.RateStore.take`.

        The clock of the store tells the time.
        """
        effect = StoreTake(bucket=bucket, count=count, limit=limit)
        return cast("float", await self._writer.submit((effect, time.monotonic())))

    def watch(self, key: StreamKey, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed()`` when a log may have new entries.

        See :meth:`sansmcp.WatchableStore.watch`. It is called in a thread of the store. Appends of
        this process are found at once, those of others by a look at the file every few
        milliseconds.

        Raises:
            LocalProtocolError: the store is closed.
        """
        end = self._watches.add(key, changed)
        self._reader.wake()
        return end

    # In the thread that writes

    def _write(self, batch: Sequence[_Submitted]) -> Sequence[Outcome | Exception]:
        effects = [effect for effect, _ in batch]
        outcomes = self._writing.perform(effects, self._give_up_at(batch))
        if any(
            (effect.stream in self._watches and outcome is AppendResult.STORED)
            if isinstance(effect, StoreAppend)
            else isinstance(effect, StoreDrop) and self._watches
            for effect, outcome in zip(effects, outcomes, strict=True)
        ):
            self._reader.wake()
        return outcomes

    # In the thread that reads

    def _read(self, batch: Sequence[_Submitted]) -> Sequence[Outcome | Exception]:
        effects = [effect for effect, _ in batch]
        return self._reading.perform(effects, self._give_up_at(batch))

    def _look(self) -> float | None:
        """Call the watches of changed logs. Returns the seconds until the next time."""
        if not self._watches:
            self._reading.forget_changes()
            return None
        try:
            changes = self._reading.changes()
        except (sqlite3.Error, LocalProtocolError):
            self._is_out_of_reach = True
            return _INTERVAL_AFTER_ERROR
        now = time.monotonic()
        if changes is None or self._is_out_of_reach:
            self._is_out_of_reach = False
            self._watches.call_all()
        else:
            self._watches.call(changes)
        if changes is None or changes:
            self._last_change = now
        return _INTERVAL if now - self._last_change < _IDLE_AFTER else _IDLE_INTERVAL

    def _give_up_at(self, batch: Sequence[_Submitted]) -> float:
        # The first one has waited for longest. Those that were submitted while it waited for a
        # locked file do not wait for their full time again after it has failed.
        return batch[0][1] + self._busy_timeout


class _Watches:
    """The functions to call when logs change. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_log: dict[StreamKey, dict[object, Callable[[], None]]] = {}
        self._new: list[Callable[[], None]] = []
        """Those that have not been called yet."""
        self._is_closed = False

    def __bool__(self) -> bool:
        return bool(self._by_log)

    def __contains__(self, key: StreamKey) -> bool:
        return key in self._by_log

    def add(self, key: StreamKey, changed: Callable[[], None]) -> Callable[[], None]:
        """Add a function. Returns one that removes it."""
        name = object()

        def end() -> None:
            with self._lock:
                watches = self._by_log.get(key, {})
                watches.pop(name, None)
                if not watches:
                    self._by_log.pop(key, None)

        with self._lock:
            if self._is_closed:
                raise LocalProtocolError("The store is closed")
            self._by_log.setdefault(key, {})[name] = changed
            self._new.append(changed)
        return end

    def close(self) -> None:
        """Remove all, and take no more."""
        with self._lock:
            self._is_closed = True
            self._by_log.clear()
            self._new.clear()

    def call(self, changes: Changes) -> None:
        """Call the functions of the logs that have changed, and all new ones."""
        with self._lock:
            functions, self._new = self._new, []
            for key in changes.logs:
                functions += self._by_log.get(key, {}).values()
            dropped = set(changes.sessions)
            for key, watches in self._by_log.items() if dropped else ():
                if (key.principal, key.session) in dropped:
                    functions += watches.values()
        _call(functions)

    def call_all(self) -> None:
        """Call all functions."""
        with self._lock:
            self._new = []
            functions = [each for watches in self._by_log.values() for each in watches.values()]
        _call(functions)


def _call(functions: Iterable[Callable[[], None]]) -> None:
    for changed in functions:
        try:
            changed()
        except Exception:
            _logger.exception("the watch of a store raised an exception")
