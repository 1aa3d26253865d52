"""A client on the bench: its HTTP requests recorded, the responses given by hand, time by hand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from sansmcp import (
    BodyData,
    BodyEnd,
    CallError,
    Client,
    ClientSettings,
    ConnectionLost,
    Idle,
    ReconnectPolicy,
    ResponseHead,
    encode_event,
)
from sansmcp.effects import AbortExchange, ClientEffect, OpenExchange
from sansmcp.events import CallFailed, ClientEvent
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp.states import ClientState
from sansmcp.types import Unpack

from ..messages import LATEST as LATEST
from ..messages import error as error
from ..messages import initialized as initialized
from ..messages import notification as notification
from ..messages import request as request
from ..messages import response as response
from ..timed_harness import Machine, TimedHarness

URL = "http://localhost:8000/mcp"
SESSION = "session-secret-0001"
POLICY = ReconnectPolicy(initial_delay=1.0, max_delay=8.0, max_attempts=4)
ONCE = ReconnectPolicy(max_attempts=0)
"""Nothing that fails is tried again, so what a failure means is seen at once."""


@attrs.define(eq=False)
class Asked:
    """One HTTP request of the client, and the ways to answer it."""

    harness: ClientHarness
    effect: OpenExchange
    aborted: bool = False
    ended: bool = False
    """Whether the response has come to its end, or was broken off by the server."""

    @property
    def is_over(self) -> bool:
        return self.aborted or self.ended

    @property
    def method(self) -> str:
        return self.effect.head.method.decode()

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.effect.head.headers if key == name.encode()]
        assert len(values) < 2
        return values[0].decode() if values else None

    @property
    def json(self) -> Any:
        return json.loads(self.effect.body)

    @property
    def id(self) -> Any:
        return self.json["id"]

    def feed(self, *parts: ResponseHead | BodyData | BodyEnd | ConnectionLost) -> None:
        for part in parts:
            self.ended = self.ended or isinstance(part, BodyEnd | ConnectionLost)
            self.harness.client.receive_part(self.effect.exchange, part, now=self.harness.now)
            self.harness.run_pending()

    def head(self, status: int = 200, **headers: str) -> None:
        pairs = tuple(
            (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
        )
        self.feed(ResponseHead(status=status, headers=pairs))

    def answer(self, message: Any, status: int = 200, **headers: str) -> None:
        """A whole JSON response; bytes are taken as they are."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.head(status, content_type="application/json", **headers)
        self.feed(BodyData(body), BodyEnd())

    def result(self, result: Any = None) -> None:
        """The JSON answer with a result."""
        self.answer({"jsonrpc": "2.0", "id": self.id, "result": {} if result is None else result})

    def refuse(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.head(status, **headers)
        self.feed(BodyData(body), BodyEnd())

    def accept(self) -> None:
        """202, as for notifications."""
        self.refuse(202)

    def open_stream(self) -> None:
        self.head(content_type="text/event-stream")

    def event(self, data: Any = b"", id: str | None = None, retry: int | None = None) -> None:
        """An event of the stream; ``data`` is bytes, or a JSON value."""
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.feed(BodyData(encode_event(body, id=id, retry=retry)))

    def end(self) -> None:
        self.feed(BodyEnd())

    def cut(self, reason: str = "cable cut") -> None:
        self.feed(ConnectionLost(reason))


def client_with_keys(url: str, jitter: float, options: ClientSettings) -> Client:
    """A client that can make keys of calls: from 1 on, in the order in which they are made."""
    numbers = itertools.count(1)
    return Client(
        url,
        jitter=lambda: jitter,
        random_bytes=lambda count: next(numbers).to_bytes(count, "big"),
        **options,
    )


class ClientHarness(TimedHarness):
    """A client, what it asks for, what it tells, and the time."""

    def __init__(
        self, *, jitter: float = 0.5, url: str = URL, **settings: Unpack[ClientSettings]
    ) -> None:
        options: ClientSettings = {
            "reconnect": POLICY,
            "standalone_stream": False,
            "versions": HANDSHAKE_VERSIONS,
            **settings,
        }
        self.client = self.make_client(url, jitter, options)
        self.requests: list[Asked] = []
        """What the client asked for and the test has not taken."""
        self.events: list[ClientEvent] = []
        self.takes_events = True
        self.is_paused = False
        self._asked: dict[int, Asked] = {}
        super().__init__()

    def make_client(self, url: str, jitter: float, options: ClientSettings) -> Client:
        """The machine; tests of authorization give it a clock and random bytes."""
        return Client(url, jitter=lambda: jitter, **options)

    def run_pending(self) -> None:
        if self.takes_events:
            self.client.drive(self.perform, self.events.append)
        while not isinstance(effect := self.client.next_effect(), Idle):
            self.perform(effect)
        self.is_paused = effect is Idle.PAUSED

    def perform(self, effect: ClientEffect) -> None:
        if isinstance(effect, AbortExchange):
            self._asked[effect.exchange].aborted = True
        else:
            assert isinstance(effect, OpenExchange)
            asked = self._asked[effect.exchange] = Asked(self, effect)
            self.requests.append(asked)

    def run_command(self, command: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        result = command(*arguments, now=self.now, **options)
        self.run_pending()
        return result

    @property
    def machines(self) -> Sequence[Machine]:
        return (self.client,)

    def stall(self) -> None:
        """Let the application take no events."""
        self.takes_events = False

    def stop(self) -> None:
        """Close the client; its server stays silent."""
        self.takes_events = True
        self.run_command(self.client.close)

    def check_stopped(self) -> None:
        """The client is closed, and every exchange has ended or was broken off."""
        assert self.client.state is ClientState.CLOSED
        assert isinstance(self.client.next_effect(), Idle)
        assert [asked for asked in self._asked.values() if not asked.is_over] == []

    def take(self, method: str = "POST") -> Asked:
        """The one request that the client has made."""
        (asked,) = self.requests
        self.requests.clear()
        assert asked.method == method
        return asked

    def take_events(self) -> list[ClientEvent]:
        events = self.events.copy()
        self.events.clear()
        return events

    def connect(self, version: str = LATEST, session: str | None = SESSION) -> ClientHarness:
        """The whole handshake."""
        self.run_command(self.client.start)
        self.initialize(version, session)
        return self

    def initialize(self, version: str = LATEST, session: str | None = SESSION) -> None:
        self.take_initialize(version, session)
        self.take().accept()
        self.events.clear()

    def take_initialize(self, version: str = LATEST, session: str | None = SESSION) -> Asked:
        asked = self.take()
        if session is None:
            asked.answer(initialized(asked.id, version))
        else:
            asked.answer(initialized(asked.id, version), mcp_session_id=session)
        return asked

    def call(self, method: str = "tools/call", **options: Any) -> tuple[int, Asked]:
        handle = self.run_command(self.client.call, method, **options)
        assert isinstance(handle, int)
        return handle, self.take()


def open_call(harness: ClientHarness, id: str | None = "e1", **options: Any) -> tuple[int, Asked]:
    """A call whose stream has begun, and has given an id."""
    handle, asked = harness.call(**options)
    asked.open_stream()
    if id is not None:
        asked.event(id=id)
    return handle, asked


def only_failure(harness: ClientHarness, handle: int) -> CallError:
    (event,) = [e for e in harness.take_events() if isinstance(e, CallFailed)]
    assert event.call == handle
    return event.error
