"""Of all who append the same number at the same time one succeeds.

Each of them also appends to a log of its own at the same time, and repeats appends as if it had
lost the reply.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from sansmcp import AppendResult, Entry, StreamKey
from sansmcp_stores import SqliteStore
from sansmcp_stores._sqlite_file import SqliteFile

from .waiting import open_sqlite

KEY = StreamKey("", "session", "stream")
ROUNDS = 30
STORED = AppendResult.STORED


def entry(seq: int, data: bytes = b"x") -> tuple[Entry, ...]:
    return (Entry(seq, data),)


def test_an_append_between_begin_and_insert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last number is read inside the transaction.

    Just before the first store may write, the second one appends. Whoever had looked at the end of
    the log before that would not know.
    """
    first, second = (open_sqlite(tmp_path / "a.db") for _ in range(2))
    assert first.append(KEY, entry(1)) is STORED
    begin = vars(SqliteFile)["_execute_alone"]
    others = [entry(2, b"second")]

    def begin_late(file: SqliteFile, statement: str) -> Any:
        if others:
            assert second.append(KEY, others.pop()) is STORED
        return begin(file, statement)

    monkeypatch.setattr(SqliteFile, "_execute_alone", begin_late)
    assert first.append(KEY, entry(2, b"first")) is AppendResult.CONFLICT
    page = first.read(KEY, 1)
    assert page is not None
    assert [each.data for each in page.entries] == [b"second"]
    first.close()
    second.close()


async def race(store: SqliteStore, name: str) -> list[int]:
    """Append each number, and return those where we were first."""
    return [seq for seq in range(1, ROUNDS + 1) if await append_or_wait(store, seq, name)]


async def append_or_wait(store: SqliteStore, seq: int, name: str) -> bool:
    """Whether it was us who appended it; otherwise somebody has."""
    data, token = entry(seq, name.encode()), f"{name} {seq}"
    result = await store.append(KEY, data, token=token, now=0)
    if seq % 3 == 0:  # the reply was lost
        repeated = await store.append(KEY, data, token=token, now=0)
        # A stored one that others have followed is no longer recognised.
        assert repeated is result or (result is STORED and repeated is AppendResult.CONFLICT)
    own = StreamKey("", "session", name)
    assert await store.append(own, entry(seq), token=token, now=0) is STORED
    page = await store.read(KEY, seq - 1, limit=1, max_bytes=99)
    assert page is not None
    assert page.last.seq >= seq
    (found,) = page.entries
    assert (found.data == name.encode()) is (result is STORED)
    return result is STORED


def check(path: Path, won: list[list[int]], names: str = "abc") -> None:
    assert Counter(seq for each in won for seq in each) == Counter(range(1, ROUNDS + 1))
    with closing(open_sqlite(path)) as store:
        for key in (KEY, *(StreamKey("", "session", name) for name in names)):
            page = store.read(key, 0)
            assert page is not None
            assert [each.seq for each in page.entries] == list(range(1, ROUNDS + 1))


def in_threads(*works: Callable[[], list[int]]) -> list[list[int]]:
    """What functions return that run at the same time, each in a thread."""
    won: list[list[int]] = []
    threads = [threading.Thread(target=lambda work=work: won.append(work())) for work in works]  # pyright: ignore
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(won) == len(works)
    return won


def race_in_own_store(path: Path, name: str) -> list[int]:
    with closing(SqliteStore(path, busy_timeout=60)) as store:
        won: list[int] = asyncio.run(race(store, name))
        return won


def test_threads_that_race(tmp_path: Path) -> None:
    """Each with a store of its own."""
    path = tmp_path / "a.db"
    check(path, in_threads(*(lambda name=name: race_in_own_store(path, name) for name in "abc")))  # pyright: ignore


def test_loops_that_race_for_one_store(tmp_path: Path) -> None:
    """Its methods may be called in any loop: two of asyncio and two of trio, two tasks in each."""
    with closing(SqliteStore(tmp_path / "a.db", busy_timeout=60)) as store:

        async def tasks_of_asyncio(names: str) -> list[int]:
            won = await asyncio.gather(*(race(store, name) for name in names))
            return [seq for each in won for seq in each]

        async def tasks_of_trio(names: str) -> list[int]:
            won: list[int] = []

            async def run(name: str) -> None:
                won.extend(await race(store, name))

            async with trio.open_nursery() as nursery:
                for name in names:
                    nursery.start_soon(run, name)
            return won

        won = in_threads(
            lambda: asyncio.run(tasks_of_asyncio("ab")),
            lambda: trio.run(tasks_of_trio, "cd"),
            lambda: asyncio.run(tasks_of_asyncio("ef")),
            lambda: trio.run(tasks_of_trio, "gh"),
        )
    check(tmp_path / "a.db", won, "abcdefgh")


def test_processes_that_race(tmp_path: Path) -> None:
    """The one promise that instances build on. They begin at once."""
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
    print(*race_in_own_store(Path(sys.argv[1]), sys.argv[2]))
