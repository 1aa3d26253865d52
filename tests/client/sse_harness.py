"""A client on the bench that knows its server for one of HTTP+SSE: one stream, and POSTs."""

from __future__ import annotations

from typing import Any

from sansmcp import (
    BodyData,
    CallError,
    ClientSettings,
    Era,
    KnownServers,
    NegotiationFailed,
    encode_event,
)
from sansmcp.codecs.sse import KEEP_ALIVE
from sansmcp.events import Closed
from sansmcp.states import ClientState
from sansmcp.types import Unpack

from .harness import LATEST, URL, Asked, ClientHarness, initialized

ENDPOINT = "/messages?s=4f1c"


class SseHarness(ClientHarness):
    """A client, its stream, and the time."""

    stream: Asked
    """The stream that was opened last."""

    def __init__(self, **settings: Unpack[ClientSettings]) -> None:
        known_servers = KnownServers()
        known_servers.remember(URL, "http+sse", Era.LEGACY)
        options: ClientSettings = {"known_servers": known_servers, **settings}
        super().__init__(**options)

    def start(self) -> SseHarness:
        self.run_command(self.client.start)
        return self

    def locate(self, endpoint: str = ENDPOINT) -> Asked:
        """The stream opens and names the endpoint; gives the POST of ``initialize``."""
        self.stream = self.take("GET")
        self.stream.open_stream()
        tell_endpoint(self.stream, endpoint)
        return self.take()

    def initialize(self, version: str = LATEST, session: str | None = None) -> None:
        self.take_initialize(version)
        self.take().accept()
        self.events.clear()

    def take_initialize(self, version: str = LATEST, session: str | None = None) -> Asked:
        asked = self.locate()
        asked.accept()
        self.say(initialized(asked.id, version))
        return asked

    def connect(self, version: str = LATEST, session: str | None = None) -> SseHarness:
        self.start().initialize(version)
        return self

    def say(self, *messages: Any) -> None:
        """Events of the stream; bytes are taken as they are."""
        for message in messages:
            self.stream.event(message)

    def keep_alive(self, seconds: float) -> None:
        """Let time pass while the server sends comments."""
        for _ in range(int(seconds)):
            self.wait(1)
            self.stream.feed(BodyData(KEEP_ALIVE))

    def make(self, method: str = "tools/call", **options: Any) -> tuple[int, int]:
        """A call whose POST was accepted: its handle, and the id of its request."""
        handle, asked = self.call(method, **options)
        asked.accept()
        return handle, asked.id

    def closed(self) -> CallError | None:
        """The client is closed, nothing is left to do, and why."""
        event = self.events.pop()
        assert isinstance(event, Closed)
        assert not any(isinstance(event, Closed) for event in self.events)
        assert self.client.state is ClientState.CLOSED
        assert self.client.next_deadline() is None
        return event.error

    def failure(self) -> CallError:
        """Why HTTP+SSE does not work here; nothing else does, either."""
        assert self.events == []
        post = self.take()
        assert not post.aborted
        post.refuse(405)
        error = self.closed()
        assert isinstance(error, NegotiationFailed)
        assert str(error.attempts[0]) in str(error)
        return error.attempts[0]


def tell_endpoint(stream: Asked, endpoint: str = ENDPOINT) -> None:
    stream.feed(BodyData(encode_event(endpoint.encode(), event="endpoint")))
