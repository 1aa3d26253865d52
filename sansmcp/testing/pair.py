"""A client and a server on a simulated network, in virtual time.

The two machines exchange real HTTP/1.1 bytes (:mod:`sansmcp.http11`) over connections that a
:class:`Link` delays, cuts into pieces, and breaks. A handler that waits is a generator: it yields a
float to sleep for so many seconds, or the id of a server request to wait for its response, and
returns the result. A handler gets the machine's call, whose ``driver`` is the pair:
``call.progress(1, now=call.driver.clock.now)``.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias

import attrs

from ..client.client import Client
from ..effects import (
    AbortExchange,
    Authenticate,
    ClientEffect,
    CloseConnection,
    OpenExchange,
    SendBytes,
    StoreEffect,
    StoreUnwatch,
    StoreWatch,
    Wake,
)
from ..events import (
    CallCancelled,
    CallReceived,
    ClientEvent,
    ClientResponseReceived,
    ServerEvent,
)
from ..http import ConnectionLost, Unsent
from ..http11.client_connection import ClientConnection
from ..http11.server_connection import ServerConnection
from ..server.server import Server
from ..server_call import ServerCall
from ..store import Store
from ..types import Idle
from .clock import VirtualClock

Script: TypeAlias = Generator[float | int, Any, Any]


def sequential_tokens(prefix: str = "token") -> Callable[[], str]:
    """Return a source of tokens that are the same in every run, for ``Server(new_token=...)``."""
    counter = itertools.count(1)
    return lambda: f"{prefix}-{next(counter):012d}"


@attrs.define
class Link:
    """A network. Its decisions come from ``chance``, which returns numbers from 0 to below 1."""

    chance: Callable[[], float]
    latency: float = 0.01
    """Seconds until bytes arrive."""
    mean_cut: float | None = None
    """Connections break after about this many bytes, counted in both directions; None: never."""
    fragments: bool = False
    """True to cut sent bytes into two pieces at a random place."""
    window: int = 64 * 1024
    """Bytes on the way to the client before the server has to wait."""
    up: bool = True
    """True if connections can be made."""

    def lifetime(self) -> int | None:
        """Return after how many bytes a new connection breaks; None for never."""
        return None if self.mean_cut is None else int(2 * self.mean_cut * self.chance())

    def pieces(self, data: bytes) -> list[bytes]:
        """Return the pieces in which bytes that are sent together arrive."""
        if not self.fragments or len(data) < 2:
            return [data]
        cut = 1 + int(self.chance() * (len(data) - 1))
        return [data[:cut], data[cut:]]


class _Connection:
    """One simulated connection with its two ends."""

    def __init__(self, pair: Pair, server: Server) -> None:
        self._pair = pair
        self.server = server
        self.client = ClientConnection(pair.client)
        self._server = ServerConnection(server, driver=self, now=pair.clock.now)
        self._lifetime = pair.link.lifetime()
        self._broken = False
        self._underway = 0
        """Bytes on the way to the client."""
        self._arrived: deque[bytes] = deque()
        self._watches: float | None = None

    @property
    def is_free(self) -> bool:
        """True if another exchange can begin."""
        return self.client.is_reusable and not self._broken and not self._arrived

    def carry(self, data: bytes, *, to_server: bool) -> None:
        """Schedule the arrival of sent bytes, or of those before the connection breaks."""
        breaks = self._lifetime is not None and len(data) >= self._lifetime
        if self._lifetime is not None:
            data = data[: self._lifetime]
            self._lifetime -= len(data)
        for piece in self._pair.link.pieces(data):
            if to_server:
                self._pair.later(lambda piece=piece: self._reach_server(piece))  # type: ignore[misc]
            else:
                self._underway += len(piece)
                self._pair.later(lambda piece=piece: self._arrived.append(piece))  # type: ignore[misc]
        if breaks:
            self._pair.later(self._break_down)

    def deliver(self, *, paused: bool) -> bool:
        """Feed the next bytes that have arrived to the client, unless it is ``paused``."""
        if paused or not self._arrived:
            return False
        data = self._arrived.popleft()
        self._underway -= len(data)
        self.client.receive_data(data, now=self._pair.clock.now)
        self.drive()
        return True

    def cut(self) -> None:
        """Break the connection for both ends."""
        if not self._broken:
            self._broken = True
            self.client.connection_lost("connection reset", now=self._pair.clock.now)
            self._server.connection_lost(now=self._pair.clock.now)
            self.drive()

    def drive(self) -> None:
        """Perform the effects of the server's end, as far as the window allows."""
        if self.server not in self._pair.servers:
            return
        while self._underway < self._pair.link.window:
            effect = self._server.next_effect()
            if isinstance(effect, SendBytes):
                self.carry(effect.data, to_server=False)
            elif isinstance(effect, CloseConnection):
                self._pair.later(self._close)
                return
            else:
                break
        deadline = self._server.next_deadline()
        if deadline is not None and deadline != self._watches:
            self._watches = deadline
            self._pair.clock.call_at(deadline, self._time_out)

    def _reach_server(self, data: bytes) -> None:
        if self.server in self._pair.servers:
            self._server.receive_data(data, now=self._pair.clock.now)
            self.drive()

    def _break_down(self) -> None:
        self._pair.cuts += not self._broken
        self._deliver_rest()
        self.cut()

    def _close(self) -> None:
        """Close the connection after all bytes of the server have arrived."""
        self._deliver_rest()
        self._broken = True
        self.client.receive_eof(now=self._pair.clock.now)

    def _deliver_rest(self) -> None:
        while self._arrived:
            self.deliver(paused=False)

    def _time_out(self) -> None:
        self._watches = None
        self._server.handle_timeout(now=self._pair.clock.now)
        self.drive()


class Pair:
    """A client and a server on a simulated network.

    Attributes:
        clock: the time of both.
        servers: the instances that are running; :meth:`kill` removes one.
        route: returns the instance for the next request; by default one after the other.
        events: the events of the client, in order.
        server_events: the events of all instances, in order.
        requests: every HTTP request that the client made.
        cuts: how many connections the link has broken.
        takes_events: False to leave the events of the client in its queue.
    """

    def __init__(
        self,
        client: Client,
        server: Server,
        link: Link,
        *,
        others: Sequence[Server] = (),
        store: Store | None = None,
        store_delay: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Create the network. The machines run in :meth:`run`.

        Args:
            client, server: the machines.
            link: the network between them.
            others: further instances of the server, which use the same store.
            store: the store of all instances; None if none of them needs one.
            store_delay: returns the seconds that the next use of the store takes; it fails if the
                number is negative.
        """
        self.client = client
        self.server = server
        self.servers = [server, *others]
        self.route: Callable[[], Server] = self._next_server
        self.link = link
        self.clock = VirtualClock()
        self.events: list[ClientEvent] = []
        self.server_events: list[ServerEvent] = []
        self.requests: list[OpenExchange] = []
        self.cuts = 0
        self.takes_events = True
        self._store = store
        self._store_delay = store_delay
        self._store_free_at = 0.0
        self._requests = -1
        self._homes: dict[ServerCall, Server] = {}
        self._connections: dict[int, _Connection] = {}
        self._scripts: dict[ServerCall, Script] = {}
        self._awaited: dict[ServerCall, int] = {}

    def run(self, until: float | None = None, *, steps: int = 1_000_000) -> None:
        """Advance the clock until no action is left, or to the time ``until``.

        Raises:
            AssertionError: ``steps`` steps were not enough; the machines might never become idle.
        """
        for _ in range(steps):
            self._drain()
            next_time = self._next_time()
            if next_time is None or (until is not None and next_time > until):
                self.clock.now = self.clock.now if until is None else until
                return
            if next_time == self.clock.next_time:
                self.clock.run_next()
            else:
                self.clock.now = next_time
            self.client.handle_timeout(now=self.clock.now)
            for server in self.servers:
                server.handle_timeout(now=self.clock.now)
        raise AssertionError(f"still busy after {steps} steps, at {self.clock.now} s")

    def later(self, action: Callable[[], None]) -> None:
        """Schedule ``action`` after the latency of the link."""
        self.clock.call_later(self.link.latency, action)

    def break_connections(self) -> None:
        """Break all connections now. Bytes that have not arrived are lost."""
        for connection in tuple(self._connections.values()):
            connection.cut()

    def kill(self, server: Server) -> None:
        """Stop an instance without notice, and break its connections."""
        self.servers.remove(server)
        for connection in tuple(self._connections.values()):
            if connection.server is server:
                connection.cut()
        for call in [call for call in self._scripts if self._homes[call] is server]:
            del self._scripts[call]

    def server_for(self, call: ServerCall) -> Server:
        """Return the instance on which a call runs, or has run."""
        return self._homes[call]

    def _next_server(self) -> Server:
        self._requests += 1
        return self.servers[self._requests % len(self.servers)]

    def _next_time(self) -> float | None:
        deadlines = [server.next_deadline() for server in self.servers]
        times = (self.clock.next_time, self.client.next_deadline(), *deadlines)
        known = [time for time in times if time is not None]
        return max(min(known), self.clock.now) if known else None

    def _drain(self) -> None:
        """Perform all effects and take all events, until there are none."""
        moved = True
        while moved:
            moved = False
            while not isinstance(effect := self.client.next_effect(), Idle):
                moved = True
                self._perform(effect)
            paused = effect is Idle.PAUSED
            for connection in tuple(self._connections.values()):
                moved |= connection.deliver(paused=paused)
            while self.takes_events and not isinstance(event := self.client.next_event(), Idle):
                moved = True
                self.events.append(event)
            for server in tuple(self.servers):
                moved |= self._drain_server(server)

    def _drain_server(self, server: Server) -> bool:
        moved = False
        while not isinstance(effect := server.next_effect(), Idle):
            moved = True
            if isinstance(effect, Wake):
                effect.exchange.driver.drive()
            else:
                assert not isinstance(effect, Authenticate), "a Pair has no authentication"
                if not isinstance(effect, StoreWatch | StoreUnwatch):  # its store is polled
                    self._use_store(server, effect)
        while not isinstance(event := server.next_event(), Idle):
            moved = True
            self._happened(server, event)
        return moved

    def _perform(self, effect: ClientEffect) -> None:
        assert isinstance(effect, OpenExchange | AbortExchange)
        if isinstance(effect, AbortExchange):
            connection = self._connections.pop(effect.exchange, None)
            if connection is not None:
                self.later(connection.cut)
            return
        self.requests.append(effect)
        if not self.link.up:
            gone = ConnectionLost("connection refused", Unsent.UNREACHABLE)
            self.later(lambda: self.client.receive_part(effect.exchange, gone, now=self.clock.now))
            return
        server = self.route()
        free = [c for c in self._connections.values() if c.is_free and c.server is server]
        connection = free[0] if free else _Connection(self, server)
        for exchange in [e for e, c in self._connections.items() if c is connection]:
            del self._connections[exchange]
        self._connections[effect.exchange] = connection
        connection.carry(connection.client.begin(effect), to_server=True)

    # The server's application

    def _happened(self, server: Server, event: ServerEvent) -> None:
        match event:
            case CallReceived(call):
                call.driver, self._homes[call] = self, server
                handler = server.app.handler_of(call.request.method)
                assert handler is not None, "the machine refuses methods without a handler"
                result = handler(call)
                if isinstance(result, Generator):
                    self._scripts[call] = result
                    self._step(call, None)
                else:
                    call.respond(result, now=self.clock.now)
            case CallCancelled(call):
                if call in self._scripts:
                    self._scripts.pop(call).close()
            case ClientResponseReceived(call, request_id) if self._awaited.get(call) == request_id:
                del self._awaited[call]
                self._step(call, event)
            case _:
                pass
        self.server_events.append(event)

    def _step(self, call: ServerCall, value: Any) -> None:
        """Continue a script to its next pause, or to its end."""
        script = self._scripts.get(call)
        if script is None:
            return
        try:
            pause = script.send(value)
        except StopIteration as end:
            del self._scripts[call]
            call.respond(end.value, now=self.clock.now)
        except Exception as error:
            del self._scripts[call]
            call.respond_exception(error, now=self.clock.now)
        else:
            if isinstance(pause, int):
                self._awaited[call] = pause
            else:
                self.clock.call_later(pause, lambda: self._step(call, None))

    # The store

    def _use_store(self, server: Server, effect: StoreEffect) -> None:
        """Schedule an effect of the store, after those that were scheduled before."""
        assert self._store is not None
        delay = self._store_delay()
        self._store_free_at = max(self._store_free_at, self.clock.now) + max(delay, 0.0)
        self.clock.call_at(self._store_free_at, lambda: self._store_now(server, effect, delay < 0))

    def _store_now(self, server: Server, effect: StoreEffect, fails: bool) -> None:
        now = self.clock.now
        assert self._store is not None
        if server not in self.servers:
            return
        if fails:
            server.store_failed(effect, "store_delay was negative", now=now)
        else:
            server.perform_store_effect(effect, self._store, now=now)
