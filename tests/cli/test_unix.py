"""``--unix``: the commands serve at Unix sockets, and find servers there."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

import sansmcp

from .conftest import ADAPTERS, failed, run, run_in_process, started, text_of


@pytest.fixture
def path() -> Generator[str, None, None]:
    with tempfile.TemporaryDirectory() as directory:  # shorter than tmp_path
        yield os.path.join(directory, "s")


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_serve_call_and_probe(path: str, adapter: str) -> None:
    state = f"{path}-state"
    options = ("--unix", path, "--state-file", state, "--adapter", adapter)
    with started("serve", *options) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        assert url == str(sansmcp.Url.of_socket(path, "/mcp"))
        found = json.loads(Path(state).read_text("utf-8"))
        assert (found["url"], found["port"], found["unix"]) == (url, None, path)
        called = run_in_process("call", "--adapter", adapter, url, "echo", '{"text": "hi"}')
        assert text_of(called.out) == "hi"
        called = run_in_process("call", "--state-file", state, "echo", '{"text": "hi"}')
        assert text_of(called.out) == "hi"
        probed = run_in_process("probe", "--json", url)
        assert (probed.status, json.loads(probed.out)["target"]) == (0, url)
        probed = run_in_process("probe", url.replace("/mcp", "/nothing"))
        assert f"{url} speaks MCP; try: sansmcp probe {url}" in probed.out
        again = run("serve", "--unix", path)
        assert f"Cannot serve at {path}: " in failed(again)
        assert "A server that runs has this path" in again.err
        server.terminate()
        assert server.wait(timeout=20) == 0
    assert os.listdir(os.path.dirname(path)) == []


def test_a_port_too(path: str) -> None:
    with started("serve", "--unix", path, "--http", "127.0.0.1:0") as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        for url in (port, str(sansmcp.Url.of_socket(path, "/mcp"))):
            called = run_in_process("call", url, "echo", '{"text": "hi"}')
            assert text_of(called.out) == "hi"
        server.terminate()
        server.wait(timeout=20)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--stdio", "--unix", "s"), "write --dual --unix"),
        (("--stdio", "--http", "127.0.0.1:0"), "write --dual --http"),
        (("--workers", "1", "--unix", "s"), "a Unix socket belongs to one process"),
        (("--unix", "/nowhere/s"), "Cannot serve at /nowhere/s: "),
        (("--unix", "/" + 200 * "x"), "may have"),
    ],
)
def test_what_serve_refuses(options: tuple[str, ...], said: str) -> None:
    assert said in failed(run_in_process("serve", *options))


def test_what_has_no_use_for_unix_sockets() -> None:
    url = "http+unix://%2Fnowhere%2Fs/mcp"
    assert "are for http and https URLs" in failed(run_in_process("login", url))
    chaos = ("chaos", "--listen", "127.0.0.1:0", "--upstream", url)
    assert "serve the upstream with --http, too" in run_in_process(*chaos).err
    missing = run_in_process("call", "--timeout", "0.2", url, "echo")
    assert f"{url} cannot be reached: [Errno 2] No such file" in missing.err


def test_a_recording_is_sent_to_a_socket(path: str, tmp_path: Path) -> None:
    """Its path is no name of a host, and is looked up nowhere."""
    file = str(tmp_path / "a.jsonl")
    with started("serve", "--unix", path) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        recorded = run_in_process("call", "--record", file, url, "echo", "text=hi")
        assert text_of(recorded.out) == "hi"
        assert run_in_process("replay", file, "--to", url).status == 0
    gone = run_in_process("replay", file, "--to", url)
    assert gone.status == 1
    assert "no complete response: [Errno 2]" in gone.out or "[Errno 111]" in gone.out
