"""The logs in a file of SQLite, for one thread.

The file is in WAL mode: readers do not wait for writers, and writers only for each other. What is
appended is synchronised to the disk before it is reported, so that what was sent survives a crash
of the process and of the machine. Many appends share one transaction, and so one synchronisation.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias
from urllib.parse import quote

import attrs

from sansmcp import AppendResult, Entry, EntryKind, Limits, LocalProtocolError, Page, StreamKey
from sansmcp.effects import StoreAppend, StoreEffect, StoreRead, StoreTake
from sansmcp.store import aged

from ._store_files import check_private_files, create_private

Outcome: TypeAlias = AppendResult | Page | float | None
"""What a StoreEffect returns."""

_VERSION = 3
"""Of the schema, kept as ``user_version``."""

_FIRST_TABLES = {"entries", "totals", "secrets"}
"""Those of version 0.1.0, which kept the key in the file."""

_SINCE_VERSION_3 = """
CREATE TABLE buckets (name TEXT PRIMARY KEY, full_at REAL NOT NULL);
CREATE INDEX buckets_by_time ON buckets (full_at);
CREATE TABLE drops (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    principal TEXT NOT NULL,
    session TEXT NOT NULL
);
"""

_SCHEMA = f"""{_SINCE_VERSION_3}
CREATE TABLE entries (
    arrival INTEGER PRIMARY KEY AUTOINCREMENT,
    principal TEXT NOT NULL,
    session TEXT NOT NULL,
    stream TEXT NOT NULL,
    seq INTEGER NOT NULL,
    data BLOB NOT NULL,
    final INTEGER NOT NULL,
    kind TEXT NOT NULL,
    stored_at REAL NOT NULL,
    cost INTEGER NOT NULL,
    first INTEGER,
    token TEXT,
    UNIQUE (principal, session, stream, seq)
);
CREATE INDEX arrivals ON entries (principal, session, arrival);
CREATE TABLE totals (count INTEGER NOT NULL, cost INTEGER NOT NULL);
INSERT INTO totals VALUES (0, 0);
CREATE TABLE clock (age REAL NOT NULL, said REAL);
INSERT INTO clock VALUES (0, NULL);
CREATE TABLE principals (principal TEXT PRIMARY KEY, cost INTEGER NOT NULL);
CREATE INDEX principals_by_cost ON principals (cost);
CREATE TABLE sessions (
    principal TEXT NOT NULL,
    session TEXT NOT NULL,
    cost INTEGER NOT NULL,
    PRIMARY KEY (principal, session)
);
CREATE INDEX sessions_by_cost ON sessions (principal, cost);
CREATE TRIGGER added AFTER INSERT ON entries BEGIN
    UPDATE totals SET count = count + 1, cost = cost + new.cost;
    INSERT INTO principals VALUES (new.principal, new.cost)
        ON CONFLICT (principal) DO UPDATE SET cost = cost + new.cost;
    INSERT INTO sessions VALUES (new.principal, new.session, new.cost)
        ON CONFLICT (principal, session) DO UPDATE SET cost = cost + new.cost;
END;
CREATE TRIGGER removed AFTER DELETE ON entries BEGIN
    UPDATE totals SET count = count - 1, cost = cost - old.cost;
    UPDATE principals SET cost = cost - old.cost WHERE principal = old.principal;
    DELETE FROM principals WHERE principal = old.principal AND cost = 0;
    UPDATE sessions SET cost = cost - old.cost
        WHERE principal = old.principal AND session = old.session;
    DELETE FROM sessions
        WHERE principal = old.principal AND session = old.session AND cost = 0;
END;
"""
"""``first`` and ``token`` are those of the append, in its last entry; NULL in the others."""

_FROM_VERSION_2 = f"""{_SINCE_VERSION_3}
ALTER TABLE entries ADD COLUMN first INTEGER;
ALTER TABLE entries ADD COLUMN token TEXT;
"""

_ENTRY_COST = 60
"""Bytes of the file that an entry takes beside its data and three times its names; a test holds it
to what SQLite takes.
"""

_RETRY_INTERVAL = 0.002
"""Seconds between two attempts to lock the file, at most."""

_KEPT_DROPS = 1000
"""Sessions of which the file tells that they were dropped: the last ones."""

_KINDS = {kind.value: kind for kind in EntryKind}

_LOG = "principal = ? AND session = ? AND stream = ?"


class FileIsLockedError(sqlite3.OperationalError):
    """Another process has locked the file for too long."""


@attrs.frozen
class Changes:
    """What has changed in a file.

    Attributes:
        logs: those with new entries.
        sessions: those that were dropped, each by principal and session.
    """

    logs: Sequence[StreamKey] = ()
    sessions: Sequence[tuple[str, str]] = ()

    def __bool__(self) -> bool:
        return bool(self.logs or self.sessions)


class SqliteFile:
    """A connection to the file of a store.

    It is opened by the first operation. A process that forks must not have used it before: SQLite
    does not allow that a connection is used, or even closed, by both.

    All methods raise sqlite3.Error if the file cannot be used, or is damaged.

    Not thread-safe.
    """

    def __init__(self, path: str, limits: Limits, clock: Callable[[], float]) -> None:
        self.path = path
        self._limits = limits
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        """The one that has opened the connection."""
        self._give_up_at = 0.0
        """Time at which the operation fails if the file is still locked."""
        self._time: tuple[float, float] | None = None
        """Age of the store, and time of the clock, for the entries which this transaction appends;
        None before the first one.
        """
        self._seen: tuple[int, int] | None = None
        """The ``arrival`` of the last entry, and the number of the last drop, at the last look of
        :meth:`changes`; None before the first.
        """
        self._version = 0
        """The ``data_version`` at that time."""

    def create(self, give_up_at: float) -> None:
        """Create the file and its tables, unless they exist.

        Args:
            give_up_at: time at which to give up if others lock the file, by ``time.monotonic()``.

        Raises:
            PermissionError: a file is a symbolic link, belongs to another user, or can be used by
                others.
            OSError: the file cannot be created.
        """
        create_private(self.path)
        self._give_up_at = give_up_at
        with self._damage_reported():
            self._execute_alone("PRAGMA journal_mode = WAL")
        with self._transaction("IMMEDIATE"):
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            if version != _VERSION:
                self._create_tables(version)

    def close(self) -> None:
        """Close the connection, and keep the content of the file."""
        if self._connection is not None and self._process == os.getpid():
            self._connection.close()
        self._connection = None

    def perform(
        self, effects: Sequence[StoreEffect], give_up_at: float
    ) -> list[Outcome | Exception]:
        """Perform operations, each of them wholly or not at all.

        Usually in one transaction. If an operation raises an exception, all are undone, and each is
        performed in a transaction of its own. Savepoints would keep the others, at the price of two
        more statements for each operation: after each statement the thread waits for its turn to
        run Python code.

        Args:
            effects: either all of them are StoreRead, or none.
            give_up_at: time at which to give up if others lock the file, by ``time.monotonic()``.

        Returns:
            What each one returns or raises. A StoreDrop returns None.
        """
        try:
            return [*self._perform_together(effects, give_up_at)]
        except Exception as error:
            if len(effects) == 1 or isinstance(error, FileIsLockedError):
                return [error] * len(effects)
        return [self.perform([effect], give_up_at)[0] for effect in effects]

    def _perform_together(self, effects: Sequence[StoreEffect], give_up_at: float) -> list[Outcome]:
        self._give_up_at = give_up_at
        with self._transaction("DEFERRED" if isinstance(effects[0], StoreRead) else "IMMEDIATE"):
            outcomes = [self._perform(effect) for effect in effects]
            if self._time is not None:
                self._database.execute("UPDATE clock SET age = ?, said = ?", self._time)
                self._evict(self._time[0] - self._limits.max_stored_age)
        return outcomes

    def changes(self) -> Changes | None:
        """Return what other connections have changed since the last call.

        Returns:
            None if that is not known: there is no last call, or too much has changed.
        """
        # The version first: what is committed between the statements changes it again.
        (version,) = self._database.execute("PRAGMA data_version").fetchone()
        if version == self._version and self._seen is not None:
            return Changes()
        self._version = version
        before, self._seen = self._seen, self._last_numbers()
        if before is None or self._seen[1] - before[1] > _KEPT_DROPS:
            return None
        # Not only up to the numbers just seen: a log that is found twice is read twice, no more.
        logs = self._database.execute(
            "SELECT DISTINCT principal, session, stream FROM entries WHERE arrival > ?", before[:1]
        )
        sessions = self._database.execute(
            "SELECT DISTINCT principal, session FROM drops WHERE number > ?", before[1:]
        )
        return Changes([StreamKey(*names) for names in logs], sessions.fetchall())

    def forget_changes(self) -> None:
        """Make the next :meth:`changes` the first one."""
        self._seen = None

    # Operations

    def _perform(self, effect: StoreEffect) -> Outcome:
        if isinstance(effect, StoreAppend):
            return self._append(effect.stream, effect.entries, effect.token)
        if isinstance(effect, StoreRead):
            return self._read(effect)
        if isinstance(effect, StoreTake):
            return self._take(effect)
        names = (effect.principal, effect.session)
        self._drop(names)
        return None

    def _drop(self, names: tuple[str, str]) -> None:
        self._database.execute("DELETE FROM entries WHERE principal = ? AND session = ?", names)
        done = self._database.execute("INSERT INTO drops (principal, session) VALUES (?, ?)", names)
        self._database.execute(
            "DELETE FROM drops WHERE number <= ?", (int(done.lastrowid or 0) - _KEPT_DROPS,)
        )

    def _append(self, key: StreamKey, entries: tuple[Entry, ...], token: str) -> AppendResult:
        first = entries[0].seq
        found = self._last(key)
        if found is not None:
            last, last_append = found
            if first > last.seq + 1:
                return AppendResult.BEHIND
            if first <= last.seq:
                is_repeated = last_append == (first, token)
                return AppendResult.STORED if is_repeated else AppendResult.CONFLICT
        if self._time is None:
            self._time = self._grow_old(self._clock())
        names = _names(key)
        cost = _ENTRY_COST + 3 * sum(map(len, names))
        ends = [(None, None)] * (len(entries) - 1) + [(first, token)]
        self._database.executemany(
            "INSERT INTO entries"
            " (principal, session, stream, seq, data, final, kind, stored_at, cost, first, token)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    *names,
                    each.seq,
                    each.data,
                    each.final,
                    each.kind.value,
                    self._time[0],
                    cost + len(each.data),
                    *end,
                )
                for each, end in zip(entries, ends, strict=True)
            ],
        )
        return AppendResult.STORED

    def _read(self, effect: StoreRead) -> Page | None:
        found = self._last(effect.stream)
        if found is None:
            return None
        last, _ = found
        rows = self._database.execute(
            f"SELECT seq, data, final, kind FROM entries WHERE {_LOG} AND seq > ?"
            " ORDER BY seq LIMIT ?",
            (*_names(effect.stream), effect.after, effect.limit),
        )
        entries: list[Entry] = []
        size = 0
        for row in rows:
            entry = self._entry(*row)
            if entry.seq > last.seq or (entries and entry.seq != entries[-1].seq + 1):
                raise self._damaged(f"no entry was due at number {entry.seq}")
            size += len(entry.data)
            if entries and size > effect.max_bytes:
                break
            entries.append(entry)
        return Page(tuple(entries), last)

    def _take(self, effect: StoreTake) -> float:
        now = self._clock()
        found = self._numbers("SELECT full_at FROM buckets WHERE name = ?", (effect.bucket,))
        full_at, wait = effect.limit.take(found[0] if found else None, effect.count, now)
        if wait == 0:
            self._database.execute(
                "INSERT INTO buckets VALUES (?, ?)"
                " ON CONFLICT (name) DO UPDATE SET full_at = excluded.full_at",
                (effect.bucket, full_at),
            )
        if found is None:  # forget those that are full, and those beyond the bound
            self._database.execute(
                "DELETE FROM buckets WHERE name IN (SELECT name FROM buckets"
                " WHERE full_at <= ? OR (SELECT count(*) FROM buckets) > ?"
                " ORDER BY full_at LIMIT 2)",
                (now, self._limits.max_rate_buckets),
            )
        return wait

    # What is in the file

    def _last(self, key: StreamKey) -> tuple[Entry, tuple[object, object]] | None:
        """The last entry of a log, without its data; and its append: first number, and token."""
        row: Any = self._database.execute(
            f"SELECT seq, final, kind, first, token FROM entries WHERE {_LOG}"
            " ORDER BY seq DESC LIMIT 1",
            _names(key),
        ).fetchone()
        if row is None:
            return None
        seq, final, kind, *append = row
        return self._entry(seq, b"", final, kind), tuple(append)

    def _entry(self, seq: object, data: object, final: object, kind: object) -> Entry:
        """An entry as it is in the file, where any column can hold a value of any type."""
        if isinstance(seq, int) and seq > 0 and isinstance(data, bytes) and isinstance(kind, str):
            return Entry(seq, data, bool(final), _KINDS.get(kind, EntryKind.UNKNOWN))
        raise self._damaged(f"no entry: {(seq, data, final, kind)!r:.100}")

    def _numbers(self, query: str, values: tuple[object, ...] = ()) -> tuple[float, ...] | None:
        """The first row of a query for numbers; None where there is no row."""
        row: tuple[object, ...] | None = self._database.execute(query, values).fetchone()
        if row is None:
            return None
        numbers = tuple(each for each in row if isinstance(each, int | float))
        if len(numbers) < len(row):
            raise self._damaged(f"no numbers: {row!r:.100}")
        return numbers

    def _last_numbers(self) -> tuple[int, int]:
        """The numbers of the last entry and of the last drop, also if these were deleted."""
        numbers = self._numbers(
            "SELECT ifnull(max(CASE name WHEN 'entries' THEN seq END), 0),"
            " ifnull(max(CASE name WHEN 'drops' THEN seq END), 0) FROM sqlite_sequence"
        )
        assert numbers is not None, "an aggregate without groups has one row"
        return int(numbers[0]), int(numbers[1])

    def _grow_old(self, now: float) -> tuple[float, float]:
        """Seconds that have passed for what is stored, the same for all processes; and the time."""
        numbers = self._numbers("SELECT age, ifnull(said, ?) FROM clock", (now,))
        if numbers is None:
            raise self._damaged("it has no clock")
        age, said = numbers
        return age + aged(said, now, self._limits.max_stored_age), now

    def _evict(self, too_old: float) -> None:
        while True:
            oldest = self._numbers(
                "SELECT arrival, stored_at FROM entries ORDER BY arrival LIMIT 1"
            )
            if oldest is None or oldest[1] >= too_old:
                break
            self._delete("arrival = ?", oldest[:1])
        while True:
            totals = self._numbers("SELECT count, cost FROM totals")
            if totals is None:
                raise self._damaged("it has no totals")
            count, cost = totals
            if count <= self._limits.max_stored_entries and cost <= self._limits.max_stored_bytes:
                break
            name = self._database.execute(
                "SELECT principal, session FROM sessions WHERE principal ="
                " (SELECT principal FROM principals ORDER BY cost DESC LIMIT 1)"
                " ORDER BY cost DESC LIMIT 1"
            ).fetchone()
            self._delete(
                "arrival = (SELECT min(arrival) FROM entries WHERE principal = ? AND session = ?)",
                name or (None, None),
            )

    def _delete(self, which: str, values: tuple[object, ...]) -> None:
        """Delete one entry; where there is none the file counts more than it has."""
        if self._database.execute(f"DELETE FROM entries WHERE {which}", values).rowcount != 1:
            raise self._damaged("what it counts is not what it holds")

    def _create_tables(self, version: int) -> None:
        """Make the tables, or change those of earlier versions of this package.

        Those of version 0.1.0 are replaced, with their content: others could read it. Tables of
        other programs stay; where they have our names, the file is refused.
        """
        found = self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = {name for (name,) in found}
        script = _SCHEMA
        if names >= _FIRST_TABLES:
            for name in _FIRST_TABLES:
                self._database.execute(f"DROP TABLE {name}")
        elif version == 2 and "entries" in names:
            script = _FROM_VERSION_2
        for statement in _statements(script):
            self._database.execute(statement)
        self._database.execute(f"PRAGMA user_version = {_VERSION}")

    def _damaged(self, what: str) -> sqlite3.DatabaseError:
        return sqlite3.DatabaseError(
            f"The store {self.path!r} is damaged: {what}; stop all servers that use it, and "
            "remove it"
        )

    @contextmanager
    def _damage_reported(self) -> Generator[None, None, None]:
        """Raise sqlite3.DatabaseError where SQLite quotes the file, and that is no text."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise self._damaged(f"its schema is not UTF-8: {error}") from error

    # Transactions

    @property
    def _database(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection, self._process = self._connect(), os.getpid()
        elif self._process != os.getpid():
            raise LocalProtocolError(
                "This SqliteStore was used before the process forked; make one in each process"
            )
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            # A file that has gone is not made again: others could read it.
            f"file:{quote(self.path)}?mode=rw",
            uri=True,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA schema_version")  # opens all of its files
            check_private_files(self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _execute_alone(self, statement: str) -> None:
        """Execute what others keep us from, as soon as they let us.

        SQLite itself would wait longer and longer between its attempts, and never get its turn; and
        for the mode of the file it does not wait at all.
        """
        while True:
            try:
                self._database.execute(statement)
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise
                if time.monotonic() >= self._give_up_at:
                    raise FileIsLockedError(
                        f"The store {self.path!r} is locked by another process; the operation was "
                        "given up for now (busy_timeout)"
                    ) from error
            else:
                return
            time.sleep(random.uniform(0, _RETRY_INTERVAL))

    @contextmanager
    def _transaction(self, kind: str) -> Generator[None, None, None]:
        self._time = None
        with self._damage_reported():
            self._execute_alone(f"BEGIN {kind}")
            try:
                if kind == "DEFERRED":
                    # Only now, and seldom, can others keep us from reading: while they recover the
                    # file, or the last of them closes it.
                    self._execute_alone("PRAGMA schema_version")
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:  # some errors of SQLite have ended it
                    self._database.execute("ROLLBACK")
                raise


def _names(key: StreamKey) -> tuple[str, str, str]:
    return key.principal, key.session, key.stream


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one, so that they can be in a transaction."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
