"""Files of stores as a target.

A damaged file is refused, or its use fails, with the errors that the store documents; or else what
it gives is what a store may give. It costs no more statements than a sound one, or hardly more.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from sansmcp import AppendResult, Entry, EntryKind, Limits, LocalProtocolError, Page, StreamKey

from ..stores.waiting import WaitingStore, open_sqlite
from .inputs import seeded
from .mutations import Mutator

_IN_MEMORY = "/dev/shm"
"""Nothing has to survive, and each append is synchronised."""
_FOLDER = _IN_MEMORY if Path(_IN_MEMORY).is_dir() else None
_LIMITS = Limits(max_stored_entries=12, max_stored_bytes=4000, max_stored_age=100.0)
_LOGS = [StreamKey(each, f"session-{each}", f"stream-{n}") for each in ("", "a") for n in range(2)]
_FILES = ("store", "store-wal", "store-key")

_COLUMNS = (
    *("entries.arrival", "entries.principal", "entries.session", "entries.stream", "entries.seq"),
    *("entries.data", "entries.final", "entries.kind", "entries.stored_at", "entries.cost"),
    *("totals.count", "totals.cost", "clock.age", "clock.said"),
    *("principals.principal", "principals.cost", "sessions.principal", "sessions.session"),
    *("sessions.cost", "entries.first", "entries.token"),
)
_VALUES = (
    *("0", "-1", "7", "1e300", "9e999", "''", "'x'", "x''", "x'ff'", "9223372036854775807"),
    *("-9223372036854775808", "CAST(x'ff' AS TEXT)", "'nan'", "zeroblob(100000)", "NULL"),
)
_TABLES = ("entries", "totals", "clock", "principals", "sessions")
_THINGS = (
    *(f"TABLE {table}" for table in _TABLES),
    *("INDEX arrivals", "INDEX principals_by_cost", "INDEX sessions_by_cost"),
    *("TRIGGER added", "TRIGGER removed"),
)


class _Counted(sqlite3.Connection):
    """Raise AssertionError for too many statements."""

    left = 3000

    def execute(self, *args: Any) -> sqlite3.Cursor:
        self.left -= 1
        if self.left < 0:
            raise AssertionError("statements without end")
        return super().execute(*args)


def store_files(data: bytes) -> None:
    """Open damaged files with a store, and use it as servers do."""
    seed, damage = seeded(data)
    with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
        path = Path(folder) / "store"
        for name, content in _sound_files(is_open=bool(seed % 2)).items():
            (path.parent / name).touch(0o600)
            (path.parent / name).write_bytes(content)
        for kind, numbers, text in _records(damage):
            _damage(path, kind, numbers, text)
        connect = functools.partial(sqlite3.connect, factory=_Counted)
        with mock.patch("sqlite3.connect", connect):
            try:
                store = open_sqlite(path, _LIMITS, clock=lambda: 50.0, busy_timeout=0.0)
            except (sqlite3.Error, OSError, LocalProtocolError):
                return
            with contextlib.closing(store):
                assert len(store.secret) == 32
                _use(store, Mutator(seed))


def _use(store: WaitingStore, random: Mutator) -> None:
    """Read, append and delete; after a database error, continue."""
    for _ in range(30):
        key = random.choice(_LOGS)
        seq = 1
        with contextlib.suppress(sqlite3.Error):
            page = store.read(key, random.randrange(4), limit=3, max_bytes=1000)
            if page is not None:
                _check(page)
                seq = page.last.seq + 1
        with contextlib.suppress(sqlite3.Error):
            kind = random.choice(list(EntryKind))
            entries = (
                Entry(seq, b"y" * random.choice((0, 10, 500)), kind=kind),
                Entry(seq + 1, b""),
            )
            assert isinstance(store.append(key, entries), AppendResult)
        if random.random() < 0.05:
            with contextlib.suppress(sqlite3.Error):
                store.drop(key.principal, key.session)


def _check(page: Page) -> None:
    """Assert that a page is a valid one."""
    for entry in (*page.entries, page.last):
        assert type(entry.seq) is int
        assert entry.seq > 0
        assert type(entry.data) is bytes
        assert isinstance(entry.kind, EntryKind)
    numbers = [entry.seq for entry in page.entries]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    assert not numbers or numbers[-1] <= page.last.seq
    assert len(numbers) <= 3


@functools.cache
def _sound_files(*, is_open: bool) -> dict[str, bytes]:
    """Return the files of a store; if it was not closed, part of the data is in SQLite's log."""
    with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
        path = Path(folder) / "store"
        with contextlib.closing(open_sqlite(path, _LIMITS, clock=lambda: 0.0)) as store:
            for key in _LOGS:
                entries = (
                    Entry(1, b"", kind=EntryKind.OPENED),
                    Entry(2, b"x" * 20),
                    Entry(3, b"{}"),
                )
                assert store.append(key, entries) is AppendResult.STORED
            files = {name: (path.parent / name).read_bytes() for name in _FILES}
        if not is_open:
            files = {name: (path.parent / name).read_bytes() for name in ("store", "store-key")}
    return files


def _records(damage: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield changes: a kind, four bytes for the place, a length, and so many bytes."""
    while len(damage) >= 6:
        length = damage[5] % 64
        yield damage[0], damage[1:5], damage[6 : 6 + length]
        damage = damage[6 + length :]


def _damage(path: Path, kind: int, numbers: bytes, text: bytes) -> None:
    """Overwrite part of a file, truncate it, replace it, or change its tables."""
    file = path.with_name(_FILES[numbers[0] % len(_FILES)])
    place = int.from_bytes(numbers[1:4], "big")
    match kind % 6:
        case 0 | 1 if file.exists():
            content = bytearray(file.read_bytes())
            place %= len(content) + 1
            content[place : place + len(text)] = text
            file.write_bytes(content)
        case 2 if file.exists():
            content = bytearray(file.read_bytes())
            del content[place % (len(content) + 1) :]
            file.write_bytes(content)
        case 3:
            table, _, column = _COLUMNS[numbers[0] % len(_COLUMNS)].partition(".")
            value = _VALUES[numbers[1] % len(_VALUES)]
            _execute(
                path, f"UPDATE {table} SET {column} = {value} WHERE rowid % {1 + numbers[2]} = 0"
            )
        case 4:
            _execute(
                path, f"DELETE FROM {_TABLES[numbers[0] % len(_TABLES)]} WHERE rowid > {numbers[1]}"
            )
        case 5:
            _execute(path, f"DROP {_THINGS[numbers[0] % len(_THINGS)]}")
        case _:
            pass


def _execute(path: Path, statement: str) -> None:
    """Change rows as a program that does not know the rules of the store."""
    with (
        contextlib.closing(sqlite3.connect(path)) as database,
        contextlib.suppress(sqlite3.Error, UnicodeDecodeError),  # it is beyond changing
    ):
        database.execute("DROP TRIGGER IF EXISTS added")
        database.execute("DROP TRIGGER IF EXISTS removed")
        database.execute(statement)
        database.commit()
