"""``--state-file``: a server tells other processes where it is, and the commands find it there."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import failed, run, run_in_process, serving, started, text_of


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


def test_it_names_the_server_as_long_as_that_runs(state: Path) -> None:
    before = time.time()
    options = ("--http", "127.0.0.1:0", "--http-sse", "--state-file", str(state))
    with started("serve", *options) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        found: dict[str, Any] = json.loads(state.read_text())
        assert before <= found.pop("started") <= time.time()
        assert found == {
            "url": url,
            "port": int(url.rpartition(":")[2].partition("/")[0]),
            "unix": None,
            "pid": server.pid,
            "transports": ["streamable-http", "http+sse"],
        }
        server.terminate()
        server.wait(timeout=20)
    assert list(state.parent.iterdir()) == []


def test_the_commands_find_the_server_by_it(state: Path) -> None:
    with serving("--state-file", str(state)) as url:
        called = run_in_process("call", "--state-file", str(state), "echo", '{"text": "found"}')
        probed = run_in_process("probe", "--state-file", str(state), "--json")
    assert text_of(called.out) == "found"
    assert (probed.status, json.loads(probed.out)["target"]) == (0, url)


def test_it_names_the_http_side_of_a_dual_server(state: Path) -> None:
    options = ("--dual", "--http", "127.0.0.1:0", "--state-file", str(state))
    with started("serve", *options) as server:
        assert server.stderr is not None
        server.stderr.readline()
        assert json.loads(state.read_text())["transports"] == ["streamable-http", "stdio"]
        called = run_in_process("call", "--state-file", str(state), "add", '{"a": 1, "b": 2}')
        server.terminate()
    assert text_of(called.out) == "3"


@pytest.mark.parametrize("command", [("call", "echo"), ("probe",)])
def test_a_server_on_stdio_alone_cannot_be_found_by_it(
    state: Path, command: tuple[str, ...]
) -> None:
    with started("serve", "--stdio", "--state-file", str(state), stdin=subprocess.PIPE) as server:
        deadline = time.monotonic() + 20
        while not state.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        said = failed(run_in_process(*command, "--state-file", str(state)))
        assert said.startswith(f"No running server with a URL in the state file {str(state)!r}; ")
        server.terminate()


@pytest.mark.parametrize("command", [("call", "echo"), ("probe",)])
def test_a_server_that_is_gone(state: Path, command: tuple[str, ...]) -> None:
    said = (
        f"No running server with a URL in the state file {str(state)!r}; start one with: "
        f"sansmcp serve --state-file {state}"
    )
    assert failed(run_in_process(*command, "--state-file", str(state))) == said
    with started("serve", "--http", "127.0.0.1:0", "--state-file", str(state)) as server:
        assert server.stdout is not None
        server.stdout.readline()
        server.kill()  # so that it cannot remove the file
    assert state.exists()
    assert failed(run_in_process(*command, "--state-file", str(state))) == said


@pytest.mark.parametrize("how", [["--stdio"], ["--dual", "--http", "127.0.0.1:0"]])
def test_a_file_that_cannot_be_written(tmp_path: Path, how: list[str]) -> None:
    nowhere = tmp_path / "nosuch" / "state.json"
    said = failed(run("serve", *how, "--state-file", str(nowhere)))
    assert said.startswith("Cannot write the state file: [Errno 2] No such file or directory: ")
