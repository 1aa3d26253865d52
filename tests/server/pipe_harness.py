"""A server on stdio on the bench: lines in and out, and the time by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sansmcp import App, Idle, ServerCall, ServerPipe, ServerSettings
from sansmcp.effects import CloseConnection, SendBytes

from ..timed_harness import Machine, TimedHarness
from .harness import LATEST, ServerHarness, initialize, notification, request

if TYPE_CHECKING:
    from sansmcp import Session

from sansmcp.types import Unpack


class Pipe(TimedHarness):
    """The server's end of stdio, and what came out of it."""

    def __init__(
        self,
        app: App | None = None,
        *,
        graceful_timeout: float = 5.0,
        **settings: Unpack[ServerSettings],
    ) -> None:
        settings.setdefault("resumable", False)
        self.harness = ServerHarness(app, **settings)
        super().__init__()
        self.graceful_timeout = graceful_timeout
        self.output = b""
        self.closed = False
        self.idle: Idle | None = None
        self.reads = True
        """Whether the client takes what is sent."""
        self.pipe = ServerPipe(
            self.harness.server, driver=self, graceful_timeout=graceful_timeout, now=0.0
        )

    # Driving

    def feed(self, data: bytes) -> Pipe:
        self.pipe.receive_data(data, now=self.harness.now)
        return self.run_pending()

    def end(self) -> Pipe:
        """The input ends."""
        self.pipe.receive_eof(now=self.harness.now)
        return self.run_pending()

    def lose(self) -> Pipe:
        """Nobody reads the output any more."""
        self.pipe.connection_lost(now=self.harness.now)
        return self.run_pending()

    def run_pending(self) -> Pipe:
        self.pull()
        self.harness.run_pending()
        return self

    def pull(self) -> None:
        """Do what a driver does: write until there is nothing to write."""
        while self.reads:
            match self.pipe.next_effect():
                case SendBytes(data):
                    assert not self.closed
                    self.output += data
                case CloseConnection():
                    assert not self.closed
                    self.closed = True
                case Idle() as idle:
                    self.idle = idle
                    return

    @property
    def machines(self) -> Sequence[Machine]:
        return (self.harness.server, self.pipe)

    def stall(self) -> None:
        self.reads = False

    def stop(self) -> None:
        """Let the client go."""
        self.reads = True
        self.lose()

    def check_stopped(self) -> None:
        assert self.closed
        assert not self.harness.server.is_busy

    # Messages

    def say(self, *messages: Any) -> Pipe:
        """The client writes each message as a line; bytes as they are."""
        return self.feed(b"".join(line(message) for message in messages))

    @property
    def said(self) -> list[Any]:
        """What the server has written since the last look; each line has to be one."""
        lines = self.output.split(b"\n")
        assert lines.pop() == b""
        self.output = b""
        assert all(b"\r" not in each for each in lines)
        return [json.loads(each) for each in lines]

    def open(self, version: str = LATEST, capabilities: Mapping[str, Any] | None = None) -> Pipe:
        """The whole handshake."""
        ready = notification("notifications/initialized")
        (answer,) = self.say(initialize(version, capabilities), ready).said
        assert answer["result"]["protocolVersion"] == version
        self.harness.events.clear()
        return self

    def call(self, id: Any = 1, method: str = "tools/call", **params: Any) -> ServerCall:
        """A request, and the call that the application gets."""
        self.say(request(id, method, **params))
        return self.harness.last_call()

    @property
    def session(self) -> Session:
        (session,) = self.harness.server.sessions
        return session

    @property
    def events(self) -> list[type]:
        """The kinds of events since the last look."""
        kinds: list[type] = [type(event) for event in self.harness.events]
        self.harness.events.clear()
        return kinds


def line(message: Any) -> bytes:
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return data + b"\n"


def result(id: Any, value: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": {} if value is None else value}


def reason(answer: dict[str, Any]) -> tuple[int, str]:
    """What a refusal is about."""
    error = answer["error"]
    assert error["message"]
    assert "\n" not in error["message"]
    return error["code"], error["data"]["reason"]
