"""Count what a call, an event and a line cost: Python calls, C calls and allocations.

These repeat where times scatter. No sockets are used: the protocol objects of the adapters get a
transport that keeps what they write. ``python -m benchmarks.count`` compares the counts with
``benchmarks/counts.json`` and fails if one is larger by more than 3 %; ``--write`` replaces the
file, in the commit that changes the counts and says why. Counts hold for one minor version of
Python; under another one nothing is compared. Allocations are counted by a hook that is compiled
with ``cc``; without a compiler and the headers of Python they are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import importlib
import itertools
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from types import FrameType
from typing import Any, cast

import sansmcp
import sansmcp_asgi
import sansmcp_asyncio
import sansmcp_tools
from sansmcp import h11_parser, httptools_parser
from sansmcp.reclaim import EXTENSION, PLACE, WAIT
from sansmcp_local import StandardStreams

from .measuring import LEGACY, MODERN
from .requests import handshake, message, post

COUNTS = Path(__file__).with_name("counts.json")
HOOK = Path(__file__).with_name("allocations.c")
MARGIN = 1.03
"""A count may be so many times the one in the file."""
N = 100
"""How many calls or events are counted; as many warm up."""
TICK = 1e-5
"""Seconds by which the clock of a loop goes on whenever it is read, a few times for each event."""
PYTHON = "{}.{}".format(*sys.version_info)

Go = Callable[[int], Awaitable[None]]
Row = Callable[[], Awaitable[Go]]

_KEPT: list[tuple[asyncio.AbstractEventLoop, Go]] = []
"""The loops of all rows, and their servers and clients, which are left as they are to the end."""

_RESULT: dict[str, Any] = {"content": [{"type": "text", "text": "hello"}], "isError": False}
_ECHO = {"name": "echo", "arguments": {"text": "hello"}}


class Wire(asyncio.Transport):
    """A transport without a peer: keeps what is written, and passes it to ``answer``.

    Its socket is connected to another one of this process, and carries nothing.
    """

    def __init__(self, answer: Callable[[Wire, bytes], None] | None = None) -> None:
        self.out: list[bytes] = []
        self.protocol = asyncio.Protocol()
        self._socket, self._other = socket.socketpair()
        self._answer = answer

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket if name == "socket" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._answer is None:
            self.out.append(bytes(data))
        else:
            self._answer(self, bytes(data))

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Has no buffer."""

    def pause_reading(self) -> None:
        """Receives only what is passed to its protocol."""

    def resume_reading(self) -> None:
        """See :meth:`pause_reading`."""

    def close(self) -> None:
        self._socket.close()
        self._other.close()

    abort = close


def app(kind: str) -> sansmcp.App:
    """Return an application whose tool echoes inline, in a task, or reports and then responds."""
    made = sansmcp.App("benchmark", "1")

    def inline(call: sansmcp_asyncio.Call) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": call.params["arguments"]["text"]}]}

    async def echo(call: sansmcp_asyncio.Call) -> dict[str, Any]:
        return inline(call)

    async def report(call: sansmcp_asyncio.Call) -> dict[str, Any]:
        for number in range(call.params["arguments"]["events"]):
            await call.progress(number, message="a line of what a tool reports")
        return _RESULT

    if kind == "inline":
        made.handler("tools/call", inline=True, stream_after=1)(inline)
    elif kind == "async":
        made.handler("tools/call", stream_after=1)(echo)
    else:
        made.handler("tools/call")(report)
    return made


async def connected(app: sansmcp.App, **settings: Any) -> tuple[asyncio.Protocol, Wire, int]:
    """Serve an application; return the protocol of a connection, its transport, and the port."""
    loop = asyncio.get_running_loop()
    factories: list[Callable[[], asyncio.Protocol]] = []
    create_server = loop.create_server

    async def create(factory: Callable[[], asyncio.Protocol], *args: Any, **kwargs: Any) -> Any:
        factories.append(factory)
        return await create_server(factory, *args, **kwargs)

    cast(Any, loop).create_server = create
    serving = await sansmcp_asyncio.serve(app, http=("127.0.0.1", 0), **settings).__aenter__()
    protocol, wire = factories[0](), Wire()
    protocol.connection_made(wire)
    return protocol, wire, int(serving.url.split(":")[2].partition("/")[0])


def server_call(kind: str, version: str, parser: Any, *, has_key: bool = False) -> Row:
    """A call at a server, from the bytes of its request to those of its response.

    ``has_key``: each call has a key for ``sansmcp/reclaim``, which confirms the one before.
    """

    async def make() -> Go:
        protocol, wire, port = await connected(app(kind), http11=parser.HTTP11, sessions=False)
        about = {EXTENSION: f"..{0:032x},{0:032x}"} if has_key else {}
        request = post(message("tools/call", {**_ECHO, "_meta": about}, version), port, version)
        numbers = itertools.count(1)

        def next_request() -> bytes:
            if not has_key:
                return request
            number = next(numbers)
            keys = b"..%032x,%032x" % (number, number - 1)
            return request.replace(b"..%032x,%032x" % (0, 0), keys)

        requests = [next_request() for _ in range(3 * N)]

        async def go(times: int) -> None:
            for _ in range(times):
                protocol.data_received(requests.pop(0))
                while not wire.out:
                    await asyncio.sleep(0)
                assert wire.out[-1].endswith(b"}"), wire.out
                wire.out.clear()

        return go

    return make


def server_event(version: str, *, resumable: bool) -> Row:
    """An event of a call that reports, up to the bytes that are sent."""

    async def make() -> Go:
        protocol, wire, port = await connected(
            app("events"), http11=httptools_parser.HTTP11, resumable=resumable
        )
        session = ""
        if version == LEGACY:
            first, second = handshake()
            protocol.data_received(post(first, port, version))
            await asyncio.sleep(0.01)
            head = b"".join(wire.out)
            session = head.partition(b"mcp-session-id: ")[2].partition(b"\r\n")[0].decode()
            protocol.data_received(post(second, port, version, session))
            await asyncio.sleep(0.01)
            wire.out.clear()

        async def go(times: int) -> None:
            asked = {"name": "say", "arguments": {"events": times}, "_meta": {"progressToken": 1}}
            request = post(message("tools/call", asked, version), port, version, session)
            protocol.data_received(request)
            while not (wire.out and wire.out[-1].endswith(b"0\r\n\r\n")):
                await asyncio.sleep(0)
            assert b"".join(wire.out).count(b'"jsonrpc"') == times + 1
            wire.out.clear()

        return go

    return make


def client_call(version: str, *, has_key: bool = False) -> Row:
    """A call of a client, from ``call_tool()`` to its result, with responses from a template.

    ``has_key``: the server takes keys for ``sansmcp/reclaim``.
    """
    has_tools: dict[str, dict[str, Any]] = {"capabilities": {"tools": {}}}
    if has_key:
        declared = {EXTENSION: {PLACE: "process.0", WAIT: 60.0}}
        has_tools = {"capabilities": {"tools": {}, "extensions": declared}}
    about = {"serverInfo": {"name": "benchmark", "version": "1"}}
    results: dict[str, dict[str, Any]] = {
        "tools/call": {**_RESULT, "resultType": "complete"},
        "server/discover": {
            "supportedVersions": [MODERN],
            **has_tools,
            **about,
            "resultType": "complete",
        },
        "initialize": {"protocolVersion": LEGACY, **has_tools, **about},
    }

    def answer(wire: Wire, request: bytes) -> None:
        asked = json.loads(request.partition(b"\r\n\r\n")[2])
        lines = ["HTTP/1.1 202 Accepted", "content-length: 0"]
        body = ""
        if "id" in asked:
            body = json.dumps(
                {"jsonrpc": "2.0", "id": asked["id"], "result": results[asked["method"]]}
            )
            size = f"content-length: {len(body)}"
            lines = ["HTTP/1.1 200 OK", "content-type: application/json", size]
        response = "\r\n".join([*lines, "", body]).encode()
        asyncio.get_running_loop().call_soon(wire.protocol.data_received, response)

    async def make() -> Go:
        async def create(factory: Callable[[], asyncio.Protocol], *_: Any, **__: Any) -> Any:
            wire = Wire(answer)
            wire.protocol = factory()
            wire.protocol.connection_made(wire)
            return wire, wire.protocol

        cast(Any, asyncio.get_running_loop()).create_connection = create
        client = await sansmcp_asyncio.connect(
            "http://127.0.0.1:9/mcp",
            versions=(version,),
            standalone_stream=False,
        ).__aenter__()

        async def go(times: int) -> None:
            for _ in range(times):
                await client.call_tool("echo", {"text": "hello"}, timeout=30)

        return go

    return make


def stdio_line(version: str) -> Row:
    """A call at a server on stdio, from its line to that of the response."""

    async def make() -> Go:
        made: list[tuple[asyncio.Protocol, Wire]] = []

        def transport(streams: StandardStreams, protocol: asyncio.Protocol) -> Wire:
            wire = Wire()
            protocol.connection_made(wire)
            made.append((protocol, wire))
            return wire

        server = importlib.import_module("sansmcp_asyncio._server")
        cast(Any, server).StdioTransport = transport
        await sansmcp_asyncio.serve(app("inline"), stdio=True).__aenter__()
        protocol, wire = made[0]

        def line(asked: dict[str, Any]) -> bytes:
            return json.dumps(asked).encode() + b"\n"

        if version == LEGACY:
            for each in handshake():
                protocol.data_received(line(each))
            await asyncio.sleep(0.01)
            wire.out.clear()
        # Ids of a session are used once.
        lines = [line(message("tools/call", _ECHO, version, id)) for id in range(100, 101 + 2 * N)]

        async def go(times: int) -> None:
            for _ in range(times):
                protocol.data_received(lines.pop())
                assert wire.out[-1].endswith(b"}\n"), wire.out
                wire.out.clear()

        return go

    return make


def asgi_call(version: str) -> Row:
    """A call of a decorated tool under ASGI."""

    async def make() -> Go:
        tools = sansmcp_tools.Tools("benchmark")

        @tools.tool
        async def echo(text: str) -> str:
            return text

        served = sansmcp_asgi.asgi_app(tools.app, sessions=False, stream_after=1.0)
        events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        started = asyncio.Event()

        async def sent(event: MutableMapping[str, Any]) -> None:
            if event["type"] == "lifespan.startup.complete":
                started.set()

        await events.put({"type": "lifespan.startup"})
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        running = asyncio.ensure_future(served(scope, events.get, sent))
        await started.wait()
        head, _, body = post(message("tools/call", _ECHO, version), 8000, version).partition(
            b"\r\n\r\n"
        )
        headers = [tuple(each.split(b": ", 1)) for each in head.split(b"\r\n")[1:]]
        request = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 5000),
            "server": ("127.0.0.1", 8000),
        }

        async def go(times: int) -> None:
            assert not running.done()
            for _ in range(times):
                parts = [{"type": "http.request", "body": body, "more_body": False}]
                out: list[Any] = []

                async def receive(parts: list[dict[str, Any]] = parts) -> dict[str, Any]:
                    if parts:
                        return parts.pop()
                    await asyncio.Event().wait()
                    raise AssertionError("An event that is never set is set")

                async def send(event: MutableMapping[str, Any], out: list[Any] = out) -> None:
                    out.append(event)

                await served(dict(request), receive, send)
                assert out[0]["status"] == 200, out

        return go

    return make


def rows() -> dict[str, Row]:
    """Return what is counted, by its name."""
    found: dict[str, Row] = {}
    parsers: dict[str, Any] = {"httptools": httptools_parser, "h11": h11_parser}
    for version in (MODERN, LEGACY):
        for name, parser in parsers.items():
            for kind in ("inline", "async"):
                found[f"call, {kind}, {name}, {version}"] = server_call(kind, version, parser)
        found[f"client's call, {version}"] = client_call(version)
        found[f"line of stdio, {version}"] = stdio_line(version)
        found[f"call of a tool under ASGI, {version}"] = asgi_call(version)
    found[f"call with a key, inline, httptools, {MODERN}"] = server_call(
        "inline", MODERN, httptools_parser, has_key=True
    )
    found[f"client's call with a key, {MODERN}"] = client_call(MODERN, has_key=True)
    found[f"event, {MODERN}"] = server_event(MODERN, resumable=True)
    found[f"event, not stored, {LEGACY}"] = server_event(LEGACY, resumable=False)
    found[f"event, stored, {LEGACY}"] = server_event(LEGACY, resumable=True)
    return found


class Allocations:
    """The number of blocks that Python's allocators of memory have returned."""

    def __init__(self) -> None:
        self._count: Any = None
        compiler = shutil.which("cc")
        include = sysconfig.get_paths()["include"]
        if compiler is None or not Path(include, "Python.h").exists():
            return
        with tempfile.TemporaryDirectory() as folder:
            built = Path(folder, "allocations.so")
            arguments = ["-shared", "-fPIC", "-O1", f"-I{include}", "-o", str(built), str(HOOK)]
            subprocess.run([compiler, *arguments], check=True)
            hook = ctypes.PyDLL(str(built))
        hook.install()
        hook.count.restype = ctypes.c_ulonglong
        self._count = hook.count

    def __call__(self) -> int | None:
        return None if self._count is None else self._count()


def count(row: Row, allocations: Allocations) -> dict[str, float]:
    """Count one row, in an event loop of its own that stays open."""

    async def run() -> dict[str, float]:
        go = await row()
        _KEPT.append((loop, go))
        await go(N)
        before = allocations()
        await go(N // 2)
        after = allocations()
        calls: Counter[str] = Counter()

        def profile(frame: FrameType, event: str, arg: Any) -> None:
            calls[event] += 1

        sys.setprofile(profile)
        await go(N // 2)
        sys.setprofile(None)
        found = {"Python calls": 2 * calls["call"] / N, "C calls": 2 * calls["c_call"] / N}
        if before is not None and after is not None:
            found["allocations"] = 2 * (after - before) / N
        return found

    loop = asyncio.new_event_loop()
    # Events that come within a millisecond leave together, so the count needs a clock that repeats.
    ticks = itertools.count()
    loop.time = lambda: next(ticks) * TICK  # type: ignore[method-assign]
    return loop.run_until_complete(run())


def compare(counts: dict[str, dict[str, float]], known: dict[str, Any]) -> list[str]:
    """Return what has become dearer than the file allows, and rows that only one of both has."""
    if known["python"] != PYTHON:
        return []
    dearer = [
        f"{name}: {now:.1f} {what}, {was:.1f} in {COUNTS.name}"
        for name in sorted(counts.keys() & known["counts"].keys())
        for what, was in known["counts"][name].items()
        if (now := counts[name].get(what, 0.0)) > was * MARGIN
    ]
    other = sorted(counts.keys() ^ known["counts"].keys())
    return dearer + [f"{name}: not in both" for name in other]


def main() -> int:
    """Count, print a table, and compare it with the file or write it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.count")
    parser.add_argument("--write", action="store_true", help=f"replace {COUNTS.name}")
    parser.add_argument("--only", metavar="PATTERN", default="", help="rows whose names fit")
    asked = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets would have other orders in each process
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": "0"})
    logging.getLogger("sansmcp").addHandler(logging.NullHandler())  # no URLs on standard error
    allocations = Allocations()
    counts: dict[str, dict[str, float]] = {}
    for name, row in rows().items():
        if re.search(asked.only, name):
            counts[name] = count(row, allocations)
            print(f"{name:42}", *(f"{n:8.1f} {what}" for what, n in counts[name].items()))
    sys.stdout.flush()
    if asked.write:
        known = {"python": PYTHON, "counts": counts}
        COUNTS.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
        return 0
    known = json.loads(COUNTS.read_text(encoding="utf-8"))
    if known["python"] != PYTHON:
        print(f"{COUNTS.name} was written under Python {known['python']}: nothing is compared")
    worse = [] if asked.only else compare(counts, known)
    for line in worse:
        print(f"dearer: {line}", file=sys.stderr)
    if worse:
        print("Make it cheaper, or write the counts anew and say why:", file=sys.stderr)
        print("    python -m benchmarks.count --write", file=sys.stderr, flush=True)
    return 1 if worse else 0


if __name__ == "__main__":
    status = main()
    os._exit(status)  # servers and clients are still running
