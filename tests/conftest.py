"""Fixtures and hooks for all tests."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
import sys
import zlib
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

from sansmcp import KnownServers

from .leak_check import freeze_what_is_there
from .reporting import Reporting, missing_package
from .timed_harness import hours_after

# One version of Python is tested without msgspec and jiter, which are optional; all tests of these
# files compare with msgspec or convert by it.
if importlib.util.find_spec("msgspec") is None:
    collect_ignore = [
        "codecs/test_json_writing.py",
        "typed/test_page.py",
        "typed/test_reprs.py",
        "typed/test_results.py",
        "vocabulary/test_exceptions_are_values.py",
    ]

# How long an example takes says something of the machine, nothing of the code. Each run has other
# examples, and the suite is run often. SANSMCP_EXAMPLES is how many a property gets: make quick
# takes fewer, CI many.
hypothesis.settings.register_profile(
    "untimed",
    deadline=None,
    max_examples=int(os.environ.get("SANSMCP_EXAMPLES", "10")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("untimed")

# A shell lets what it starts in the background ignore Ctrl-C, and all that this starts; some tests
# press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Collecting makes many objects and hardly any garbage.
gc.disable()


def pytest_collection_finish() -> None:
    """Leave all that is there out of later searches for garbage.

    It outlives every test, and many tests search: for what they have left, for what memory holds.
    """
    gc.enable()
    freeze_what_is_there()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reporting(config), "sansmcp-reporting")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out what needs a package that is not installed; the last lines of a run name it."""
    return None if missing_package(collection_path) is None else True


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--requirement",
        action="append",
        default=[],
        metavar="RULE",
        help="run the tests that are marked as proofs of this rule only; may be repeated",
    )
    parser.addoption(
        "--note-passed",
        metavar="FILE",
        help="write which files have only tests that passed, for a run that leaves them out",
    )
    parser.addoption(
        "--draw",
        type=int,
        nargs=2,
        metavar=("N", "SEED"),
        help="run one of N tests, drawn by the seed",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted: set[object] = set(config.getoption("--requirement") or ())
    if wanted:
        config.hook.pytest_deselected(
            items=[item for item in items if not wanted & _requirements_of(item)]
        )
        items[:] = [item for item in items if wanted & _requirements_of(item)]
    draw: tuple[int, int] = config.getoption("--draw") or (1, 0)
    one_of, seed = draw
    if one_of > 1:
        drawn: dict[bool, list[pytest.Item]] = {False: [], True: []}
        for item in items:
            drawn[zlib.crc32(f"{seed} {item.nodeid}".encode()) % one_of == 0].append(item)
        config.hook.pytest_deselected(items=drawn[False])
        items[:] = drawn[True]


def _requirements_of(item: pytest.Item) -> set[object]:
    return {rule for mark in item.iter_markers("requirement") for rule in mark.args}


@pytest.fixture(autouse=True)
def nothing_is_known_of_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of one program share what they find out; each test is a program of its own."""
    if (module := sys.modules.get("sansmcp_local._client")) is not None:
        monkeypatch.setattr(module, "_KNOWN_SERVERS", KnownServers())


@pytest.fixture(autouse=True)
def benches_live_on() -> Generator[None, None, None]:
    """See :mod:`tests.timed_harness`."""
    with hours_after():
        yield
