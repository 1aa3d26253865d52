"""The servers behind the bridges that are compared.

    python -m benchmarks.bridge_peers stdio        # without MCP, on standard input and output
    python -m benchmarks.bridge_peers http         # without MCP; prints its URL
    python -m benchmarks.bridge_peers ours-stdio   # sansmcp on asyncio
    python -m benchmarks.bridge_peers ours-http    # the same; prints its URL
    python -m benchmarks.bridge_peers ours-old     # the same, up to 2025-11-25: all can be resumed
    python -m benchmarks.bridge_peers sdk-stdio    # the official SDK
    python -m benchmarks.bridge_peers sdk-http     # the same; prints its URL

Each has a tool "echo", which gives back its text, followed by as many bytes as ``size`` says. A
second argument is a file to which all but the official SDK append the text of each call that they
have answered. A third is the time in seconds after which the first one is killed.
Its process is small, since it imports nothing else.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import cache
from typing import Any

HOST = "127.0.0.1"
_LEGACY, _MODERN = "2025-11-25", "2026-07-28"
_STAMP = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
_ABOUT: dict[str, Any] = {
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "peer", "version": "1"},
}
_ECHO = {
    "name": "echo",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "size": {"type": "integer"}},
    },
}
_RESULTS: dict[str, Any] = {
    "initialize": {"protocolVersion": _LEGACY, **_ABOUT},
    "server/discover": {"supportedVersions": [_MODERN], **_ABOUT, **_STAMP},
    "tools/list": {"tools": [_ECHO], **_STAMP},
    "ping": {},
}


@cache
def _padding(size: int) -> str:
    """So many bytes of text, with line breaks, as a tool would return a file."""
    return ("a line of what a tool has to say\n" * (size // 33 + 1))[:size]


@cache
def _padding_in_json(size: int) -> bytes:
    return json.dumps(_padding(size))[1:-1].encode()


class _Answered:
    """What has been answered."""

    file: int | None = None

    @classmethod
    def note(cls, texts: list[str]) -> None:
        if cls.file is not None and texts:
            os.write(cls.file, "".join(f"{text}\n" for text in texts).encode())


# Without MCP


def answer(body: bytes) -> tuple[bytes, list[str]]:
    """The answer to a message, empty for one that gets none; and the text of a call."""
    message = json.loads(body)
    id, method, texts = json.dumps(message.get("id")).encode(), message.get("method"), list[str]()
    if id == b"null" or method is None:
        return b"", texts
    if method == "tools/call":
        arguments = message["params"]["arguments"]
        texts.append(arguments["text"])
        text = json.dumps(texts[0])[1:-1].encode() + _padding_in_json(arguments.get("size", 0))
        content = b'[{"type":"text","text":"%b"}]' % text
        result = b'{"content":%b,"isError":false,"resultType":"complete"}' % content
    elif method in _RESULTS:
        result = json.dumps(_RESULTS[method]).encode()
    else:
        refused = b'{"code":-32601,"message":"Method not found"}'
        return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id, refused), texts
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id, result), texts


def serve_stdio(dies_after: float) -> None:
    """Serve on standard input and output; lines that came at once are answered at once."""
    signal.setitimer(signal.ITIMER_REAL, dies_after)
    rest = b""
    while data := os.read(0, 1 << 20):
        *lines, rest = (rest + data).split(b"\n")
        found = [answer(line) for line in lines]
        sent = b"".join(message + b"\n" for message, _ in found if message)
        while sent:
            sent = sent[os.write(1, sent) :]
        _Answered.note([text for _, texts in found for text in texts])


_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
_ACCEPTED = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
_NO_STREAM = b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n"


def serve_http() -> None:
    """Serve over HTTP."""
    import asyncio

    import httptools

    class Peer(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self._transport = transport
            self._parser = httptools.HttpRequestParser(self)
            self._body = b""

        def data_received(self, data: bytes) -> None:
            self._parser.feed_data(data)

        def on_body(self, data: bytes) -> None:
            self._body += data

        def on_message_complete(self) -> None:
            body, self._body = self._body, b""
            if self._parser.get_method() != b"POST":
                self._transport.write(_NO_STREAM)
                return
            message, texts = answer(body)
            self._transport.write(_JSON % (len(message), message) if message else _ACCEPTED)
            _Answered.note(texts)

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Peer, HOST, 0, backlog=256)
        print(f"http://{HOST}:{server.sockets[0].getsockname()[1]}/mcp", flush=True)
        await server.serve_forever()

    asyncio.run(main())


# With MCP


def serve_ours(kind: str) -> None:
    """Serve with sansmcp."""
    import asyncio

    import sansmcp
    import sansmcp_asyncio
    from sansmcp.httptools_parser import HTTP11

    app = sansmcp.App("peer", "1")

    @app.handler("tools/call")
    async def call_tool(call: sansmcp_asyncio.Call) -> dict[str, Any]:
        arguments = (call.params or {})["arguments"]
        _Answered.note([arguments["text"]])
        text = arguments["text"] + _padding(arguments.get("size", 0))
        return {"content": [{"type": "text", "text": text}], "isError": False}

    async def main() -> None:
        if kind == "ours-stdio":
            await sansmcp_asyncio.serve(app, stdio=True)
            return
        settings: Any = {"http11": HTTP11}
        if kind == "ours-old":
            settings |= {"versions": (_LEGACY,), "stream_after": 0}
        async with sansmcp_asyncio.serve(app, http=(HOST, 0), **settings) as serving:
            print(serving.url, flush=True)
            await serving.stopped.wait()

    asyncio.run(main())


def serve_sdk(kind: str) -> None:
    """Serve with the official SDK."""
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("peer", log_level="ERROR")

    @server.tool(structured_output=False)
    async def echo(text: str, size: int = 0) -> str:
        """Give back the text."""
        return text + _padding(size)

    if kind == "sdk-stdio":
        server.run("stdio")
        return
    import socket

    import uvicorn

    with socket.create_server((HOST, 0)) as listener:
        print(f"http://{HOST}:{listener.getsockname()[1]}/mcp", flush=True)
        config = uvicorn.Config(server.streamable_http_app(), log_level="error", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])


def main(kind: str, answered: str = "", dies_after: str = "0") -> None:
    """Serve."""
    if answered:
        _Answered.file = os.open(answered, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if kind == "stdio":
        serve_stdio(float(dies_after))
    elif kind == "http":
        serve_http()
    elif kind.startswith("ours"):
        serve_ours(kind)
    else:
        serve_sdk(kind)


if __name__ == "__main__":
    main(*sys.argv[1:])
