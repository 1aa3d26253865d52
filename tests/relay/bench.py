"""Two clients and two servers with a relay between them, in virtual time, byte for byte.

``down`` is the conversation of a client with the server that relays, ``up`` that of the relay's
client with the upstream server. Nothing takes time but what a test waits for.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any, TypeVar

import attrs

from sansmcp import (
    App,
    Client,
    ClientConnection,
    ClientSettings,
    Idle,
    MemoryStore,
    Server,
    ServerConnection,
    ServerPipe,
)
from sansmcp.effects import (
    AbortExchange,
    CloseConnection,
    CloseStdin,
    OpenExchange,
    SendBytes,
    StoreAppend,
    StoreDrop,
    StoreRead,
    StoreUnwatch,
    StoreWatch,
    Wake,
    WriteStdin,
)
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    CallReceived,
    ClientEvent,
    Connected,
    ServerEvent,
    ServerNotified,
)
from sansmcp.input_required import StateSigner
from sansmcp.process import ProcessExited, StderrClosed, StdoutClosed, StdoutData
from sansmcp.relay import Relay, relay_app
from sansmcp.server_call import ServerCall

HTTP, SSE, STDIO = "streamable-http", "http+sse", "stdio"
ENDS = (
    ("2024-11-05", SSE),
    ("2024-11-05", HTTP),
    ("2024-11-05", STDIO),
    *((version, HTTP) for version in ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")),
    *((version, STDIO) for version in ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")),
)
"""The pairs of revision and transport that exist."""

EVERYTHING: Mapping[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {"listChanged": True}}
LISTS = {"listChanged": True}
OFFERED: Mapping[str, Any] = {
    "tools": LISTS,
    "prompts": LISTS,
    "resources": {"subscribe": True, **LISTS},
    "logging": {},
}

_Event = TypeVar("_Event")


def tokens(prefix: str) -> Any:
    numbers = count(1)
    return lambda: f"{prefix}-{next(numbers):012d}"


@attrs.define(eq=False)
class _Line:
    """A connection of HTTP/1.1."""

    client: ClientConnection
    server: ServerConnection
    is_broken: bool = False


class Leg:
    """A client and a server, and the bytes between them."""

    def __init__(self, end: tuple[str, str], app: App, capabilities: Mapping[str, Any]) -> None:
        self.version, self.transport = end
        self.now = 0.0
        self._app = app
        self._capabilities = capabilities
        self._tokens = tokens("token")
        self._lines: dict[int, _Line] = {}
        self.events: list[ClientEvent] = []
        self.server_events: list[ServerEvent] = []
        self._start_server()
        self._start_client()

    def _start_server(self) -> None:
        self._store = MemoryStore()
        self.server = Server(
            self._app,
            new_token=self._tokens,
            http_sse="/sse" if self.transport == SSE else None,
            wall_clock=lambda: self.now,
            state_signer=StateSigner(keys=(b"0123456789abcdef",), clock=lambda: self.now),
        )
        self.pipe = ServerPipe(self.server, now=self.now) if self.transport == STDIO else None

    def _start_client(self) -> None:
        path = "sse" if self.transport == SSE else "mcp"
        settings: ClientSettings = {
            "versions": (self.version,),
            "capabilities": self._capabilities,
        }
        if self.transport != STDIO:
            settings["transports"] = (self.transport,)
        target = ["server"] if self.transport == STDIO else f"http://127.0.0.1/{path}"
        self.client = Client(target, jitter=lambda: 0.0, **settings)
        self.client.start(now=self.now)

    def restart(self) -> None:
        """Kill the server, with all that it keeps, and start it again.

        The client of a process is closed with it, so another one is started.
        """
        self.cut()
        self._start_server()
        if self.transport == STDIO:
            for part in (StdoutClosed(), StderrClosed(), ProcessExited(-9)):
                self.client.receive_process_part(part, now=self.now)
            while not isinstance(event := self.client.next_event(), Idle):
                self.events.append(event)
            self._start_client()

    def cut(self) -> None:
        """Break all connections that are open."""
        for number, line in tuple(self._lines.items()):
            del self._lines[number]
            line.is_broken = True
            line.client.connection_lost("cut", now=self.now)
            line.server.connection_lost(now=self.now)

    def lose_last(self) -> None:
        """Let the server find the last connection broken, of which the client knows nothing."""
        _, line = self._lines.popitem()
        line.is_broken = True
        line.server.connection_lost(now=self.now)

    def drive(self) -> bool:
        """Let everything that is sent arrive. Return whether anything has happened."""
        moved = False
        while not isinstance(effect := self.client.next_effect(), Idle):
            moved = True
            self._perform(effect)
        while not isinstance(wake := self.server.next_effect(), Idle):
            moved = True
            if not isinstance(wake, Wake | StoreWatch | StoreUnwatch):  # the store is polled
                assert isinstance(wake, StoreAppend | StoreRead | StoreDrop)
                self.server.perform_store_effect(wake, self._store, now=self.now)
        for number, line in tuple(self._lines.items()):
            while not line.is_broken and not isinstance(sent := line.server.next_effect(), Idle):
                moved = True
                if isinstance(sent, SendBytes):
                    line.client.receive_data(sent.data, now=self.now)
                else:
                    line.is_broken = True
                    line.client.receive_eof(now=self.now)
            if line.client.is_done:
                line.server.connection_lost(now=self.now)
                self._lines.pop(number, None)
        while self.pipe and not isinstance(written := self.pipe.next_effect(), Idle):
            moved = True
            if isinstance(written, SendBytes):
                self.client.receive_process_part(StdoutData(written.data), now=self.now)
            else:
                assert isinstance(written, CloseConnection)
                for part in (StdoutClosed(), StderrClosed(), ProcessExited(0)):
                    self.client.receive_process_part(part, now=self.now)
        while not isinstance(event := self.client.next_event(), Idle):
            moved = True
            self.events.append(event)
        while not isinstance(happened := self.server.next_event(), Idle):
            moved = True
            self.server_events.append(happened)
        return moved

    def _perform(self, effect: object) -> None:
        match effect:
            case OpenExchange(exchange=exchange):
                client = ClientConnection(self.client)
                line = _Line(client, ServerConnection(self.server, driver=None, now=self.now))
                self._lines[exchange] = line
                line.server.receive_data(client.begin(effect), now=self.now)
            case AbortExchange(exchange=exchange):
                line = self._lines.pop(exchange)
                line.is_broken = True
                line.client.connection_lost("aborted", now=self.now)
                line.server.connection_lost(now=self.now)
            case WriteStdin(data):
                assert self.pipe
                self.pipe.receive_data(data, now=self.now)
            case CloseStdin():
                assert self.pipe
                self.pipe.receive_eof(now=self.now)
            case _:
                pass

    def machines(self) -> list[Any]:
        servers = [line.server for line in self._lines.values()]
        return [self.client, self.server, *servers, *([self.pipe] if self.pipe else [])]


class Bench:
    """The client of one end, an upstream server of another, and the relay between them."""

    def __init__(
        self,
        down: tuple[str, str],
        up: tuple[str, str],
        *,
        asked_of: Mapping[str, Any] = EVERYTHING,
        offered: Mapping[str, Any] = OFFERED,
        tasks: bool = False,
    ) -> None:
        self.now = 0.0
        self.lost: list[str] = []
        """What the relay says that it could not relay."""
        self.told: list[ServerNotified] = []
        """The notifications of the upstream server."""
        upstream = App("upstream", "7", instructions="Ask.", capabilities=offered)
        upstream.fallback(print)
        if tasks:
            upstream.handler("tools/call", task="optional")(print)
        self.up = Leg(up, upstream, EVERYTHING)
        self.relay: Relay | None = None
        while self.up.drive():
            pass
        (connected,) = self.up.events
        assert isinstance(connected, Connected)
        self.connected = connected
        self.up.events.clear()
        self.down = Leg(down, relay_app(connected), asked_of)
        self.relay = self.new_relay()
        self.run()
        self.take(self.down.events, Connected)
        self.up.server_events.clear()

    def new_relay(self, **settings: Any) -> Relay:
        relay = Relay(self.down.server, self.up.client, **settings)
        relay.connected(self.connected, now=self.now)
        return relay

    @property
    def client(self) -> Client:
        return self.down.client

    def run(self) -> None:
        moved = True
        assert self.relay
        while moved:
            moved = self.down.drive() | self.up.drive()
            for event in self.down.server_events:
                lost = self.relay.receive_server_event(event, now=self.now)
                self.lost += [lost] if lost else []
            self.told += [each for each in self.up.events if isinstance(each, ServerNotified)]
            for happened in self.up.events:
                lost = self.relay.receive_client_event(happened, now=self.now)
                self.lost += [lost] if lost else []
            moved |= bool(self.down.server_events or self.up.events)
            due = self.relay.next_deadline()
            if due is not None and due <= self.now:
                moved = True
                self.relay.handle_timeout(now=self.now)
            self.down.server_events.clear()
            self.up.events.clear()

    def wait(self, seconds: float) -> None:
        """Let time pass, from one deadline to the next."""
        assert self.relay
        until = self.now + seconds
        while self.now < until:
            machines = [self.relay, *self.down.machines(), *self.up.machines()]
            due = [time for each in machines if (time := each.next_deadline()) is not None]
            self.now = min([until, *(time for time in due if time > self.now)])
            self.down.now = self.up.now = self.now
            for each in machines:
                each.handle_timeout(now=self.now)
            self.run()

    def restart_upstream(self) -> None:
        """Kill the upstream server and start it again; the relay goes on with its client."""
        assert self.relay
        self.up.restart()
        for event in self.up.events:
            self.relay.receive_client_event(event, now=self.now)
        self.up.events.clear()
        self.up.server_events.clear()
        if self.up.transport == STDIO:
            self.relay.replace_upstream(self.up.client)
        self.run()

    def call(self, method: str = "tools/call", params: Any = None, **settings: Any) -> int:
        """The client calls; return its handle."""
        params = {"name": "x", "arguments": {}} if params is None else params
        handle = self.client.call(method, params, now=self.now, **settings)
        self.run()
        return handle

    def arrived(self) -> ServerCall:
        """Return the call that has arrived at the upstream server."""
        return self.take(self.up.server_events, CallReceived).call

    def respond(self, call: ServerCall, result: Any) -> None:
        call.respond(result, now=self.now)
        self.run()

    def outcome(self) -> CallCompleted | CallFailed:
        """Return how the client's call has ended."""
        (found,) = [e for e in self.down.events if isinstance(e, CallCompleted | CallFailed)]
        self.down.events.remove(found)
        return found

    def take(self, events: list[Any], kind: type[_Event]) -> _Event:
        """Remove and return the one event of a kind."""
        (found,) = self.take_all(events, kind)
        return found

    def take_all(self, events: list[Any], kind: type[_Event]) -> list[_Event]:
        """Remove and return the events of a kind."""
        found = [event for event in events if isinstance(event, kind)]
        events[:] = [event for event in events if not isinstance(event, kind)]
        return found
