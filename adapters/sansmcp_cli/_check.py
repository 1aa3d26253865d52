"""``sansmcp check-store`` and ``sansmcp check-adapter``: check a store or adapter of your own."""

from __future__ import annotations

import argparse
import inspect
import itertools
import tempfile
import textwrap
import time
import traceback
import unittest
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

import sansmcp
from sansmcp.drivers.store_checks import is_durable
from sansmcp.testing import check_shared_store
from sansmcp.testing.stores import STORE_CHECKS

from ._load import load
from ._output import Commands, UsageError, print_error, print_line

if TYPE_CHECKING:
    from concurrent.futures import Executor

_KEY = sansmcp.StreamKey("principal", "session", "race")
_ROUNDS = 10
_RACERS = 4

_OpenStore: TypeAlias = Callable[[str, sansmcp.Limits, Callable[[], float]], sansmcp.Store]


@attrs.frozen
class _Check:
    """One check, of a store or an adapter."""

    name: str
    obligation: str
    run: Callable[[], None]


def add_to(commands: Commands) -> None:
    """Add both commands and their options to the parser."""
    store = commands.add_parser(
        "check-store",
        help="check a store of your own, with threads and processes that share it",
        description="Check a store. FACTORY(place, limits, clock) opens the store at a place, a "
        "path where nothing is at first; where the store outlives the process, all who open one "
        "place share it. Exit status: 0, 1 if a check fails, 2 for what cannot be checked.",
    )
    store.add_argument("factory", metavar="MODULE:FACTORY")
    store.set_defaults(run=partial(_checked, _store_checks))
    adapter = commands.add_parser(
        "check-adapter",
        help="check an adapter of your own, over real sockets and processes",
        description="Check an adapter. SUBJECT is a sansmcp_check.ClientUnderTest "
        "or ServerUnderTest, or a class of one that takes no arguments. Exit status: 0, 1 if a "
        "check fails, 2 for what cannot be checked.",
    )
    adapter.add_argument("subject", metavar="MODULE:SUBJECT")
    adapter.set_defaults(run=partial(_checked, _adapter_checks))


def _checked(
    checks_of: Callable[[argparse.Namespace, str], Iterator[_Check]], options: argparse.Namespace
) -> int:
    with tempfile.TemporaryDirectory() as folder:
        try:
            checks = list(checks_of(options, folder))
        except UsageError as error:
            print_error(error)
            return 2
        counts = Counter(_report(check) for check in checks)
    print_line(
        f"{len(checks)} checks: {counts['pass']} passed, {counts['FAIL']} failed, "
        f"{counts['n/a']} not applicable"
    )
    return 1 if counts["FAIL"] else 0


def _report(check: _Check) -> str:
    """Run a check, and print its outcome."""
    outcome, lines = "pass", list[str]()
    try:
        check.run()
    except unittest.SkipTest as reason:
        outcome, lines = "n/a", [str(reason)]
    except Exception as error:
        seen = str(error).replace(f"\n\n{check.name}: {check.obligation}", "")
        if not isinstance(error, AssertionError):
            seen = f"it raised {error!r}"
        elif not seen:
            seen = f"does not hold: {traceback.extract_tb(error.__traceback__)[-1].line}"
        outcome, lines = "FAIL", [f"Seen: {seen}", f"Needed: {check.obligation}"]
    print_line(f"{outcome:4}  {check.name}")
    for line in "\n".join(lines).splitlines():
        for part in textwrap.wrap(line, 74):
            print_line(f"      {part}")
    return outcome


# Adapters


def _adapter_checks(options: argparse.Namespace, folder: str) -> Iterator[_Check]:
    from sansmcp_check import client_checks, server_checks  # a slow import

    subject = load(options.subject, "subject", "subject")
    if inspect.isclass(subject):
        subject = subject()
    kinds: dict[str, Callable[[], tuple[Any, ...]]] = {
        "connect": client_checks,
        "serve": server_checks,
    }
    found = [checks for name, checks in kinds.items() if hasattr(subject, name)]
    if not found or not hasattr(subject, "lacks"):
        raise UsageError(
            f"{options.subject!r} is {type(subject).__name__}, and no ClientUnderTest or "
            "ServerUnderTest; give it a method connect or serve, and the attribute lacks"
        )
    for checks in found:
        for check in checks():
            yield _Check(check.name, check.obligation, partial(check, subject))


# Stores


def _store_checks(options: argparse.Namespace, folder: str) -> Iterator[_Check]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

    factory = load(options.factory, "factory", "factory")
    _check_callable(factory, options.factory)
    places = (str(Path(folder) / f"store-{number}") for number in itertools.count())

    def new_store(limits: sansmcp.Limits, clock: Callable[[], float]) -> sansmcp.Store:
        store: sansmcp.Store = factory(next(places), limits, clock)
        return store

    for check in STORE_CHECKS:
        yield _Check(check.__name__, inspect.getdoc(check) or "", partial(check, new_store))
    yield _Check(
        "shows_one_state_to_all",
        "All who open one place see at once what any of them appends or drops.",
        lambda: check_shared_store(*(_open_shared(factory, place) for place in [next(places)] * 2)),
    )
    spawned = partial(ProcessPoolExecutor, mp_context=multiprocessing.get_context("spawn"))
    for who, executor in (("threads", ThreadPoolExecutor), ("processes", spawned)):
        yield _Check(
            f"lets_one_of_many_{who}_succeed",
            f"Of {_RACERS} {who} that append the same number at the same time one succeeds.",
            partial(_race, options.factory, factory, places, executor),
        )


def _check_callable(factory: object, reference: str) -> None:
    if not callable(factory):
        raise UsageError(f"{reference!r} is {type(factory).__name__}, and no function")


def _open_shared(factory: _OpenStore, place: str) -> sansmcp.Store:
    store = factory(place, sansmcp.Limits(), time.time)
    if not is_durable(store):
        raise unittest.SkipTest("the store does not outlive the process (is_durable)")
    return store


def _race(
    reference: str,
    factory: _OpenStore,
    places: Iterator[str],
    executor: Callable[[int], Executor],
) -> None:
    place = next(places)
    store = _open_shared(factory, place)
    with executor(_RACERS) as racers:
        names = [f"racer {number}" for number in range(_RACERS)]
        won = list(racers.map(partial(_append_all, reference, place), names))
    wins = Counter(itertools.chain.from_iterable(won))
    wrong = {seq: wins[seq] for seq in range(1, _ROUNDS + 1) if wins[seq] != 1}
    assert not wrong, f"appends that succeeded, by number, where it was not one: {wrong}"
    page = store.read(_KEY, 0, limit=10**6, max_bytes=10**6)
    kept = [] if page is None else [entry.seq for entry in page.entries]
    assert kept == list(range(1, _ROUNDS + 1)), f"the log has the entries {kept}"


def _append_all(reference: str, place: str, name: str) -> list[int]:
    """Append each number, in a thread or process; return those where the append succeeded."""
    store = _open_shared(load(reference, "factory", "factory"), place)
    numbers = range(1, _ROUNDS + 1)
    return [
        seq for seq in numbers if store.append(_KEY, (sansmcp.Entry(seq, name.encode()),), now=0)
    ]
