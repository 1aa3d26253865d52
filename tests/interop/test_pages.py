"""Pages (``ui://``, MCP Apps) and ``_meta`` of others' servers pass the bridge as they are.

Server, client and bridge are processes, and the client writes lines of JSON itself. What it gets
through the bridge equals what it gets from the server, but for the names in the ``_meta`` of a
result that describe the hop.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ..cli.conftest import ROOT, command, environment
from ..node import NODE, install_or_skip
from .fastmcp_environment import fastmcp_python

FOLDER = Path(__file__).parent
PREFIX = "io.modelcontextprotocol/"
OF_THE_HOP = {f"{PREFIX}serverInfo"}
URI = "ui://weather/view"
INFO = {"name": "raw", "version": "1"}
REQUESTS: dict[str, dict[str, Any]] = {
    "tools/list": {},
    "resources/list": {},
    "prompts/list": {},
    "tools/call": {"name": "show", "arguments": {"city": "Oslo"}},
    "resources/read": {"uri": URI},
    "prompts/get": {"name": "ask"},
}


@pytest.fixture(params=["typescript", pytest.param("fastmcp", marks=pytest.mark.thorough)])
def theirs(request: pytest.FixtureRequest) -> list[str]:
    """The command of their server."""
    if request.param == "typescript":
        install_or_skip(FOLDER / "node")
        return [NODE, str(FOLDER / "node" / "pages.mjs")]
    return [fastmcp_python(), str(FOLDER / "fastmcp_pages.py")]


class RawClient:
    """A client that writes and reads lines."""

    def __init__(self, process: asyncio.subprocess.Process, version: str) -> None:
        self.process = process
        self.version = version
        self.requests = 0

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Make a request, and return its result."""
        assert self.process.stdout is not None
        self.requests += 1
        if self.version == "2026-07-28":
            about = {"protocolVersion": self.version, "clientInfo": INFO, "clientCapabilities": {}}
            params = {**params, "_meta": {PREFIX + name: value for name, value in about.items()}}
        self.send({"id": self.requests, "method": method, "params": params})
        while True:
            answer = json.loads(await self.process.stdout.readline())
            if answer.get("id") == self.requests and "method" not in answer:
                result: dict[str, Any] = answer["result"]
                return result

    async def begin(self) -> None:
        if self.version == "2026-07-28":
            await self.ask("server/discover", {})
            return
        about = {"protocolVersion": self.version, "capabilities": {}, "clientInfo": INFO}
        begun = await self.ask("initialize", about)
        assert begun["protocolVersion"] == self.version
        self.send({"method": "notifications/initialized"})


@asynccontextmanager
async def connected(words: list[str], version: str) -> AsyncGenerator[RawClient, None]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *words, cwd=ROOT, env=environment(), stdin=pipe, stdout=pipe, limit=1 << 20
    )
    try:
        client = RawClient(process, version)
        await client.begin()
        yield client
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 30)
        except asyncio.TimeoutError:
            process.kill()


def found(words: list[str], version: str) -> dict[str, Any]:
    """Return what a server answers, without what describes the hop."""

    async def main() -> dict[str, Any]:
        async with connected(words, version) as client:
            return {
                method: without_hop(await client.ask(method, params))
                for method, params in REQUESTS.items()
            }

    return asyncio.run(asyncio.wait_for(main(), 120))


def without_hop(result: dict[str, Any]) -> dict[str, Any]:
    meta = {key: value for key, value in result.get("_meta", {}).items() if key not in OF_THE_HOP}
    return {**result, "_meta": meta}


def parts(value: Any) -> set[str]:
    """The parts of which a ``_meta`` is there."""
    return set(re.findall(r'"com\.example/part": "(\w+)"', json.dumps(value)))


@pytest.mark.node
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_a_bridge_passes_pages_of_others_as_they_are(
    theirs: list[str], version: str, tmp_path: Path
) -> None:
    """Through a bridge to one server, and through one to two servers."""
    direct = found(theirs, version)
    assert direct["tools/list"]["tools"][0]["_meta"]["ui"]["resourceUri"] == URI
    assert direct["resources/read"]["contents"][0]["_meta"]["ui"]["prefersBorder"] is True
    assert parts(direct) >= {"tool", "content", "result", "resource", "contents", "prompt"}
    assert found(command("bridge", "--to", "stdio", "--", *theirs), version) == direct
    ours = command("serve", "--stdio")
    servers = {
        name: {"command": words[0], "args": words[1:]}
        for name, words in (("theirs", theirs), ("ours", ours))
    }
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    merged = found(command("bridge", "--to", "stdio", "--config", str(config)), version)
    for method, result in direct.items():
        if method.endswith("/list"):
            member = method.partition("/")[0]
            assert [each for each in result[member] if each not in merged[method][member]] == []
        else:
            assert merged[method] == result
