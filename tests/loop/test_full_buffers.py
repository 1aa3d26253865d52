"""A server that stops while its sockets are full: readers get what there is for them."""

# How long a server waits for slow readers is a constant of its module.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

import sansmcp
from sansmcp_blocking import _server
from sansmcp_local._loop import _serving

from ..asyncio.adapter_under_test import AsyncioServers
from ..blocking.adapter_under_test import BlockingServers
from ..trio.adapter_under_test import TrioServers

PATIENCE = 60.0
BUFFER = 65_536
LARGE = 16_000_000
"""More than the buffers of two sockets take."""

SUBJECTS: dict[str, Callable[[], Any]] = {
    "asyncio": lambda: AsyncioServers("asyncio"),
    "uvloop": lambda: AsyncioServers("uvloop"),
    "trio": TrioServers,
    "blocking": BlockingServers,
}
CALL = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "large"}}
).encode()


@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_last_bytes_of_a_slow_reader(subject: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_serving, "_FLUSH", PATIENCE)
    monkeypatch.setattr(_server, "_FINAL_FLUSH_TIMEOUT", PATIENCE)
    app = sansmcp.App("large", "1")

    @app.handler("tools/call")
    def large(call: Any) -> dict[str, Any]:
        return {"text": "x" * LARGE}

    servers = SUBJECTS[subject]()
    running = servers.serve(app, resumable=False, sessions=False, graceful_timeout=1.0)
    host, _, port = running.url.removeprefix("http://").partition("/")[0].rpartition(":")
    with socket.socket() as reader:
        reader.settimeout(PATIENCE)
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        reader.connect((host, int(port)))
        reader.sendall(
            b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"accept: application/json, text/event-stream\r\n"
            b"mcp-protocol-version: 2025-11-25\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(CALL), CALL)
        )
        response = reader.recv(BUFFER)
        stopping = threading.Thread(target=running.stop)
        stopping.start()
        stopping.join(0.5)  # the buffers are full when the server stops
        while data := reader.recv(BUFFER):
            response += data
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert len(body) > LARGE
    assert body.rstrip(b"\r\n0").endswith(b"}")
