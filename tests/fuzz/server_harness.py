"""A server whose handlers do random things that handlers may do, and its clients."""

from __future__ import annotations

import json
from typing import Any

from sansmcp import (
    App,
    Idle,
    LocalProtocolError,
    MemoryStore,
    Server,
    ServerCall,
    ServerConnection,
    ServerPipe,
    StateSigner,
)
from sansmcp.app import TaskRule
from sansmcp.effects import (
    Authenticate,
    CloseConnection,
    SendBytes,
    ServerEffect,
    StoreUnwatch,
    StoreWatch,
    Wake,
)
from sansmcp.events import CallReceived, ServerEvent
from sansmcp.http2.server_connection import ServerConnection as Http2Connection
from sansmcp.input_required import InputRequest, InputRequired
from sansmcp.testing import sequential_tokens
from sansmcp.trace import Tracer

from ..handlers import nothing
from .mutations import Mutator

CLIENT: dict[str, Any] = {
    "capabilities": {"elicitation": {}, "sampling": {}},
    "clientInfo": {"name": "fuzz"},
}
PREFIX = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
META: dict[str, Any] = {
    f"{PREFIX}protocolVersion": MODERN,
    f"{PREFIX}clientCapabilities": {"elicitation": {}},
    f"{PREFIX}clientInfo": {"name": "fuzz", "version": "1"},
}
HOURS = 20_000.0


def message(method: str, id: Any = None, **params: Any) -> bytes:
    members: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(members if id is None else {**members, "id": id}).encode()


def initialize(version: str) -> bytes:
    return message("initialize", 0, protocolVersion=version, **CLIENT)


LEGACY_MESSAGES = [
    *(initialize(version) for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")),
    message("notifications/initialized"),
    message("ping", 1),
    message(
        "tools/call", 2, name="x", arguments={"a": [1, 2.5, "\u00e9"]}, _meta={"progressToken": 7}
    ),
    message("notifications/cancelled", requestId=2, reason="no"),
    message("logging/setLevel", 3, level="debug"),
    b'{"jsonrpc":"2.0","id":1,"result":{"action":"accept","content":{}}}',
    b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":{"a":1}}}',
    b"[" + message("ping", 4) + b"," + message("tools/call", 5, name="y") + b"]",
    b'[{"jsonrpc":"2.0","id":"t-1.q","result":{}}]',
]
MODERN_MESSAGES = [
    message("server/discover", 1, _meta=META),
    message("tools/call", 2, name="x", arguments={"a": 1}, _meta={**META, "progressToken": 1}),
    message(
        "tools/call",
        3,
        name="x",
        inputResponses={"q": {"action": "accept"}},
        requestState="s",
        _meta=META,
    ),
    message(
        "subscriptions/listen",
        4,
        _meta=META,
        notifications={"toolsListChanged": True, "resourceSubscriptions": ["file:///a"]},
    ),
    message("notifications/cancelled", requestId=4, _meta=META),
]


def post(body: bytes, *headers: bytes, target: bytes = b"/mcp") -> bytes:
    lines = (
        b"POST %b HTTP/1.1" % target,
        b"host: localhost",
        b"accept: application/json, text/event-stream",
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        *headers,
    )
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def get(*headers: bytes, target: bytes = b"/mcp", method: bytes = b"GET") -> bytes:
    lines = (b"%b %b HTTP/1.1" % (method, target), b"host: localhost", *headers)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def chunked(body: bytes, *headers: bytes) -> bytes:
    chunks = b"".join(
        b"%x;a=b\r\n%b\r\n" % (len(body[i : i + 30]), body[i : i + 30])
        for i in range(0, len(body), 30)
    )
    head = post(b"", b"transfer-encoding: chunked", *headers)
    return head.replace(b"content-length: 0\r\n", b"") + chunks + b"0\r\nx-trailer: y\r\n\r\n"


def http_corpus(session: bytes, cursor: bytes) -> list[bytes]:
    """Return requests, some of them in this session."""
    sid = b"mcp-session-id: " + session
    stream = b"accept: text/event-stream"
    modern = (b"mcp-protocol-version: 2026-07-28",)
    corpus = [post(each, sid, b"mcp-protocol-version: 2025-11-25") for each in LEGACY_MESSAGES]
    for each in MODERN_MESSAGES:
        method = json.loads(each)["method"].encode()
        corpus.append(post(each, *modern, b"mcp-method: " + method, b"mcp-name: x"))
    corpus += [
        post(initialize("2025-11-25")),
        post(message("ping", 1), target=b"http://localhost/mcp"),
    ]
    corpus += [chunked(message("tools/call", 9, name="x"), sid), chunked(message("ping", 1), sid)]
    corpus += [get(sid, stream), get(sid, stream, b"last-event-id: " + cursor)]
    corpus += [get(sid, method=b"DELETE"), get(stream, target=b"/sse")]
    corpus += [post(message("ping", 1), target=b"/messages?session_id=" + session)]
    corpus += [post(message("ping", 1), sid) + post(message("ping", 2), sid)]
    corpus += [post(message("ping", 1), sid, b"expect: 100-continue", b"origin: http://localhost")]
    return corpus


class World:
    """A server, its connections, and the time."""

    steps = 0
    """Effects performed and events taken so far, those of connections included."""

    def __init__(self, seed: int, *, task: TaskRule = None, **settings: Any) -> None:
        self.random = Mutator(seed)
        app = App("fuzz", "1")
        app.handler("tools/call", task=task)(nothing)
        for method in ("prompts/get", "resources/read", "logging/setLevel"):
            app.handler(method)(nothing)
        self.now = 0.0
        self.server = Server(
            app,
            new_token=sequential_tokens(f"token-{seed}"),
            http_sse="/sse",
            state_signer=StateSigner(keys=(b"k" * 32,), clock=lambda: self.now),
            trace=Tracer("server", lambda line: None) if seed % 2 else None,
            **settings,
        )
        self.store = MemoryStore(self.server.limits)
        self.running: list[ServerCall] = []

    def run_pending(self) -> None:
        self.server.drive(self.perform, self.happened)

    def perform(self, effect: ServerEffect) -> None:
        self.steps += 1
        if isinstance(effect, Wake):
            driver: Any = effect.exchange.driver
            driver.wake()
        elif not isinstance(effect, StoreWatch | StoreUnwatch):  # its store is polled
            assert not isinstance(effect, Authenticate), "nobody is authenticated here"
            self.server.perform_store_effect(effect, self.store, now=self.now)

    def happened(self, event: ServerEvent) -> None:
        self.steps += 1
        if not isinstance(event, CallReceived):
            return
        call = event.call
        try:
            match self.random.randrange(6):
                case 0:
                    call.respond_error(-1, "no", now=self.now)
                case 1:
                    call.progress(1, 2, "half", now=self.now)
                    self.running.append(call)
                case 2:
                    call.ask("elicitation/create", {"message": "?"}, timeout=30, now=self.now)
                    self.running.append(call)
                case 3:
                    input_request = InputRequest("elicitation/create", {"message": "?"})
                    call.respond(InputRequired({"q": input_request}, state={"n": 1}), now=self.now)
                case _:
                    call.respond({"content": []}, now=self.now)
        except LocalProtocolError:  # this client takes no server requests
            call.respond({}, now=self.now)

    def finish_calls(self) -> None:
        """End all running handlers."""
        for call in self.running:
            if call.is_running:
                call.respond({"late": True}, now=self.now)
        self.running.clear()
        self.run_pending()

    def wait(self, seconds: float, *peers: Peer) -> None:
        end = self.now + seconds
        for _ in range(100_000):
            machines = (self.server, *(peer.machine for peer in peers))
            deadlines = [machine.next_deadline() for machine in machines]
            due = min((each for each in deadlines if each is not None), default=None)
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            for machine in machines:
                machine.handle_timeout(now=self.now)
            for peer in peers:
                peer.wake()
            self.run_pending()
        else:
            raise AssertionError("a deadline that does not pass")
        self.now = end


class Peer:
    """A connection or pipe of the server. It is the driver of its machine."""

    def __init__(self, world: World, machine: Any) -> None:
        self.world, self.sent, self.is_closed = world, bytearray(), False
        self.machine: ServerConnection | ServerPipe | Http2Connection = machine(
            world.server, driver=self, now=world.now
        )

    def wake(self) -> None:
        for _ in range(100_000):
            self.world.steps += 1
            match self.machine.next_effect():
                case SendBytes(data):
                    self.sent += data
                case CloseConnection():
                    self.is_closed = True
                case Idle():
                    return
        raise AssertionError("effects without end")

    def feed(self, *pieces: bytes) -> bytes:
        """Feed bytes, and return the bytes that the server sends."""
        self.sent.clear()
        for piece in pieces:
            self.machine.receive_data(piece, now=self.world.now)
            self.wake()
            self.world.run_pending()
        return bytes(self.sent)

    def end(self) -> None:
        self.machine.receive_eof(now=self.world.now)
        self.wake()
        self.world.run_pending()


class Bystander:
    """A client with a session that the other requests must not affect."""

    def __init__(self, world: World) -> None:
        self.peer = Peer(world, ServerConnection)
        response = self.peer.feed(post(initialize("2025-11-25")))
        self.header = session_header(response)
        self.peer.feed(post(message("notifications/initialized"), self.header))

    def is_answered(self) -> bool:
        if self.peer.is_closed:  # it was idle for keep_alive_timeout
            self.peer = Peer(self.peer.world, ServerConnection)
        response = self.peer.feed(post(message("ping", "bystander"), self.header))
        return response.startswith(b"HTTP/1.1 200 ") and b'"id":"bystander","result":{}' in response


def session_header(response: bytes) -> bytes:
    (line,) = [each for each in response.split(b"\r\n") if each.startswith(b"mcp-session-id: ")]
    return line


def ended(world: World) -> bool:
    """Return True if nothing is pending after shut_down() and all timeouts."""
    world.finish_calls()
    world.server.shut_down(now=world.now)
    world.run_pending()
    world.wait(HOURS)
    return not (world.server.sessions or world.server.is_busy or world.server.next_deadline())
