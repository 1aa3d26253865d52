"""Two processes behind a load balancer without affinity and without a store, all settings default.

No call is lost while the network works. If it cuts connections, each call ends and none runs twice;
one without a result says that its outcome is unknown.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import sansmcp
import sansmcp_blocking

from .cells import ADAPTERS, COLUMNS, World
from .journal import STARTED
from .network import Network, network

_CALLERS = 4
_CALLS = 15
"""Calls of each caller."""

(_DEFAULT,) = (column for column in COLUMNS if column.title == "2026-07-28, no task (default)")


@contextmanager
def round_robin(adapter: str, directory: Path) -> Generator[tuple[World, Network, str], None, None]:
    """Run two processes; gives them, the network before them, and the URL."""
    with ExitStack() as stack:
        world = World(adapter, _DEFAULT, _DEFAULT.revisions[0], directory, stack)
        ports = world.port, world.start_server()
        between, origin = stack.enter_context(network(*ports))
        yield world, between, f"{origin}/mcp"


def call_often(url: str, until: Path, fates: Counter[str], callers: threading.Barrier) -> None:
    """Make calls, one after the other, once all callers are connected."""
    quick = sansmcp.ReconnectPolicy(initial_delay=0.02, max_delay=0.1)
    limits = sansmcp.Limits(idle_connection_timeout=0.01)
    with sansmcp_blocking.connect(url, reconnect=quick, limits=limits) as client:
        callers.wait(60)
        me = threading.get_ident()
        for number in range(_CALLS):
            name = f"{me}-{number}"
            arguments = {"call": name, "until": str(until), "reports": True}
            try:
                result = client.call_tool("wait", arguments, on_progress=lambda report: None)
                fates[f"{name} {result['content'][0]['text']}"] += 1
            except sansmcp.Disconnected as error:
                assert error.was_sent
                fates[f"{name} unknown"] += 1


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("has_cuts", [False, True], ids=["no faults", "cuts"])
def test_each_call_ends_and_none_runs_twice(has_cuts: bool, adapter: str, tmp_path: Path) -> None:
    chance = random.Random(7)
    until = tmp_path / "end"
    until.touch()
    fates = Counter[str]()
    with round_robin(adapter, tmp_path) as (world, between, url):

        def begin() -> None:
            if has_cuts:
                between.break_each_after(lambda: chance.uniform(1, 4000))

        callers = threading.Barrier(_CALLERS, begin)
        threads = [
            threading.Thread(target=call_often, args=(url, until, fates, callers), daemon=True)
            for _ in range(_CALLERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        runs = Counter(world.journal.calls(STARTED))
    names = {fate.split()[0] for fate in fates}
    results = {name for name in names if fates[f"{name} {name}"]}
    unknown = {name for name in names if fates[f"{name} unknown"]}
    assert fates.total() == len(names) == _CALLERS * _CALLS
    assert max(runs.values()) == 1, "a call ran twice"
    assert results | unknown == names
    assert results <= runs.keys()
    if has_cuts:
        assert between.breaks > 20
        assert len(results) > len(unknown)
    else:
        assert not unknown
