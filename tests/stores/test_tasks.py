"""Tasks whose process is killed: another process of the same store ends them, or goes on.

How soon a dead process is noticed is shown in virtual time, in
``tests/server/modern/test_task_instances.py``.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import sansmcp
import sansmcp_trio
from sansmcp import JsonRpcError, ReconnectPolicy, ServerRequest
from sansmcp.events import ProgressReceived

from ..cli.conftest import ROOT, environment
from .redis_server import running
from .relay import Relay, relaying

RULES = ("once", "restartable")


def command(store: str, rule: str, where: str) -> list[str]:
    """How a process is started."""
    return [sys.executable, "-m", "tests.stores.task_server", store, rule, where]


def connect(target: str | list[str], **settings: Any) -> Any:
    """Connect a client of tasks, which asks until it is told what has become of them."""
    return sansmcp_trio.connect(
        target,
        versions=("2026-07-28",),
        capabilities={"elicitation": {}},
        reconnect=ReconnectPolicy(initial_delay=0.1, max_delay=0.5, max_attempts=60),
        probe_timeout=60,  # processes may start and end slowly
        close_timeout=60,
        env=environment(),
        cwd=ROOT,
        **settings,
    )


def worker_of(report: ProgressReceived) -> int:
    """Return the process that a status message names."""
    found = re.fullmatch(r"half of it, in (\d+)", report.message or "")
    assert found is not None
    return int(found[1])


def check(rule: str, first: int, outcome: Any) -> None:
    """Check how a task has ended whose first process was killed."""
    if rule == "restartable":
        assert outcome["structuredContent"]["began"] == first
        assert outcome["structuredContent"]["ended"] != first
    else:
        assert isinstance(outcome, JsonRpcError)
        assert (outcome.code, outcome.data["reason"]) == (-32603, "instance_lost")


class Processes:
    """Two servers of one store, behind a relay to the first one that lives."""

    def __init__(self, stack: ExitStack, store: str, rule: str) -> None:
        self._alive: list[tuple[subprocess.Popen[str], int]] = []
        for _ in range(2):
            process = subprocess.Popen(
                command(store, rule, "http"),
                cwd=ROOT,
                env=environment(),
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            port = sansmcp.Url.parse(process.stdout.readline().strip()).port
            self._alive.append((process, port))

    @property
    def port(self) -> int:
        return self._alive[0][1]

    def kill(self) -> int:
        """Kill the first, and return its id when it is gone."""
        process, _ = self._alive.pop(0)
        process.kill()
        process.wait(timeout=20)
        return process.pid


@pytest.fixture(params=["SQLite", pytest.param("Redis", marks=pytest.mark.thorough)])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[str, None, None]:
    """A store that outlives processes."""
    with ExitStack() as stack:
        if request.param == "SQLite":
            yield str(tmp_path / "store.db")
        else:
            yield stack.enter_context(running(tmp_path / "redis")).url


@asynccontextmanager
async def two_processes(store: str, rule: str) -> AsyncGenerator[tuple[Processes, str], None]:
    """Run two servers; gives the URL of the relay, too."""
    with ExitStack() as stack:
        processes = Processes(stack, store, rule)
        async with relaying(Relay(lambda: processes.port)) as relay:
            yield processes, relay.url


async def outcome_of(waiting: Any) -> Any:
    """Wait for a result, or the error of a server."""
    try:
        return await waiting
    except JsonRpcError as error:
        return error


@pytest.mark.parametrize("rule", RULES)
async def test_a_process_is_killed_while_its_task_runs(store: str, rule: str) -> None:
    killed: list[int] = []
    async with two_processes(store, rule) as (processes, url), connect(url) as client:

        def kill(report: ProgressReceived) -> None:
            if not killed:
                killed.append(processes.kill())
                assert killed == [worker_of(report)]

        outcome = await outcome_of(client.call_tool("work", on_progress=kill, total_timeout=60))
    check(rule, killed[0], outcome)


@pytest.mark.parametrize("rule", RULES)
async def test_a_process_is_killed_while_its_task_waits_for_input(store: str, rule: str) -> None:
    """No handler runs then, so that nothing is lost, whatever the handler allows."""
    killed: list[int] = []
    async with two_processes(store, rule) as (processes, url):

        def kill(request: ServerRequest) -> dict[str, Any]:
            killed.append(processes.kill())
            return {"action": "accept", "content": {"name": "Ada"}}

        async with connect(url, request_handlers={"elicitation/create": kill}) as client:
            result = await client.call_tool("ask", total_timeout=60)
    assert len(killed) == 1
    found = result["structuredContent"]
    assert (found["began"], found["name"]) == (killed[0], "Ada")
    assert found["ended"] != killed[0]


@pytest.mark.parametrize("rule", RULES)
async def test_on_stdio_the_next_process_is_asked(tmp_path: Path, rule: str) -> None:
    """What was written down of a task is its id."""
    server = command(str(tmp_path / "store.db"), rule, "stdio")
    workers: list[int] = []
    async with connect(server) as client:
        task = await client.start_task("work")

        def kill(report: ProgressReceived) -> None:
            workers.append(worker_of(report))
            os.kill(workers[0], signal.SIGKILL)

        with pytest.raises(sansmcp.Disconnected):
            await task.result(on_progress=kill)
    async with connect(server) as client:
        outcome = await outcome_of(client.task(task.id).result(total_timeout=60))
    check(rule, workers[0], outcome)


@pytest.mark.parametrize("rule", RULES)
async def test_on_stdio_a_client_leaves_and_comes_back(tmp_path: Path, rule: str) -> None:
    """Its server ends with it, and says so, unless another process can go on."""
    server = command(str(tmp_path / "store.db"), rule, "stdio")
    async with connect(server) as client:
        task = await client.start_task("work")
    async with connect(server) as client:
        outcome = await outcome_of(client.task(task.id).result(total_timeout=60))
    if rule == "restartable":
        assert outcome["structuredContent"]["began"] != outcome["structuredContent"]["ended"]
    else:
        assert outcome.data["reason"] == "shutting_down"
