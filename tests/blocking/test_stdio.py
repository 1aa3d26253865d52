"""Standard streams of every kind, processes, and HTTP beside them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sansmcp_blocking
from sansmcp import Disconnected
from sansmcp_blocking import _process

from ..trio.programs import foreign, outside

REQUEST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "echo",
        "arguments": {"text": "x" * 100_000},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}


def server(**settings: Any) -> list[str]:
    program = str(Path(__file__).with_name("stdio_server.py"))
    return [sys.executable, program, json.dumps(settings)]


@pytest.mark.parametrize("threads", [False, True])
def test_a_file_is_read_and_a_file_is_written(tmp_path: Path, threads: bool) -> None:
    asked, answered = tmp_path / "asked", tmp_path / "answered"
    asked.write_text(json.dumps(REQUEST) + "\n")
    with asked.open() as stdin, answered.open("w") as stdout:
        done = subprocess.run(
            server(threads=threads),
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=outside(),
            timeout=30,
            check=True,
        )
    (line,) = answered.read_text().splitlines()
    assert json.loads(line)["result"]["echo"] == REQUEST["params"]["arguments"]  # type: ignore[index]
    assert b"printed" in done.stderr


def test_a_socket_that_does_not_block() -> None:
    ours, theirs = socket.socketpair()
    theirs.settimeout(0)
    with ours, theirs:
        process = subprocess.Popen(
            server(), stdin=theirs.fileno(), stdout=theirs.fileno(), env=outside()
        )
        theirs.close()
        with process, ours.makefile("rwb") as stream:
            for _ in range(3):
                stream.write(json.dumps(REQUEST).encode() + b"\n")
                stream.flush()
                assert json.loads(stream.readline())["result"]["echo"]
            ours.shutdown(socket.SHUT_WR)
            assert process.wait(30) == 0


@pytest.mark.parametrize("stops", [True, False])
def test_http_and_stdio_at_once(stops: bool) -> None:
    command = server(http=["127.0.0.1", 0], stop_on_stdin_eof=stops)
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, env=outside(), **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            url = process.stderr.readline().decode().split()[-1]  # "... serving MCP at URL"
            with sansmcp_blocking.connect(url, standalone_stream=False) as client:
                assert client.call_tool("echo", {"a": 1})["echo"] == {"a": 1}
                process.stdin.write(json.dumps(REQUEST).encode() + b"\n")
                process.stdin.close()
                assert json.loads(process.stdout.readline())["result"]["echo"]
                if not stops:
                    assert client.call_tool("echo", {"a": 2})["echo"] == {"a": 2}
                    process.terminate()
            process.wait(30)
        finally:
            process.kill()


def test_the_end_of_a_process_is_seen_where_the_system_has_no_descriptor_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    with (
        sansmcp_blocking.connect(foreign("plain")) as client,
        pytest.raises(Disconnected, match="ended with status 3"),
    ):
        client.call("leave", {"status": 3})


def test_streams_that_threads_read_and_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, where nothing waits for pipes: nothing is lost, and each end is seen."""
    monkeypatch.setattr(_process, "_pipes_of", _process.socket_pipes_of)
    text = 1_000_000 * "x"
    with sansmcp_blocking.connect(server(threads=True), env=outside()) as client:
        for _ in range(3):
            assert client.call_tool("echo", {"text": text})["echo"] == {"text": text}
    with (
        sansmcp_blocking.connect(foreign()) as client,
        pytest.raises(Disconnected, match="has ended with status 3:\nI\nhave to go"),
    ):
        client.call("leave", {"status": 3})
