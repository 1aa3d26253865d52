"""The server's end of HTTP/2 on the bench, with a client of h2 at the other end."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.settings import SettingCodes, Settings

from sansmcp import Idle, ServerCall
from sansmcp.effects import CloseConnection, SendBytes, ServerEffect, Wake
from sansmcp.events import RefusalSent
from sansmcp.http2.frames import PREFACE as PREFACE
from sansmcp.http2.server_connection import ServerConnection

from ..server.harness import BOTH, JSON
from ..server.modern.harness import ModernServerHarness, mirrored, modern, modern_app
from ..timed_harness import Machine, TimedHarness

LARGE_WINDOW = 2**31 - 1


class _Server(ModernServerHarness):
    """A server whose exchanges are driven by a connection."""

    woken: Any = None
    """The exchange that was woken last."""

    def perform(self, effect: ServerEffect) -> None:
        if isinstance(effect, Wake):
            self.woken = effect.exchange
            effect.exchange.driver.wake()
        else:
            super().perform(effect)


class Answered:
    """A response, as far as it has arrived."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.has_ended = False
        self.reset: int | None = None
        """The error code with which the server has reset the stream."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ServerHarness(TimedHarness):
    """A server, a connection to it, and its peer."""

    def __init__(
        self,
        *,
        graceful_timeout: float = 5.0,
        window: int = 65_535,
        authentication: bool = False,
        **settings: Any,
    ) -> None:
        self.machine = _Server(modern_app(), authentication=authentication, **settings)
        super().__init__()
        self.connection = ServerConnection(
            self.machine.server, driver=self, graceful_timeout=graceful_timeout, now=0.0
        )
        self.peer = h2_peer(is_client=True, window=window)
        self.answers: dict[int, Answered] = defaultdict(Answered)
        self.other: list[Event] = []
        """What else the peer has seen."""
        self.sent = b""
        """Bytes of the server that the peer has not taken; all of them if it speaks no HTTP/2."""
        self.takes = True
        self.closed = False
        self.acknowledges = True
        """Whether the peer opens its windows as it reads."""
        self.idle: Idle | None = None
        self.pieces: list[int] = []
        """How many bytes each effect had."""

    # Driving

    def wake(self) -> None:
        while not isinstance(effect := self.connection.next_effect(), Idle):
            assert not self.closed
            if isinstance(effect, SendBytes):
                self.sent += effect.data
                self.pieces.append(len(effect.data))
            else:
                assert isinstance(effect, CloseConnection)
                self.closed = True
        self.idle = effect

    def run_pending(self) -> ServerHarness:
        self.wake()
        self.machine.run_pending()
        self.wake()
        return self

    def turn(self) -> ServerHarness:
        """Give the connection its turns, and the peer what is sent, until nothing moves."""
        self.run_pending()
        while True:
            if self.takes and self.sent:
                self._take()
            elif self.connection.next_deadline() == self.now and self.idle is Idle.PAUSED:
                self.connection.handle_timeout(now=self.now)
                self.run_pending()
            else:
                return self

    def _take(self) -> None:
        data, self.sent = self.sent, b""
        for event in self.peer.receive_data(data):
            match event:
                case ResponseReceived(stream_id=int(number)):
                    headers = {bytes(name): bytes(value) for name, value in event.headers or ()}
                    self.answers[number].status = int(headers.pop(b":status"))
                    self.answers[number].headers = headers
                case DataReceived(stream_id=int(number), flow_controlled_length=int(size)):
                    self.answers[number].body += event.data or b""
                    if self.acknowledges:
                        self.peer.acknowledge_received_data(size, number)
                case StreamEnded(stream_id=int(number)):
                    self.answers[number].has_ended = True
                case StreamReset(stream_id=int(number)):
                    self.answers[number].reset = int(event.error_code or 0)
                case _:
                    self.other.append(event)
        self.flush()

    def feed(self, data: bytes) -> ServerHarness:
        """Bytes from the peer."""
        self.connection.receive_data(data, now=self.now)
        return self.turn()

    def flush(self) -> ServerHarness:
        """Feed what the peer has to send."""
        data = self.peer.data_to_send()
        return self.feed(data) if data else self

    def end(self) -> ServerHarness:
        """The input ends."""
        self.connection.receive_eof(now=self.now)
        return self.turn()

    # Requests

    def begin(self, message: Any = None, **more: str) -> int:
        """Send a request without its body; return the number of its stream."""
        number = self.peer.get_next_available_stream_id()
        self.peer.send_headers(number, request_headers(message or modern(number), **more))
        return number

    def post(self, message: Any = None, **more: str) -> int:
        """Send a request; return the number of its stream."""
        number = self.begin(message, **more)
        self.peer.send_data(number, body_of(message or modern(number)), end_stream=True)
        self.flush()
        return number

    def heads(self, count: int) -> list[bytes]:
        """The frames that open as many further streams, all with the same head."""
        self.begin()
        self.flush()
        number = self.begin()
        data = self.peer.data_to_send()
        return [
            data[:5] + (number + 2 * each).to_bytes(4, "big") + data[9:] for each in range(count)
        ]

    def call(self) -> tuple[int, ServerCall]:
        """Send the request of a call, and return its stream and the call."""
        number = self.post()
        return number, self.machine.last_call()

    @property
    def is_flooded(self) -> bool:
        """Whether the server has ended the connection because of too much."""
        return self.refusals == ["http2_flood"] and self.closed

    @property
    def refusals(self) -> list[str]:
        sent = [event for event in self.machine.events if isinstance(event, RefusalSent)]
        return [event.error.reason for event in sent]

    # The hours after a test

    @property
    def machines(self) -> Sequence[Machine]:
        return (self.machine.server, self.connection)

    def stall(self) -> None:
        self.takes = False

    def stop(self) -> None:
        self.machine.takes_events = True
        self.connection.connection_lost(now=self.now)
        self.run_pending()

    def check_stopped(self) -> None:
        assert self.closed
        assert not self.machine.server.is_busy


def h2_peer(*, is_client: bool, window: int = 65_535, **settings: int) -> H2Connection:
    """An end of h2 that has begun."""
    config = H2Configuration(client_side=is_client, header_encoding=None)
    peer = H2Connection(config)
    named = {SettingCodes[name]: value for name, value in settings.items()}
    peer.local_settings = Settings(
        client=is_client,
        initial_values={
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.INITIAL_WINDOW_SIZE: window,
            **named,
        },
    )
    peer.initiate_connection()
    if window > 65_535:
        peer.increment_flow_control_window(window - 65_535)
    return peer


def body_of(message: Any) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode()


def request_headers(message: Any, **more: str) -> list[tuple[str, str]]:
    """The headers of a POST, with those that repeat a part of the message."""
    found = {} if isinstance(message, bytes) else mirrored(message)
    pairs = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", "/mcp"),
        ("content-type", JSON),
        ("accept", BOTH),
        *((name, value) for name, value in found.items() if value is not None),
    ]
    return pairs + [(name.replace("_", "-"), value) for name, value in more.items()]


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    """The bytes of a frame, right or wrong."""
    return b"%b%c%c%b%b" % (
        len(payload).to_bytes(3, "big"),
        kind,
        flags,
        stream.to_bytes(4, "big"),
        payload,
    )
