"""The file by which processes find a server: complete or absent, and never believed when stale."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sansmcp_local import State, StateFile, read_state

from ..cli.conftest import environment

URL = "http://127.0.0.1:8123/mcp"
NAMES = ("streamable-http", "stdio")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


def write(path: Path, **changes: Any) -> None:
    """A state file of this process, with changes."""
    state: dict[str, Any] = {"url": URL, "port": 8123, "pid": os.getpid(), "transports": NAMES}
    state["started"] = time.time()
    path.write_text(json.dumps({**state, **changes}), encoding="utf-8")


def test_it_tells_where_the_server_is_as_long_as_it_runs(path: Path) -> None:
    before = time.time()
    with StateFile(path, url=URL, transports=NAMES):
        state = read_state(path)
        assert state is not None
        assert state == State(
            url=URL, port=8123, pid=os.getpid(), transports=NAMES, started=state.started
        )
        assert before <= state.started <= time.time()
        assert os.listdir(path.parent) == ["state.json"]
    assert os.listdir(path.parent) == []


def test_others_can_read_it_without_us(path: Path) -> None:
    with StateFile(os.fspath(path), url=URL, transports=NAMES):
        found = json.loads(path.read_text(encoding="utf-8"))
    assert sorted(found) == ["pid", "port", "started", "transports", "unix", "url"]
    assert (found["url"], found["port"], found["transports"]) == (URL, 8123, list(NAMES))


def test_a_server_at_a_unix_socket_has_a_path_and_no_port(path: Path) -> None:
    url = "http+unix://%2Frun%2Fs/mcp"
    with StateFile(path, url=url, transports=NAMES, unix="/run/s"):
        state = read_state(path)
    assert state is not None
    assert (state.url, state.port, state.unix) == (url, None, "/run/s")


def test_a_server_without_http_has_no_url(path: Path) -> None:
    with StateFile(path, url="", transports=("stdio",)):
        state = read_state(path)
    assert state is not None
    assert (state.url, state.port) == (None, None)


def test_a_reader_never_sees_half_of_it(path: Path) -> None:
    """It is replaced as a whole, so a reader has either the old one or the new one open."""
    write(path, url="old", started=1.5)  # of a process that is gone
    with open(path, encoding="utf-8") as old, StateFile(path, url=URL, transports=NAMES):
        assert json.load(old)["url"] == "old"
        state = read_state(path)
    assert state is not None
    assert state.url == URL


def test_the_file_of_another_server_is_left_alone(path: Path) -> None:
    with StateFile(path, url=URL, transports=NAMES):
        write(path, pid=os.getppid(), url="http://127.0.0.1:1/", started=time.time())
    state = read_state(path)
    assert state is not None
    assert state.pid == os.getppid()


def test_the_file_of_a_server_that_runs_is_not_taken_over(path: Path) -> None:
    """The second server replaced it, and deleted it at its end."""
    with StateFile(path, url=URL, transports=NAMES):
        with pytest.raises(FileExistsError, match=rf"pid {os.getpid()}.*state\.json"):
            StateFile(path, url="http://127.0.0.1:1/", transports=NAMES).__enter__()
        state = read_state(path)
        assert state is not None
        assert state.url == URL
        assert os.listdir(path.parent) == ["state.json"]


def test_the_file_of_a_later_server_of_this_process_is_left_alone(path: Path) -> None:
    with StateFile(path, url=URL, transports=NAMES):
        write(path, started=time.time() + 1)
    assert path.exists()


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="the system does not tell")
def test_a_number_that_another_process_has_now_is_not_believed(path: Path) -> None:
    """A re-used pid made a dead server look alive."""
    write(path, started=time.time() - 1e6)
    assert read_state(path) is None
    write(path, started=time.time())
    assert read_state(path) is not None


def test_where_the_system_does_not_tell_a_process_is_the_server(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_time(pid: int) -> None:
        """The system does not tell."""

    monkeypatch.setattr("sansmcp_local._state_file._began", no_time)
    write(path, started=1.5)
    assert read_state(path) is not None


def test_a_file_system_without_links(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    with StateFile(path, url=URL, transports=NAMES):
        assert os.listdir(path.parent) == ["state.json"]


def test_it_goes_when_the_server_fails_and_may_be_gone_already(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), StateFile(path, url=URL, transports=NAMES):
        raise ZeroDivisionError
    assert not path.exists()
    with StateFile(path, url=URL, transports=NAMES):
        path.unlink()


def test_a_server_that_was_killed_is_not_believed(path: Path) -> None:
    program = (
        "import sys, sansmcp_local\n"
        "with sansmcp_local.StateFile(sys.argv[1], url='http://x/', transports=()):\n"
        "    print(flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment()) as process:
        assert process.stdout is not None
        process.stdout.readline()
        state = read_state(path)
        assert state is not None
        assert state.pid == process.pid
        process.kill()
    assert path.exists()
    assert read_state(path) is None
    with StateFile(path, url=URL, transports=NAMES):  # the next one takes its place
        assert read_state(path) is not None


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere" / "state", tmp_path):
        with pytest.raises(OSError, match=r"No such file|Is a directory"):
            StateFile(path, url=URL, transports=NAMES).__enter__()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "\xff", "null", "[1]", '"text"', "{}", "[" * 100_000, '{"url": "half'],
    ids=lambda text: text[:8],
)
def test_what_is_no_state_file(path: Path, text: str) -> None:
    path.write_text(text, encoding="latin-1")
    assert read_state(path) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"pid": 0},
        {"pid": -1},
        {"pid": 10**30},
        {"pid": "x"},
        {"pid": None},
        {"pid": float("inf")},
        {"port": "x"},
        {"port": []},
        {"transports": 5},
        {"started": "now"},
        {"started": 10**400},
    ],
    ids=lambda changes: str(changes)[:20],
)
def test_a_state_that_makes_no_sense(path: Path, changes: dict[str, Any]) -> None:
    write(path)
    assert read_state(path) is not None
    write(path, **changes)
    assert read_state(path) is None


def test_there_is_none(tmp_path: Path) -> None:
    assert read_state(tmp_path / "state") is None
    assert read_state(tmp_path) is None
