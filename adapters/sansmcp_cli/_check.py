"""``sansmcp check-store`` and ``sansmcp check-adapter``: check a store or adapter of your own."""

from __future__ import annotations

import argparse
import asyncio
import inspect
import itertools
import tempfile
import textwrap
import time
import traceback
import unittest
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

import sansmcp
from sansmcp.drivers.store_checks import is_async_store, is_durable
from sansmcp.testing import check_shared_store
from sansmcp.testing.stores import (
    SINGLE_STORE_CHECKS,
    STORE_CHECKS,
    OpenStore,
    StoreCheck,
    StoreUnderTest,
    counts_requests,
    tells_of_changes,
)

from ._load import load
from ._output import Commands, UsageError, examples, print_error, print_line

if TYPE_CHECKING:
    from concurrent.futures import Executor

_KEY = sansmcp.StreamKey("principal", "session", "race")
_ROUNDS = 10
_RACERS = 4

_PATIENCE = 10.0
"""Seconds to wait until a store tells of a change."""

_OpenStore: TypeAlias = Callable[
    [str, sansmcp.Limits, Callable[[], float]], sansmcp.Store | sansmcp.AsyncStore
]


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
        "place share it. An asynchronous store is used in asyncio. Exit status: 0, 1 if a check "
        "fails, 2 for what cannot be checked.",
        usage="sansmcp check-store [options] MODULE:FACTORY",
        epilog=examples(
            "check-store my_store:open_store", "check-store my_store:open_store --several-places"
        ),
    )
    store.add_argument("factory", metavar="MODULE:FACTORY")
    store.add_argument(
        "--several-places",
        action="store_true",
        help="leave out what only a store in one place can do: a bound for all sessions together, "
        "and an age by the clock of the checks",
    )
    store.set_defaults(run=partial(_checked, _store_checks))
    adapter = commands.add_parser(
        "check-adapter",
        help="check an adapter of your own, over real sockets and processes",
        description="Check an adapter. SUBJECT is a sansmcp_pytest.ClientUnderTest "
        "or ServerUnderTest, or a class of one that takes no arguments. Exit status: 0, 1 if a "
        "check fails, 2 for what cannot be checked.",
        usage="sansmcp check-adapter [options] MODULE:SUBJECT",
        epilog=examples("check-adapter my_adapter:client", "check-adapter my_adapter:Server"),
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
    from sansmcp_pytest import client_checks, server_checks  # a slow import

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

    for check in STORE_CHECKS + (() if options.several_places else SINGLE_STORE_CHECKS):
        run = partial(_check_one, check, factory, places)
        yield _Check(check.__name__, inspect.getdoc(check) or "", run)
    yield _Check(
        "shows_one_state_to_all",
        "All who open one place see at once what any of them appends or drops.",
        lambda: _check_shared(factory, next(places)),
    )
    yield _Check(
        "lets_one_of_many_tasks_succeed",
        f"Of {_RACERS} tasks that append the same number at the same time one succeeds; each other "
        "log gets its own.",
        lambda: _race_of_tasks(factory, next(places)),
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


class _Stores:
    """Opens stores, runs those that are asynchronous in an event loop, and closes them all."""

    def __init__(self, factory: _OpenStore) -> None:
        self._factory = factory
        self._loop = asyncio.new_event_loop()
        self._opened: list[object] = []

    def close(self) -> None:
        """Close the stores, and the loop."""
        try:
            for store in self._opened:
                self._close(store)
        finally:
            self._loop.close()

    def open(
        self, place: str, limits: sansmcp.Limits, clock: Callable[[], float]
    ) -> sansmcp.Store | sansmcp.AsyncStore:
        """Open the store at a place, in the loop, where stores may look which one is running."""

        async def call() -> sansmcp.Store | sansmcp.AsyncStore:
            return self._factory(place, limits, clock)

        store: sansmcp.Store | sansmcp.AsyncStore = self.run(call())
        self._opened.append(store)
        return store

    def open_shared(self, place: str) -> sansmcp.Store | sansmcp.AsyncStore:
        """Open the store at a place that others use, too."""
        store = self.open(place, sansmcp.Limits(), time.time)
        if not is_durable(store):
            raise unittest.SkipTest("the store does not outlive the process (is_durable)")
        return store

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Let the loop run until a condition is true, for some seconds at most."""

        async def wait() -> None:
            give_up = time.monotonic() + _PATIENCE
            while not condition() and time.monotonic() < give_up:
                await asyncio.sleep(0.001)

        self.run(wait())

    def _close(self, store: object) -> None:
        close = getattr(store, "aclose", None) or getattr(store, "close", None)
        result = close() if callable(close) else None
        if inspect.iscoroutine(result):
            self.run(result)


_OF_OPTIONAL_METHODS: Mapping[StoreCheck, tuple[type, str]] = {
    tells_of_changes: (sansmcp.WatchableStore, "the store does not tell of changes (watch)"),
    counts_requests: (sansmcp.RateStore, "the store does not count requests (take)"),
}


def _check_one(check: StoreCheck, factory: _OpenStore, places: Iterator[str]) -> None:
    with closing(_Stores(factory)) as stores:

        def new_store(
            limits: sansmcp.Limits, clock: Callable[[], float]
        ) -> sansmcp.Store | sansmcp.AsyncStore:
            return stores.open(next(places), limits, clock)

        if check in _OF_OPTIONAL_METHODS:
            protocol, reason = _OF_OPTIONAL_METHODS[check]
            store = stores.open(next(places), sansmcp.Limits(), time.time)
            if not isinstance(store, protocol):
                raise unittest.SkipTest(reason)
        check(StoreUnderTest(new_store, run=stores.run, wait=stores.wait))


def _check_shared(factory: _OpenStore, place: str) -> None:
    with closing(_Stores(factory)) as stores:
        first, second = (stores.open_shared(place) for _ in range(2))
        check_shared_store(first, second, run=stores.run, wait=stores.wait)


def _race_of_tasks(factory: _OpenStore, place: str) -> None:
    with closing(_Stores(factory)) as stores:
        store = stores.open(place, sansmcp.Limits(), time.time)
        if not is_async_store(store):
            raise unittest.SkipTest("the store is synchronous")

        async def append(name: str, seq: int) -> list[sansmcp.AppendResult]:
            entries = (sansmcp.Entry(seq, name.encode()),)
            own = attrs.evolve(_KEY, stream=name)
            return await asyncio.gather(
                *(store.append(key, entries, token=f"{name} {seq}", now=0) for key in (_KEY, own))
            )

        async def race() -> None:
            names = [f"racer {number}" for number in range(_RACERS)]
            for seq in range(1, _ROUNDS + 1):
                won = Counter[sansmcp.AppendResult]()
                for result, own in await asyncio.gather(*(append(name, seq) for name in names)):
                    won[result] += 1
                    assert own is sansmcp.AppendResult.STORED, f"number {seq}: {own.name}"
                assert won[sansmcp.AppendResult.STORED] == 1, f"number {seq}: {dict(won)}"

        stores.run(race())


def _race(
    reference: str,
    factory: _OpenStore,
    places: Iterator[str],
    executor: Callable[[int], Executor],
) -> None:
    place = next(places)
    with closing(_Stores(factory)) as stores:
        store = OpenStore(stores.open_shared(place), stores.run)
        with executor(_RACERS) as racers:
            names = [f"racer {number}" for number in range(_RACERS)]
            won = list(racers.map(partial(_append_all, reference, place), names))
        wins = Counter(itertools.chain.from_iterable(won))
        wrong = {seq: wins[seq] for seq in range(1, _ROUNDS + 1) if wins[seq] != 1}
        assert not wrong, f"appends that succeeded, by number, where it was not one: {wrong}"
        page = store.read(_KEY)
        kept = [] if page is None else [entry.seq for entry in page.entries]
        assert kept == list(range(1, _ROUNDS + 1)), f"the log has the entries {kept}"


def _append_all(reference: str, place: str, name: str) -> list[int]:
    """Append each number, in a thread or process; return those where the append succeeded."""
    with closing(_Stores(load(reference, "factory", "factory"))) as stores:
        store = stores.open_shared(place)
        one = OpenStore(store, stores.run)
        won: list[int] = []
        for seq in range(1, _ROUNDS + 1):
            result = one.try_append(_KEY, (sansmcp.Entry(seq, name.encode()),), f"{name} {seq}")
            if result is sansmcp.AppendResult.STORED:
                won.append(seq)
    return won
