"""Every store does what stores have to do, and the checks notice one that does not."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from sansmcp import Entry, Limits, MemoryStore, Page, Store, StreamKey
from sansmcp.testing import check_shared_store, check_store
from sansmcp_stores import SqliteStore

KEY = StreamKey("", "session", "stream")
Clock = Callable[[], float]


@pytest.fixture
def new_sqlite(tmp_path: Path) -> Iterator[Callable[[Limits, Clock], Store]]:
    opened: list[SqliteStore] = []

    def new(limits: Limits, clock: Clock) -> Store:
        path = tmp_path / f"{len(opened)}.db"
        opened.append(SqliteStore(path, limits, clock=clock))
        return opened[-1]

    yield new
    for store in opened:
        store.close()


def new_memory(limits: Limits, clock: Clock) -> Store:
    return MemoryStore(limits)


def test_the_memory_store() -> None:
    check_store(new_memory)
    store = MemoryStore()
    check_shared_store(store, store)


def test_the_sqlite_store(new_sqlite: Callable[[Limits, Clock], Store]) -> None:
    check_store(new_sqlite)


def test_two_ways_to_one_file(tmp_path: Path) -> None:
    first, second = (SqliteStore(tmp_path / "a.db") for _ in range(2))
    check_shared_store(first, second)
    first.close()
    second.close()


def test_what_is_in_the_file_stays(tmp_path: Path) -> None:
    for seq in (1, 2, 3):
        store = SqliteStore(tmp_path / "a.db")
        assert store.append(KEY, (Entry(seq, b"x"),), now=0)
        page = store.read(KEY, 0, limit=9, max_bytes=9)
        assert page is not None
        assert [entry.seq for entry in page.entries] == list(range(1, seq + 1))
        store.close()


def test_all_who_use_a_file_have_the_same_secret(tmp_path: Path) -> None:
    first, again, other = (SqliteStore(tmp_path / name) for name in ("a.db", "a.db", "b.db"))
    assert first.secret == again.secret != other.secret
    assert len(first.secret) == 32
    for store in (first, again, other):
        store.close()


def test_an_append_that_fails_adds_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    with pytest.raises(sqlite3.Error):
        store.append(KEY, (Entry(1, b"x"), Entry(1, b"x")), now=0)
    assert store.read(KEY, 0, limit=9, max_bytes=9) is None
    assert store.append(KEY, (Entry(1, b"x"),), now=0)
    store.close()


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"this is no database, and long enough to tell" * 100)
    (tmp_path / "a.db").chmod(0o600)
    with pytest.raises(sqlite3.DatabaseError):
        SqliteStore(tmp_path / "a.db")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET kind = 'x'",
        "UPDATE entries SET data = 'text'",
        "UPDATE entries SET data = 1.5",
        "UPDATE entries SET seq = 'x' WHERE seq = 3",
        "UPDATE entries SET seq = -seq",
        "UPDATE entries SET stored_at = 'x'",
        "DELETE FROM entries WHERE seq = 2",
        "UPDATE clock SET age = x''",
        "DELETE FROM clock",
        "UPDATE totals SET count = 'x'",
        "UPDATE totals SET count = 1000",
        "DELETE FROM totals",
        "DELETE FROM sessions; UPDATE totals SET cost = 1e300",
        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET name = CAST(x'80' AS TEXT)",
    ],
)
def test_a_file_that_is_damaged_is_an_error_of_sqlite(tmp_path: Path, change: str) -> None:
    """Neither an error of another kind, nor statements without end."""
    store = SqliteStore(tmp_path / "a.db")
    assert store.append(KEY, tuple(Entry(seq, b"x") for seq in (1, 2, 3)), now=0)
    store.close()
    other = sqlite3.connect(tmp_path / "a.db")
    other.executescript(f"DROP TRIGGER added; DROP TRIGGER removed; {change}")
    other.close()
    with pytest.raises(sqlite3.DatabaseError) as raised:
        store = SqliteStore(tmp_path / "a.db", Limits(max_stored_entries=100))
        with contextlib.closing(store):
            store.read(KEY, 0, limit=9, max_bytes=99)
            store.append(KEY, (Entry(4, b"x"),), now=0)
            store.append(KEY, (Entry(5, b"x"),), now=0)
    # Of its own tables SQLite itself says what is wrong; with Python 3.10 that is nothing.
    assert "sqlite_master" in change or "damaged" in str(raised.value)


class _FailingOnce(sqlite3.Connection):
    """The first commit of an append fails as on a disk that is full, and leaves it open."""

    has_failed = False

    def execute(self, *args: Any) -> sqlite3.Cursor:
        if args[0] == "COMMIT" and not self.has_failed and self.total_changes > 20:
            self.has_failed = True
            raise sqlite3.OperationalError("database or disk is full")
        return super().execute(*args)


def test_a_commit_that_fails_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlite3.connect", functools.partial(sqlite3.connect, factory=_FailingOnce))
    with contextlib.closing(SqliteStore(tmp_path / "a.db")) as store:
        entries = tuple(Entry(seq, b"x") for seq in range(1, 11))
        with pytest.raises(sqlite3.OperationalError, match="full"):
            store.append(KEY, entries, now=0)
        assert store.read(KEY, 0, limit=9, max_bytes=9) is None
        assert store.append(KEY, entries, now=0)


def test_a_file_that_is_locked_is_waited_for_only_so_long(tmp_path: Path) -> None:
    """Reading never waits."""
    store = SqliteStore(tmp_path / "a.db", busy_timeout=0.05)
    assert store.append(KEY, (Entry(1, b"x"),), now=0)
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        store.append(KEY, (Entry(2, b"x"),), now=0)
    assert time.monotonic() - began < 20  # it was told to wait for 0.05 s
    page = store.read(KEY, 0, limit=9, max_bytes=9)
    assert page is not None
    assert page.last.seq == 1
    other.execute("ROLLBACK")
    other.close()
    assert store.append(KEY, (Entry(2, b"x"),), now=0)
    store.close()


# Stores with one fault


class Forgetful(MemoryStore):
    """Adds, whoever was first."""

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> bool:
        super().append(key, entries, now=now)
        return True


class Careless(MemoryStore):
    """Takes all sessions of a name for one."""

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> bool:
        return super().append(attrs.evolve(key, principal=""), entries, now=now)

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        key = attrs.evolve(key, principal="")
        return super().read(key, after, limit=limit, max_bytes=max_bytes)


class Simple(MemoryStore):
    """Keeps no kinds."""

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> bool:
        return super().append(
            key, tuple(Entry(each.seq, each.data, each.final) for each in entries), now=now
        )


class Generous(MemoryStore):
    """Gives pages of any size."""

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        return super().read(key, after, limit=10**9, max_bytes=10**9)


class Lasting(MemoryStore):
    """Forgets no session."""

    def drop(self, principal: str, session: str) -> None:
        """Does not."""


class Endless(MemoryStore):
    """Keeps everything."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(Limits())


class Unfair(MemoryStore):
    """Lets the oldest go first, whosever it is: all are one principal with one session."""

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> bool:
        return super().append(one(key), entries, now=now)

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        return super().read(one(key), after, limit=limit, max_bytes=max_bytes)

    def drop(self, principal: str, session: str) -> None:
        """As if each session had one stream."""
        super().drop("", "")


def one(key: StreamKey) -> StreamKey:
    return StreamKey("", "", f"{key.principal}|{key.session}|{key.stream}")


class Jumpy(MemoryStore):
    """Believes its clock."""

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> bool:
        while self._now is not None and self._now < now:
            self._age += min(now - self._now, self.limits.max_stored_age / 3)
            self._now = min(now, self._now + self.limits.max_stored_age / 3)
        return super().append(key, entries, now=now)


class Awaited(MemoryStore):
    """Is not synchronous, and hides it."""

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> Any:
        return Later()


class Later:
    """Is true, as most things are."""

    def __await__(self) -> Any:
        yield


class Vague(MemoryStore):
    """Does not say whether it is durable."""

    is_durable = None  # type: ignore[assignment]


FAULTS = [
    Forgetful,
    Careless,
    Simple,
    Generous,
    Lasting,
    Endless,
    Unfair,
    Jumpy,
    Awaited,
    Vague,
]


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_noticed(kind: Callable[[Limits], Store]) -> None:
    with pytest.raises(AssertionError):
        check_store(lambda limits, clock: kind(limits))


@pytest.mark.parametrize("kind", [Forgetful, Lasting])
def test_a_fault_of_sharing_is_noticed(kind: Callable[[Limits], Store]) -> None:
    store = kind(Limits())
    with pytest.raises(AssertionError):
        check_shared_store(store, store)


def test_two_ways_to_one_store_are_equally_durable() -> None:
    class Other(MemoryStore):
        is_durable = True

    store, other = MemoryStore(), Other()
    other.append, other.read, other.drop = store.append, store.read, store.drop  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="is_durable"):
        check_shared_store(store, other)


def test_two_stores_are_not_one() -> None:
    with pytest.raises(AssertionError):
        check_shared_store(MemoryStore(), MemoryStore())


def test_a_file_that_others_open_at_the_same_time(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "db", isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE theirs (a)")
    (tmp_path / "db").chmod(0o600)
    other.execute("BEGIN IMMEDIATE")
    over = threading.Timer(0.2, other.execute, ("COMMIT",))
    over.start()
    SqliteStore(tmp_path / "db").close()
    over.join()
    other.close()
