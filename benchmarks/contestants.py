"""Servers that answer the same request: ours in several hosts, others, and bare ones without MCP.

    python -m benchmarks.contestants NAME     # serves, and prints its port

A bare server reads a request and answers it with what is right for the benchmark's one call: the
least that can be done with that parser and that event loop.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import h11
import httptools
import trio

import sansmcp
import sansmcp_asyncio
import sansmcp_trio
from sansmcp import h11_parser, httptools_parser
from sansmcp.http11_parser import Http11Parser

HOST = "127.0.0.1"
TEXT = {"content": [{"type": "text", "text": "hello"}], "isError": False}


# Ours


def echo(call: Any) -> dict[str, Any]:
    """Give back the text."""
    text = call.params["arguments"]["text"]
    return {"content": [{"type": "text", "text": text}], "isError": False}


async def echo_async(call: Any) -> dict[str, Any]:
    """The same in a task."""
    return echo(call)


def application(handler: Callable[[Any], Any] = echo) -> sansmcp.App:
    """An application with one tool."""
    app = sansmcp.App("benchmark", "1")
    app.handler("tools/call", inline=True, stream_after=1)(handler)
    return app


def ours_on_asyncio(http11: Http11Parser, handler: Callable[[Any], Any] = echo) -> None:
    """The adapter for asyncio."""

    async def main() -> None:
        address = (HOST, 0)
        async with sansmcp_asyncio.serve(
            application(handler), http=address, sessions=False, http11=http11
        ) as serving:
            announce(serving.url)
            await asyncio.Event().wait()

    asyncio.run(main())


def ours_on_trio(http11: Http11Parser) -> None:
    """The adapter for trio."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            serve = partial(
                sansmcp_trio.serve, application(), http=(HOST, 0), sessions=False, http11=http11
            )
            serving: sansmcp_trio.RunningServer = await nursery.start(serve)
            announce(serving.url)

    trio.run(main)


# The official SDK


def official() -> None:
    """The official SDK, its low-level server, without sessions and with plain JSON answers."""
    import uvicorn
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("benchmark", log_level="ERROR")

    @server.tool(structured_output=False)
    async def echo(text: str) -> str:
        """Give back the text."""
        return text

    app = server.streamable_http_app(stateless_http=True, json_response=True)
    listener = listen()
    announce(f"http://{HOST}:{listener.getsockname()[1]}/mcp")
    uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listener])


# Bare servers


class BareH11:
    """Reads requests with h11 and answers them."""

    def __init__(self) -> None:
        self._connection = h11.Connection(h11.SERVER)
        self._body = b""

    def feed(self, data: bytes) -> bytes:
        """Bytes in, bytes out."""
        connection, sent = self._connection, b""
        connection.receive_data(data)
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                body, self._body = answer(self._body), b""
                headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
                sent += connection.send(h11.Response(status_code=200, headers=headers)) or b""
                sent += connection.send(h11.Data(data=body)) or b""
                sent += connection.send(h11.EndOfMessage()) or b""
                connection.start_next_cycle()
            elif not isinstance(event, h11.Request):
                return sent


class BareHttptools:
    """Reads requests with httptools and answers them."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = b""
        self._sent = b""

    def feed(self, data: bytes) -> bytes:
        """Bytes in, bytes out."""
        self._parser.feed_data(data)
        sent, self._sent = self._sent, b""
        return sent

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self._headers.append((name.lower(), value))

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._body += data

    def on_message_complete(self) -> None:
        """The request is complete."""
        body, self._body = answer(self._body), b""
        self._headers.clear()
        self._sent += (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )


def answer(body: bytes) -> bytes:
    """A message in, a message out, with no look at what it is."""
    message = json.loads(body)
    answered = {"jsonrpc": "2.0", "id": message["id"], "result": TEXT}
    return json.dumps(answered, separators=(",", ":")).encode()


class _Protocol(asyncio.Protocol):
    def __init__(self, parser: BareH11 | BareHttptools) -> None:
        self._parser = parser

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._parser.feed(data))


def bare_on_asyncio(parser: Callable[[], BareH11 | BareHttptools]) -> None:
    """A bare server on asyncio."""

    async def main() -> None:
        listener = listen()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Protocol(parser()), sock=listener)
        announce(f"http://{HOST}:{listener.getsockname()[1]}/mcp")
        await server.serve_forever()

    asyncio.run(main())


def bare_on_trio(parser: Callable[[], BareH11]) -> None:
    """A bare server on trio."""

    async def serve(stream: trio.SocketStream) -> None:
        connection = parser()
        with suppress(trio.BrokenResourceError):
            async for data in stream:
                await stream.send_all(connection.feed(bytes(data)))

    async def main() -> None:
        listeners = await trio.open_tcp_listeners(0, host=HOST)
        announce(f"http://{HOST}:{listeners[0].socket.getsockname()[1]}/mcp")
        await trio.serve_listeners(serve, listeners)

    trio.run(main)


def listen() -> socket.socket:
    """A listening socket on a free port."""
    listener = socket.socket()
    listener.bind((HOST, 0))
    listener.listen(256)
    return listener


def announce(url: str | None) -> None:
    """Tell who has started us where we are."""
    print(url, flush=True)


SERVERS: dict[str, Callable[[], None]] = {
    "sansmcp, asyncio + h11": partial(ours_on_asyncio, h11_parser.HTTP11),
    "sansmcp, asyncio + httptools": partial(ours_on_asyncio, httptools_parser.HTTP11),
    "sansmcp, asyncio + h11, async handler": partial(
        ours_on_asyncio, h11_parser.HTTP11, echo_async
    ),
    "sansmcp, asyncio + httptools, async handler": partial(
        ours_on_asyncio, httptools_parser.HTTP11, echo_async
    ),
    "sansmcp, trio + h11": partial(ours_on_trio, h11_parser.HTTP11),
    "sansmcp, trio + httptools": partial(ours_on_trio, httptools_parser.HTTP11),
    "bare asyncio + h11": partial(bare_on_asyncio, BareH11),
    "bare asyncio + httptools": partial(bare_on_asyncio, BareHttptools),
    "bare trio + h11": partial(bare_on_trio, BareH11),
    "mcp, uvicorn + httptools": official,
}

if __name__ == "__main__":
    SERVERS[sys.argv[1]]()
