"""A SqliteStore tells of what others append to its file, and works in processes that fork."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sansmcp import AppendResult, Entry, Limits, LocalProtocolError, StreamKey
from sansmcp.effects import StoreDrop
from sansmcp_stores import SqliteStore, _sqlite_file
from sansmcp_stores._sqlite_file import SqliteFile

from .waiting import WaitingStore, open_sqlite

KEY = StreamKey("ada", "session", "stream")
OTHER = StreamKey("ada", "session", "other")
LAST = StreamKey("eve", "", "")
STORED = AppendResult.STORED


class Bell:
    """Counts calls from other threads, and waits for them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0

    def __call__(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify()

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count >= count, 20)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "a.db")) as store:
        yield store


@pytest.fixture
def other(store: SqliteStore, tmp_path: Path) -> Iterator[WaitingStore]:
    """That of another process."""
    with closing(open_sqlite(tmp_path / "a.db")) as other:
        yield other


def test_only_logs_that_changed_are_told(store: SqliteStore, other: WaitingStore) -> None:
    assert other.append(OTHER, (Entry(1, b"x"),)) is STORED
    bells = {key: Bell() for key in (KEY, OTHER, LAST)}
    ends = [store.watch(key, bell) for key, bell in bells.items()]
    for bell in bells.values():
        bell.wait(1)
    for seq in range(1, 4):
        assert other.append(KEY, (Entry(seq, b"x"),)) is STORED
        bells[KEY].wait(1 + seq)
    assert other.append(LAST, (Entry(1, b"x"),)) is STORED
    bells[LAST].wait(2)  # a change of another log before it would have been told, too
    assert [bell.count for bell in bells.values()] == [4, 1, 2]
    ends[0]()
    assert other.append(KEY, (Entry(4, b"x"),)) is STORED
    assert other.append(LAST, (Entry(2, b"x"),)) is STORED
    bells[LAST].wait(3)
    assert bells[KEY].count == 4


def test_what_is_dropped_or_pushed_out_meanwhile(store: SqliteStore, other: WaitingStore) -> None:
    """The number by which changes are found only grows."""
    bell = Bell()
    assert other.append(OTHER, tuple(Entry(seq, b"x") for seq in range(1, 20))) is STORED
    store.watch(KEY, bell)
    bell.wait(1)
    other.drop(OTHER.principal, OTHER.session)
    for seq in (1, 2):
        assert other.append(KEY, (Entry(seq, b"x"),)) is STORED
        bell.wait(1 + seq)


def test_own_appends_are_told(store: SqliteStore) -> None:
    bell = Bell()
    store.watch(KEY, bell)
    bell.wait(1)
    for seq in (1, 2, 3):
        asyncio.run(store.append(KEY, (Entry(seq, b"x"),), token=f"{seq}", now=0))
        bell.wait(1 + seq)


def test_drops_of_others_are_told(store: SqliteStore, other: WaitingStore) -> None:
    bells = {key: Bell() for key in (KEY, OTHER, LAST)}
    for key, bell in bells.items():
        store.watch(key, bell)
        bell.wait(1)
    other.drop("eve", "another")  # it has no logs
    other.drop(KEY.principal, KEY.session)
    for key in (KEY, OTHER):
        bells[key].wait(2)
    assert bells[LAST].count == 1
    asyncio.run(store.drop(LAST.principal, LAST.session))
    bells[LAST].wait(2)


def test_more_drops_than_the_file_tells(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has not looked for long reads all logs."""
    monkeypatch.setattr(_sqlite_file, "_KEPT_DROPS", 2)
    drop = StoreDrop(principal="ada", session="session")
    file, reader = (SqliteFile(str(tmp_path / "a.db"), Limits(), time.time) for _ in range(2))
    with closing(file), closing(reader):
        assert reader.changes() is None
        for count in (1, 2, 3):
            file.perform([drop] * count, time.monotonic() + 20)
            changes = reader.changes()
            if count < 3:
                assert changes is not None
                assert changes.sessions == [("ada", "session")]
                assert not reader.changes()
            else:
                assert changes is None
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        assert database.execute("SELECT count(*) FROM drops").fetchone() == (2,)


def test_a_store_that_was_out_of_reach(
    store: SqliteStore, other: WaitingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All watches are called once it is there again: nobody knows what has happened meanwhile."""
    look = vars(SqliteFile)["changes"]
    bells = [Bell(), Bell()]
    failures: list[str] = []
    for bell in bells:
        store.watch(KEY, bell)
        bell.wait(1)

    def fail(file: SqliteFile) -> object:
        if len(failures) < 2:
            failures.append("disk I/O error")
            raise sqlite3.OperationalError(failures[-1])
        return look(file)

    monkeypatch.setattr(SqliteFile, "changes", fail)
    for bell in bells:
        bell.wait(2)
    assert len(failures) == 2


def test_a_watch_that_raises(
    store: SqliteStore, other: WaitingStore, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the others are called."""
    bell = Bell()

    def fail() -> None:
        raise ValueError("a bug")

    store.watch(KEY, fail)
    store.watch(KEY, bell)
    bell.wait(1)
    assert other.append(KEY, (Entry(1, b"x"),)) is STORED
    bell.wait(2)
    assert "the watch of a store raised an exception" in caplog.text


def test_nobody_looks_without_a_watch(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float | None] = []
    look = vars(SqliteStore)["_look"]

    def note(store: SqliteStore) -> float | None:
        looks.append(look(store))
        return looks[-1]

    monkeypatch.setattr(SqliteStore, "_look", note)
    bell = Bell()
    with closing(SqliteStore(store._writing.path)) as watching:  # noqa: SLF001  # pyright: ignore
        end = watching.watch(KEY, bell)
        bell.wait(1)
        asyncio.run(watching.read(KEY, 0, limit=1, max_bytes=1))
        asyncio.run(watching.read(KEY, 0, limit=1, max_bytes=1))
        assert None not in looks
        end()
        end()
        for _ in range(3):
            asyncio.run(watching.read(KEY, 0, limit=1, max_bytes=1))
    assert looks[-1] is None


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")
class TestFork:
    """Servers such as gunicorn load the application, and fork then."""

    def test_a_store_that_was_not_used_before(self, tmp_path: Path) -> None:
        """Parent and child have it both, with connections and threads of their own."""
        store = SqliteStore(tmp_path / "a.db")

        def append(name: str, count: int) -> None:
            key = StreamKey("", "", name)
            for seq in range(1, count + 1):
                result = asyncio.run(store.append(key, (Entry(seq, b"x"),), token=name, now=0))
                assert result is STORED
            store.close()

        children = [in_child(lambda name=name: append(name, 10)) for name in ("a", "b")]  # type: ignore[misc]  # pyright: ignore
        append("c", 10)
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        with closing(open_sqlite(tmp_path / "a.db")) as waiting:
            for name in ("a", "b", "c"):
                page = waiting.read(StreamKey("", "", name), 0)
                assert page is not None
                assert len(page.entries) == 10

    def test_a_store_that_was_used_before(self, tmp_path: Path) -> None:
        """SQLite does not allow that both use a connection; the parent's goes on."""
        waiting = open_sqlite(tmp_path / "a.db")
        assert waiting.append(KEY, (Entry(1, b"x"),)) is STORED

        def use() -> None:
            with pytest.raises(LocalProtocolError, match="before the process forked"):
                asyncio.run(waiting.store.append(KEY, (Entry(2, b"x"),), token="a", now=0))
            waiting.store.close()  # type: ignore[attr-defined]  # pyright: ignore

        assert os.waitpid(in_child(use), 0)[1] == 0
        assert waiting.append(KEY, (Entry(2, b"x"),)) is STORED
        waiting.close()


def in_child(work: Callable[[], None]) -> int:
    """Run a function in a process that is forked. Returns its id; its status is 0 if it worked."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)
