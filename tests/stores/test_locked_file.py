"""A file that another process locks stops no event loop; what waits is given up, and repeated."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sansmcp
import sansmcp_asyncio
from sansmcp import AppendResult, Entry, StreamKey
from sansmcp_stores import SqliteStore

from .waiting import WaitingStore, open_sqlite

KEYS = [StreamKey("", "", f"stream {number}") for number in range(20)]
ENTRIES = (Entry(1, b"x"),)
STORED = AppendResult.STORED


class Clock:
    """Time that passes only while a store waits for a file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        own = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep, time=lambda: self.now)
        monkeypatch.setattr("sansmcp_stores._sqlite.time", own)
        monkeypatch.setattr("sansmcp_stores._sqlite_file.time", own)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WaitingStore]:
    with closing(open_sqlite(tmp_path / "a.db", busy_timeout=0.5)) as store:
        yield store


@pytest.fixture
def other(store: WaitingStore, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Another process."""
    path = tmp_path / "a.db"
    with closing(
        sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    ) as connection:
        yield connection


def at_once(store: WaitingStore, works: list[Any]) -> list[Any]:
    """What operations return or raise that are submitted at the same time."""

    async def main() -> list[Any]:
        return await asyncio.gather(*works, return_exceptions=True)

    return store.run(main())


def test_what_waits_is_given_up_together(
    store: WaitingStore, clock: Clock, other: sqlite3.Connection
) -> None:
    """A file locked for long costs each operation its time, and no more.

    The twenty are two batches, or more; those of the second one have waited already.
    """
    other.execute("BEGIN IMMEDIATE")
    for expected in (0.5, 1.0):
        works: list[Any] = [store.store.append(key, ENTRIES, token="a", now=0) for key in KEYS]
        works.append(store.store.drop("", "session"))
        for outcome in at_once(store, works):
            assert isinstance(outcome, sqlite3.OperationalError)
            assert "a.db' is locked by another process" in str(outcome)
        assert expected <= clock.now < expected + 0.01
    other.execute("ROLLBACK")
    works = [store.store.append(key, ENTRIES, token="a", now=0) for key in KEYS]
    assert at_once(store, works) == [STORED] * len(KEYS)


def test_what_waits_goes_on(
    store: WaitingStore, monkeypatch: pytest.MonkeyPatch, other: sqlite3.Connection
) -> None:
    """An operation waits for a file that is free before its time is over."""
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 5:
            other.execute("ROLLBACK")

    own = SimpleNamespace(monotonic=lambda: 0.0, sleep=sleep)
    monkeypatch.setattr("sansmcp_stores._sqlite_file.time", own)
    monkeypatch.setattr("sansmcp_stores._sqlite.time", own)
    other.execute("BEGIN IMMEDIATE")
    assert store.append(KEYS[0], ENTRIES) is STORED
    assert len(waits) == 5


def test_reading_waits_for_nobody(store: WaitingStore, other: sqlite3.Connection) -> None:
    """Neither for another process nor for an append that waits for it."""
    assert store.append(KEYS[0], ENTRIES) is STORED
    other.execute("BEGIN IMMEDIATE")

    async def main() -> None:
        append = asyncio.ensure_future(store.store.append(KEYS[1], ENTRIES, token="a", now=0))
        for _ in range(10):
            page = await store.store.read(KEYS[0], 0, limit=9, max_bytes=9)
            assert page is not None
            assert page.last.seq == 1
        assert not append.done()
        other.execute("ROLLBACK")
        assert await append is STORED

    store.store._busy_timeout = 60  # type: ignore[attr-defined]  # noqa: SLF001  # pyright: ignore
    store.run(main())


app = sansmcp.App("locked", "1")


@app.handler("tools/call")
async def call_tool(call: sansmcp_asyncio.Call) -> dict[str, Any]:
    await call.progress(1, message="begun")
    return {"content": []}


def test_a_locked_file_stops_no_loop(tmp_path: Path) -> None:
    """A bystander's echo took 8 s with 20 streams.

    While streams wait for the file, the server answers others, and no event is sent that is not
    stored. When the file is free, all streams go on, and lose nothing.
    """
    path = tmp_path / "a.db"
    with (
        closing(SqliteStore(path, busy_timeout=0.2)) as store,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        asyncio.run(call_while_locked(store, other))


async def call_while_locked(store: SqliteStore, other: sqlite3.Connection) -> None:
    async with (
        sansmcp_asyncio.serve(app, http=("127.0.0.1", 0), store=store) as serving,
        sansmcp_asyncio.connect(serving.url, versions=("2025-11-25",)) as client,
    ):
        seen: list[float] = []
        other.execute("BEGIN IMMEDIATE")
        calls = [
            asyncio.ensure_future(
                client.call_tool("a", timeout=60, on_progress=lambda p: seen.append(p.progress))
            )
            for _ in range(20)
        ]
        for _ in range(20):
            await client.ping()
        assert not seen
        assert not any(call.done() for call in calls)
        other.execute("ROLLBACK")
        for result in await asyncio.gather(*calls):
            assert result["content"] == []
        assert seen == [1] * 20
