"""A server process that sends requests and reads no responses fills no memory, on every adapter."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_trio
from sansmcp_local import ChildProcess

_PINGS = 50_000
_SERVER = """
import json, sys, threading, time

def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

INITIALIZED = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
    "serverInfo": {"name": "s", "version": "1"}}
written = 0

def ping(count):
    global written
    for number in range(count):
        send(id=number, method="ping")
        written = number + 1

def read(count):
    while count:
        count -= "result" in json.loads(sys.stdin.readline())

for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "server/discover":
        send(id=id, error={"code": -32601, "message": "unknown"})
    elif method == "initialize":
        send(id=id, result=INITIALIZED)
    elif method == "tools/call":
        count = message["params"]["arguments"]["pings"]
        thread = threading.Thread(target=ping, args=(count,), daemon=True)
        thread.start()
        before = -1
        while thread.is_alive() and before != written:  # until it is held up
            before = written
            time.sleep(1.0)
        held_up_at = written
        read(count)
        send(id=id, result={"content": [], "structuredContent": {"heldUpAt": held_up_at}})
"""


def on_asyncio(command: list[str]) -> Any:
    async def main() -> Any:
        async with sansmcp_asyncio.connect(command) as client:
            return await client.call_tool("ping", {"pings": _PINGS})

    return asyncio.run(main())


def on_trio(command: list[str]) -> Any:
    async def main() -> Any:
        async with sansmcp_trio.connect(command) as client:
            return await client.call_tool("ping", {"pings": _PINGS})

    return trio.run(main)


def on_blocking(command: list[str]) -> Any:
    with sansmcp_blocking.connect(command) as client:
        return client.call_tool("ping", {"pings": _PINGS})


@pytest.mark.parametrize("talk", [on_asyncio, on_trio, on_blocking])
def test_the_output_of_a_process_that_reads_nothing_waits(
    talk: Callable[[list[str]], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is read again when the process has read: no response is missing in the end."""
    monkeypatch.setattr(ChildProcess, "max_unread", 100_000)
    server = tmp_path / "server.py"
    server.write_text(_SERVER, encoding="utf-8")
    result = talk([sys.executable, str(server)])
    assert 0 < result["structuredContent"]["heldUpAt"] < _PINGS
