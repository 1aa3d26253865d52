"""What clients are measured against: a server without MCP that knows what it will be asked.

    python -m benchmarks.peers http     # prints its URL; /json, /sse and /events under it
    python -m benchmarks.peers stdio    # on standard input and output

On /json it answers in JSON, on /sse by an event stream with one event, on /events by one with
``EVENTS`` of them before the answer. GET gets the number of connections that were accepted.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httptools

from .measuring import LEGACY, MODERN

EVENTS = 1000

_STAMP = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
_ABOUT: dict[str, Any] = {
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "peer", "version": "1"},
}
_ECHO = {
    "name": "echo",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}
_TEXT = {"content": [{"type": "text", "text": "hello"}], "isError": False}
_RESULTS: dict[str, Any] = {
    "initialize": {"protocolVersion": LEGACY, **_ABOUT},
    "server/discover": {"supportedVersions": [MODERN], **_ABOUT, **_STAMP},
    "tools/list": {"tools": [_ECHO], **_STAMP},
    "tools/call": {**_TEXT, "resultType": "complete"},
}
RESULTS = {method: json.dumps(result).encode() for method, result in _RESULTS.items()}


def notification(number: int) -> bytes:
    """A log message, of the size of a small event."""
    data = {"level": "info", "logger": "peer", "data": f"line {number} of what a tool has to say"}
    message = {"jsonrpc": "2.0", "method": "notifications/message", "params": data}
    return json.dumps(message, separators=(",", ":")).encode()


def event(message: bytes) -> bytes:
    """A message as an event."""
    return b"event: message\ndata: " + message + b"\n\n"


def chunk(data: bytes) -> bytes:
    """A chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def answer(body: bytes) -> bytes:
    """The answer to a message; empty for one that gets none."""
    message = json.loads(body)
    if "id" not in message:
        return b""
    result = RESULTS[message["method"]]
    return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (message["id"], result)


_OK = b"HTTP/1.1 200 OK\r\ncontent-type: "
_JSON = _OK + b"application/json\r\ncontent-length: %d\r\n\r\n%b"
_SSE = _OK + b"text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n%b0\r\n\r\n"
_ACCEPTED = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
_NO_STREAM = b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: %d\r\n\r\n%b"

_NOTIFICATIONS = b"".join(chunk(event(notification(number))) for number in range(EVENTS))


class _Peer(asyncio.Protocol):
    accepted = 0

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: Any) -> None:
        _Peer.accepted += 1
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    # What httptools calls

    def on_message_begin(self) -> None:
        self._path = self._body = b""

    def on_url(self, data: bytes) -> None:
        self._path += data

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        self._transport.write(self._response())

    def _response(self) -> bytes:
        if self._parser.get_method() != b"POST":
            text = b"%d" % _Peer.accepted
            return _NO_STREAM % (len(text), text)
        answered = answer(self._body)
        if not answered:
            return _ACCEPTED
        if self._path == b"/json":
            return _JSON % (len(answered), answered)
        many = self._path == b"/events" and b"tools/call" in self._body
        return _SSE % ((_NOTIFICATIONS if many else b"") + chunk(event(answered)))


async def serve() -> None:
    """Serve over HTTP."""
    server = await asyncio.get_running_loop().create_server(_Peer, "127.0.0.1", 0, backlog=256)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def serve_stdio() -> None:
    """Serve on standard input and output."""
    for line in sys.stdin.buffer:
        if answered := answer(line):
            sys.stdout.buffer.write(answered + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        serve_stdio()
    else:
        asyncio.run(serve())
