"""The official Python SDK over Streamable HTTP, in both directions, at each revision it speaks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import mcp
import pytest
import trio

import sansmcp
import sansmcp_trio
from sansmcp import ReconnectPolicy
from sansmcp.events import ClientEvent, ProgressReceived, Reconnecting
from sansmcp_cli import example

from . import asking
from .conftest import (
    ANSWERS,
    CAPABILITIES,
    FakeUser,
    answer_sdk_requests,
    exercise_our_server,
    exercise_sdk_server,
    follow_our_progress,
    in_versions,
    serve,
    text,
)

POLICY = ReconnectPolicy(initial_delay=0.02)


# Our client, their server


@in_versions
async def test_our_client_uses_their_server(sdk_url: str, version: str) -> None:
    async with sansmcp_trio.connect(sdk_url, versions=(version,)) as client:
        assert client.connected.version == version
        await exercise_sdk_server(client)


@in_versions
async def test_our_client_follows_their_streams(sdk_url: str, version: str) -> None:
    """At 2025-11-25 the server closes the stream in the middle, and we come back for the rest."""
    reports: list[ProgressReceived] = []
    reconnections: list[Reconnecting] = []
    async with sansmcp_trio.connect(sdk_url, versions=(version,), reconnect=POLICY) as client:

        async def watch(events: AsyncIterator[ClientEvent]) -> None:
            async for event in events:
                if isinstance(event, Reconnecting) and event.call is not None:
                    reconnections.append(event)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, client.events())
            result = await client.call_tool("slow", {"steps": 6}, on_progress=reports.append)
            nursery.cancel_scope.cancel()
    assert text(result) == "done"
    assert [report.progress for report in reports] == [1, 2, 3, 4, 5, 6]
    if version == "2025-11-25":
        assert reconnections
        assert all(event.delay >= 0.02 for event in reconnections)


async def test_our_client_answers_their_questions(sdk_url: str) -> None:
    async with sansmcp_trio.connect(
        sdk_url, versions=("2025-11-25",), request_handlers=ANSWERS, capabilities=CAPABILITIES
    ) as client:
        await answer_sdk_requests(client)


async def test_a_call_to_their_server_times_out(sdk_url: str) -> None:
    async with sansmcp_trio.connect(sdk_url) as client:
        with pytest.raises(sansmcp.RequestTimeout):  # the tool sleeps longer than that
            await client.call_tool("slow", {"steps": 2, "pause": 10}, timeout=0.02)
        assert text(await client.call_tool("echo", {"text": "still here"})) == "still here"


# Their client, our server


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@in_versions
async def test_their_client_uses_our_server(version: str, mode: Any) -> None:
    async with trio.open_nursery() as nursery:
        serving = await serve(nursery, example.app, versions=(version,))
        async with mcp.Client(serving.url, mode=mode) as client:
            assert client.protocol_version == version
            await exercise_our_server(client)
        serving.stop()


@in_versions
async def test_their_client_follows_our_streams(version: str) -> None:
    """At 2025-11-25 our server lets the client go in the middle; it comes back for the rest."""
    async with trio.open_nursery() as nursery:
        serving = await serve(nursery, example.app, versions=(version,))
        async with mcp.Client(serving.url, mode="legacy") as client:
            await follow_our_progress(client)
        serving.stop()


async def test_their_client_answers_our_questions() -> None:
    person = FakeUser()
    async with trio.open_nursery() as nursery:
        serving = await serve(nursery, asking.app)
        async with mcp.Client(serving.url, mode="legacy", **person.settings) as client:
            await person.converse(client)
        serving.stop()
