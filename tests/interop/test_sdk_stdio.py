"""The official Python SDK on stdio: its server under our client, our command under its client."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp
import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client

import sansmcp
import sansmcp_trio
from sansmcp.events import ProgressReceived
from sansmcp.trace import Tracer

from ..cli.conftest import ROOT, environment
from .conftest import (
    ANSWERS,
    CAPABILITIES,
    SDK_SERVER,
    FakeUser,
    answer_sdk_requests,
    exercise_our_server,
    exercise_sdk_server,
    follow_our_progress,
    in_versions,
    receive_sdk_notifications,
    text,
)

THEIR_SERVER = [*SDK_SERVER, "stdio"]


# Our client, their server


@in_versions
async def test_our_client_uses_their_server(version: str) -> None:
    async with sansmcp_trio.connect(THEIR_SERVER, versions=(version,)) as client:
        assert (client.connected.transport, client.connected.version) == ("stdio", version)
        await exercise_sdk_server(client)


async def test_our_client_hears_their_progress_and_notifications() -> None:
    reports: list[ProgressReceived] = []
    async with sansmcp_trio.connect(THEIR_SERVER, versions=("2025-11-25",)) as client:
        result = await client.call_tool("slow", {"steps": 6}, on_progress=reports.append)
        assert text(result) == "done"
        assert [report.progress for report in reports] == [1, 2, 3, 4, 5, 6]
        await receive_sdk_notifications(client)


async def test_our_client_answers_their_questions() -> None:
    async with sansmcp_trio.connect(
        THEIR_SERVER, versions=("2025-11-25",), request_handlers=ANSWERS, capabilities=CAPABILITIES
    ) as client:
        await answer_sdk_requests(client)


async def test_a_call_to_their_server_times_out_and_the_next_one_works() -> None:
    async with sansmcp_trio.connect(THEIR_SERVER) as client:
        with pytest.raises(sansmcp.RequestTimeout):  # the tool sleeps longer than that
            await client.call_tool("slow", {"steps": 2, "pause": 10}, timeout=0.02)
        assert text(await client.call_tool("echo", {"text": "still here"})) == "still here"


async def test_their_server_ends_when_its_input_does() -> None:
    lines: list[str] = []
    trace = Tracer("client", lines.append)
    async with sansmcp_trio.connect(THEIR_SERVER, trace=trace, close_timeout=60):
        pass
    assert "client < exit status 0" in lines
    assert "client > TerminateProcess" not in lines


# Their client, our server


@asynccontextmanager
async def their_client(
    log: Path, *arguments: str, **settings: Any
) -> AsyncGenerator[mcp.Client, None]:
    """Their client, with ``sansmcp serve --stdio`` as its server, which has nothing to log."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "sansmcp_cli", "serve", "--stdio", *arguments],
        env=environment(),
        cwd=ROOT,
    )
    with log.open("w") as errlog:
        async with mcp.Client(stdio_client(server, errlog), **settings) as client:
            yield client
    assert log.read_text() == ""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


async def test_their_client_uses_our_server(log: Path, version: str) -> None:
    async with their_client(log, mode="legacy") as client:
        assert client.protocol_version == version
        await exercise_our_server(client)


async def test_their_client_finds_out_that_our_server_needs_no_handshake(log: Path) -> None:
    async with their_client(log, mode="auto") as client:
        assert client.protocol_version == "2026-07-28"
        await exercise_our_server(client)


async def test_their_client_hears_our_progress(log: Path) -> None:
    async with their_client(log, mode="legacy") as client:
        await follow_our_progress(client)


async def test_their_client_answers_our_questions(log: Path) -> None:
    person = FakeUser()
    async with their_client(
        log, "tests.interop.asking", mode="legacy", **person.settings
    ) as client:
        await person.converse(client)


async def test_our_server_ends_when_its_input_does(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def terminate(process: object) -> None:
        killed.append(process)

    killed: list[object] = []
    monkeypatch.setattr("mcp.client.stdio.PROCESS_TERMINATION_TIMEOUT", 60)
    monkeypatch.setattr("mcp.client.stdio._terminate_process_tree", terminate)
    async with their_client(log, mode="legacy"):
        pass
    assert killed == []
