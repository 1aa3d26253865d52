"""A relay between the clients of a simulated world and its server, as a bridge runs one.

All clients share one upstream session, which is on stdio or HTTP, of any revision. What the server
asks or tells is checked where it arrives: at the client that has caused it, and at no other.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sansmcp import App, Client, Server
from sansmcp.events import ClientEvent, Closed, Connected, ServerEvent
from sansmcp.http11.pool import ConnectionPool
from sansmcp.relay import Relay, relay_app

from .peers import Customer, Instance
from .stores import NotingStore

if TYPE_CHECKING:
    from .simulator import World

ROOM = 16
"""The calls that a crowded relay can have under way at its server."""
CROWD = 18
"""The calls that one of its clients makes at once."""
_AGAIN = 0.5
"""Seconds after which a connection that is lost is opened again."""


def app_of_relay() -> App:
    """Return the App of a server that relays to one of a world."""
    capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
    return relay_app(
        Connected(
            transport="stdio",
            version="2025-11-25",
            server_info={"name": "world"},
            capabilities=capabilities,
        )
    )


class Upstream(Customer):
    """The client that asks the server for all clients of a relay."""

    def __init__(self, world: World, index: int, kind: str, versions: tuple[str, ...]) -> None:
        self._versions = versions
        super().__init__(world, "upstream", index, self._new_client(world, kind, versions), kind)
        self.causes = world.causes  # what happens here may end the calls of all clients
        self.offers = versions
        self.relaying: Relaying | None = None

    def _new_client(self, world: World, kind: str, versions: tuple[str, ...]) -> Client:
        return world.new_upstream_client(kind, versions)

    @property
    def naps(self) -> bool:
        """Whether its events are left, because a client of the relay is behind."""
        relay = self.relaying.relay if self.relaying is not None else None
        return super().naps or (relay is not None and relay.must_wait)

    def _happened(self, event: ClientEvent) -> None:
        self.world.note(self.index, type(event).__name__)
        self.world.tell(f"{self.name}: {event}")
        assert self.relaying is not None
        self.relaying.hear(event)
        if isinstance(event, Connected):
            self.transport, self.version = event.transport, event.version
            self.world.reach(f"relay connected by {event.transport} at {event.version}")
        elif isinstance(event, Closed):
            self.closed = event
            if not self.world.is_closing:
                self.world.reach("relay loses its upstream")
                self.world.clock.call_later(_AGAIN, self._connect_again)

    def _connect_again(self) -> None:
        assert self.relaying is not None
        if self.world.is_closing or self.closed is None:
            return
        for wire in tuple(self._wires):
            wire.close()
        self._wires.clear()
        self.client = self._new_client(self.world, self.kind, self._versions)
        self._pool, self.closed, self.process = ConnectionPool(self.client), None, None
        if self.relaying.relay is not None:
            self.relaying.relay.replace_upstream(self.client)
        self.client.start(now=self.now)
        self.touch()


class Relaying(Instance):
    """The server that the clients of a world talk to, and the relay behind it."""

    def __init__(
        self,
        world: World,
        name: str,
        index: int,
        server: Server,
        store: NotingStore | None,
        upstream: Upstream,
    ) -> None:
        super().__init__(world, name, index, server, store)
        self.relay: Relay | None = None
        self.upstream = upstream
        upstream.relaying = self
        self.offset = upstream.offset  # both machines are on one clock
        self._waiting: deque[ServerEvent] = deque()
        """What has come before the upstream was connected."""

    def tick(self, number: int, *, is_last: bool = False) -> None:
        """Do nothing: what changes is told by the server behind it."""

    def _happened(self, event: ServerEvent) -> None:
        self.world.note(self.index, type(event).__name__)
        if self.relay is None:
            self._waiting.append(event)
            return
        self._tell(self.relay.receive_server_event(event, now=self.now))
        self._moved()

    def hear(self, event: ClientEvent) -> None:
        """Relay an event of the upstream client."""
        if isinstance(event, Connected) and self.relay is None:
            self.relay = Relay(self.server, self.upstream.client)
            self.relay.connected(event, now=self.now)
            while self._waiting:
                self._happened(self._waiting.popleft())
        elif self.relay is not None:
            self._tell(self.relay.receive_client_event(event, now=self.now))
        self._moved()

    def _tell(self, lost: str | None) -> None:
        if lost is not None:
            self.world.reach("relay cannot pass something on")
            self.world.tell(f"{self.name}: {lost}")

    def _moved(self) -> None:
        self.touch()
        self.upstream.touch()
        deadline = None if self.relay is None else self.relay.next_deadline()
        if deadline is not None:
            when = max(deadline - self.offset, self.world.clock.now)
            self.world.clock.call_at(when, self._look)

    def _look(self) -> None:
        deadline = None if self.relay is None else self.relay.next_deadline()
        if self.relay is not None and deadline is not None and deadline <= self.now + 1e-6:
            self.relay.handle_timeout(now=max(self.now, deadline))
            self._moved()

    def drain(self) -> None:
        """Perform all effects and take all events; the upstream may go on then."""
        super().drain()
        if self.upstream.is_paused:
            self.upstream.touch()
