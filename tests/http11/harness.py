"""A server connection on the bench: bytes in, bytes out, time by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import h11

from sansmcp import (
    App,
    Idle,
    MemoryStore,
    Server,
    ServerCall,
    ServerConnection,
    ServerSettings,
    h11_parser,
)
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
from sansmcp.testing import sequential_tokens
from sansmcp.types import Unpack

from ..handlers import nothing
from ..messages import PING as PING
from ..timed_harness import Machine, TimedHarness

INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}'
)
CALL = b'{"jsonrpc":"2.0","id":8,"method":"tools/call"}'
HTTP11 = h11_parser.HTTP11
"""The implementation on the bench; see the fixture ``http11``."""

HEADERS = (
    b"host: localhost\r\naccept: application/json, text/event-stream\r\n"
    b"content-type: application/json\r\n"
)

MALFORMED = (
    b"\r\n\r\n",
    b"garbage\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n",
    b"GET /mcp\r\n\r\n",
    b"GET /mcp HTTP/2.0\r\n\r\n",
    b"GET /mcp HTTP/1.1\r\n\r\n",  # no Host
    b"GET /mcp HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    b"GET /m cp HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"GET /mcp HTTP/1.1\r\nhost : localhost\r\n\r\n",
    b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nno colon\r\n\r\n",
    b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx: a\0b\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"content-length: -1\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"content-length: +1\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"content-length: 1_0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\n"
    + HEADERS
    + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: gzip\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: chunked, identity\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: chunked\r\n\r\n-1\r\n",
    b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: chunked\r\n\r\n1\r\nabXX",
    b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"content-length: " + b"9" * 5000 + b"\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"content-length: " + b"1" * 19 + b"\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: chunked\r\n\r\n1;" + b"x" * 300_000,
)
"""What is not HTTP/1.1, or too much of it."""


def post(body: bytes, extra: bytes = b"", path: bytes = b"/mcp") -> bytes:
    """A POST request with a body of known length."""
    length = b"content-length: %d\r\n" % len(body)
    return b"POST " + path + b" HTTP/1.1\r\n" + HEADERS + extra + length + b"\r\n" + body


def chunked(body: bytes, extra: bytes = b"") -> bytes:
    """A POST request whose body comes in chunks of seven bytes."""
    chunks = [body[start : start + 7] for start in range(0, len(body), 7)]
    coded = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    head = b"POST /mcp HTTP/1.1\r\n" + HEADERS + extra + b"transfer-encoding: chunked\r\n\r\n"
    return head + coded + b"0\r\n\r\n"


class Answer:
    """One HTTP response, read back by h11."""

    def __init__(self, status: int, headers: dict[bytes, bytes], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        reason: str = self.json["error"]["data"]["reason"]
        return reason


class ConnectionHarness(TimedHarness):
    """A server and one connection to it."""

    def __init__(self, *, authentication: bool = False, **settings: Unpack[ServerSettings]) -> None:
        app = App("bench")
        app.handler("tools/call")(nothing)
        settings.setdefault("http11", HTTP11)
        self.server = Server(
            app, new_token=sequential_tokens(), authentication=authentication, **settings
        )
        self.store = MemoryStore(self.server.limits)
        self.connection = ServerConnection(self.server, driver=self, now=0.0)
        self.sent = b""
        self.closed = False
        self.reads = True
        """Whether the peer takes what is sent."""
        self.idle: Idle | None = None
        self.calls: list[ServerCall] = []
        self.asked: list[Authenticate] = []
        super().__init__()

    def wake(self) -> None:
        """There is something to send."""
        if not self.reads:
            return
        while not isinstance(effect := self.connection.next_effect(), Idle):
            if isinstance(effect, SendBytes):
                assert not self.closed
                self.sent += effect.data
            else:
                assert isinstance(effect, CloseConnection)
                assert not self.closed
                self.closed = True
        self.idle = effect

    def run_pending(self) -> None:
        self.wake()
        self.server.drive(self.perform, self.happened)
        self.wake()

    def perform(self, effect: ServerEffect) -> None:
        if isinstance(effect, Wake):
            assert effect.exchange.driver is self
            self.wake()
        elif isinstance(effect, Authenticate):
            self.asked.append(effect)
        elif not isinstance(effect, StoreWatch | StoreUnwatch):
            self.server.perform_store_effect(effect, self.store, now=self.now)

    def happened(self, event: ServerEvent) -> None:
        if isinstance(event, CallReceived):
            self.calls.append(event.call)

    def feed(self, data: bytes, size: int | None = None) -> ConnectionHarness:
        """Bytes from the peer, in pieces."""
        size = size or max(1, len(data))
        for start in range(0, len(data), size):
            self.connection.receive_data(data[start : start + size], now=self.now)
            self.run_pending()
            self.take_turns()
        return self

    def take_turns(self) -> int:
        """Let the connection go on while it has more to do at once; returns the number of turns."""
        turns = 0
        while (deadline := self.connection.next_deadline()) is not None and deadline <= self.now:
            self.connection.handle_timeout(now=self.now)
            self.run_pending()
            turns += 1
        return turns

    @property
    def machines(self) -> Sequence[Machine]:
        return (self.connection, self.server)

    def stall(self) -> None:
        self.reads = False

    def stop(self) -> None:
        """Stop without grace; what has not ended by then is broken off."""
        self.reads = True
        self.server.shut_down(now=self.now)
        self.run_pending()
        self.connection.connection_lost(now=self.now)
        self.run_pending()

    def check_stopped(self) -> None:
        assert self.closed
        assert not self.server.is_busy
        assert self.server.sessions == ()

    def answers(self, *methods: str) -> list[Answer]:
        """What was sent, as responses to requests with these methods; by default to POSTs."""
        reader = h11.Connection(h11.CLIENT)
        reader.receive_data(self.sent)
        if self.closed:
            reader.receive_data(b"")
        found: list[Answer] = []
        pending = list(methods) or ["POST"] * 1000
        while pending and (reader.trailing_data[0]):
            reader.send(h11.Request(method=pending.pop(0), target="/", headers=[("host", "x")]))
            reader.send(h11.EndOfMessage())
            body = b""
            while not isinstance(event := reader.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Response):
                    found.append(Answer(event.status_code, dict(event.headers), b""))
                elif isinstance(event, h11.Data):
                    body += event.data
                elif not isinstance(event, h11.InformationalResponse):
                    break
            found[-1].body = body
            if reader.our_state is not h11.DONE or reader.their_state is not h11.DONE:
                break
            reader.start_next_cycle()
        return found

    def answer(self, method: str = "POST") -> Answer:
        (answer,) = self.answers(method)
        return answer

    def session(self) -> bytes:
        """Open a session on this connection; returns the header that names it."""
        self.feed(post(INITIALIZE))
        session = self.answer().headers[b"mcp-session-id"]
        self.sent = b""
        return b"mcp-session-id: " + session + b"\r\n"


def close_peer_sending(harness: ConnectionHarness) -> None:
    harness.connection.receive_eof(now=harness.now)
    harness.run_pending()
