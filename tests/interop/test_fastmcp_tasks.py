"""Our clients follow the tasks of a server made with fastmcp-tasks."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import sansmcp
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_trio
from sansmcp import TaskCancelled, TaskLost
from sansmcp.events import Reconnecting, TaskUpdated

from ..ports import free_port
from .conftest import text
from .fastmcp_environment import fastmcp_python
from .stateless import MODERN

pytestmark = pytest.mark.thorough

SERVER = str(Path(__file__).with_name("fastmcp_tasks_server.py"))


def accept(request: sansmcp.ServerRequest) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": "Ada"}}


SETTINGS: dict[str, Any] = {
    "versions": (MODERN,),
    "probe_timeout": 60,  # their process may start slowly
    "capabilities": {"elicitation": {}},
    "request_handlers": {"elicitation/create": accept},
}


@contextmanager
def running(port: int) -> Generator[str, None, None]:
    """Their server on a port; gives its URL when it listens."""
    command = [fastmcp_python(), SERVER, str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)  # nothing tells that it listens
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def url() -> Generator[str, None, None]:
    with running(free_port()) as url:
        yield url


def test_on_asyncio(url: str) -> None:
    async def use() -> None:
        updates: list[Any] = []
        async with sansmcp_asyncio.connect(url, **SETTINGS) as client:
            events = client.events()
            assert text(await client.call_tool("now")) == "now"
            made, failed, greeted = await asyncio.gather(
                client.call_tool("work", {"seconds": 0.1}),
                client.call_tool("fail"),
                client.call_tool("greet"),
            )
            assert text(made) == "done"
            assert failed["isError"]
            assert text(greeted) == "accept Ada"
            started = await client.start_task("work", {"seconds": 100})
            await started.cancel()
            with pytest.raises(TaskCancelled):
                await started.result()
            with pytest.raises(TaskLost, match="not found"):
                await client.task("unknown").result()
        async for event in events:
            updates.append(event)
        statuses = {event.status for event in updates if isinstance(event, TaskUpdated)}
        assert statuses == {"working", "input_required"}

    asyncio.run(use())


def test_without_a_loop_and_by_another_client(url: str) -> None:
    with sansmcp_blocking.connect(url, **SETTINGS) as client:
        started = client.start_task("work", {"seconds": 0.1})
        assert started.id is not None
        assert client.start_task("now").result()["content"] == [{"type": "text", "text": "now"}]
    with sansmcp_blocking.connect(url, **SETTINGS) as client:
        assert text(client.task(started.id).result()) == "done"


async def test_on_stdio_with_trio() -> None:
    async with sansmcp_trio.connect([fastmcp_python(), SERVER], **SETTINGS) as client:
        assert text(await client.call_tool("work", {"seconds": 0.1})) == "done"
        assert text(await client.call_tool("greet")) == "accept Ada"


async def test_a_caller_that_leaves_cancels_its_task(url: str) -> None:
    async with sansmcp_trio.connect(url, **SETTINGS) as client:
        events = client.events()
        task_id = ""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "work", {"seconds": 100})
            while not task_id:
                event = await events.__anext__()
                task_id = event.task_id if isinstance(event, TaskUpdated) else ""
            nursery.cancel_scope.cancel()
        with pytest.raises(TaskCancelled):
            await client.task(task_id).result()
        await events.aclose()


def test_a_server_that_is_started_again_and_has_forgotten_it() -> None:
    """It keeps tasks in its memory; what is shown is that the client asks until it answers."""
    port = free_port()
    with running(port) as url:
        client = sansmcp_blocking.connect(url, **SETTINGS)
        events = client.events(0)
        pending = client.start_call("tools/call", {"name": "work", "arguments": {"seconds": 100}})
        while not any(isinstance(event, TaskUpdated) for event in events):
            with pytest.raises(TimeoutError):
                pending.result(0.1)
            events = client.events(0)
    with pytest.raises(TimeoutError):
        pending.result(7)
    with running(port), pytest.raises(TaskLost):
        pending.result(60)
    with client:
        assert any(isinstance(event, Reconnecting) for event in client.events(0))
    assert isinstance(pending, sansmcp.PendingResult)
