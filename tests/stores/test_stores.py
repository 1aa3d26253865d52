"""Every store does what stores have to do, and the checks notice one that does not."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest

from sansmcp import (
    AppendResult,
    AsyncStore,
    Entry,
    EntryKind,
    Limits,
    LocalProtocolError,
    MemoryStore,
    Page,
    RateLimit,
    Store,
    StreamKey,
)
from sansmcp.testing import check_shared_store, check_store
from sansmcp.testing.stores import STORE_CHECKS, StoreUnderTest
from sansmcp_stores import SqliteStore

from .waiting import WaitingStore, open_sqlite

KEY = StreamKey("", "session", "stream")
STORED, CONFLICT, BEHIND = AppendResult
Clock = Callable[[], float]


def wait(condition: Callable[[], bool]) -> None:
    """Wait until a thread has made a condition true."""
    give_up = time.monotonic() + 20
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.001)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def new_sqlite(tmp_path: Path) -> Iterator[Callable[[Limits, Clock], SqliteStore]]:
    opened: list[SqliteStore] = []

    def new(limits: Limits, clock: Clock) -> SqliteStore:
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


def test_the_sqlite_store(
    new_sqlite: Callable[[Limits, Clock], SqliteStore], loop: asyncio.AbstractEventLoop
) -> None:
    check_store(new_sqlite, run=loop.run_until_complete, wait=wait)


def test_two_ways_to_one_file(tmp_path: Path, loop: asyncio.AbstractEventLoop) -> None:
    first, second = (SqliteStore(tmp_path / "a.db") for _ in range(2))
    check_shared_store(first, second, run=loop.run_until_complete, wait=wait)
    first.close()
    second.close()


def test_what_is_in_the_file_stays(tmp_path: Path) -> None:
    for seq in (1, 2, 3):
        with closing(open_sqlite(tmp_path / "a.db")) as store:
            if seq > 1:
                assert store.append(KEY, (Entry(seq - 1, b"x"),), token=f"{seq - 1}") is STORED
            assert store.append(KEY, (Entry(seq, b"x"),), token=f"{seq}") is STORED
            page = store.read(KEY, 0)
            assert page is not None
            assert [entry.seq for entry in page.entries] == list(range(1, seq + 1))


def test_all_who_use_a_file_have_the_same_secret(tmp_path: Path) -> None:
    first, again, other = (SqliteStore(tmp_path / name) for name in ("a.db", "a.db", "b.db"))
    assert first.secret == again.secret != other.secret
    assert len(first.secret) == 32
    for store in (first, again, other):
        store.close()


def test_an_append_that_fails_adds_nothing(tmp_path: Path) -> None:
    with closing(open_sqlite(tmp_path / "a.db")) as store:
        with pytest.raises(sqlite3.Error):
            store.append(KEY, (Entry(1, b"x"), Entry(1, b"x")))
        assert store.read(KEY, 0) is None
        assert store.append(KEY, (Entry(1, b"x"),)) is STORED


def at_once(store: WaitingStore, works: list[Any]) -> list[Any]:
    """What operations return or raise that are submitted at the same time."""

    async def main() -> list[Any]:
        return await asyncio.gather(*works, return_exceptions=True)

    outcomes: list[Any] = store.run(main())
    return outcomes


def test_one_append_of_a_batch_fails(tmp_path: Path) -> None:
    """What is refused, or fails, leaves what was written with it."""
    with closing(open_sqlite(tmp_path / "a.db")) as waiting:
        store = waiting.store
        keys = [StreamKey("", "session", f"stream {number}") for number in range(6)]
        good, bad = (Entry(1, b"x"),), (Entry(1, b"x"), Entry(1, b"x"))
        assert waiting.append(keys[2], good) is STORED
        transactions = count_commits(waiting)
        outcomes = at_once(
            waiting,
            [
                store.append(key, bad if number == 3 else good, token=f"{number}", now=0)
                for number, key in enumerate(keys)
            ],
        )
        assert isinstance(outcomes.pop(3), sqlite3.IntegrityError)
        assert outcomes == [STORED, STORED, CONFLICT, STORED, STORED]
        kept = [waiting.read(key, 0) is not None for key in keys]
        assert kept == [True, True, True, False, True, True]
        assert transactions() > 1


def count_commits(store: WaitingStore) -> Callable[[], int]:
    """How many transactions have written into a store since then."""
    connection = store.store._writing._connection  # type: ignore[attr-defined] # noqa: SLF001 # pyright: ignore
    seen: list[str] = []
    connection.set_trace_callback(seen.append)  # pyright: ignore
    return lambda: seen.count("COMMIT")


def test_what_waits_is_written_in_one_transaction(tmp_path: Path) -> None:
    """Thirty appends at the same time are synchronised to the disk three times at most.

    The first may be alone; and if the thread is slow to begin there is only one.
    """
    with closing(open_sqlite(tmp_path / "a.db")) as waiting:
        keys = [StreamKey("", "session", f"stream {number}") for number in range(30)]
        assert waiting.append(KEY, (Entry(1, b"x"),)) is STORED
        transactions = count_commits(waiting)
        submit = [waiting.store.append(key, (Entry(1, b"x"),), token="a", now=0) for key in keys]
        assert at_once(waiting, submit) == [STORED] * 30
        assert transactions() <= 3


def test_operations_of_a_batch_keep_their_order(tmp_path: Path) -> None:
    """Appends to one log, repeated ones, and a drop, submitted at the same time."""
    with closing(open_sqlite(tmp_path / "a.db")) as waiting:
        store = waiting.store
        one, two = (Entry(1, b"x"),), (Entry(2, b"x"),)
        operations = [
            store.append(KEY, one, token="a", now=0),
            store.append(KEY, one, token="a", now=0),
            store.append(KEY, one, token="b", now=0),
            store.append(KEY, two, token="c", now=0),
            store.append(KEY, (Entry(4, b"x"),), token="d", now=0),
            store.drop(KEY.principal, KEY.session),
            store.append(KEY, (Entry(9, b"x"),), token="e", now=0),
        ]
        outcomes = at_once(waiting, operations)
        assert outcomes == [STORED, STORED, CONFLICT, STORED, BEHIND, None, STORED]
        page = waiting.read(KEY, 0)
        assert page is not None
        assert [entry.seq for entry in page.entries] == [9]


def test_reads_of_a_batch_fail_alone(tmp_path: Path) -> None:
    with closing(open_sqlite(tmp_path / "a.db")) as waiting:
        for stream in ("good", "bad"):
            waiting.append(StreamKey("", "", stream), (Entry(1, b"x"),))
        with closing(sqlite3.connect(tmp_path / "a.db")) as other, other:
            other.execute("UPDATE entries SET data = 1.5 WHERE stream = 'bad'")
        read = functools.partial(waiting.store.read, limit=9, max_bytes=9)
        reads = [read(StreamKey("", "", name), 0) for name in ("good", "bad", "none", "good")]
        good, bad, none, again = at_once(waiting, reads)
        assert good == again == Page((Entry(1, b"x"),), Entry(1, b""))
        assert isinstance(bad, sqlite3.DatabaseError)
        assert none is None


def test_a_cancelled_append_is_done(tmp_path: Path) -> None:
    with closing(open_sqlite(tmp_path / "a.db")) as waiting:

        async def main() -> None:
            work = waiting.store.append(KEY, (Entry(1, b"x"),), token="a", now=0)
            task = asyncio.ensure_future(work)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

        waiting.run(main())
        assert waiting.append(KEY, (Entry(1, b"x"),), token="a") is STORED
        page = waiting.read(KEY, 0)
        assert page is not None
        assert len(page.entries) == 1


def test_a_closed_store(tmp_path: Path) -> None:
    waiting = open_sqlite(tmp_path / "a.db")
    waiting.append(KEY, (Entry(1, b"x"),))
    store = waiting.store
    assert isinstance(store, SqliteStore)
    store.close()
    store.close()
    with pytest.raises(LocalProtocolError, match="closed"):
        waiting.read(KEY, 0)
    with pytest.raises(LocalProtocolError, match="closed"):
        store.watch(KEY, lambda: None)
    waiting.close()


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"this is no database, and long enough to tell" * 100)
    (tmp_path / "a.db").chmod(0o600)
    with pytest.raises(sqlite3.DatabaseError):
        SqliteStore(tmp_path / "a.db")


def test_a_file_that_has_gone_is_not_made_again(tmp_path: Path) -> None:
    """Nobody has checked who could read the new one."""
    with closing(open_sqlite(tmp_path / "a.db")) as store:
        (tmp_path / "a.db").unlink()
        with pytest.raises(sqlite3.OperationalError, match="unable to open"):
            store.append(KEY, (Entry(1, b"x"),))
        assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET kind = x'80'",
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
    with closing(open_sqlite(tmp_path / "a.db")) as store:
        store.append(KEY, tuple(Entry(seq, b"x") for seq in (1, 2, 3)))
    other = sqlite3.connect(tmp_path / "a.db")
    other.executescript(f"DROP TRIGGER added; DROP TRIGGER removed; {change}")
    other.close()
    with (
        pytest.raises(sqlite3.DatabaseError) as raised,
        closing(open_sqlite(tmp_path / "a.db", Limits(max_stored_entries=100))) as store,
    ):
        store.read(KEY, 0)
        store.append(KEY, (Entry(4, b"x"),))
        store.append(KEY, (Entry(5, b"x"),))
    # Of its own tables SQLite itself says what is wrong; with Python 3.10 that is nothing.
    assert "sqlite_master" in change or "damaged" in str(raised.value)


def test_a_kind_of_a_later_version_in_a_file_is_unknown(tmp_path: Path) -> None:
    with closing(open_sqlite(tmp_path / "a.db")) as store:
        store.append(KEY, (Entry(1, b"x"), Entry(2, b"y")))
    other = sqlite3.connect(tmp_path / "a.db")
    other.executescript("UPDATE entries SET kind = 'added later'")
    other.close()
    with closing(open_sqlite(tmp_path / "a.db")) as store:
        page = store.read(KEY, 1)
        assert page is not None
        assert page.entries == (Entry(2, b"y", kind=EntryKind.UNKNOWN),)
        assert page.last.kind is EntryKind.UNKNOWN
        assert store.append(KEY, (Entry(3, b"z"),)) is AppendResult.STORED


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
    with closing(open_sqlite(tmp_path / "a.db")) as store:
        entries = tuple(Entry(seq, b"x") for seq in range(1, 11))
        with pytest.raises(sqlite3.OperationalError, match="full"):
            store.append(KEY, entries)
        assert store.read(KEY, 0) is None
        assert store.append(KEY, entries) is STORED


# Stores with one fault


class Forgetful(MemoryStore):
    """Adds, whoever was first."""

    def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        super().append(key, entries, token=token, now=now)
        return STORED


class Careless(MemoryStore):
    """Takes all sessions of a name for one."""

    def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        return super().append(attrs.evolve(key, principal=""), entries, token=token, now=now)

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        key = attrs.evolve(key, principal="")
        return super().read(key, after, limit=limit, max_bytes=max_bytes)


class Simple(MemoryStore):
    """Keeps no kinds."""

    def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        return super().append(
            key,
            tuple(Entry(each.seq, each.data, each.final) for each in entries),
            token=token,
            now=now,
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

    def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        return super().append(one(key), entries, token=token, now=now)

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        return super().read(one(key), after, limit=limit, max_bytes=max_bytes)

    def drop(self, principal: str, session: str) -> None:
        """As if each session had one stream."""
        super().drop("", "")


def one(key: StreamKey) -> StreamKey:
    return StreamKey("", "", f"{key.principal}|{key.session}|{key.stream}")


class Jumpy(MemoryStore):
    """Believes its clock."""

    def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        while self._now is not None and self._now < now:
            self._age += min(now - self._now, self.limits.max_stored_age / 3)
            self._now = min(now, self._now + self.limits.max_stored_age / 3)
        return super().append(key, entries, token=token, now=now)


class Awaited(MemoryStore):
    """Is not synchronous, and hides it."""

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float) -> Any:
        return Later()


class Later:
    """Is true, as most things are."""

    def __await__(self) -> Any:
        yield


class Vague(MemoryStore):
    """Does not say whether it is durable."""

    is_durable = None  # type: ignore[assignment]


class Optimistic(MemoryStore):
    """Appends behind a gap."""

    def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        result = super().append(key, entries, token=token, now=now)
        return STORED if result is BEHIND else result


class Vain(MemoryStore):
    """Recognises no append of its own."""

    def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        return super().append(key, entries, token=f"{token}{self.count}", now=now)


class Credulous(MemoryStore):
    """Takes every append of the last numbers for its own."""

    def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        return super().append(key, entries, token="", now=now)


class Immortal(MemoryStore):
    """Lets nothing grow old."""

    def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        return super().append(key, entries, token=token, now=0)


@attrs.define(eq=False)
class Watchable(MemoryStore):
    """Tells of changes."""

    watches: dict[StreamKey, list[Callable[[], None]]] = attrs.field(factory=dict[Any, Any])

    def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        result = super().append(key, entries, token=token, now=now)
        self.tell(key)
        return result

    def tell(self, key: StreamKey) -> None:
        for changed in self.watches.get(key, ()):
            changed()

    def drop(self, principal: str, session: str) -> None:
        super().drop(principal, session)
        for key in self.watches:
            if (key.principal, key.session) == (principal, session):
                self.tell(key)

    def watch(self, key: StreamKey, changed: Callable[[], None]) -> Callable[[], None]:
        watches = self.watches.setdefault(key, [])
        watches.append(changed)
        changed()
        return lambda: watches.remove(changed) if changed in watches else None


class Late(Watchable):
    """Tells of what comes later, and not that it has begun to look."""

    def watch(self, key: StreamKey, changed: Callable[[], None]) -> Callable[[], None]:
        return super().watch(key, Once(changed))


class Once:
    """Leaves the first call out."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._has_begun = False

    def __call__(self) -> None:
        if self._has_begun:
            self._changed()
        self._has_begun = True


class Silent(Watchable):
    """Tells of nothing after that."""

    def tell(self, key: StreamKey) -> None:
        pass


class Blind(Watchable):
    """Tells of no drop."""

    def drop(self, principal: str, session: str) -> None:
        MemoryStore.drop(self, principal, session)


class OneEar(Watchable):
    """Has one watch for a log; the end of any is the end of all."""

    def watch(self, key: StreamKey, changed: Callable[[], None]) -> Callable[[], None]:
        super().watch(key, changed)
        return self.watches[key].clear


class Lavish(MemoryStore):
    """Gives tokens that it does not have."""

    def take(self, bucket: str, count: int, limit: RateLimit, *, now: float) -> float:
        return super().take(bucket, 1, limit, now=now)


class Stingy(MemoryStore):
    """Has one bucket for all."""

    def take(self, bucket: str, count: int, limit: RateLimit, *, now: float) -> float:
        return super().take("", count, limit, now=now)


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
    Optimistic,
    Vain,
    Credulous,
    Immortal,
    Late,
    Silent,
    OneEar,
    Blind,
    Lavish,
    Stingy,
]


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_noticed(kind: Callable[[Limits], Store]) -> None:
    with pytest.raises(AssertionError):
        check_store(lambda limits, clock: kind(limits))


class Mixed(MemoryStore):
    """One method is asynchronous."""

    async def drop(self, principal: str, session: str) -> None:  # type: ignore[override]  # pyright: ignore
        super().drop(principal, session)


class Asynchronous:
    """Does what another store does, and could wait for it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        return self._store.append(key, entries, token=token, now=now)

    async def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        return self._store.read(key, after, limit=limit, max_bytes=max_bytes)

    async def drop(self, principal: str, session: str) -> None:
        self._store.drop(principal, session)


def test_a_store_that_tells_of_changes() -> None:
    check_store(lambda limits, clock: Watchable(limits))
    store = Watchable()
    check_shared_store(store, store)
    with pytest.raises(AssertionError, match="when the watch works"):
        check_shared_store(store, Late())


@pytest.mark.parametrize("kind", [MemoryStore, *FAULTS])
def test_an_asynchronous_store(
    kind: Callable[[Limits], Store], loop: asyncio.AbstractEventLoop
) -> None:
    """It is checked like a synchronous one."""

    def new(limits: Limits, clock: Clock) -> AsyncStore:
        return Asynchronous(kind(limits))

    if kind in (
        MemoryStore,
        Vague,
        Late,
        Silent,
        OneEar,
        Blind,
        Lavish,
        Stingy,
    ):  # they differ in other attributes
        check_store(new, run=loop.run_until_complete)
        return
    with pytest.raises(AssertionError):
        check_store(new, run=loop.run_until_complete)


def test_an_asynchronous_store_needs_a_loop() -> None:
    with pytest.raises(AssertionError, match="pass run="):
        check_store(lambda limits, clock: Asynchronous(MemoryStore(limits)))


def test_a_store_of_both_kinds() -> None:
    with pytest.raises(AssertionError, match="append is plain, and drop is async"):
        check_store(lambda limits, clock: Mixed(limits))  # type: ignore[arg-type, return-value]  # pyright: ignore


class Wide:
    """Has a place for each session, none of which knows of the others."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._places: dict[tuple[str, str], MemoryStore] = {}

    def _place(self, principal: str, session: str) -> MemoryStore:
        return self._places.setdefault((principal, session), MemoryStore(self._limits))

    async def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        place = self._place(key.principal, key.session)
        return place.append(key, entries, token=token, now=now)

    async def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        place = self._place(key.principal, key.session)
        return place.read(key, after, limit=limit, max_bytes=max_bytes)

    async def drop(self, principal: str, session: str) -> None:
        self._place(principal, session).drop(principal, session)


def test_a_store_in_several_places(loop: asyncio.AbstractEventLoop) -> None:
    """It can pass what every store promises."""

    def new(limits: Limits, clock: Clock) -> AsyncStore:
        return Wide(limits)

    check_store(new, single=False, run=loop.run_until_complete)
    with pytest.raises(AssertionError, match="15 entries"):
        check_store(new, run=loop.run_until_complete)


def test_what_a_check_needs_is_said() -> None:
    """``sansmcp check-store`` shows it."""
    for check in STORE_CHECKS:
        assert check.__doc__
        check(StoreUnderTest(new_memory))


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
