"""Repeat a failed test with fewer and fewer faults, until each remaining one is needed.

Every run sets up all fixtures of the test again.
"""

from __future__ import annotations

import itertools
import shlex
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from ._network import Fault, Network

NETWORK: pytest.StashKey[Network] = pytest.StashKey()
"""The network of the last run of a test."""

FAULTS: pytest.StashKey[str] = pytest.StashKey()
"""The faults of the next run; not set if the seed decides."""

_LONGEST = 60.0
"""Seconds after which the search for fewer faults ends."""


class _Run(NamedTuple):
    """A run of a test."""

    reports: list[pytest.TestReport]
    failure: object
    """Identifies the failure; None if the test passed."""
    faults: list[Fault]


def report(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Run a test; if it fails, report it with the fewest faults that make it fail."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    done = _run(item, nextitem)
    if done.failure is not None and NETWORK in item.stash:
        text = _describe(item, done.faults)
        # A debugger would stop in every repetition.
        if done.faults and not item.config.getoption("usepdb"):
            done, text = _shrink(item, nextitem, done)
        text += f"\nRun it again: {_command(item, done.faults)}"
        for each in done.reports:
            if each.failed:
                each.sections.append(("mcp_network", text))
    for each in done.reports:
        item.ihook.pytest_runtest_logreport(report=each)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _run(item: pytest.Item, nextitem: pytest.Item | None) -> _Run:
    # Private API of pytest that other plugins which repeat tests use, too.
    runner: Any = item.config.pluginmanager.get_plugin("runner")
    reports: list[pytest.TestReport] = runner.runtestprotocol(item, nextitem=nextitem, log=False)
    failure = next((_failure(each) for each in reports if each.failed), None)
    return _Run(reports, failure, list(item.stash[NETWORK].faults) if NETWORK in item.stash else [])


def _shrink(item: pytest.Item, nextitem: pytest.Item | None, first: _Run) -> tuple[_Run, str]:
    """Return the run with the fewest faults and the same failure, and a text for the report."""
    until = time.monotonic() + _LONGEST

    def fails_with(faults: Sequence[Fault]) -> _Run | None:
        item.stash[FAULTS] = _text(faults)
        again = _run(item, nextitem)
        return again if again.failure == first.failure else None

    smallest = fails_with(first.faults)
    if smallest is None:
        text = f"{_describe(item, first.faults)}\nIt did not fail again with the same seed."
        return first, text
    smallest = fails_with(()) or smallest
    tries = _with_one_less(smallest.faults)
    while time.monotonic() < until and (faults := next(tries, None)) is not None:
        smaller = fails_with(faults)
        if smaller is not None:
            smallest = smaller
            tries = _with_one_less(smallest.faults)
    text = _describe(item, smallest.faults)
    if len(smallest.faults) < len(first.faults):
        text += f"\n(the fewest that make it fail; {len(first.faults)} happened at first)"
    return smallest, text


def _with_one_less(faults: Sequence[Fault]) -> Iterator[list[Fault]]:
    """Yield the faults without one of them, for each; the later ones then happen earlier."""
    for steps, index in itertools.product(range(4), range(len(faults))):
        later = [each.earlier(steps) for each in faults[index + 1 :]]
        if all(fault.after >= 0 for fault in later):
            yield [*faults[:index], *later]


def _failure(failed: pytest.TestReport) -> object:
    """Return what identifies a failure: its place and its kind."""
    crash = getattr(failed.longrepr, "reprcrash", None)
    return (crash.path, crash.lineno, crash.message.partition(":")[0]) if crash else "failed"


def _describe(item: pytest.Item, faults: Sequence[Fault]) -> str:
    what = f"faults: {_text(faults)}" if faults else "no faults"
    return f"seed {item.stash[NETWORK].seed}, {what}"


def _command(item: pytest.Item, faults: list[Fault]) -> str:
    words = ["pytest", item.nodeid, "--mcp-seed", str(item.stash[NETWORK].seed)]
    return shlex.join([*words, "--mcp-faults", _text(faults)])


def _text(faults: Sequence[Fault]) -> str:
    return ",".join(map(str, faults))
