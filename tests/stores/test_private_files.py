"""The files of a SqliteStore are their owner's only, and the key is not in the store."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import secrets
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sansmcp import AppendResult, Entry, Limits, LocalProtocolError, StateSigner, StreamKey
from sansmcp_local import new_server
from sansmcp_stores import SqliteStore

from ..server.harness import example_app
from .waiting import open_sqlite

KEY = StreamKey("ada", "session", "stream")


@pytest.fixture
def careless() -> Iterator[None]:
    """A umask that takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    return {each.name: oct(stat.S_IMODE(each.lstat().st_mode)) for each in folder.iterdir()}


@pytest.mark.usefixtures("careless")
def test_all_files_are_their_owners_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file was 0644. It is private before the first byte is written."""
    connect: Any = sqlite3.connect
    seen = list[Any]()

    def spy(path: str, **settings: Any) -> Any:
        seen.append((modes(tmp_path), (tmp_path / "a.db").stat().st_size))
        return connect(path, **settings)

    monkeypatch.setattr(sqlite3, "connect", spy)
    store = open_sqlite(tmp_path / "a.db")
    assert seen == [({"a.db": "0o600"}, 0)]
    store.append(KEY, (Entry(1, b"x"),))
    names = ("a.db", "a.db-key", "a.db-shm", "a.db-wal")
    assert modes(tmp_path) == dict.fromkeys(names, "0o600")
    again = SqliteStore(tmp_path / "a.db")
    again.close()
    store.close()


@pytest.mark.parametrize("name", ["a.db", "a.db-wal", "a.db-shm", "a.db-journal", "a.db-key"])
def test_what_others_could_use_is_refused(tmp_path: Path, name: str) -> None:
    """Said as ssh says it, with what to do."""
    SqliteStore(tmp_path / "a.db").close()
    path = tmp_path / name
    path.touch(0o600)
    for mode in (0o640, 0o604, 0o622):
        path.chmod(mode)
        with pytest.raises(PermissionError, match=f"mode 0{mode:o}.; run: chmod 600 .*{name}"):
            SqliteStore(tmp_path / "a.db")
    path.chmod(0o600)
    SqliteStore(tmp_path / "a.db").close()


@pytest.mark.parametrize("name", ["a.db", "a.db-wal", "a.db-key"])
@pytest.mark.parametrize("is_dangling", [False, True])
def test_symbolic_links_are_not_followed(tmp_path: Path, name: str, is_dangling: bool) -> None:
    """With a symbolic link another user could choose which file is written."""
    if name != "a.db":
        SqliteStore(tmp_path / "a.db").close()
    target = tmp_path / "target"
    if not is_dangling:
        target.touch(0o600)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to(target)
    with pytest.raises(PermissionError, match="is a symbolic link"):
        SqliteStore(tmp_path / "a.db")
    assert not target.exists() if is_dangling else target.read_bytes() == b""


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o707, 0o1702])
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    """The sticky bit keeps them from removing files, not from putting some beside the store."""
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(PermissionError, match=rf"mode {mode:04o}.*mkdir -m 700 {folder}/mcp-data"):
        SqliteStore(folder / "a.db")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("alone", [True, False])
def test_a_folder_of_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    """Many systems give each user a group, and new folders a mode by which it can write."""
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o770)
    user, status = pwd.getpwuid(os.geteuid()), folder.stat()
    members = [user.pw_name] if alone else ["eve"]
    group = grp.struct_group((user.pw_name, "", status.st_gid, members))

    def group_of(gid: int) -> grp.struct_group:
        return group

    def user_of(uid: int) -> pwd.struct_passwd:
        return user

    monkeypatch.setattr(grp, "getgrgid", group_of)
    monkeypatch.setattr(pwd, "getpwuid", user_of)
    if alone and user.pw_gid == status.st_gid:
        SqliteStore(folder / "a.db").close()
    else:
        with pytest.raises(PermissionError, match="can be written by others"):
            SqliteStore(folder / "a.db")


def test_a_folder_of_a_group_that_has_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(gid: int) -> Any:
        raise KeyError(gid)

    monkeypatch.setattr(grp, "getgrgid", unknown)
    tmp_path.chmod(0o770)
    with pytest.raises(PermissionError, match="can be written by others"):
        SqliteStore(tmp_path / "a.db")


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat_of = os.stat
    real = stat_of(tmp_path)
    foreign = os.stat_result((*real[:4], real.st_uid + 1, *real[5:10]))

    def stat(path: str, **more: Any) -> os.stat_result:
        return foreign if path == str(tmp_path) else stat_of(path, **more)

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(PermissionError, match="The folder of the store belongs to the user"):
        SqliteStore(tmp_path / "a.db")


@pytest.mark.parametrize("name", ["a.db-wal", "a.db-shm"])
def test_what_another_user_puts_there_while_sqlite_opens_the_file_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first look, and before SQLite opens it by its name."""
    connect: Any = sqlite3.connect

    def plant(path: str, **settings: Any) -> Any:
        (tmp_path / name).write_bytes(b"x")  # SQLite itself mends the mode of an empty one
        (tmp_path / name).chmod(0o666)
        return connect(path, **settings)

    with contextlib.closing(open_sqlite(tmp_path / "a.db")) as store:
        store.append(KEY, (Entry(1, b"x"),))
    monkeypatch.setattr(sqlite3, "connect", plant)
    with pytest.raises(PermissionError, match=f"can be used by others.*{name}"):
        SqliteStore(tmp_path / "a.db")
    monkeypatch.setattr(sqlite3, "connect", connect)
    store = open_sqlite(tmp_path / "b.db")
    monkeypatch.setattr(sqlite3, "connect", plant)
    name = name.replace("a.db", "b.db")
    with pytest.raises(PermissionError, match=f"can be used by others.*{name}"):
        store.append(KEY, (Entry(1, b"x"),))
    store.close()


def test_files_of_other_users_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteStore(tmp_path / "a.db").close()
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(PermissionError, match=f"belongs to the user .*this process is {other}"):
        SqliteStore(tmp_path / "a.db")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PermissionError, match="is no regular file"):
        SqliteStore(tmp_path)
    for path in ("", ":memory:"):
        with pytest.raises(LocalProtocolError, match="must name a file"):
            SqliteStore(path)
    with pytest.raises(FileNotFoundError):
        SqliteStore(tmp_path / "missing" / "a.db")
    (tmp_path / "a.db-key").mkdir()
    with pytest.raises(IsADirectoryError):
        SqliteStore(tmp_path / "a.db")


@pytest.mark.parametrize("content", [b"short", bytes(33)])
def test_a_key_file_that_holds_no_key(tmp_path: Path, content: bytes) -> None:
    key = tmp_path / "a.db-key"
    key.touch(0o600)
    key.write_bytes(content)
    with pytest.raises(LocalProtocolError, match=r"must hold 32 bytes, got .*remove .*a\.db-key"):
        SqliteStore(tmp_path / "a.db")
    assert key.read_bytes() == content


def test_stores_that_are_opened_at_the_same_time_get_one_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that start together sign with the same key. Here each waits while it makes one."""
    others = threading.Barrier(2)

    def slow_token(count: int) -> bytes:
        with contextlib.suppress(threading.BrokenBarrierError):
            others.wait(0.5)
        return os.urandom(count)

    monkeypatch.setattr(secrets, "token_bytes", slow_token)
    path = tmp_path / "a.db"
    with ThreadPoolExecutor(2) as threads:
        stores = list(threads.map(SqliteStore, [path, path]))
    assert stores[0].secret == stores[1].secret
    for store in stores:
        store.close()


def windows(data: bytes) -> Iterator[bytes]:
    """Every 32 bytes that might be a key."""
    return (data[start : start + 32] for start in range(len(data) - 31))


def test_a_copy_of_the_store_forges_no_state(tmp_path: Path) -> None:
    """The key of the seal was in the file that anybody could read."""
    store = open_sqlite(tmp_path / "a.db")
    server = new_server(example_app(), store, resumable=True)
    store.append(KEY, (Entry(1, b"{}"),))
    seal = StateSigner(keys=(store.secret,), clock=time.time)
    genuine = seal.sign("state", "ada", "tools/call", {}, name="name")
    copy = b"".join((tmp_path / name).read_bytes() for name in ("a.db", "a.db-wal", "a.db-shm"))
    assert store.secret not in copy
    assert not any(window == store.secret for window in windows(copy))
    assert seal.verify(genuine, "ada", "tools/call", {}) == "state"
    assert server.shared_store
    store.close()


VERSION_0_1_0 = """
CREATE TABLE entries (arrival INTEGER PRIMARY KEY AUTOINCREMENT, principal TEXT NOT NULL,
    session TEXT NOT NULL, stream TEXT NOT NULL, seq INTEGER NOT NULL, data BLOB NOT NULL,
    final INTEGER NOT NULL, kind TEXT NOT NULL, stored_at REAL NOT NULL,
    UNIQUE (principal, session, stream, seq));
CREATE TABLE totals (count INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE secrets (key BLOB NOT NULL);
CREATE TRIGGER added AFTER INSERT ON entries BEGIN
    UPDATE totals SET count = count + 1, bytes = bytes + length(new.data);
END;
INSERT INTO secrets VALUES (x'6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b');
"""


def test_a_file_of_version_0_1_0_gets_a_new_key(tmp_path: Path) -> None:
    """A state that was signed with the old key is refused."""
    old = sqlite3.connect(tmp_path / "a.db")
    old.executescript(VERSION_0_1_0)
    old.close()
    with pytest.raises(PermissionError, match="chmod 600"):
        SqliteStore(tmp_path / "a.db")
    (tmp_path / "a.db").chmod(0o600)
    store = open_sqlite(tmp_path / "a.db")
    assert store.secret != b"k" * 32
    assert store.append(KEY, (Entry(1, b"x"),)) is AppendResult.STORED
    forged = StateSigner(keys=(b"k" * 32,), clock=time.time).sign("s", "", "m", {}, name="n")
    seal = StateSigner(keys=(store.secret,), clock=time.time)
    with pytest.raises(Exception, match="this server did not sign it"):
        seal.verify(forged, "", "m", {})
    store.close()


VERSION_2 = """
CREATE TABLE entries (arrival INTEGER PRIMARY KEY AUTOINCREMENT, principal TEXT NOT NULL,
    session TEXT NOT NULL, stream TEXT NOT NULL, seq INTEGER NOT NULL, data BLOB NOT NULL,
    final INTEGER NOT NULL, kind TEXT NOT NULL, stored_at REAL NOT NULL, cost INTEGER NOT NULL,
    UNIQUE (principal, session, stream, seq));
CREATE TABLE totals (count INTEGER NOT NULL, cost INTEGER NOT NULL);
CREATE TABLE clock (age REAL NOT NULL, said REAL);
CREATE TABLE principals (principal TEXT PRIMARY KEY, cost INTEGER NOT NULL);
CREATE TABLE sessions (principal TEXT NOT NULL, session TEXT NOT NULL, cost INTEGER NOT NULL,
    PRIMARY KEY (principal, session));
INSERT INTO entries VALUES (1, 'ada', 'session', 'stream', 1, x'78', 0, 'message', 0, 100);
INSERT INTO totals VALUES (1, 100);
INSERT INTO clock VALUES (0, NULL);
INSERT INTO principals VALUES ('ada', 100);
INSERT INTO sessions VALUES ('ada', 'session', 100);
PRAGMA user_version = 2;
"""


def test_a_file_whose_appends_have_no_tokens(tmp_path: Path) -> None:
    """It keeps its content."""
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as old:
        old.executescript(VERSION_2)
    (tmp_path / "a.db").chmod(0o600)
    for _ in range(2):
        with contextlib.closing(open_sqlite(tmp_path / "a.db")) as store:
            page = store.read(KEY, 0)
            assert page is not None
            assert page.entries[0] == Entry(1, b"x")
            again = store.append(KEY, (Entry(1, b"x"),))
            assert again is AppendResult.CONFLICT
            store.append(KEY, (Entry(2, b"x"),), token="a")
            assert store.append(KEY, (Entry(2, b"x"),), token="a") is AppendResult.STORED
            store.drop("ada", "another")


def test_a_database_of_others_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    theirs = sqlite3.connect(path)
    theirs.executescript("CREATE TABLE entries (a); INSERT INTO entries VALUES (1);")
    path.chmod(0o600)
    with pytest.raises(sqlite3.OperationalError, match="entries already exists"):
        SqliteStore(path)
    assert theirs.execute("SELECT * FROM entries").fetchall() == [(1,)]
    theirs.close()


@pytest.mark.parametrize(("count", "size"), [(3000, 10), (3000, 300), (100, 30_000)])
def test_what_is_counted_is_what_the_file_takes(tmp_path: Path, count: int, size: int) -> None:
    """To within a quarter and the pages of an empty one."""
    store = open_sqlite(tmp_path / "a.db", Limits(max_stored_bytes=10**9))
    other = sqlite3.connect(tmp_path / "a.db")
    empty = file_size(other)
    names = ("p" * 10, "s" * 43, "t" * 43)
    for first in range(1, count + 1, 100):
        entries = tuple(Entry(seq, bytes(size)) for seq in range(first, first + 100))
        assert store.append(StreamKey(*names), entries) is AppendResult.STORED
    taken = file_size(other) - empty
    (counted,) = other.execute("SELECT cost FROM totals").fetchone()
    assert 0.75 * taken < counted < 1.25 * taken
    other.close()
    store.close()


def file_size(database: sqlite3.Connection) -> int:
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
    return int(pages * size)
