"""Client and server over the pipes of a real process: all that can be said, and all that disturbs.

How processes end is in test_processes.py.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import trio

import sansmcp
from sansmcp import Limits
from sansmcp.events import (
    ClientEvent,
    Closed,
    InvalidLine,
    ProgressReceived,
    ServerNotified,
    StderrLine,
)
from sansmcp_trio import Client

from .programs import connect, foreign, ours

requirement = pytest.mark.requirement

MIB = 1024 * 1024
MEMORY = Path("/proc/self/clear_refs")


async def logged(client: Client, *lines: str) -> list[ClientEvent]:
    """The events up to those that tell of these lines of the server's log."""
    waiting = list(lines)
    events: list[ClientEvent] = []
    async with aclosing(client.events()) as coming:
        async for event in coming:
            events.append(event)
            if isinstance(event, StderrLine) and event.line in waiting:
                waiting.remove(event.line)
            if not waiting:
                break
    return events


# What can be said


@requirement("STDIO-C-001", "STDIO-C-002", "STDIO-B-001", "STDIO-B-002")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25"])
async def test_calls(version: str) -> None:
    async with connect(ours(), versions=(version,)) as client:
        assert (client.connected.transport, client.connected.version) == ("stdio", version)
        assert client.connected.server_info == {"name": "stdio-tests", "version": "1"}
        text = "a\nb\r\nc\u2028d\0e\N{SNOWMAN}"
        assert await client.call_tool("echo", {"text": text}) == {"text": text}
        assert "echo" in [tool["name"] for tool in (await client.list_tools())["tools"]]
        assert await client.ping() == {}
        with pytest.raises(sansmcp.JsonRpcError) as caught:
            await client.call("nope/nope")
        assert caught.value.code == -32601


async def test_progress_notifications_and_questions() -> None:
    reports: list[ProgressReceived] = []

    async def elicit(request: sansmcp.ServerRequest) -> Any:
        return {"action": "accept", "content": {"asked": request.params["message"]}}

    async with connect(
        ours(),
        versions=("2025-11-25",),
        request_handlers={"elicitation/create": elicit},
        capabilities={"elicitation": {}},
    ) as client:
        events = client.events()
        assert await client.call_tool("work", on_progress=reports.append) == {"done": True}
        assert [(report.progress, report.message) for report in reports] == [(1, "half"), (2, None)]
        notified = await events.__anext__()
        assert isinstance(notified, ServerNotified)
        assert notified.notification.params == {"level": "info", "data": "working"}
        await events.aclose()
        answer = await client.call_tool("ask", {"message": "name?"})
        assert answer == {"action": "accept", "content": {"asked": "name?"}}


@requirement("CANCEL-B-003")
async def test_cancelling_the_caller_cancels_the_handler() -> None:
    async with (
        connect(ours(), versions=("2025-11-25",)) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.call_tool, "hang")
        await logged(client, "hanging")
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await logged(client, "cancelled")
            assert await client.call_tool("echo") == {}


@requirement("STDIO-C-018")
async def test_a_hundred_calls_at_once() -> None:
    results: list[int] = []
    async with connect(ours()) as client:

        async def caller(number: int) -> None:
            result = await client.call_tool("echo", {"number": number, "text": "x" * 10_000})
            results.append(result["number"])

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(caller, number)
    assert sorted(results) == list(range(100))


# Where the server runs


@requirement("STDIO-B-006")
async def test_environment_and_directory_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK", "ours")
    async with connect(foreign(), env={"MARK": "its"}, cwd=tmp_path) as client:
        about = await client.call("about")
    assert (about["mark"], about["cwd"]) == ("its", str(tmp_path.resolve()))
    async with connect(foreign(), env={}) as client:
        about = await client.call("about")
    assert (about["mark"], about["cwd"]) == (None, str(Path.cwd()))
    async with connect(foreign(), env={}, inherit_env=True) as client:
        assert (await client.call("about"))["mark"] == "ours"


# What disturbs


@requirement("STDIO-S-002", "STDIO-C-004", "STDIO-C-005")
async def test_the_log_of_the_server() -> None:
    async with connect(foreign()) as client:
        await client.call("log", {"lines": ["line"] * 200_000})  # nobody looks, nothing stops
        assert await client.ping() == {}
        await client.events().aclose()  # from now on they are kept
        await client.call("log", {"lines": ["one", "", "  three", "x" * 100_000, "last"]})
        events = await logged(client, "last")
    lines = [event.line for event in events if isinstance(event, StderrLine)]
    assert lines == ["\N{REPLACEMENT CHARACTER} broken", "one", "  three", "last"]


@requirement("STDIO-S-001")
async def test_handlers_cannot_disturb_the_conversation() -> None:
    async with connect(ours(), versions=("2025-11-25",)) as client:
        await client.events().aclose()  # from now on they are kept
        assert await client.call_tool("disturb") == {"found": ["", "''"]}
        events = await logged(client, "printed", "written", "by a child")
        assert not [event for event in events if isinstance(event, InvalidLine)]
        assert await client.call_tool("echo") == {}


async def test_what_is_no_message_is_shown_and_skipped() -> None:
    async with connect(foreign("noisy")) as client, aclosing(client.events()) as coming:
        assert await client.ping() == {}
        events = [await coming.__anext__() for _ in range(4)]
    lines = [event.line for event in events if isinstance(event, InvalidLine)]
    assert lines == [b"Loading...", b"\xff\xfe broken", b"42", b"{"]


# Much


async def test_a_message_of_20_mb_each_way() -> None:
    text = "\N{SNOWMAN}" * (20_000_000 // 3)
    async with connect(ours(limits={"max_request_bytes": 1 << 25})) as client:
        answer = await client.call_tool("echo", {"text": text})
        assert answer["text"] == text


@pytest.mark.skipif(not MEMORY.exists(), reason="needs to see the memory of processes")
async def test_100_mb_each_way_in_flat_memory() -> None:
    text = "x" * 2_000_000

    async def exchange(client: Client, times: int) -> int:
        for _ in range(times):
            answer = await client.call_tool("echo", {"text": text})
            assert answer["text"] == text
        about = await client.call_tool("about")
        return int(about["peak"])

    async with connect(ours()) as client:
        server_before = await exchange(client, 3)
        before = peak(reset=True)
        server_after = await exchange(client, 50)
        assert server_after - server_before < 10 * MIB
        assert peak() - before < 20 * MIB


async def test_an_application_that_takes_its_time_slows_the_server_down() -> None:
    async with connect(foreign(), limits=Limits(max_queued_events=10)) as client:
        events = client.events()
        numbers: list[Any] = []
        async with trio.open_nursery() as nursery:
            # The answer waits behind the events, and most of the events in the process.
            nursery.start_soon(client.call, "flood", {"count": 5_000})
            async for event in events:
                assert isinstance(event, ServerNotified)
                numbers.append((event.notification.params or {})["number"])
                if len(numbers) == 5_000:
                    break
        await events.aclose()
    assert numbers == list(range(5_000))


async def test_a_client_closes_even_if_its_events_are_not_taken() -> None:
    limits = Limits(max_queued_events=10)
    async with connect(foreign(), limits=limits, close_timeout=0.2) as client:
        events = client.events()
        with trio.move_on_after(0.2) as impatience:
            await client.call("flood", {"count": 50_000})
        assert impatience.cancelled_caught
    assert isinstance([event async for event in events][-1], Closed)


def peak(*, reset: bool = False) -> int:
    """The most memory this process has had so far."""
    if reset:
        MEMORY.write_text("5", encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1]) * 1024
