"""A store in one file of SQLite.

The file is in WAL mode: readers do not wait for writers, and writers only for each other. Each
append is synchronised to the disk before it is reported, so that what was sent survives a crash of
the process and of the machine. It takes a few milliseconds on most disks, and is done in the thread
that asks for it, so an event loop stands still meanwhile; while others write, for as long as the
store has ``patience``, at most.
"""

from __future__ import annotations

import os
import random
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from sansmcp import Entry, EntryKind, Limits, Page, StreamKey

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    arrival INTEGER PRIMARY KEY AUTOINCREMENT,
    principal TEXT NOT NULL,
    session TEXT NOT NULL,
    stream TEXT NOT NULL,
    seq INTEGER NOT NULL,
    data BLOB NOT NULL,
    final INTEGER NOT NULL,
    kind TEXT NOT NULL,
    stored_at REAL NOT NULL,
    UNIQUE (principal, session, stream, seq)
);
CREATE TABLE IF NOT EXISTS totals (count INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO totals SELECT 0, 0 WHERE NOT EXISTS (SELECT * FROM totals);
CREATE TABLE IF NOT EXISTS secrets (key BLOB NOT NULL);
CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON entries BEGIN
    UPDATE totals SET count = count + 1, bytes = bytes + length(new.data);
END;
CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON entries BEGIN
    UPDATE totals SET count = count - 1, bytes = bytes - length(old.data);
END;
"""

_OPENING = 10.0
"""Seconds to wait for others who open the file at the same time. Nothing is served yet."""

_PAUSE = 0.002
"""Seconds between two attempts to write, at most."""

_LOG = "principal = ? AND session = ? AND stream = ?"


class SqliteStore:
    """Keeps logs in a file, as many as the limits ``stored_...`` allow, the oldest go first.

    Processes of one machine may open the same file; not over a network. All methods may be called
    in any thread, and raise sqlite3.Error if the file cannot be used.
    """

    is_durable = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        limits: Limits | None = None,
        *,
        clock: Callable[[], float] = time.time,
        patience: float = 1.0,
    ) -> None:
        """Open the file, and create it if need be.

        Args:
            path: the file; two more, with names that begin alike, come and go beside it.
            limits: the bounds, the same for all who use the file.
            clock: seconds; all who use the file have to agree on it.
            patience: seconds to wait for others who write. Then the use of the store fails: with an
                append a stream loses its log, and the client may lose messages; anything else can
                be tried again.
        """
        self._limits = limits or Limits()
        self._clock = clock
        self._patience = _OPENING
        self._lock = threading.Lock()
        self._database = sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare()
        except sqlite3.Error:
            self._database.close()
            raise
        self._patience = patience

    def _prepare(self) -> None:
        self._execute_alone("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            for statement in _statements(_SCHEMA):
                self._database.execute(statement)
            self._database.execute(
                "INSERT INTO secrets SELECT ? WHERE NOT EXISTS (SELECT * FROM secrets)",
                (secrets.token_bytes(32),),
            )

    def close(self) -> None:
        """Close the file. What is in it stays."""
        self._database.close()

    @property
    def secret(self) -> bytes:
        """32 random bytes, the same for all who use the file: a key of a StateSeal."""
        with self._lock:
            (key,) = self._database.execute("SELECT key FROM secrets").fetchone()
        return bytes(key)

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> bool:
        """Add entries to the end of a log; see :class:`sansmcp.Store`.

        Age is told by the clock of the store: ``now`` means nothing to other processes.
        """
        stored_at = self._clock()
        with self._transaction():
            last = self._last(key)
            if last is not None and entries[0].seq != last.seq + 1:
                return False
            self._database.executemany(
                "INSERT INTO entries"
                " (principal, session, stream, seq, data, final, kind, stored_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (*_names(key), each.seq, each.data, each.final, each.kind.value, stored_at)
                    for each in entries
                ],
            )
            self._evict(stored_at - self._limits.stored_age)
        return True

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        """What follows a place in a log; see :class:`sansmcp.Store`."""
        with self._transaction("DEFERRED"):
            last = self._last(key)
            if last is None:
                return None
            rows = self._database.execute(
                f"SELECT seq, data, final, kind FROM entries WHERE {_LOG} AND seq > ?"
                " ORDER BY seq LIMIT ?",
                (*_names(key), after, limit),
            )
            found: list[Entry] = []
            size = 0
            for seq, data, final, kind in rows:
                size += len(data)
                if found and size > max_bytes:
                    break
                found.append(Entry(seq, data, bool(final), EntryKind(kind)))
        return Page(tuple(found), last)

    def drop(self, principal: str, session: str) -> None:
        """Forget all logs of a session."""
        with self._transaction():
            self._database.execute(
                "DELETE FROM entries WHERE principal = ? AND session = ?", (principal, session)
            )

    def _last(self, key: StreamKey) -> Entry | None:
        """The last entry of a log, without its data."""
        row: Any = self._database.execute(
            f"SELECT seq, final, kind FROM entries WHERE {_LOG} ORDER BY seq DESC LIMIT 1",
            _names(key),
        ).fetchone()
        return None if row is None else Entry(row[0], b"", bool(row[1]), EntryKind(row[2]))

    def _evict(self, too_old: float) -> None:
        limits = self._limits
        while True:
            count, size = self._database.execute("SELECT count, bytes FROM totals").fetchone()
            oldest: Any = self._database.execute(
                "SELECT arrival, stored_at FROM entries ORDER BY arrival LIMIT 1"
            ).fetchone()
            is_full = count > limits.stored_entries or size > limits.stored_bytes
            if oldest is None or not (is_full or oldest[1] < too_old):
                return
            self._database.execute("DELETE FROM entries WHERE arrival = ?", (oldest[0],))

    def _execute_alone(self, statement: str) -> None:
        """Execute what others keep us from, as soon as they let us.

        SQLite itself would wait longer and longer between its attempts, and never get its turn; and
        for the mode of the file it does not wait at all.
        """
        give_up = time.monotonic() + self._patience
        while True:
            try:
                self._database.execute(statement)
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() >= give_up:
                    raise
            else:
                return
            time.sleep(random.uniform(0, _PAUSE))

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Generator[None, None, None]:
        with self._lock:
            self._execute_alone(f"BEGIN {kind}")
            try:
                yield
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")


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
