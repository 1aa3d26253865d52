"""``sansmcp serve --workers``: real processes on one port, which are killed and replaced."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

import sansmcp

from ..stores.redis_server import running
from .conftest import ADAPTERS, failed, run, run_in_process, started

APPLICATION = """
import os
import pathlib
import sys
import time

import sansmcp

app = sansmcp.App("pids", "1")
HERE = pathlib.Path(__file__).parent

if (HERE / "broken").exists():
    sys.exit("broken")


@app.handler("tools/call")
def call_tool(call):
    if call.params["name"] == "wait":
        (HERE / "waiting").touch()
        while not (HERE / "go on").exists():
            time.sleep(0.01)
    return {"content": [], "structuredContent": {"pid": os.getpid()}}
"""

VERSION = "2025-11-25"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "pids.py").write_text(APPLICATION, encoding="utf-8")
    return tmp_path


@attrs.frozen
class Fleet:
    """A parent, and how to reach its workers."""

    parent: subprocess.Popen[str]
    url: sansmcp.Url

    def pids(self) -> set[int]:
        """The processes whose parent it is."""
        found = set[int]()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and _parent_of(int(entry.name)) == self.parent.pid:
                found.add(int(entry.name))
        return found

    def next_line(self) -> str:
        """The next line that the parent, or a worker, writes to stderr."""
        assert self.parent.stderr is not None
        return self.parent.stderr.readline().rstrip("\n")

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.url.host, self.url.port, timeout=30)

    def refuses_connections(self) -> bool:
        """True if no process listens at the port."""
        try:
            with closing(self.connect()) as connection:
                connection.connect()
        except ConnectionRefusedError:
            return True
        return False


def _parent_of(pid: int) -> int | None:
    """The parent of a process; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[1])


@contextmanager
def fleet(directory: Path, *options: str, count: int = 3) -> Generator[Fleet, None, None]:
    arguments = ("--http", "127.0.0.1:0", "--workers", str(count), *options)
    with started("serve", "pids", *arguments, cwd=directory) as parent:
        assert parent.stdout is not None
        yield Fleet(parent, sansmcp.Url.parse(parent.stdout.readline().strip()))


def store(directory: Path) -> tuple[str, str]:
    return ("--store", str(directory / "store.db"))


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that nobody tells."""
    give_up = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def post(
    connection: http.client.HTTPConnection, message: dict[str, Any], session: str | None = None
) -> tuple[int, str, Any]:
    """Send a message. Gives the status, the session and the response."""
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        **({} if session is None else {"mcp-session-id": session, "mcp-protocol-version": VERSION}),
    }
    connection.request("POST", "/mcp", json.dumps(message), headers)
    response = connection.getresponse()
    text = response.read().decode()
    if response.headers.get_content_type() == "text/event-stream":
        text = [line[6:] for line in text.splitlines() if line.startswith("data: {")][-1]
    is_json = text.startswith("{")  # a proxy may answer with a page
    answer = json.loads(text) if is_json else text
    return response.status, response.headers.get("mcp-session-id", ""), answer


def open_session(connection: http.client.HTTPConnection) -> str:
    params = {
        "protocolVersion": VERSION,
        "capabilities": {},
        "clientInfo": {"name": "a", "version": "1"},
    }
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    status, session, _ = post(connection, begin)
    assert status == 200
    assert session
    return session


def call(
    connection: http.client.HTTPConnection, session: str, number: int, name: str = "pid"
) -> int:
    """Call a tool; gives the process that has run it."""
    params: dict[str, object] = {"name": name, "arguments": {}}
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    status, _, answer = post(connection, message, session)
    assert status == 200, answer
    pid: int = answer["result"]["structuredContent"]["pid"]
    return pid


def until_all_serve(workers: Fleet, count: int) -> set[int]:
    """Wait until each worker has run a call. Gives their processes."""
    found = set[int]()
    with closing(workers.connect()) as connection:
        session = open_session(connection)
    number = 1
    while len(found) < count:
        number += 1
        with closing(workers.connect()) as connection:
            found.add(call(connection, session, number))
    return found


def check_replacement(directory: Path, *options: str) -> None:
    """Kill the worker that has opened a session: the session goes on in others."""
    with fleet(directory, *options) as workers:
        with closing(workers.connect()) as first:
            session = open_session(first)
            opened_by = call(first, session, 2)
            until(lambda: len(workers.pids()) == 3)
            os.kill(opened_by, signal.SIGKILL)
            line = workers.next_line()
        assert line == (
            f"sansmcp: worker {opened_by} was ended by SIGKILL; another one is started in 1 s"
        )
        for number in range(3, 20):
            with closing(workers.connect()) as connection:
                assert call(connection, session, number) != opened_by
        until(lambda: len(workers.pids()) == 3)
        workers.parent.terminate()
        assert workers.parent.wait(timeout=30) == 0


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_killed_worker_is_replaced_and_costs_no_session(directory: Path, adapter: str) -> None:
    check_replacement(directory, *store(directory), "--adapter", adapter)


def test_the_same_with_redis(directory: Path) -> None:
    with running(directory / "redis") as server:
        check_replacement(directory, "--store", server.url)


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all(directory: Path, adapter: str, ending: signal.Signals) -> None:
    with fleet(directory, *store(directory), "--adapter", adapter) as workers:
        until(lambda: len(workers.pids()) == 3)
        pids = workers.pids()
        with closing(workers.connect()) as connection:
            session = open_session(connection)
            outcome: list[int] = []
            thread = threading.Thread(
                target=lambda: outcome.append(call(connection, session, 2, "wait"))
            )
            thread.start()
            until((directory / "waiting").exists)
            workers.parent.send_signal(ending)
            until(lambda: len(workers.pids()) == 1)  # one has a call to finish
            until(workers.refuses_connections)
            assert not outcome
            (directory / "go on").touch()
            thread.join(30)
        out, err = workers.parent.communicate(timeout=30)
    assert (workers.parent.returncode, out, err) == (0, "", "")
    assert outcome[0] in pids
    assert not any(map(_parent_of, pids))


def test_a_worker_that_does_not_stop_is_killed(directory: Path) -> None:
    with fleet(directory, "--graceful-timeout", "0.1", count=1) as workers:
        (pid,) = workers.pids()
        os.kill(pid, signal.SIGSTOP)
        workers.parent.terminate()
        line = workers.next_line()
        assert workers.parent.wait(timeout=30) == 0
    assert line == f"sansmcp: worker {pid} has not stopped in time, and is killed"
    assert _parent_of(pid) is None


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_sighup_replaces_all_and_loses_no_call(directory: Path, adapter: str) -> None:
    """Clients that keep their connections call all the time; each call gets its result."""
    with fleet(directory, *store(directory), "--adapter", adapter) as workers:
        before = until_all_serve(workers, 3)
        done: list[int] = []
        is_over = threading.Event()

        def call_all_the_time() -> None:
            with closing(workers.connect()) as connection:
                session = open_session(connection)
                number = 1
                while not is_over.is_set():
                    number += 1
                    call(connection, session, number)
                done.append(number)

        threads = [threading.Thread(target=call_all_the_time) for _ in range(4)]
        for thread in threads:
            thread.start()
        workers.parent.send_signal(signal.SIGHUP)
        until(lambda: not before & workers.pids())
        until(lambda: len(workers.pids()) == 3)
        is_over.set()
        for thread in threads:
            thread.join(30)
        workers.parent.terminate()
        _, err = workers.parent.communicate(timeout=30)
    assert len(done) == 4
    assert err == ""


def test_a_new_version_that_does_not_start_leaves_the_old_one_running(directory: Path) -> None:
    with fleet(directory, *store(directory), count=2) as workers:
        before = until_all_serve(workers, 2)
        (directory / "broken").touch()
        workers.parent.send_signal(signal.SIGHUP)
        assert workers.next_line() == "broken"
        assert workers.next_line() == (
            "sansmcp: the new worker has ended with status 1 before it served; the old ones go on"
        )
        assert workers.pids() == before
        (directory / "broken").unlink()
        workers.parent.send_signal(signal.SIGHUP)
        until(lambda: not workers.pids() & before)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_health_answer_of_workers(directory: Path, adapter: str) -> None:
    options = (*store(directory), "--health-path", "/healthz", "--adapter", adapter)
    with fleet(directory, *options) as workers, closing(workers.connect()) as connection:
        connection.request("GET", "/healthz", headers={"host": "anything"})
        response = connection.getresponse()
        assert (response.status, json.loads(response.read())) == (
            200,
            {"status": "ok", "store": "ok"},
        )


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_lame_duck_listens_and_says_so(directory: Path, adapter: str) -> None:
    """Without workers: load balancers find 503 before the port is closed, and calls still run."""
    options = ("--health-path", "/healthz", "--lame-duck-timeout", "30", "--adapter", adapter)
    with started("serve", "pids", "--http", "127.0.0.1:0", *options, cwd=directory) as server:
        assert server.stdout is not None
        single = Fleet(server, sansmcp.Url.parse(server.stdout.readline().strip()))
        with closing(single.connect()) as kept:
            session = open_session(kept)
            server.terminate()

            def health() -> int:
                with closing(single.connect()) as connection:
                    connection.request("GET", "/healthz")
                    return connection.getresponse().status

            until(lambda: health() == 503)
            assert call(kept, session, 2) == server.pid


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_workers_end_with_a_parent_that_was_killed(directory: Path, adapter: str) -> None:
    options = (*store(directory), "--adapter", adapter, "--graceful-timeout", "0.1")
    with fleet(directory, *options) as workers:
        until(lambda: len(workers.pids()) == 3)
        pids = workers.pids()
        with closing(workers.connect()) as connection:  # one has a call that never ends
            session = open_session(connection)
            params: dict[str, object] = {"name": "wait", "arguments": {}}
            message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
            headers = {
                "content-type": "application/json",
                "accept": "application/json, text/event-stream",
            }
            headers |= {"mcp-session-id": session, "mcp-protocol-version": VERSION}
            connection.request("POST", "/mcp", json.dumps(message), headers)
            until((directory / "waiting").exists)
            workers.parent.kill()
            until(lambda: not any(map(_parent_of, pids)))


def test_a_first_worker_that_does_not_start(directory: Path) -> None:
    (directory / "broken").touch()
    ran = run(
        "serve", "pids", "--http", "127.0.0.1:0", "--workers", "2", *store(directory), cwd=directory
    )
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.splitlines()[-1] == (
        "sansmcp: The first worker has ended with status 1 before it served"
    )
    assert "broken" in ran.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", "2"), "--workers 2 needs --store, a file or a URL of Redis"),
        (("--workers", "2", "--http-sse", "/sse"), "--http-sse needs one process for each port"),
        (("--workers", "0"), "--workers takes a number from 1 on, got 0"),
        (("--workers", "1", "--stdio"), "--workers serves HTTP"),
        (("--workers", "1", "--dual"), "--workers serves HTTP"),
        (("--workers", "1", "--http", "nonsense"), "--http takes HOST:PORT"),
        (("--workers", "1", "--http", "name.invalid:0"), "Cannot serve at name.invalid:0: "),
    ],
)
def test_workers_that_cannot_be(options: tuple[str, ...], message: str) -> None:
    assert message in failed(run_in_process("serve", *options))


def test_workers_end_with_standard_input(directory: Path) -> None:
    options = ("--http", "127.0.0.1:0", "--workers", "2", "--stop-on-stdin-eof", *store(directory))
    with started("serve", "pids", *options, cwd=directory, stdin=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline().startswith("http://")
        out, err = parent.communicate(timeout=30)
    assert (parent.returncode, out, err) == (0, "", "")


def test_the_state_file_names_the_parent(directory: Path) -> None:
    file = directory / "state.json"
    with fleet(directory, *store(directory), "--state-file", str(file)) as workers:
        found = json.loads(file.read_text())
        assert (found["url"], found["pid"]) == (str(workers.url), workers.parent.pid)
        workers.parent.terminate()
        workers.parent.wait(timeout=30)
    assert not file.exists()
