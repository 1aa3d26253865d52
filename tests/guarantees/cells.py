"""Run one cell of the table of guarantees: cut a call in one way, and see what becomes of it."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs

from sansmcp.revisions import REVISIONS

from ..cli.conftest import ROOT, environment
from .client import OneCall, settings_for
from .journal import CANCELLED, ENDED, STARTED, Journal
from .network import Network, network

BREAKS_AT_ONCE = "the connection breaks before the response begins"
BREAKS_EARLY = "the connection breaks before the server's first message"
BREAKS_LATE = "the connection breaks after it"
SILENCE = "the connection falls silent after it"
SERVER_RESTART = "the server is killed and started again"
CLIENT_RESTART = "the client is killed and started again"
OTHER_INSTANCE = "the connection breaks, and the next one leads to another instance"
CUTS = (
    BREAKS_AT_ONCE,
    BREAKS_EARLY,
    BREAKS_LATE,
    SILENCE,
    SERVER_RESTART,
    CLIENT_RESTART,
    OTHER_INSTANCE,
)
"""The rows of the table."""

ADAPTERS = ("asyncio", "blocking", "trio")


@attrs.frozen
class Column:
    """A column of the table: which revisions, what the server keeps, and how calls are made."""

    title: str
    revisions: tuple[str, ...]
    kept: str
    """``"nothing"``, ``"memory"``, ``"file"``: a SqliteStore that all instances share, or
    ``"keys"``: the same, also for the keys of calls.
    """
    idempotent: bool = False
    reclaim: bool = True
    """False if calls have no keys: one side is another library, or has ``reclaim=False``."""
    task: str = "never"
    """``"task"`` if calls become tasks; ``"restartable"`` if their handler may be called again."""

    @property
    def has_tasks(self) -> bool:
        """True if calls become tasks."""
        return self.task != "never"


COLUMNS = (
    Column("2024-11-05 (HTTP+SSE)", ("2024-11-05",), "memory"),
    Column("2025-03-26, 2025-06-18, nothing kept", ("2025-03-26", "2025-06-18"), "nothing"),
    Column("the same, kept in memory", ("2025-03-26", "2025-06-18"), "memory"),
    Column("the same, in a shared file", ("2025-03-26", "2025-06-18"), "file"),
    Column("2025-11-25, nothing kept", ("2025-11-25",), "nothing"),
    Column("the same, kept in memory (default)", ("2025-11-25",), "memory"),
    Column("the same, in a shared file", ("2025-11-25",), "file"),
    Column("2026-07-28, no task (default)", ("2026-07-28",), "memory"),
    Column("the same, `idempotent=True`", ("2026-07-28",), "memory", idempotent=True),
    Column("2026-07-28, no task, `reclaim=False`", ("2026-07-28",), "memory", reclaim=False),
    Column(
        "the same, `idempotent=True`",
        ("2026-07-28",),
        "memory",
        idempotent=True,
        reclaim=False,
    ),
    Column('2026-07-28, no task, `reclaim="store"`, in a shared file', ("2026-07-28",), "keys"),
    Column("2026-07-28, as a task, in a shared file", ("2026-07-28",), "file", task="task"),
    Column("the same, `restartable=True`", ("2026-07-28",), "file", task="restartable"),
)


@attrs.define(eq=False)
class World:
    """Servers of one adapter that keep the same thing."""

    adapter: str
    column: Column
    revision: str
    directory: Path
    _stack: ExitStack
    _numbers: itertools.count[int] = attrs.field(factory=itertools.count, init=False)
    _server: subprocess.Popen[str] = attrs.field(init=False)
    port: int = attrs.field(init=False)
    """That of the newest server."""

    def __attrs_post_init__(self) -> None:
        self.start_server()

    @property
    def journal(self) -> Journal:
        """What the handlers of all servers have done."""
        return Journal(self.directory / "journal")

    @property
    def _begins_with_an_id(self) -> bool:
        return REVISIONS[self.revision].polling and self.column.kept != "nothing"

    def start_server(self) -> int:
        """Start another server; returns its port."""
        kept = self.column.kept, str(self.directory / "store.db"), self.column.task
        server = self._start("tests.guarantees.server", self.adapter, str(self.journal.path), *kept)
        assert server.stdout is not None
        self.port = int(server.stdout.readline())
        self._server = server
        return self.port

    def kill_server(self) -> None:
        """Kill the newest server."""
        self._server.kill()
        self._server.wait()

    def run_all(self, expected: dict[str, str]) -> dict[str, str]:
        """Return what each cut leads to, given what the table says of it.

        The cuts are made at the same time, each on a network of its own. Only the one that kills
        the server comes after the others.
        """
        with ThreadPoolExecutor(len(CUTS)) as threads:
            running = {
                cut: threads.submit(self.run, cut, said)
                for cut, said in expected.items()
                if cut != SERVER_RESTART
            }
            seen = {cut: each.result() for cut, each in running.items()}
        return {**seen, SERVER_RESTART: self.run(SERVER_RESTART, expected[SERVER_RESTART])}

    def run(self, cut: str, expected: str) -> str:
        """Cut a call; returns what the client got and what the handler did, as a cell has it.

        ``expected``: what the cell says. A call that times out there is given a short timeout.
        """
        between, origin = self._stack.enter_context(network(self.port))
        between.holds_responses = cut == BREAKS_AT_ONCE
        name = f"{next(self._numbers)}"
        until = self.directory / f"end-{name}"
        is_early = cut in (BREAKS_AT_ONCE, BREAKS_EARLY)
        arguments = {"call": name, "until": str(until), "reports": not is_early}
        url = origin + ("/sse" if self.revision == "2024-11-05" else "/mcp")
        killed = cut == SERVER_RESTART
        if cut == CLIENT_RESTART:
            got = self._restart_client(name, url, arguments, until, expected)
        else:
            timeout = 3.0 if "RequestTimeout" in expected else 60.0
            caller = _Caller(self, url, arguments, timeout)
            self.journal.wait_for(name, STARTED)
            if arguments["reports"]:
                _wait_until(caller.has_reported)
            elif cut == BREAKS_EARLY and "result; 1 run" in expected and self._begins_with_an_id:
                # The response has begun, by an event without a message.
                _wait_until(lambda: between.carries_an_event)
            before = between.connections
            self._cut(cut, between)
            _wait_until(lambda: caller.has_ended() or between.connections > before)
            self._let_the_server_notice(name, expected)
            until.touch()
            _wait_until(caller.has_ended)
            self._wait_for_handlers(name, killed=killed)
            got = caller.close()
        return f"{got}; {self._runs(name, killed=killed)}"

    def _restart_client(
        self, name: str, url: str, arguments: dict[str, Any], until: Path, expected: str
    ) -> str:
        """Kill a client; the next one has the id of the task, if the call has become one."""
        asked = {"--task": self.column.has_tasks, "--without-keys": not self.column.reclaim}
        options = [option for option, is_set in asked.items() if is_set]
        client = self._start(
            "tests.guarantees.client",
            *(self.adapter, url, self.revision, json.dumps(arguments)),
            *options,
        )
        assert client.stdout is not None
        task_id = client.stdout.readline().strip() if self.column.has_tasks else None
        self.journal.wait_for(name, STARTED)
        client.kill()
        client.wait()
        self._let_the_server_notice(name, expected)
        if task_id is None:
            until.touch()
            return "no result"
        caller = _Caller(self, url, arguments, 60.0, task_id)
        until.touch()
        return caller.close()

    def _cut(self, cut: str, between: Network) -> None:
        if cut == SILENCE:
            between.silence()
            return
        if cut == SERVER_RESTART:
            self.kill_server()
        if cut in (SERVER_RESTART, OTHER_INSTANCE):
            between.port = self.start_server()
        between.cut()

    def _let_the_server_notice(self, name: str, expected: str) -> None:
        """Wait until the handler is cancelled, if it is to be; else for as long as that takes."""
        if "cancelled" in expected:
            self.journal.wait_for(name, CANCELLED)
        else:
            time.sleep(0.3)

    def _wait_for_handlers(self, name: str, *, killed: bool) -> None:
        """Wait until all runs of a handler have ended, but for one that was killed."""

        def have_ended() -> bool:
            steps = self.journal.steps(name)
            started = steps.count(STARTED)
            return len(steps) - started >= started - killed

        _wait_until(have_ended)

    def _runs(self, name: str, *, killed: bool) -> str:
        """How often the handler of a call has run, and how that ended if not by itself."""
        self._wait_for_handlers(name, killed=killed)
        steps = self.journal.steps(name)
        runs = steps.count(STARTED)
        ends = {"cancelled": steps.count(CANCELLED), "killed": 2 * runs - len(steps)}
        assert runs == steps.count(ENDED) + sum(ends.values())
        told = "".join(
            f", {count} {end}" if runs > 1 else f", {end}" for end, count in ends.items() if count
        )
        return f"{runs} run{'s' if runs > 1 else ''}{told}"

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return process


class _Caller:
    """A client in a thread that makes one call."""

    def __init__(
        self,
        world: World,
        url: str,
        arguments: dict[str, Any],
        timeout: float,
        task_id: str | None = None,
    ) -> None:
        self._reports: list[Any] = []
        options = {
            "timeout": timeout,
            "idempotent": world.column.idempotent or None,
            "on_progress": self._reports.append,
        }
        self._call = OneCall(arguments, options, task_id)
        settings = settings_for(world.revision, reclaim=world.column.reclaim)
        self._thread = threading.Thread(
            target=self._call.make, args=(world.adapter, url, settings), daemon=True
        )
        self._thread.start()

    def has_reported(self) -> bool:
        """Whether the client has received the progress report."""
        return bool(self._reports)

    def has_ended(self) -> bool:
        """Whether the call has ended."""
        return self._call.outcome is not None

    def close(self) -> str:
        """Wait for the end of the call, and close the client; returns what came of the call."""
        _wait_until(self.has_ended)
        self._call.may_close.set()
        self._thread.join()
        return str(self._call.outcome)


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(condition.__qualname__)
        time.sleep(0.01)
