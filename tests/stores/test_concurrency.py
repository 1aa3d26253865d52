"""Row F2 of the review: of all who append the same number at the same time one succeeds."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sansmcp import Entry, StreamKey
from sansmcp_stores import SqliteStore

KEY = StreamKey("", "session", "stream")
ROUNDS = 30


def entry(seq: int, data: bytes = b"x") -> tuple[Entry, ...]:
    return (Entry(seq, data),)


def test_an_append_between_begin_and_insert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row F2 of the review: the last number is read inside the transaction.

    Just before the first store may write, the second one appends. Whoever had looked at the end of
    the log before that would not know.
    """
    first, second = (SqliteStore(tmp_path / "a.db") for _ in range(2))
    assert first.append(KEY, entry(1), now=0)
    begin = vars(SqliteStore)["_execute_alone"]
    others = [entry(2, b"second")]

    def begin_late(store: SqliteStore, statement: str) -> Any:
        if store is first and others:
            assert second.append(KEY, others.pop(), now=0)
        return begin(store, statement)

    monkeypatch.setattr(SqliteStore, "_execute_alone", begin_late)
    assert not first.append(KEY, entry(2, b"first"), now=0)
    page = first.read(KEY, 1, limit=9, max_bytes=99)
    assert page is not None
    assert [each.data for each in page.entries] == [b"second"]
    first.close()
    second.close()


def race(path: Path, name: str, rounds: int = ROUNDS) -> list[int]:
    """Append each number, and return those where we were first."""
    store = SqliteStore(path, busy_timeout=60)
    won = [seq for seq in range(1, rounds + 1) if append_or_wait(store, seq, name)]
    store.close()
    return won


def append_or_wait(store: SqliteStore, seq: int, name: str) -> bool:
    """Whether it was us who appended it; otherwise somebody has."""
    is_ours = store.append(KEY, entry(seq, name.encode()), now=0)
    page = store.read(KEY, seq - 1, limit=1, max_bytes=99)
    assert page is not None
    assert page.last.seq >= seq
    (found,) = page.entries
    assert (found.data == name.encode()) is is_ours
    return is_ours


def check(path: Path, won: list[list[int]]) -> None:
    assert Counter(seq for each in won for seq in each) == Counter(range(1, ROUNDS + 1))
    store = SqliteStore(path)
    page = store.read(KEY, 0, limit=10**6, max_bytes=10**6)
    assert page is not None
    assert [each.seq for each in page.entries] == list(range(1, ROUNDS + 1))
    store.close()


def test_threads_that_race(tmp_path: Path) -> None:
    """Row F2 of the review: each with a store of its own."""
    path = tmp_path / "a.db"
    won: list[list[int]] = []

    def run(name: str) -> None:
        won.append(race(path, name))

    threads = [threading.Thread(target=run, args=(name,)) for name in "abc"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(won) == 3
    check(path, won)


def test_threads_that_race_for_one_store(tmp_path: Path) -> None:
    """Its methods may be called in any thread."""
    store = SqliteStore(tmp_path / "a.db", busy_timeout=60)
    won: list[list[int]] = []

    def run(name: str) -> None:
        won.append([seq for seq in range(1, ROUNDS + 1) if append_or_wait(store, seq, name)])

    threads = [threading.Thread(target=run, args=(name,)) for name in "abc"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    store.close()
    assert len(won) == 3
    check(tmp_path / "a.db", won)


def test_processes_that_race(tmp_path: Path) -> None:
    """Row F2 of the review: the one promise that instances build on. They begin at once."""
    path = tmp_path / "a.db"
    command = [sys.executable, "-m", "tests.stores.test_concurrency", str(path)]
    processes = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in "abc"
    ]
    for each in processes:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in processes:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    won = [[int(seq) for seq in each.communicate()[0].split()] for each in processes]
    assert [each.returncode for each in processes] == [0, 0, 0]
    check(path, won)


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    print(*race(Path(sys.argv[1]), sys.argv[2]))
