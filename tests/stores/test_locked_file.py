"""A file that another process locks costs a server little time, and is said once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sansmcp import Entry, StreamKey
from sansmcp_stores import SqliteStore

from ..server.harness import PING, ServerHarness, methods, report_progress_all


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        own = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep, time=lambda: self.now)
        monkeypatch.setattr("sansmcp_stores._sqlite.time", own)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Another process."""
    SqliteStore(tmp_path / "a.db").close()
    connection = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    yield connection
    connection.close()


def test_a_locked_file_costs_its_patience_once(
    tmp_path: Path, clock: Clock, other: sqlite3.Connection
) -> None:
    """Row A16 of the review: a bystander's echo took 8 s with 20 streams."""
    store = SqliteStore(tmp_path / "a.db", busy_timeout=0.5)
    other.execute("BEGIN IMMEDIATE")
    for number in range(20):
        with pytest.raises(sqlite3.OperationalError, match=r"a\.db' is locked by another process"):
            store.append(StreamKey("", "", f"stream {number}"), (Entry(1, b""),), now=0)
        assert store.read(StreamKey("", "", "any"), 0, limit=1, max_bytes=1) is None
    assert 0.5 <= clock.now < 0.51
    other.execute("ROLLBACK")
    assert store.append(StreamKey("", "", "a"), (Entry(1, b""),), now=0)
    other.execute("BEGIN IMMEDIATE")
    for _ in range(20):
        with pytest.raises(sqlite3.OperationalError):
            store.drop("", "")
    assert 1.0 <= clock.now < 1.02
    other.execute("ROLLBACK")
    store.close()


def test_streams_go_on_without_a_locked_store(
    tmp_path: Path, clock: Clock, other: sqlite3.Connection
) -> None:
    """Row A16 of the review: what is read goes out, and one failure is the first of its kind."""
    store = SqliteStore(tmp_path / "a.db")
    harness = ServerHarness(store=store)  # type: ignore[arg-type]  # pyright: ignore
    session = harness.open_session()
    talks = [harness.call(session) for _ in range(20)]
    other.execute("BEGIN IMMEDIATE")
    for talk, call in talks:
        report_progress_all(harness, call, "a")
        assert methods(talk) == ["a"]
    assert harness.post(PING.replace(b"7", b"70"), session).status == 200
    for talk, call in talks:
        harness.run_action(call.respond, {})
        assert methods(talk) == ["a", "answer"]
        assert talk.ended
    assert clock.now < 0.51
    firsts = [event for event in harness.events if not getattr(event, "again", True)]
    (failed,) = firsts
    assert not failed.lost  # type: ignore[union-attr]  # pyright: ignore
    assert str(tmp_path / "a.db") in failed.reason  # type: ignore[union-attr]  # pyright: ignore
    other.execute("ROLLBACK")
    store.close()
