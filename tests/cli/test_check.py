"""``sansmcp check-store`` and ``sansmcp check-adapter``: a report that can be read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import sansmcp_pytest
from sansmcp.testing.stores import SINGLE_STORE_CHECKS, STORE_CHECKS
from sansmcp_pytest._checks.check import Broken, Check

from .conftest import run, run_in_process

STORES = """
import collections
import sansmcp
from sansmcp_stores import SqliteStore

def factory(place, limits, clock):
    return SqliteStore(place, limits, clock=clock, busy_timeout=60)

def memory(place, limits, clock):
    return sansmcp.MemoryStore(limits)

class Alone(sansmcp.MemoryStore):
    is_durable = True

    def read(self, key, after, *, limit, max_bytes):
        return super().read(key, after, limit=limit + 1, max_bytes=max_bytes)

def wrong(place, limits, clock):
    return Alone(limits)

class Wide:
    # Asynchronous, with a place for each session.

    def __init__(self, limits):
        self._places = collections.defaultdict(lambda: sansmcp.MemoryStore(limits))

    def _place(self, principal, session):
        return self._places[principal, session]

    async def append(self, key, entries, *, token, now):
        place = self._place(key.principal, key.session)
        return place.append(key, entries, token=token, now=now)

    async def read(self, key, after, *, limit, max_bytes):
        place = self._place(key.principal, key.session)
        return place.read(key, after, limit=limit, max_bytes=max_bytes)

    async def drop(self, principal, session):
        self._place(principal, session).drop(principal, session)

def wide(place, limits, clock):
    return Wide(limits)

def failing(place, limits, clock):
    raise OSError("no such disk")

number = 7
"""

SUBJECTS = """
class Subject:
    lacks = {}

    def connect(self, target, **settings):
        raise NotImplementedError
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_stores.py").write_text(STORES)
    (tmp_path / "my_subjects.py").write_text(SUBJECTS)
    return tmp_path


def test_a_store_that_is_right(folder: Path) -> None:
    done = run("check-store", "my_stores", cwd=folder)
    assert (done.status, done.err) == (0, "")
    count = len(STORE_CHECKS) + len(SINGLE_STORE_CHECKS) + 4
    *lines, last = done.out.splitlines()
    assert last == f"{count} checks: {count} passed, 0 failed, 0 not applicable"
    assert {line[:6] for line in lines} == {"pass  "}
    assert "pass  lets_one_of_many_processes_succeed" in lines
    assert "pass  tells_of_changes" in lines


def test_a_store_that_is_not_shared(folder: Path) -> None:
    done = run("check-store", "my_stores:memory", cwd=folder)
    assert done.status == 0
    assert done.out.endswith("14 passed, 0 failed, 5 not applicable\n")
    assert "n/a   shows_one_state_to_all\n      the store does not outlive" in done.out
    assert "n/a   tells_of_changes\n      the store does not tell" in done.out


def test_a_store_in_several_places(folder: Path) -> None:
    """Only what it can do is checked."""
    done = run("check-store", "--several-places", "my_stores:wide", cwd=folder)
    assert (done.status, done.err) == (0, "")
    assert not any(check.__name__ in done.out for check in SINGLE_STORE_CHECKS)
    done = run("check-store", "my_stores:wide", cwd=folder)
    assert done.status == 1
    assert "FAIL  stays_within_its_bounds\n      Seen: 15 entries" in done.out


def test_a_store_that_is_wrong(folder: Path) -> None:
    done = run("check-store", "my_stores:wrong", cwd=folder)
    assert done.status == 1
    assert "FAIL  keeps_everything\n      Seen: read: got ([Entry(" in done.out
    assert "      Needed: Of 4 threads that append the same number at the same" in done.out
    assert done.out.endswith("19 checks: 11 passed, 6 failed, 2 not applicable\n")
    assert max(map(len, done.out.splitlines())) <= 80


def test_a_factory_that_raises(folder: Path) -> None:
    done = run("check-store", "my_stores:failing", cwd=folder)
    assert done.status == 1
    assert "Seen: it raised OSError('no such disk')" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("check-store", "my_stores:nothing"), "Cannot load the factory 'my_stores:nothing'"),
        (("check-store", "my_stores.py"), "Cannot load the factory 'my_stores.py'"),
        (("check-store", "a b"), "Not MODULE:FACTORY: 'a b'"),
        (("check-store", "my_stores:number"), "'my_stores:number' is int, and no function"),
        (
            ("check-adapter", "my_stores:number"),
            "'my_stores:number' is int, and no ClientUnderTest",
        ),
    ],
)
def test_what_cannot_be_checked(folder: Path, words: tuple[str, ...], said: str) -> None:
    done = run(*words, cwd=folder)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"sansmcp: {said}")


def test_an_adapter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def passes(subject: object) -> None:
        pass

    def fails(subject: object) -> None:
        raise Broken("two connections, and not one")

    checks = tuple(
        Check[sansmcp_pytest.ClientUnderTest](run.__name__, "Use one.", frozenset(), run)
        for run in (passes, fails)
    )
    monkeypatch.setattr(sansmcp_pytest, "client_checks", lambda: checks)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    done = run_in_process("check-adapter", "my_subjects:Subject")
    assert done.status == 1
    assert done.out == (
        "pass  passes\n"
        "FAIL  fails\n"
        "      Seen: two connections, and not one\n"
        "      Needed: Use one.\n"
        "2 checks: 1 passed, 1 failed, 0 not applicable\n"
    )


def test_every_check_of_an_adapter_is_reported(folder: Path) -> None:
    done = run("check-adapter", "my_subjects:Subject", cwd=folder)
    assert done.status == 1
    count = len(sansmcp_pytest.client_checks())
    assert f"\n{count} checks: " in done.out
    assert f"FAIL  {sansmcp_pytest.client_checks()[0]}\n" in done.out
    assert "it raised NotImplementedError()" in done.out
