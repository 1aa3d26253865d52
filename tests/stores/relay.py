"""A network of the tests' own: connections go where they are sent, and break where they are cut."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio


@attrs.define
class _ByteBudget:
    """How many bytes a connection has left, in both directions."""

    left: int


@attrs.define(eq=False)
class Relay:
    """Passes connections on, without any idea of HTTP."""

    route: Callable[[], int]
    """Says to which port the next connection goes."""
    chance: random.Random = attrs.field(factory=random.Random)
    longest_life: int | None = None
    """Connections break after a random number of bytes, at most that many; None: never. It may be
    changed at any time: only what passes meanwhile is counted.
    """
    cuts: int = attrs.field(default=0, init=False)
    """How many connections have been cut."""
    url: str = attrs.field(default="", init=False)

    async def pass_on(self, client: trio.SocketStream) -> None:
        """Serve one connection."""
        life = _ByteBudget(self.chance.randint(1, self.longest_life or 1))
        try:
            server = await trio.open_tcp_stream("127.0.0.1", self.route())
        except OSError:
            await trio.aclose_forcefully(client)
            return
        async with client, server, trio.open_nursery() as nursery:
            for source, sink in ((client, server), (server, client)):
                nursery.start_soon(self._copy, source, sink, life, nursery.cancel_scope)

    async def _copy(
        self,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        life: _ByteBudget,
        connection: trio.CancelScope,
    ) -> None:
        try:
            async for data in source:
                is_cut = self.longest_life is not None and len(data) >= life.left
                passed = data[: life.left] if is_cut else data
                if self.longest_life is not None:
                    life.left -= len(passed)
                await sink.send_all(passed)
                if is_cut:
                    self.cuts += 1
                    connection.cancel()
                    return
            await sink.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            connection.cancel()


@asynccontextmanager
async def relaying(relay: Relay) -> AsyncGenerator[Relay, None]:
    """Run a relay; it knows its URL then."""
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, relay.pass_on, 0, host="127.0.0.1")
        listeners: list[trio.SocketListener] = await nursery.start(serve)
        relay.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp"
        yield relay
        nursery.cancel_scope.cancel()
