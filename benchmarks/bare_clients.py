"""Clients without MCP: the least that can be done with h11, or lines, and an event loop.

Each sends what is right for the benchmark's one call, and looks at nothing of the answer but its
JSON. Given an URL it keeps connections, given a command it is the other end of its pipes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from subprocess import PIPE, Popen
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import h11
import trio

Call: TypeAlias = Callable[[], Awaitable[object]]
Target: TypeAlias = str | list[str]


class _H11:
    """One connection: the bytes of calls out, those of their answers in."""

    def __init__(self, url: str) -> None:
        self.address = urlsplit(url).hostname or "", urlsplit(url).port or 0
        self._url = urlsplit(url)
        self._connection = h11.Connection(h11.CLIENT)
        self._body = b""

    def begin(self) -> bytes:
        """A call."""
        body, connection = request(1), self._connection
        headers = [
            ("host", self._url.netloc),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("content-length", str(len(body))),
        ]
        head = h11.Request(method="POST", target=self._url.path, headers=headers)
        parts = (head, h11.Data(data=body), h11.EndOfMessage())
        return b"".join(connection.send(part) or b"" for part in parts)

    def feed(self, data: bytes) -> Any:
        """The result, once it is there."""
        self._connection.receive_data(data)
        while True:
            event = self._connection.next_event()
            if isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                body, self._body = self._body, b""
                self._connection.start_next_cycle()
                return messages(body)[-1]["result"]
            elif not isinstance(event, h11.Response):
                return None


def request(id: int) -> bytes:
    """A call."""
    params = {"name": "echo", "arguments": {"text": "hello"}}
    message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    return json.dumps(message, separators=(",", ":")).encode()


def messages(body: bytes) -> list[Any]:
    """What a body says, JSON or an event stream."""
    if body.startswith(b"{"):
        return [json.loads(body)]
    blocks = body.removesuffix(b"\n\n").split(b"\n\n")
    return [json.loads(block.partition(b"data: ")[2]) for block in blocks]


class _Protocol(asyncio.Protocol):
    def __init__(self, connection: _H11) -> None:
        self._connection = connection

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def begin(self) -> asyncio.Future[Any]:
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(self._connection.begin())
        return self._answered

    def data_received(self, data: bytes) -> None:
        if (result := self._connection.feed(data)) is not None:
            self._answered.set_result(result)


@asynccontextmanager
async def http_on_asyncio(url: str) -> AsyncGenerator[Call]:
    """h11 on asyncio."""
    idle: list[_Protocol] = []

    async def call() -> Any:
        if idle:
            protocol = idle.pop()
        else:
            connection = _H11(url)
            make = partial(_Protocol, connection)
            _, protocol = await asyncio.get_running_loop().create_connection(
                make, *connection.address
            )
        result = await protocol.begin()
        idle.append(protocol)
        return result

    yield call


@asynccontextmanager
async def http_on_trio(url: str) -> AsyncGenerator[Call]:
    """h11 on trio."""
    idle: list[tuple[_H11, trio.SocketStream]] = []

    async def call() -> Any:
        if idle:
            connection, stream = idle.pop()
        else:
            connection = _H11(url)
            stream = await trio.open_tcp_stream(*connection.address)
        await stream.send_all(connection.begin())
        while (result := connection.feed(bytes(await stream.receive_some(65536)))) is None:
            pass
        idle.append((connection, stream))
        return result

    yield call


@asynccontextmanager
async def lines_on_asyncio(command: list[str]) -> AsyncGenerator[Call]:
    """Lines on asyncio."""
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    reader, writer = process.stdout, process.stdin
    assert reader is not None
    assert writer is not None
    waiting: dict[int, asyncio.Future[Any]] = {}
    ids = itertools.count()

    async def read() -> None:
        while line := await reader.readline():
            message = json.loads(line)
            waiting.pop(message["id"]).set_result(message["result"])

    async def call() -> Any:
        id = next(ids)
        answered = waiting[id] = asyncio.get_running_loop().create_future()
        writer.write(request(id) + b"\n")
        return await answered

    reading = asyncio.create_task(read())
    yield call
    writer.close()
    await reading
    await process.wait()


@asynccontextmanager
async def lines_on_trio(command: list[str]) -> AsyncGenerator[Call]:
    """Lines on trio."""
    waiting: dict[int, tuple[trio.Event, list[Any]]] = {}
    ids, lock = itertools.count(), trio.Lock()
    async with trio.open_nursery() as nursery:
        start = partial(trio.run_process, command, stdin=PIPE, stdout=PIPE)
        process: trio.Process = await nursery.start(start)
        reader, writer = process.stdout, process.stdin
        assert reader is not None
        assert writer is not None

        async def read() -> None:
            rest = b""
            async for data in reader:
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    message = json.loads(line)
                    answered, result = waiting.pop(message["id"])
                    result.append(message["result"])
                    answered.set()

        async def call() -> Any:
            id, answered, result = next(ids), trio.Event(), list[Any]()
            waiting[id] = answered, result
            async with lock:
                await writer.send_all(request(id) + b"\n")
            await answered.wait()
            return result[0]

        nursery.start_soon(read)
        yield call
        await writer.aclose()


@asynccontextmanager
async def lines_blocking(command: list[str]) -> AsyncGenerator[Call]:
    """Lines without an event loop, one call at a time."""
    with Popen(command, stdin=PIPE, stdout=PIPE) as process:
        reader, writer = process.stdout, process.stdin
        assert reader is not None
        assert writer is not None

        async def call() -> Any:
            writer.write(request(1) + b"\n")
            writer.flush()
            return json.loads(reader.readline())["result"]

        yield call
