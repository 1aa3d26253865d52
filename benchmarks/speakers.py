"""Servers that say much: as processes that print their URL.

    python -m benchmarks.speakers NAME

A call names how many events it wants. ``say`` reports progress as often, in the response of the
call; ``publish`` tells all listeners as often that the tools have changed; ``pace`` reports as
often, with 2 ms between two reports, each of which has the time. A bare server sends what is right,
each event as a chunk of its own: the least that can be done with h11 and that event loop. One that
joins writes 32 of them, or those of a millisecond, at once.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import h11
import trio

import sansmcp
import sansmcp_asyncio
import sansmcp_local
import sansmcp_trio

from .contestants import HOST, TEXT, announce
from .measuring import LEGACY, MODERN
from .peers import event

WHAT = "a line of what a tool has to say"
PACE = 0.002
"""Seconds between two reports of ``pace``."""
_TOGETHER, _MOMENT = 32, 0.001
CHANGED = "notifications/tools/list_changed"


# Ours


class Speaker(sansmcp.App):
    """Says what it is asked for."""

    serving: sansmcp_local.RunningServer

    def __init__(self) -> None:
        super().__init__("benchmark", capabilities={"tools": {"listChanged": True}})
        self.handler("tools/call")(self.call_tool)

    async def call_tool(self, call: sansmcp_local.Call) -> dict[str, Any]:
        """Either tool."""
        for number in range(call.params["arguments"]["events"]):
            if call.params["name"] == "say":
                await call.progress(number, message=WHAT)
            elif call.params["name"] == "pace":
                await self.serving.loop.within(PACE, self.serving.loop.event().wait)
                await call.progress(number, message=clock())
            else:
                self.serving.publish(CHANGED)
                await self.serving.loop.checkpoint()
        return TEXT


def ours_on_asyncio(**settings: Any) -> None:
    """The adapter for asyncio."""

    async def main() -> None:
        app = Speaker()
        async with sansmcp_asyncio.serve(app, http=(HOST, 0), **settings) as app.serving:
            announce(app.serving.url)
            await asyncio.Event().wait()

    asyncio.run(main())


def ours_on_trio(**settings: Any) -> None:
    """The adapter for trio."""

    async def main() -> None:
        app = Speaker()
        serving: sansmcp_trio.RunningServer
        async with trio.open_nursery() as nursery:
            serve = partial(sansmcp_trio.serve, app, http=(HOST, 0), **settings)
            app.serving = serving = await nursery.start(serve)
            announce(serving.url)

    trio.run(main)


# The official SDK


def official() -> None:
    """The official SDK, with sessions."""
    from .official import serve_http

    serve_http()


# Bare servers


class Bare:
    """Reads a call with h11, and writes events."""

    def __init__(self) -> None:
        self._connection = h11.Connection(h11.SERVER)

    def asked(self, data: bytes) -> Any:
        """The call, once its body is there."""
        self._connection.receive_data(data)
        while not isinstance(part := self._connection.next_event(), h11.Data):
            if part is h11.NEED_DATA:
                return None
        return json.loads(bytes(part.data))

    def head(self) -> bytes:
        """The response begins."""
        headers = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]
        return self._connection.send(h11.Response(status_code=200, headers=headers)) or b""

    def say(self, message: dict[str, Any]) -> bytes:
        """An event."""
        text = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"))
        return self._connection.send(h11.Data(data=event(text.encode()))) or b""

    def end(self) -> bytes:
        """The response ends, and the next call may come."""
        self._connection.next_event()  # the end of the request
        data = self._connection.send(h11.EndOfMessage()) or b""
        self._connection.start_next_cycle()
        return data


def progress(call: Any, number: int, *, is_paced: bool) -> dict[str, Any]:
    """A report."""
    token = call["params"]["_meta"]["progressToken"]
    params = {"progressToken": token, "progress": number}
    params["message"] = clock() if is_paced else WHAT
    return {"method": "notifications/progress", "params": params}


def answer(call: Any) -> dict[str, Any]:
    """The answer to a call."""
    return {"id": call["id"], "result": TEXT}


def clock() -> str:
    """The time, which is the same in all processes, as the message of a report."""
    return f"at {time.monotonic():.6f}."


class Joined:
    """Pieces that are written together: each alone, or up to 32 of a millisecond."""

    def __init__(self, *, joins: bool) -> None:
        self._joins = joins
        self._pieces: list[bytes] = []
        self._since = 0.0

    def add(self, piece: bytes) -> bytes:
        """What is to be written now."""
        if not self._joins:
            return piece
        self._pieces.append(piece)
        now = time.monotonic()
        if len(self._pieces) < _TOGETHER and now - self._since < _MOMENT:
            return b""
        self._since = now
        return self.rest()

    def rest(self) -> bytes:
        """What is left."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data


def bare_on_asyncio(*, joins: bool = False) -> None:
    """A bare server on asyncio."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bare, joined = Bare(), Joined(joins=joins)
        while data := await reader.read(65536):
            if call := bare.asked(data):
                is_paced = call["params"]["name"] == "pace"
                writer.write(bare.head())
                for number in range(call["params"]["arguments"]["events"]):
                    if is_paced:
                        await asyncio.sleep(PACE)
                    written = joined.add(bare.say(progress(call, number, is_paced=is_paced)))
                    if written:
                        writer.write(written)
                        await writer.drain()
                writer.write(joined.rest() + bare.say(answer(call)) + bare.end())
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, HOST, 0)
        announce(f"http://{HOST}:{server.sockets[0].getsockname()[1]}/mcp")
        await server.serve_forever()

    asyncio.run(main())


def bare_on_trio(*, joins: bool = False) -> None:
    """A bare server on trio."""

    async def serve(stream: trio.SocketStream) -> None:
        bare, joined = Bare(), Joined(joins=joins)
        async for data in stream:
            if call := bare.asked(bytes(data)):
                is_paced = call["params"]["name"] == "pace"
                await stream.send_all(bare.head())
                for number in range(call["params"]["arguments"]["events"]):
                    if is_paced:
                        await trio.sleep(PACE)
                    written = joined.add(bare.say(progress(call, number, is_paced=is_paced)))
                    if written:
                        await stream.send_all(written)
                await stream.send_all(joined.rest() + bare.say(answer(call)) + bare.end())

    async def main() -> None:
        listeners = await trio.open_tcp_listeners(0, host=HOST)
        announce(f"http://{HOST}:{listeners[0].socket.getsockname()[1]}/mcp")
        await trio.serve_listeners(serve, listeners)

    trio.run(main)


_ALL, _MODERN, _LEGACY = (MODERN, LEGACY), (MODERN,), (LEGACY,)

SPEAKERS: dict[str, tuple[Callable[[], None], tuple[str, ...]]] = {
    "sansmcp, asyncio": (ours_on_asyncio, _ALL),
    "sansmcp, asyncio, not resumable": (partial(ours_on_asyncio, resumable=False), _LEGACY),
    "sansmcp, trio": (ours_on_trio, _ALL),
    "sansmcp, trio, not resumable": (partial(ours_on_trio, resumable=False), _LEGACY),
    "bare asyncio": (bare_on_asyncio, _MODERN),
    "bare trio": (bare_on_trio, _MODERN),
    "bare asyncio, joins": (partial(bare_on_asyncio, joins=True), _MODERN),
    "bare trio, joins": (partial(bare_on_trio, joins=True), _MODERN),
    "mcp": (official, _ALL),
}
"""By name: the program, and the versions that it is asked for; bare ones know none."""

if __name__ == "__main__":
    SPEAKERS[sys.argv[1]][0]()
