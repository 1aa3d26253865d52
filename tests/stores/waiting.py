"""Stores that can be used without an event loop of one's own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

from sansmcp import AppendResult, AsyncStore, Entry, Limits, Page, StreamKey
from sansmcp.effects import StoreAppend, StoreDrop, StoreEffect, StoreRead
from sansmcp_stores import SqliteStore
from sansmcp_stores._sqlite_file import SqliteFile

_Result = TypeVar("_Result")


class WaitingStore:
    """A synchronous store, which waits for an asynchronous one in a loop of its own."""

    def __init__(self, store: AsyncStore) -> None:
        self.store = store
        self._loop = asyncio.new_event_loop()
        self._appends = 0

    @property
    def is_durable(self) -> bool:
        return getattr(self.store, "is_durable", False)

    @property
    def secret(self) -> bytes:
        return self.store.secret  # type: ignore[attr-defined, no-any-return]  # pyright: ignore

    def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str = "", now: float = 0.0
    ) -> AppendResult:
        """Append entries, with a token of its own unless one is given."""
        self._appends += 1
        token = token or f"append {self._appends} by {id(self)}"
        return self.run(self.store.append(key, entries, token=token, now=now))

    def read(
        self, key: StreamKey, after: int, *, limit: int = 10**6, max_bytes: int = 10**9
    ) -> Page | None:
        return self.run(self.store.read(key, after, limit=limit, max_bytes=max_bytes))

    def drop(self, principal: str, session: str) -> None:
        self.run(self.store.drop(principal, session))

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine."""
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        self.store.close()  # type: ignore[attr-defined]  # pyright: ignore
        self._loop.close()


def open_sqlite(path: Path, limits: Limits | None = None, **settings: Any) -> WaitingStore:
    """Open a SqliteStore, and wait for it."""
    return WaitingStore(SqliteStore(path, limits, **settings))


class DirectSqlite:
    """The file of a SqliteStore, used without its threads: for a test in which time is virtual."""

    def __init__(
        self,
        path: Path | str,
        limits: Limits | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        store = SqliteStore(path, limits, clock=clock)
        self.secret = store.secret
        store.close()
        self._file = SqliteFile(str(path), limits or Limits(), clock)

    is_durable = True

    def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        effect = StoreAppend(stream=key, entries=entries, token=token)
        return cast("AppendResult", self._perform(effect))

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        effect = StoreRead(stream=key, after=after, limit=limit, max_bytes=max_bytes)
        return cast("Page | None", self._perform(effect))

    def drop(self, principal: str, session: str) -> None:
        self._perform(StoreDrop(principal=principal, session=session))

    def close(self) -> None:
        self._file.close()

    def _perform(self, effect: StoreEffect) -> Any:
        (outcome,) = self._file.perform([effect], time.monotonic())
        if isinstance(outcome, Exception):
            raise outcome
        return outcome
