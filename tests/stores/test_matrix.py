"""One handler, three encodings, real processes: a call completes once, whatever happens.

The questions travel in three ways. All requests go to one process, or each to another one, or the
process is killed (kill -9) after it has asked and before it is answered, and a new one goes on.
Connections break after a random number of bytes, or do not. In each cell strangers try to use what
they have seen.

What is promised about the handler:

* Where calls have a log (2025-06-18, SEP-1858), a round that has asked is entered again exactly
  once, and what is said is heard exactly once.
* A client that has lost the response to a stateless request (2026-07-28) cannot know what became of
  it, and makes it again if it may. So a round may be entered again, at most once for each
  connection that broke. The same holds for the first round everywhere: as long as the client has no
  event id of the response, there is nothing to be resumed.
* The user is asked each question once, in all ways.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

import sansmcp
import sansmcp_trio

from ..cli.conftest import ROOT, environment
from .conftest import DEFAULT_LIMITS, ONE_REQUEST_EACH, WAYS, connect
from .redis_server import running
from .relay import Relay, relaying
from .server import WHO
from .strangers import Attempt, Spy, attempts, initialize

requirement = pytest.mark.requirement

CALLS = {"one process": 8, "any process": 8, "the one that has asked is killed": 2}
"""In each way, with cuts and without: 108 in all, for each store."""
KILLED = list(CALLS)[2]
LONGEST_LIFE = 2500
"""Bytes of a connection that is cut; a round takes about half as many."""


class Fleet:
    """Processes that share a store, of which some are killed."""

    def __init__(self, directory: Path, stack: ExitStack, count: int, store: str) -> None:
        self._files = store or directory / "store.db", directory / "journal"
        self._stack = stack
        self._processes = [self._new() for _ in range(count)]
        self.ports = [_port(process) for process in self._processes]
        self.numbers = itertools.count(1)
        """Of calls."""

    def replace(self, pid: int) -> None:
        """Kill a process, and start another in its place."""
        (place,) = [n for n, process in enumerate(self._processes) if process.pid == pid]
        with self._processes[place] as killed:
            killed.kill()
        self._processes[place] = process = self._new()
        self.ports[place] = _port(process)

    def entered(self, number: int) -> list[dict[str, Any]]:
        """The rounds of a call, as the processes have written them down."""
        lines = map(json.loads, self._files[1].read_text("utf-8").splitlines())
        return [line for line in lines if line["number"] == number]

    def _new(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.stores.server", *map(str, self._files)],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return process


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


@pytest.fixture(scope="module", params=["SQLite", "Redis"])
def fleets(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Generator[dict[str, Fleet], None, None]:
    """Three processes, and one that is replaced by the next."""
    with ExitStack() as stack:
        store = ""
        if request.param == "Redis":
            store = stack.enter_context(running(tmp_path_factory.mktemp("redis"))).url
        three = Fleet(tmp_path_factory.mktemp("three"), stack, 3, store)
        one = Fleet(tmp_path_factory.mktemp("one"), stack, 1, store)
        yield {place: one if place == KILLED else three for place in CALLS}


class Strangers:
    """Other people, and the sessions that they have."""

    def __init__(self, web: httpx.AsyncClient, fleet: Fleet, way: str, spy: Spy) -> None:
        self._web, self._fleet, self._spy = web, fleet, spy
        self._version, self._multi_turn = WAYS[way]
        self._sessions = {"alice": "", "eve": ""}
        """By principal; the first one is that of the client."""

    async def open_sessions(self) -> None:
        for principal in self._sessions:
            opened = await self._send(initialize(self._version), principal, random.Random())
            self._sessions[principal] = opened.headers["mcp-session-id"]

    async def try_all(self, chance: random.Random) -> list[str]:
        """What goes wrong: what is not refused as it should be."""
        found: list[str] = []
        for attempt in attempts(self._spy, self._sessions, multi_turn=self._multi_turn):
            response = await self._send(attempt, attempt.principal, chance)
            if _told(response) != attempt.refused:
                found.append(f"{attempt} is answered {_told(response)}")
        return found

    async def _send(
        self, attempt: Attempt, principal: str, chance: random.Random
    ) -> httpx.Response:
        url = f"http://127.0.0.1:{chance.choice(self._fleet.ports)}/mcp"
        headers = {**attempt.headers, WHO: principal}
        return await self._web.request(attempt.method, url, headers=headers, json=attempt.body)


def _told(response: httpx.Response) -> tuple[int, str] | None:
    """The refusal; None: the request was ignored."""
    if response.status_code == 202:
        return None
    reason = re.search('"reason":"(.+?)"', response.text)
    return response.status_code, response.text if reason is None else reason[1]


class Cell:
    """A client that makes calls, and its user, who is asked."""

    def __init__(self, fleet: Fleet, relay: Relay, way: str, place: str) -> None:
        self._fleet, self._relay, self._way = fleet, relay, way
        self._has_log = way != "results"
        self._kills = place == KILLED
        self._limits = ONE_REQUEST_EACH if place == "any process" else DEFAULT_LIMITS
        self._spy = Spy()
        self._asked: Counter[str] = Counter()
        self._dangerous = ""
        """The question before whose answer strangers come, and the process is killed."""
        self._found: list[str] = []

    async def run(self, seeds: Iterator[str], longest_life: int | None) -> list[str]:
        """Make a call for each seed. Gives what went wrong."""
        problems: list[str] = []
        async with httpx.AsyncClient(timeout=30) as web:
            self._strangers = Strangers(web, self._fleet, self._way, self._spy)
            if self._has_log:
                await self._strangers.open_sessions()
            async with self._connect() as client:
                for seed in seeds:
                    self._relay.chance = random.Random(seed)
                    self._relay.longest_life = longest_life
                    found = await self._call(client)
                    self._relay.longest_life = None
                    problems += [f"seed {seed!r}: {text}" for text in found]
        return problems

    def _connect(self) -> Any:
        version, multi_turn = WAYS[self._way]
        return sansmcp_trio.connect(
            self._relay.url,
            versions=(version,),
            multi_turn=multi_turn,
            capabilities={"elicitation": {}},
            headers=((WHO.encode(), b"alice"),),
            request_handlers={"elicitation/create": self._answer},
            standalone_stream=False,
            reconnect=sansmcp.ReconnectPolicy(initial_delay=0.02, max_delay=0.2, max_attempts=100),
            limits=self._limits,
            trace=self._spy,
        )

    async def _answer(self, question: Any) -> dict[str, Any]:
        name: str = question.params["message"]
        self._asked[name] += 1
        if name == self._dangerous:
            self._found += await self._strangers.try_all(self._relay.chance)
            if self._kills:
                await trio.to_thread.run_sync(self._fleet.replace, question.params["process"])
        return {"action": "accept", "content": {"value": question.params["value"]}}

    async def _call(self, client: sansmcp_trio.Client) -> list[str]:
        number, cuts = next(self._fleet.numbers), self._relay.cuts
        self._asked.clear()
        self._found.clear()
        self._dangerous = self._relay.chance.choice("ac")
        heard: list[float] = []
        try:
            result = await client.call_tool(
                "ask",
                {"number": number},
                on_progress=lambda event: heard.append(event.progress),
                idempotent=True,
                timeout=30,
            )
        except sansmcp.CallError as error:
            return [*self._found, f"failed: {error!r}"]
        told = result["structuredContent"]
        if told["sum"] != 7 * number:
            self._found.append(f"got {result}")
        if self._asked != Counter("abc"):
            self._found.append(f"asked {self._asked}")
        cuts = self._relay.cuts - cuts
        self._found += self._judge(self._fleet.entered(number), told["round"], heard, cuts)
        return self._found

    def _judge(
        self, entered: list[dict[str, Any]], last: str, heard: list[float], cuts: int
    ) -> Iterator[str]:
        """What is wrong with the rounds and the reports of a call that gave the right result."""
        before = {line["now"]: line["before"] for line in entered}
        if before[before[before[last]]] is not None:
            yield f"no way leads to {last} in {entered}"
        if len(entered) > 3 + cuts:
            yield f"{len(entered)} rounds with {cuts} cuts"
        later = Counter(line["before"] for line in entered if line["before"])
        if self._has_log and sorted(later.values()) != [1, 1]:
            yield f"rounds were entered twice: {entered}"
        once = heard if self._has_log or not cuts else sorted(set(heard))
        if once != [1, 2, 3]:
            yield f"heard {heard}"


async def test_a_handler_that_waits_is_found_by_answers_and_cancellations(
    fleets: dict[str, Fleet],
) -> None:
    """They come to other processes than that at which it waits."""
    fleet = fleets["any process"]
    answered, cancelled = next(fleet.numbers), next(fleet.numbers)
    turns = itertools.count()
    scope = trio.CancelScope()

    async def answer(question: Any) -> dict[str, Any]:
        if question.params["value"] == cancelled:
            scope.cancel()
            await trio.sleep_forever()  # an answer would be faster than a cancellation
        return {"action": "accept", "content": {"value": question.params["value"]}}

    relay = Relay(lambda: fleet.ports[next(turns) % len(fleet.ports)])
    async with (
        relaying(relay),
        connect(relay.url, "requests", {"elicitation/create": answer}, ONE_REQUEST_EACH) as client,
    ):
        result = await client.call_tool("wait", {"number": answered}, timeout=30)
        assert result["structuredContent"] == {"value": answered}
        with scope:
            await client.call_tool("wait", {"number": cancelled}, timeout=30)
        with trio.fail_after(30):
            while not (ended := fleet.entered(cancelled)):
                await trio.sleep(0.02)
    outcomes = [line["outcome"] for line in fleet.entered(answered) + ended]
    assert outcomes == ["answered", "cancelled"]


@requirement("MTURN-S-009", "MTURN-S-011", "MTURN-B-001", "MRTR-S-010", "MRTR-S-011")
@pytest.mark.parametrize("longest_life", [None, LONGEST_LIFE], ids=["whole", "cut"])
@pytest.mark.parametrize("place", CALLS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_call_completes_once_with_the_right_answer(
    way: str, place: str, longest_life: int | None, fleets: dict[str, Fleet]
) -> None:
    ports = fleets[place].ports
    turns = itertools.count()
    step = int(place == "any process")
    seeds = (f"{way}, {place}, {longest_life}, {n}" for n in range(CALLS[place]))
    async with relaying(Relay(lambda: ports[next(turns) * step % len(ports)])) as relay:
        cell = Cell(fleets[place], relay, way, place)
        assert await cell.run(seeds, longest_life) == []
        assert (relay.cuts > 0) is (longest_life is not None)
