"""Record what the official servers send: ``python -m benchmarks.record EVERYTHING``.

EVERYTHING is ``dist/index.js`` of npm's ``@modelcontextprotocol/server-everything``. It is asked
over Streamable HTTP and over SSE, a server of the official Python SDK over Streamable HTTP. The
bodies of their event streams are written to ``recordings`` as they came, one after another.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

from . import corpus
from .contestants import HOST, announce, listen
from .measuring import line_from, started, started_command

HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}

Ask = tuple[str, dict[str, Any]]


def tool(name: str, **arguments: Any) -> Ask:
    """A call of a tool, with progress."""
    meta = {"progressToken": 1}
    return "tools/call", {"name": name, "arguments": arguments, "_meta": meta}


OPENING: list[Ask] = [
    (
        "initialize",
        {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "recorder", "version": "1"},
        },
    ),
    ("notifications/initialized", {}),
]

ASKED_OF_EVERYTHING: list[Ask] = [
    ("tools/list", {}),
    ("prompts/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    tool("echo", message="Grüße, 世界 🎉"),
    tool("get-sum", a=2, b=3.5),
    tool("get-annotated-message", messageType="error", includeImage=True),
    tool("get-structured-content", location="New York"),
    tool("get-resource-links", count=5),
    tool("get-tiny-image"),
    tool("trigger-long-running-operation", duration=1, steps=20),
]

ASKED_OF_THE_SDK: list[Ask] = [
    ("tools/list", {}),
    tool("count", steps=30),
    tool("rows", count=20),
    tool("text", lines=60),
    tool("chinese", count=2),
]


# The server of the Python SDK


server = MCPServer("recorded", log_level="ERROR")


@server.tool()
async def count(steps: int, context: Context) -> str:
    """Report progress."""
    for number in range(steps):
        await context.report_progress(number, steps, f"Reading file {number} of {steps}")
    return "done"


@server.tool()
async def rows(count: int) -> dict[str, Any]:
    """Rows of a database."""
    return {"rows": corpus.rows(count), "next": None}


@server.tool()
async def text(lines: int) -> str:
    """A file."""
    return corpus.code(lines)


@server.tool()
async def chinese(count: int) -> list[str]:
    """Texts."""
    return [corpus.CHINESE] * count


def serve() -> None:
    """Serve, and print the URL."""
    listener = listen()
    announce(f"http://{HOST}:{listener.getsockname()[1]}/mcp")
    config = uvicorn.Config(server.streamable_http_app(), log_level="error", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


# The client


def numbered(asked: list[Ask]) -> Iterator[bytes]:
    """Messages."""
    for number, (method, params) in enumerate([*OPENING, *asked]):
        id = {} if method.startswith("notifications/") else {"id": number}
        yield json.dumps({"jsonrpc": "2.0", **id, "method": method, "params": params}).encode()


def over_http(url: str, asked: list[Ask]) -> bytes:
    """Ask over Streamable HTTP; the bodies of all event streams."""
    headers = dict(HEADERS)
    bodies: list[bytes] = []
    for message in numbered(asked):
        place = urlsplit(url)
        connection = http.client.HTTPConnection(place.netloc, timeout=30)
        connection.request("POST", place.path, message, headers)
        response = connection.getresponse()
        body = response.read()
        if response.status >= 300:
            raise SystemExit(f"{message!r} was refused: {body!r}")
        if session := response.headers.get("mcp-session-id"):
            headers["mcp-session-id"] = session
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            bodies.append(body)
        connection.close()
    return b"".join(bodies)


def over_sse(url: str, asked: list[Ask]) -> bytes:
    """Ask over the transport of 2024-11-05; its one event stream."""
    place = urlsplit(url)
    stream = http.client.HTTPConnection(place.netloc, timeout=30)
    stream.request("GET", place.path, headers={"accept": "text/event-stream"})
    response = stream.getresponse()
    body = b""
    messages = numbered(asked)
    endpoint = ""
    for message in messages:
        while not endpoint:
            body += response.readline()
            if body.endswith(b"\n\n"):
                endpoint = body.partition(b"data: ")[2].strip().decode()
        connection = http.client.HTTPConnection(place.netloc, timeout=30)
        connection.request("POST", endpoint, message, HEADERS)
        connection.getresponse().read()
        connection.close()
        id = json.loads(message).get("id")
        line = b""
        while id is not None and b'"id":%d}' % id not in line:
            line = response.readline()
            body += line
    stream.close()
    return body + b"\n"


@contextmanager
def everything(path: str, transport: str) -> Generator[int]:
    """The official server in Node.js, on a port that it was given."""
    with listen() as listener:
        port: int = listener.getsockname()[1]
    os.environ["PORT"] = str(port)
    with started_command(["node", path, transport]):
        for _ in range(100):
            try:
                http.client.HTTPConnection(HOST, port).connect()
                break
            except OSError:
                time.sleep(0.1)
        yield port


def main() -> None:
    """Record, and write what came."""
    (path,) = sys.argv[1:]
    corpus.RECORDINGS.mkdir(exist_ok=True)

    def write(name: str, body: bytes) -> None:
        (corpus.RECORDINGS / f"{name}.txt").write_bytes(body)
        print(f"{name}: {len(body)} bytes, {body.count(b'data:')} events")

    with everything(path, "streamableHttp") as port:
        write("everything over HTTP", over_http(f"http://{HOST}:{port}/mcp", ASKED_OF_EVERYTHING))
    with everything(path, "sse") as port:
        write("everything over SSE", over_sse(f"http://{HOST}:{port}/sse", ASKED_OF_EVERYTHING))
    with started("record", "--serve") as process:
        write("Python SDK over HTTP", over_http(line_from(process), ASKED_OF_THE_SDK))


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main()
