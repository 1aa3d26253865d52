"""Clients of others in front of the bridge: each gets what it gets from the server itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import attrs
import mcp
import pytest
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client

import sansmcp_asyncio
from sansmcp.events import ProgressReceived

from ..asyncio.loops import run
from ..cli.conftest import ROOT, command, environment
from ..interop.conftest import exercise_our_server, follow_our_progress
from ..interop.conftest import version as version
from ..node import NODE, install_or_skip
from .processes import STDIO, running

FOLDER = Path(__file__).with_name("node")
INSPECTOR = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
MCP_REMOTE = "node_modules/mcp-remote/dist/proxy.js"


@attrs.frozen
class Places:
    """Where a client reaches the example application, on each transport."""

    url: str
    command: list[str]

    def words(self, transport: str) -> list[str]:
        """Return what the clients of this folder's ``node`` are told."""
        where = {"http": [self.url], "sse": [self.url.replace("/mcp", "/sse")]}
        return [transport, *where.get(transport, self.command)]


@pytest.fixture(scope="module")
def direct() -> Generator[Places, None, None]:
    """The application itself."""
    with running("serve", "--http-sse") as url:
        yield Places(url, STDIO)


@pytest.fixture(scope="module")
def bridged(direct: Places) -> Generator[Places, None, None]:
    """The application behind bridges: from HTTP to stdio, and from stdio to HTTP."""
    with running("bridge", "--to", "http-sse", "--", *STDIO) as url:
        yield Places(url, command("bridge", direct.url))


in_transports = pytest.mark.parametrize("transport", ["http", "sse", "stdio"])


def printed(script: str, *words: str) -> Any:
    """Run a program of Node.js, and return what it prints, which is JSON."""
    install_or_skip(FOLDER)
    done = subprocess.run(
        [NODE, str(FOLDER / script), *words],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        timeout=120,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.node
@in_transports
@pytest.mark.parametrize("script", ["sdk1.mjs", "ai_sdk.mjs"])
def test_clients_in_typescript(
    direct: Places, bridged: Places, script: str, transport: str
) -> None:
    expected, seen = (printed(script, *each.words(transport)) for each in (direct, bridged))
    for found in (expected, seen):  # the SDK discards reports that it reads with the result
        progress = found.pop("progress", [])
        assert progress == [1, 2, 3, 4][: len(progress)]
    assert expected["echo"]
    assert seen == expected


@pytest.mark.node
@in_transports
def test_the_inspector(direct: Places, bridged: Places, transport: str) -> None:
    echo = ("--tool-name", "echo", "--tool-arg", "text=hi")
    for words in (("tools/list",), ("tools/call", *echo), ("resources/list",)):
        seen: list[Any] = []
        for places in (direct, bridged):
            kind, *target = places.words(transport)
            seen.append(
                printed(INSPECTOR, "--cli", "--transport", kind, "--method", *words, "--", *target)
            )
        assert seen[0] == seen[1]


@pytest.mark.node
def test_mcp_remote(direct: Places, bridged: Places, tmp_path: Path) -> None:
    """A client of ours on stdio, ``mcp-remote``, and the bridge."""
    install_or_skip(FOLDER)

    async def main(url: str) -> list[Any]:
        program = [NODE, str(FOLDER / MCP_REMOTE), url, "--allow-http"]
        reports: list[ProgressReceived] = []
        config = {"MCP_REMOTE_CONFIG_DIR": str(tmp_path)}
        async with sansmcp_asyncio.connect(program, env=config) as client:
            slow = {"steps": 4, "delay": 0.01}
            return [
                client.connected.server_info,
                await client.list_tools(),
                await client.call_tool("echo", {"text": "h\N{SNOWMAN}"}),
                await client.call_tool("big", {"bytes": 300_000}),
                await client.call_tool("slow", slow, on_progress=reports.append),
                [report.progress for report in reports],
                await client.read_resource("example://greeting"),
            ]

    seen: list[Any] = []
    for places in (direct, bridged):

        async def use(url: str = places.url) -> None:
            seen.append(await main(url))

        run(use())
    assert seen[0] == seen[1]


# The official SDK for Python


async def test_the_python_client(bridged: Places, version: str) -> None:
    async with mcp.Client(bridged.url, mode="legacy") as client:
        assert client.protocol_version == version
        await exercise_our_server(client)
        await follow_our_progress(client)


async def test_the_python_client_at_2026_07_28(bridged: Places) -> None:
    async with mcp.Client(bridged.url) as client:
        assert client.protocol_version == "2026-07-28"
        await exercise_our_server(client)


async def test_the_python_client_on_stdio(bridged: Places) -> None:
    program, *arguments = bridged.command
    server = StdioServerParameters(
        command=program, args=arguments, cwd=ROOT, env=dict(environment())
    )
    async with mcp.Client(stdio_client(server), mode="legacy") as client:
        await exercise_our_server(client)
        await follow_our_progress(client)


async def test_the_python_client_on_http_sse(bridged: Places) -> None:
    url = bridged.url.replace("/mcp", "/sse")
    with anyio.fail_after(60):
        async with mcp.Client(sse_client(url), mode="legacy") as client:
            await exercise_our_server(client)
            await follow_our_progress(client)
