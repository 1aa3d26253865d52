"""Records conversations with the official SDKs into the corpus: ``python -m tests.fuzz.record``.

Once is enough. It runs their clients against our servers and our clients against their servers,
over HTTP through a relay and on stdio through this program (``record tee FILE COMMAND...``), and
puts words for what differs from run to run (see :mod:`.inputs`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias

import attrs
import mcp
import trio
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client

import sansmcp_trio
from sansmcp import Url
from sansmcp_cli import example

from ..cli.conftest import ROOT, environment
from ..interop import asking
from ..interop.conftest import ANSWERS, CAPABILITIES, SDK_SERVER, FakeUser, serve
from ..interop.stateless import MODERN, elicit, served, use_their_tools
from ..interop.test_stateless import LOCAL, OURS, run_theirs, use_ours
from ..node import NODE, install
from .inputs import CORPUS, RECORDED, joined

NODE_FOLDER = ROOT / "tests" / "interop" / "node"
EVERYTHING = "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
LEGACY = "2025-11-25"

Use: TypeAlias = Callable[[str], Awaitable[None]]
"""Has a conversation with the server of a URL."""


@attrs.frozen
class Recording:
    """What both sides said, in order: whose connection it was, whether the client said it, what."""

    said: list[tuple[int, bool, bytes]] = attrs.field(factory=list[tuple[int, bool, bytes]])

    def requests(self) -> list[bytes]:
        """The requests, in their order; one is one part."""
        return [request for request, _ in self._exchanges()]

    def responses(self) -> list[bytes]:
        """The responses, in the order of their requests."""
        return [
            re.sub(rb'"id": ?%b(?=[,}])' % id, b'"id":ID', response) if id else response
            for request, response in self._exchanges()
            for id in [_id_of(request.partition(b"\r\n\r\n")[2])]
        ]

    def _exchanges(self) -> list[tuple[bytes, bytes]]:
        """Requests and their responses. No client here sends two requests at once."""
        exchanges: list[list[bytes]] = []
        last: dict[int, list[bytes]] = {}
        for connection, is_client, data in self.said:
            if is_client and re.match(rb"[A-Z]+ /\S* HTTP/1\.1\r\n", data):
                exchanges.append([b"", b""])
                last[connection] = exchanges[-1]
            last[connection][not is_client] += data
        words = {
            value: word
            for word, pattern in RECORDED.items()
            for _, response in exchanges
            for value in pattern.findall(response)
            if len(value) > 8
        }
        for request in exchanges:
            for value, word in words.items():
                request[0] = request[0].replace(value, word)
        return [(request, response) for request, response in exchanges]


def _id_of(body: bytes) -> bytes | None:
    """The id of a request, as it is written."""
    try:
        return json.dumps(json.loads(body)["id"]).encode()
    except (ValueError, KeyError, TypeError):
        return None


@asynccontextmanager
async def relayed(url: str) -> AsyncGenerator[tuple[str, Recording], None]:
    """The URL of a relay to a server, and what is said there."""
    recording = Recording()
    target = Url.parse(url)

    async def pass_on(client: trio.SocketStream) -> None:
        number = len(recording.said)
        server = await trio.open_tcp_stream("127.0.0.1", target.port)
        async with client, server, trio.open_nursery() as nursery:
            for source, sink in ((client, server), (server, client)):
                nursery.start_soon(copy, source, sink, number, nursery.cancel_scope)

    async def copy(
        source: trio.SocketStream, sink: trio.SocketStream, number: int, scope: trio.CancelScope
    ) -> None:
        is_client = sink.socket.getpeername()[1] == target.port
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                recording.said.append((number, is_client, bytes(data)))
                await sink.send_all(data)
        scope.cancel()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, pass_on, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        yield f"http://127.0.0.1:{port}{target.target}", recording
        nursery.cancel_scope.cancel()


# Their clients, our servers


async def python_client(url: str) -> None:
    async with mcp.Client(sse_client(url) if url.endswith("/sse") else url, mode="legacy") as it:
        await it.list_tools()
        await it.call_tool("echo", {"text": "hällo"})
        await it.call_tool("slow", {"steps": 2, "delay": 0.01, "retry": 0.01})
        await it.list_resources()


async def python_client_that_answers(url: str) -> None:
    person = FakeUser()
    async with mcp.Client(url, mode="legacy", **person.settings) as client:
        await person.converse(client)


async def typescript_client(url: str) -> None:
    await run_theirs([url])


async def http_clients() -> None:
    """Record requests."""
    for name, app, path, use in (
        ("python-legacy", example.app, "/mcp", python_client),
        ("python-answers", asking.app, "/mcp", python_client_that_answers),
        ("python-sse", example.app, "/sse", python_client),
    ):
        async with trio.open_nursery() as nursery:
            serving = await serve(nursery, app, http_sse="/sse")
            await _record_requests(name, serving.url.replace("/mcp", path), use)
            serving.stop()
    modern: dict[str, Use] = {"python-modern": use_ours, "typescript-modern": typescript_client}
    for name, talk in modern.items():
        async with served(http=LOCAL) as serving:
            await _record_requests(name, serving.url, talk)


async def _record_requests(name: str, url: str, use: Use) -> None:
    async with relayed(url) as (relay, recording):
        await use(relay)
    write("server_http", name, recording.requests())


# Our client, their servers


async def our_client(target: Any) -> None:
    async with sansmcp_trio.connect(
        target, versions=(LEGACY,), request_handlers=ANSWERS, capabilities=CAPABILITIES
    ) as client:
        tools = {tool["name"] for tool in (await client.list_tools())["tools"]}
        await client.call_tool("echo", {"text": "hällo", "message": "hällo"})
        for tool, arguments in (("slow", {"steps": 2}), ("ask", {}), ("roots", {})):
            if tool in tools:
                await client.call_tool(tool, arguments)


async def our_modern_client(target: Any) -> None:
    async with sansmcp_trio.connect(
        target,
        versions=(MODERN,),
        request_handlers={"elicitation/create": elicit},
        capabilities={"elicitation": {}},
        probe_timeout=60,
        env=environment(),
        cwd=ROOT,
    ) as client:
        await use_their_tools(client)


MODERN_SERVERS = {
    "python-modern": [sys.executable, "-m", "tests.interop.sdk_stateless"],
    "typescript-modern": [NODE, str(NODE_FOLDER / "server.mjs")],
}


async def http_servers() -> None:
    """Record responses."""
    for name, command, use in (
        ("python-legacy", [*SDK_SERVER, "streamable-http"], our_client),
        ("python-sse", [*SDK_SERVER, "sse"], our_client),
        *((name, [*words, "http"], our_modern_client) for name, words in MODERN_SERVERS.items()),
    ):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
        ) as process:
            assert process.stdout is not None
            async with relayed(process.stdout.readline().strip()) as (relay, recording):
                await use(relay)
            process.kill()
        write("client_http", name, recording.responses())


# On stdio


async def stdio(folder: Path) -> None:
    """Record lines, of clients and of servers."""
    for name, command in (
        ("python-legacy", [sys.executable, "-m", "sansmcp_cli", "serve", "--stdio"]),
        ("python-modern", OURS),
    ):
        tee = [*_tee(folder / name), *command]
        server = StdioServerParameters(command=tee[0], args=tee[1:], env=environment(), cwd=ROOT)
        if name == "python-modern":
            await use_ours(stdio_client(server))
        else:
            async with mcp.Client(stdio_client(server), mode="legacy") as client:
                await client.list_tools()
                await client.call_tool("echo", {"text": "hällo"})
        write("server_stdio", name, lines_of(folder / f"{name}.in"))
    await run_theirs([*_tee(folder / "typescript-modern"), *OURS])
    lines = lines_of(folder / "typescript-modern.in")
    write("server_stdio", "typescript-modern", lines)
    everything = [NODE, str(NODE_FOLDER / EVERYTHING), "stdio"]
    for name, command, use in (
        ("python-legacy", [*SDK_SERVER, "stdio"], our_client),
        ("typescript-legacy", everything, our_client),
        *((name, [*words, "stdio"], our_modern_client) for name, words in MODERN_SERVERS.items()),
    ):
        await use([*_tee(folder / f"to-{name}"), *command])
        asked = [id for line in lines_of(folder / f"to-{name}.in") if (id := _id_of(line))]
        output = lines_of(folder / f"to-{name}.out")
        write("client_stdio", name, [_with_id(line, asked) for line in output])


def _with_id(line: bytes, asked: Sequence[bytes]) -> bytes:
    """An answer of a server with ID for its id; whatever else it says as it is."""
    id = _id_of(line)
    if id is not None and id in asked and b'"method"' not in line:
        return re.sub(rb'"id": ?%b(?=[,}])' % id, b'"id":ID', line)
    return line


def _tee(place: Path) -> list[str]:
    return [sys.executable, "-m", "tests.fuzz.record", "tee", str(place)]


def lines_of(path: Path) -> list[bytes]:
    """The lines of a file."""
    return path.read_bytes().splitlines()


def tee(place: str, command: Sequence[str]) -> None:
    """Run a command, and write down what goes in and out."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        unbuffered = os.fdopen(0, "rb", buffering=0)
        inward = (unbuffered, process.stdin, f"{place}.in")
        threading.Thread(target=_copy, args=inward, daemon=True).start()
        _copy(process.stdout, sys.stdout.buffer, f"{place}.out")


def _copy(source: IO[bytes], sink: IO[bytes], path: str) -> None:
    with open(path, "wb", buffering=0) as file, sink:
        while data := source.readline():
            file.write(data)
            sink.write(data)
            sink.flush()


LONGEST = 5000
"""Bytes of one recording; what comes beyond it is left out, so that the corpus stays small."""


def write(target: str, name: str, parts: Sequence[bytes]) -> None:
    """Put a conversation into the corpus, without parts that are too long."""
    kept: list[bytes] = []
    for part in parts:
        if len(part) <= 2500 and len(b"".join(kept)) + len(part) <= LONGEST:
            kept.append(part)
    (CORPUS / target / f"recorded-{name}").write_bytes(joined(0, *kept))
    print(f"{target}: {name}: {len(kept)} of {len(parts)} parts")


async def record() -> None:
    """Record everything."""
    install(NODE_FOLDER)
    with tempfile.TemporaryDirectory() as folder:
        await stdio(Path(folder))
    await http_clients()
    await http_servers()


if __name__ == "__main__":
    if sys.argv[1:2] == ["tee"]:
        tee(sys.argv[2], sys.argv[3:])
    else:
        trio.run(record)
