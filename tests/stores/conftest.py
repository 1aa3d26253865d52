"""Processes that share a store, and a client for the tool that asks."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import sansmcp
import sansmcp_trio

from ..cli.conftest import started
from .redis_server import running

WAYS = {
    "requests": ("2025-06-18", False),
    "multi-turn streams": ("2025-11-25", True),
    "results": ("2026-07-28", False),
}
TEXT = "the sea: A POEM ABOUT THE SEA, PLEASE."
DEFAULT_LIMITS = sansmcp.Limits()
ONE_REQUEST_EACH = sansmcp.Limits(idle_connection_timeout=1e-6)
"""Connections that are kept for nothing after their first request."""


class Server:
    """One process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.port = sansmcp.Url.parse(process.stdout.readline().strip()).port


@pytest.fixture(params=["SQLite", "Redis"])
def servers(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[list[Server], None, None]:
    """Three processes with the example application."""
    with ExitStack() as stack:
        store = str(tmp_path / "store.db")
        if request.param == "Redis":
            store = stack.enter_context(running(tmp_path / "redis")).url
        command = ("serve", "--http", "127.0.0.1:0", "--store", store, "--multi-turn")
        processes = [stack.enter_context(started(*command)) for _ in range(3)]
        yield [Server(process) for process in processes]


def connect(
    url: str, way: str, answers: dict[str, Any], limits: sansmcp.Limits = DEFAULT_LIMITS
) -> Any:
    """A client that can be asked, and asks nothing by itself."""
    version, multi_turn = WAYS[way]
    return sansmcp_trio.connect(
        url,
        versions=(version,),
        multi_turn=multi_turn,
        capabilities={"elicitation": {}, "sampling": {}},
        request_handlers=answers,
        standalone_stream=False,
        reconnect=sansmcp.ReconnectPolicy(initial_delay=0.1, max_delay=0.5, max_attempts=30),
        limits=limits,
    )


async def topic(request: sansmcp.ServerRequest) -> dict[str, Any]:
    return {"action": "accept", "content": {"topic": "the sea"}}


async def poem(request: sansmcp.ServerRequest) -> dict[str, Any]:
    text = request.params["messages"][0]["content"]["text"]
    return {"role": "assistant", "model": "m", "content": {"type": "text", "text": text.upper()}}


async def ask(client: sansmcp_trio.Client) -> str:
    result = await client.call_tool("ask", timeout=30)
    text: str = result["content"][0]["text"]
    return text
