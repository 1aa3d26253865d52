"""A store in one file of SQLite.

The file is in WAL mode: readers do not wait for writers, and writers only for each other. Each
append is synchronised to the disk before it is reported, so sent messages survive a crash of the
process and of the machine. It takes a few milliseconds on most disks, and blocks the calling
thread, so an event loop does nothing else meanwhile. While another process locks the file, a write
waits for at most ``busy_timeout`` seconds. After that, writes fail at once until one succeeds. So a
file that stays locked costs a server that time once, and not once for each stream.

The content is as confidential as the messages, and includes session ids, which are credentials. So
only the user of the process can read the files.
"""

from __future__ import annotations

import errno
import os
import random
import secrets
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from sansmcp import Entry, EntryKind, Limits, LocalProtocolError, Page, StreamKey
from sansmcp.store import aged

_VERSION = 2
"""The version of the schema, stored as ``user_version``."""

_FIRST_TABLES = {"entries", "totals", "secrets"}
"""The tables of version 0.1.0, which stored the key in the file."""

_SCHEMA = """
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

_ENTRY_COST = 60
"""Bytes of the file that an entry takes beside its data and three times its names; a test holds it
to what SQLite takes.
"""

_OPENING = 10.0
"""Seconds to wait while other processes open the file. The server does not run yet."""

_RETRY_INTERVAL = 0.002
"""Seconds between two attempts to write, at most."""

_KINDS = {kind.value: kind for kind in EntryKind}

_LOG = "principal = ? AND session = ? AND stream = ?"


class SqliteStore:
    """A store in one SQLite file, within the limits ``stored_...``.

    Several processes of one machine may open the same file, but not over a network. Its content
    outlives them: adapters set ``shared_store`` for it, so that after a restart clients keep their
    sessions and resume their streams. When the file is full, the oldest entries are deleted of the
    principal that uses most of it, and there of the session that uses most.

    The file, and those that SQLite and the store keep beside it (``-wal``, ``-shm`` and ``-key``),
    are created for their owner only (mode 0600).

    All methods may be called in any thread, and block it: an event loop that calls them does
    nothing else meanwhile. They raise sqlite3.Error if the file cannot be used, or is damaged.
    """

    is_durable = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        limits: Limits | None = None,
        *,
        clock: Callable[[], float] = time.time,
        busy_timeout: float = 0.5,
    ) -> None:
        """Open the file, and create it if need be.

        Args:
            path: the file; up to three more, with names that begin alike, are kept beside it.
            limits: the bounds, the same in all processes that use the file.
            clock: returns seconds; the same clock in all processes that use the file.
            busy_timeout: seconds to wait while another process writes; then the operation fails. If
                an append fails, the stream loses its log and the client may lose messages; anything
                else can be tried again. Until a write succeeds, further ones do not wait. Set a
                longer time if the server does nothing else in its thread.

        Raises:
            PermissionError: a file is a symbolic link, belongs to another user, or can be used by
                others.
            LocalProtocolError: the path names no file, or the file of the key holds no key.
            sqlite3.Error: the file is no database, is damaged, or is in use for too long.
            OSError: a file cannot be created, read or written.
        """
        self._path = os.path.abspath(path)
        if os.fspath(path) in ("", ":memory:"):
            raise LocalProtocolError(
                f"path must name a file, got {os.fspath(path)!r}; MemoryStore keeps logs in memory"
            )
        self._limits = limits or Limits()
        self._clock = clock
        self._patience = _OPENING
        self._is_locked_out = False
        """True if the last write failed because the file was locked; further writes do not wait."""
        self._lock = threading.Lock()
        _create_private(self._path)
        self._database = sqlite3.connect(
            self._path, timeout=0, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare()
        except BaseException:
            self._database.close()
            raise
        self._patience = busy_timeout

    def _prepare(self) -> None:
        with self._damage_reported():
            self._execute_alone("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            if version != _VERSION:
                self._create_tables()
            self._secret = _shared_key(self._path + "-key")

    def _create_tables(self) -> None:
        """Create the tables; replace those of version 0.1.0.

        Other tables stay; if one has a name of ours, the file is refused.
        """
        found = self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        if {name for (name,) in found} >= _FIRST_TABLES:
            for name in _FIRST_TABLES:
                self._database.execute(f"DROP TABLE {name}")
        for statement in _statements(_SCHEMA):
            self._database.execute(statement)
        self._database.execute(f"PRAGMA user_version = {_VERSION}")

    def close(self) -> None:
        """Close the file; its content stays."""
        self._database.close()

    @property
    def secret(self) -> bytes:
        """32 random bytes, the same for all who use the file: a key of a StateSigner.

        They are in a file of their own beside it (``-key``), so that copies of the store do not
        give away the key.
        """
        return self._secret

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> bool:
        """Add entries to the end of a log; see :class:`sansmcp.Store`.

        Ages are measured by the clock of the store; ``now`` is a time of this process only.
        """
        now = self._clock()
        with self._transaction():
            last = self._last(key)
            if last is not None and entries[0].seq != last.seq + 1:
                return False
            age = self._grow_old(now)
            names = _names(key)
            cost = _ENTRY_COST + 3 * sum(map(len, names))
            self._database.executemany(
                "INSERT INTO entries"
                " (principal, session, stream, seq, data, final, kind, stored_at, cost)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        *names,
                        each.seq,
                        each.data,
                        each.final,
                        each.kind.value,
                        age,
                        cost + len(each.data),
                    )
                    for each in entries
                ],
            )
            self._evict(age - self._limits.max_stored_age)
        return True

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        """Return the entries after a sequence number; see :class:`sansmcp.Store`."""
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
            for row in rows:
                entry = self._entry(*row)
                if entry.seq > last.seq or (found and entry.seq != found[-1].seq + 1):
                    raise self._damaged(f"no entry was due at number {entry.seq}")
                size += len(entry.data)
                if found and size > max_bytes:
                    break
                found.append(entry)
        return Page(tuple(found), last)

    def drop(self, principal: str, session: str) -> None:
        """Delete all logs of a session."""
        with self._transaction():
            self._database.execute(
                "DELETE FROM entries WHERE principal = ? AND session = ?", (principal, session)
            )

    def _last(self, key: StreamKey) -> Entry | None:
        """Return the last entry of a log, without its data."""
        row: Any = self._database.execute(
            f"SELECT seq, final, kind FROM entries WHERE {_LOG} ORDER BY seq DESC LIMIT 1",
            _names(key),
        ).fetchone()
        return None if row is None else self._entry(row[0], b"", *row[1:])

    def _entry(self, seq: object, data: object, final: object, kind: object) -> Entry:
        """Return an entry of the file, after a check of the types of its columns."""
        if (
            isinstance(seq, int)
            and seq > 0
            and isinstance(data, bytes)
            and isinstance(kind, str)
            and kind in _KINDS
        ):
            return Entry(seq, data, bool(final), _KINDS[kind])
        raise self._damaged(f"no entry: {(seq, data, final, kind)!r:.100}")

    def _numbers(self, query: str, values: tuple[float, ...] = ()) -> tuple[float, ...] | None:
        """Return the first row of a query for numbers; None if there is no row."""
        row: tuple[object, ...] | None = self._database.execute(query, values).fetchone()
        if row is None:
            return None
        numbers = tuple(each for each in row if isinstance(each, int | float))
        if len(numbers) < len(row):
            raise self._damaged(f"no numbers: {row!r:.100}")
        return numbers

    def _grow_old(self, now: float) -> float:
        """Return the age of the store in seconds; the same for all processes."""
        numbers = self._numbers("SELECT age, ifnull(said, ?) FROM clock", (now,))
        if numbers is None:
            raise self._damaged("it has no clock")
        age, said = numbers
        age += aged(said, now, self._limits.max_stored_age)
        self._database.execute("UPDATE clock SET age = ?, said = ?", (age, now))
        return age

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
        """Delete one entry; if there is none, the totals are wrong and the file is damaged."""
        if self._database.execute(f"DELETE FROM entries WHERE {which}", values).rowcount != 1:
            raise self._damaged("what it counts is not what it holds")

    def _damaged(self, what: str) -> sqlite3.DatabaseError:
        return sqlite3.DatabaseError(
            f"The store {self._path!r} is damaged: {what}; stop all servers that use it, and "
            "remove it"
        )

    @contextmanager
    def _damage_reported(self) -> Generator[None, None, None]:
        """Raise sqlite3.DatabaseError for a UnicodeDecodeError: SQLite quotes a damaged file."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise self._damaged(f"its schema is not UTF-8: {error}") from error

    def _execute_alone(self, statement: str) -> None:
        """Execute a statement as soon as no other process has locked the file.

        SQLite itself would wait longer and longer between its attempts, and might never succeed.
        For the journal mode it does not wait at all.
        """
        give_up = time.monotonic() + self._patience
        while True:
            try:
                self._database.execute(statement)
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise
                if self._is_locked_out or time.monotonic() >= give_up:
                    self._is_locked_out = True
                    raise sqlite3.OperationalError(
                        f"The store {self._path!r} is locked by another process; what is said "
                        f"until it is free may be lost (waited {self._patience} s at first: "
                        "patience)"
                    ) from error
            else:
                return
            time.sleep(random.uniform(0, _RETRY_INTERVAL))

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Generator[None, None, None]:
        with self._lock, self._damage_reported():
            self._execute_alone(f"BEGIN {kind}")
            self._is_locked_out = self._is_locked_out and kind == "DEFERRED"  # reading never waits
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:  # some errors of SQLite have ended it
                    self._database.execute("ROLLBACK")
                raise


_OWNER_ONLY = stat.S_IRUSR | stat.S_IWUSR


def _create_private(path: str) -> None:
    """Create a file that only its owner can use, or check an existing one."""
    try:
        # SQLite gives the same mode to the files that it creates beside this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY))
    except FileExistsError:
        # Do not open the file to check it: closing it would release the locks of this process.
        for each in (path, path + "-wal", path + "-shm", path + "-journal"):
            if os.path.lexists(each):
                _check_private(each, os.lstat(each))


def _check_private(path: str, status: os.stat_result) -> None:
    """Raise PermissionError unless the file is a regular one that only this user can use."""
    if stat.S_ISLNK(status.st_mode):
        problem = "is a symbolic link; give the path of the file itself"
    elif not stat.S_ISREG(status.st_mode):
        problem = "is no regular file"
    elif status.st_uid != os.geteuid():
        problem = f"belongs to the user {status.st_uid}, and this process is {os.geteuid()}"
    elif status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        problem = f"can be used by others (mode {mode:04o}); run: chmod 600 {path}"
    else:
        return
    raise PermissionError(errno.EPERM, f"The store file {problem}", path)


def _shared_key(path: str) -> bytes:
    """Return 32 random bytes from a file; the first process that locks the file creates them."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, _OWNER_ONLY)
    except OSError as error:
        if error.errno == errno.ELOOP:
            _check_private(path, os.lstat(path))
        raise
    with open(descriptor, "r+b", buffering=0) as file:
        _check_private(path, os.fstat(descriptor))
        key = file.read(33)
        if not key:
            key = secrets.token_bytes(32)
            file.write(key)
            os.fsync(descriptor)
    if len(key) != 32:
        raise LocalProtocolError(
            f"The key file must hold 32 bytes, got {len(key)}; remove {path} to make a new key"
        )
    return key


def _names(key: StreamKey) -> tuple[str, str, str]:
    return key.principal, key.session, key.stream


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script one by one, to run them in a transaction."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
