"""Cut calls at bytes drawn uniformly: ``python -m tests.guarantees.cuts --cuts 1000``.

Servers and clients are processes and threads of one adapter, with the settings that users have by
default; only times are shorter. Each connection carries a number of bytes drawn uniformly from
those of two calls, in both directions together, and then breaks. So a cut hits each byte of
requests and responses, of calls, of what follows a cut, and of the opening of sessions, as likely
as any other.

The fates of the calls are counted for each form of server, revision and adapter. A cell *holds* if
each call has ended, none has run twice, no error says wrongly that nothing was run, and, where the
form promises it, none has an unknown outcome.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

import sansmcp
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_trio
from sansmcp.revisions import REVISIONS

from .cells import ADAPTERS, Column, World
from .client import settings_for
from .journal import STARTED
from .network import Network, network

_CALLERS = 4
_CALLS_IN_A_CONNECTION = 2
_MEASURED = 4
"""Calls that are made without faults, to count their bytes."""
_CUTS_IN_A_LIFE = 25
"""Cuts after which a server that is to be killed is."""
_LONGEST = 120.0
"""Seconds after the last cut in which all calls must have ended."""


@attrs.frozen
class Form:
    """How the server is run."""

    name: str
    title: str
    kept: str = "memory"
    processes: int = 1
    is_killed: bool = False
    revisions: tuple[str, ...] = tuple(REVISIONS)
    """Those that can be served in this way: without affinity a session needs a shared store, and
    HTTP+SSE cannot do without.
    """


FORMS = (
    Form("one", "one process, all defaults"),
    Form(
        *("store", "two processes round robin, a shared store", "file", 2),
        revisions=("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"),
    ),
    Form(
        *("keys", 'two processes round robin, a shared store, reclaim="store"', "keys", 2),
        revisions=("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"),
    ),
    Form(
        *("two", "two processes round robin, all defaults", "memory", 2),
        revisions=("2026-07-28",),
    ),
    Form("killed", "one process, killed and started again", is_killed=True),
)


@attrs.define
class Fates:
    """What has become of the calls of one cell."""

    cuts: int
    results: int
    errors: Counter[str]
    """The calls without a result whose outcome is unknown, by the name of the error."""
    not_run: int
    """Those of which the error says that nothing was run."""
    lost: int
    """Calls that have not ended."""
    twice: int
    """Calls that have run more than once."""
    wrong: int
    """Those of which the error says so wrongly, and results without a run."""

    @property
    def unknown(self) -> int:
        """How many calls have ended without saying what has become of them."""
        return self.errors.total()

    @property
    def is_safe(self) -> bool:
        """True if each call has ended, none has run twice, and no error is wrong."""
        return not (self.lost or self.twice or self.wrong)

    def __str__(self) -> str:
        named = ", ".join(f"{count} {name}" for name, count in sorted(self.errors.items()))
        return (
            f"{self.cuts} cuts: {self.results} results, {self.lost} lost, {self.twice} run twice, "
            f"{self.unknown} unknown{f' ({named})' * bool(named)}, {self.not_run} told not run, "
            f"{self.wrong} told wrongly"
        )


@attrs.define(eq=False)
class _Caller:
    """A thread with a client that makes one call after the other."""

    number: int
    url: str
    settings: dict[str, Any]
    until: Path
    may_call: Callable[[], bool]
    ends: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    """``"result"``, ``"not run"``, or the name of the error, by the name of the call; empty while
    it runs.
    """

    def run(self, adapter: str) -> None:
        """Make calls, with another client after one that has failed."""
        while self.may_call():
            try:
                if adapter == "asyncio":
                    import asyncio

                    asyncio.run(self._call_async(sansmcp_asyncio.connect))
                elif adapter == "trio":
                    trio.run(self._call_async, sansmcp_trio.connect)
                else:
                    with sansmcp_blocking.connect(self.url, **self.settings) as client:
                        for arguments in self._arguments():
                            with self._watched(arguments["call"]):
                                self._check(arguments, client.call_tool("wait", arguments))
            except sansmcp.CallError:
                time.sleep(0.05)  # the server is being replaced

    async def _call_async(self, connect: Any) -> None:
        async with connect(self.url, **self.settings) as client:
            for arguments in self._arguments():
                with self._watched(arguments["call"]):
                    self._check(arguments, await client.call_tool("wait", arguments))

    def _arguments(self) -> Generator[dict[str, Any], None, None]:
        while self.may_call():
            name = f"{self.number}-{len(self.ends)}"
            self.ends[name] = ""
            yield {"call": name, "until": str(self.until), "reports": True}

    def _check(self, arguments: dict[str, Any], result: Any) -> None:
        assert result["content"][0]["text"] == arguments["call"], "the result of another call"
        self.ends[arguments["call"]] = "result"

    @contextmanager
    def _watched(self, name: str) -> Generator[None, None, None]:
        """Note how a call ends; raises the errors after which the client may have failed."""
        try:
            yield
        except sansmcp.SessionLost as error:
            self.ends[name] = "not run" if error.was_not_run else type(error).__name__
        except sansmcp.Disconnected as error:
            self.ends[name] = type(error).__name__ if error.was_sent else "not run"
            if not error.was_sent:
                raise
        except sansmcp.CallError as error:
            self.ends[name] = type(error).__name__


def cut_calls(
    form: Form, revision: str, adapter: str, directory: Path, *, cuts: int, seed: int
) -> Fates:
    """Make calls until as many connections have been cut; returns what has become of them."""
    chance = random.Random(seed)
    until = directory / "end"
    until.touch()
    column = Column(form.title, (revision,), form.kept)
    with ExitStack() as stack:
        world = World(adapter, column, revision, directory, stack)
        ports = [world.port, *(world.start_server() for _ in range(form.processes - 1))]
        between, origin = stack.enter_context(network(*ports))
        url = origin + ("/sse" if revision == "2024-11-05" else "/mcp")
        settings = settings_for(revision, reclaim=True)
        if cuts:
            size = _bytes_of_a_call(between, url, settings, until)
            between.break_each_after(lambda: chance.uniform(0, _CALLS_IN_A_CONNECTION * size))
        callers = [
            _Caller(number, url, settings, until, lambda: between.breaks < cuts)
            for number in range(_CALLERS)
        ]
        threads = [
            threading.Thread(target=caller.run, args=(adapter,), daemon=True) for caller in callers
        ]
        for thread in threads:
            thread.start()
        _kill_and_wait(world, between, cuts, is_killed=form.is_killed)
        deadline = time.monotonic() + _LONGEST
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        runs = Counter(world.journal.calls(STARTED))
        ends = {name: end for caller in callers for name, end in caller.ends.items()}
    return _fates_of(ends, runs, between.breaks)


def _fates_of(ends: dict[str, str], runs: Counter[str], cuts: int) -> Fates:
    fates = Fates(cuts, 0, Counter(), 0, 0, 0, 0)
    for name, end in ends.items():
        fates.twice += runs[name] > 1
        if end == "result":
            fates.results += 1
            fates.wrong += runs[name] == 0
        elif end == "not run":
            fates.not_run += 1
            fates.wrong += runs[name] > 0
        elif end:
            fates.errors[end] += 1
        else:
            fates.lost += 1
    return fates


def _bytes_of_a_call(between: Network, url: str, settings: dict[str, Any], until: Path) -> float:
    """Return how many bytes a call takes, in both directions together."""
    with sansmcp_blocking.connect(url, **settings) as client:
        before = between.carried
        for number in range(_MEASURED):
            name = f"measured-{number}"
            client.call_tool("wait", {"call": name, "until": str(until), "reports": True})
        return (between.carried - before) / _MEASURED


def _kill_and_wait(world: World, between: Network, cuts: int, *, is_killed: bool) -> None:
    """Wait for the last cut, and replace the server now and then until it."""
    next_kill = _CUTS_IN_A_LIFE
    while between.breaks < cuts:
        if is_killed and between.breaks >= next_kill:
            next_kill += _CUTS_IN_A_LIFE
            world.kill_server()
            between.port = world.start_server()
        time.sleep(0.01)


def main() -> None:
    """Print the fates of the calls of each cell; the exit status is 1 if one does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.guarantees.cuts", description=__doc__)
    parser.add_argument("--cuts", type=int, default=200, help="cuts for each cell")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--form", action="append", choices=[form.name for form in FORMS])
    parser.add_argument("--revision", action="append", choices=list(REVISIONS))
    parser.add_argument("--adapter", action="append", choices=ADAPTERS)
    chosen = parser.parse_args()
    is_safe = True
    for form in FORMS:
        if chosen.form and form.name not in chosen.form:
            continue
        print(f"{form.name}: {form.title}", flush=True)
        for revision in chosen.revision or REVISIONS:
            if revision not in form.revisions:
                continue
            for adapter in chosen.adapter or ADAPTERS:
                with tempfile.TemporaryDirectory() as directory:
                    fates = cut_calls(
                        *(form, revision, adapter, Path(directory)),
                        cuts=chosen.cuts,
                        seed=chosen.seed,
                    )
                print(f"  {revision}, {adapter}: {fates}", flush=True)
                is_safe &= fates.is_safe
    sys.exit(not is_safe)


if __name__ == "__main__":
    main()
