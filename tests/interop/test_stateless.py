"""2026-07-28 with the official SDKs of Python and TypeScript, in both directions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mcp
import pytest
import trio
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.subscriptions import ToolsListChanged
from mcp_types import ElicitResult

import sansmcp_trio
from sansmcp import JsonRpcError

from ..bridge.processes import running
from ..cli.conftest import ROOT, environment
from ..node import NODE, install_or_skip
from .conftest import said
from .stateless import MODERN, REGION, SCHEMAS, elicit, served, use_their_tools

FOLDER = Path(__file__).parent
OURS = [sys.executable, "-m", "tests.interop.stateless"]
DECORATED = [sys.executable, "-m", "tests.interop.decorated", "--stdio"]
LOCAL = ("127.0.0.1", 0)


@pytest.fixture(
    params=["python", pytest.param("typescript", marks=pytest.mark.node)],
)
def theirs(request: pytest.FixtureRequest) -> list[str]:
    """The command of their server."""
    if request.param == "python":
        return [sys.executable, "-m", "tests.interop.sdk_stateless"]
    install_or_skip(FOLDER / "node")
    return [NODE, str(FOLDER / "node" / "server.mjs")]


# Our client, their server


async def test_our_client_on_http(theirs: list[str]) -> None:
    with subprocess.Popen(
        [*theirs, "http"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        try:
            await use(process.stdout.readline().strip())
        finally:
            process.kill()


async def test_our_client_on_stdio(theirs: list[str]) -> None:
    await use([*theirs, "stdio"])


async def use(target: str | list[str]) -> None:
    async with sansmcp_trio.connect(
        target,
        versions=(MODERN,),
        request_handlers={"elicitation/create": elicit},
        capabilities={"elicitation": {}},
        connect_timeout=120,
        probe_timeout=60,  # their process may start slowly
        env=environment(),
        cwd=ROOT,
    ) as client:
        await use_their_tools(client)
        with pytest.raises(JsonRpcError) as unknown:
            await client.call("no/such/method")
        assert unknown.value.code == -32601


# Their client, our server


async def test_the_python_client_on_http() -> None:
    async with served(http=LOCAL) as serving:
        await use_ours(serving.url)


@pytest.mark.parametrize("ours", [OURS, DECORATED], ids=["app", "tools"])
async def test_the_python_client_on_stdio(ours: list[str], tmp_path: Path) -> None:
    command, *args = ours
    server = StdioServerParameters(command=command, args=args, env=environment(), cwd=ROOT)
    with (tmp_path / "log").open("w") as log:
        await use_ours(stdio_client(server, log))
    assert (tmp_path / "log").read_text() == ""


async def use_ours(server: Any) -> None:
    reports: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append(progress)

    async def elicit(context: Any, params: Any) -> ElicitResult:
        assert params.message == "name?"
        return ElicitResult(action="accept", content={"name": "Ada"})

    giving_up = trio.CancelScope()

    async def give_up(progress: float, total: float | None, message: str | None) -> None:
        giving_up.cancel()

    async with mcp.Client(server, mode="auto", elicitation_callback=elicit) as client:
        assert client.protocol_version == MODERN
        assert {tool.name for tool in (await client.list_tools()).tools} == SCHEMAS.keys()
        assert said(await client.call_tool("region", {"region": REGION})) == REGION
        counted = await client.call_tool("count", {"steps": 4}, progress_callback=on_progress)
        assert said(counted) == "counted"
        assert reports == [1, 2, 3, 4]
        assert said(await client.call_tool("greet", {})) == "Hello Ada"
        async with client.listen(tools_list_changed=True) as changes:
            assert said(await client.call_tool("change", {})) == "changed"
            with trio.fail_after(30):
                assert isinstance(await anext(aiter(changes)), ToolsListChanged)
        with giving_up:
            await client.call_tool("hang", {}, progress_callback=give_up)
        with trio.fail_after(30):
            assert said(await client.call_tool("cancelled", {})) == "a call was cancelled"
        with pytest.raises(mcp.MCPError) as unknown:
            await client.call_tool("no such tool", {})
        assert unknown.value.error.code == -32602


@pytest.mark.node
async def test_the_typescript_client_on_http() -> None:
    async with served(http=LOCAL) as serving:
        assert await run_theirs([serving.url]) == [1, 2, 3, 4]


@pytest.mark.node
@pytest.mark.parametrize("ours", [OURS, DECORATED], ids=["app", "tools"])
async def test_the_typescript_client_on_stdio(ours: list[str]) -> None:
    """There it forgets reports that it reads together with the answer."""
    assert len(await run_theirs(ours)) <= 4


@pytest.mark.node
async def test_the_typescript_client_in_front_of_a_bridge() -> None:
    with running("bridge", "--", *OURS) as url:
        assert await run_theirs([url]) == [1, 2, 3, 4]


async def run_theirs(server: Sequence[str]) -> list[int]:
    """Let their client use all our tools. Returns the progress that it has seen."""
    install_or_skip(FOLDER / "node")
    command = [NODE, str(FOLDER / "node" / "client.mjs"), *server]
    with trio.fail_after(60):
        done = await trio.run_process(command, capture_stdout=True, env=environment(), cwd=ROOT)
    found = json.loads(done.stdout)
    progress: list[int] = found.pop("progress")
    assert found == {
        "version": MODERN,
        "server": "ours",
        "tools": list(SCHEMAS),
        "region": REGION,
        "count": "counted",
        "asked": "name?",
        "greet": "Hello Ada",
        "honored": {"toolsListChanged": True},
        "closed": "local",
        "hang": "given up",
        "cancelled": "a call was cancelled",
        "error": -32602,
    }
    return progress
