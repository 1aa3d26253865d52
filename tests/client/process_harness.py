"""A client whose server is a process: what is done to it is recorded, what it says is fed."""

from __future__ import annotations

import json
from typing import Any

from sansmcp import CallError, Client, ClientSettings
from sansmcp.effects import (
    AbortExchange,
    ClientEffect,
    KillProcess,
    OpenExchange,
    StartProcess,
    WriteStdin,
)
from sansmcp.events import Closed
from sansmcp.process import (
    ProcessExited,
    ProcessPart,
    ProcessStartFailed,
    StderrClosed,
    StderrData,
    StdoutClosed,
    StdoutData,
)
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp.states import ClientState
from sansmcp.types import Unpack

from .harness import LATEST, ClientHarness, initialized, notification, request

COMMAND = ("python", "server.py")


class ProcessHarness(ClientHarness):
    """A client, its process, and the time."""

    def __init__(self, **settings: Unpack[ClientSettings]) -> None:
        super().__init__(**settings)
        options: ClientSettings = {"versions": HANDSHAKE_VERSIONS, **settings}
        self.client = Client(COMMAND, jitter=float, **options)
        self.did: list[ClientEffect] = []
        """What was done to the process, but for writing to it."""
        self._looked = 0
        self.input = b""
        """What was written to the process and the test has not taken."""

    def perform(self, effect: ClientEffect) -> None:
        assert not isinstance(effect, OpenExchange | AbortExchange)
        if isinstance(effect, WriteStdin):
            assert self.did == [StartProcess(COMMAND)]
            self.input += effect.data
        else:
            assert effect not in self.did or effect == KillProcess()
            self.did.append(effect)

    # What the process says

    def feed(self, *parts: ProcessPart) -> None:
        for part in parts:
            self.client.receive_process_part(part, now=self.now)
            self.run_pending()

    def say(self, *messages: Any) -> None:
        """Each message is a line; bytes are taken as they are."""
        self.feed(StdoutData(b"".join(line(message) for message in messages)))

    def ask(self, id: Any = "q", method: str = "elicitation/create", **params: Any) -> None:
        self.say(request(id, method, **params))

    def progress(self, token: Any, progress: float = 1) -> None:
        self.say(notification("notifications/progress", progressToken=token, progress=progress))

    def log(self, text: str) -> None:
        self.feed(StderrData(text.encode()))

    def exit(self, status: int = 0) -> None:
        """The process ends, and so does its output."""
        self.feed(ProcessExited(status), StderrClosed(), StdoutClosed())

    def fail_to_start(self, reason: str) -> None:
        self.feed(ProcessStartFailed(reason))

    # What the client does

    @property
    def written(self) -> list[Any]:
        """The messages since the last look; each line has to be one."""
        lines = self.input.split(b"\n")
        assert lines.pop() == b""
        self.input = b""
        return [json.loads(each) for each in lines]

    @property
    def done(self) -> list[str]:
        """What was done to the process since the last look."""
        names = [type(effect).__name__ for effect in self.did[self._looked :]]
        self._looked = len(self.did)
        return names

    def start(self) -> ProcessHarness:
        """Up to ``initialize``."""
        self.run_command(self.client.start)
        (message,) = self.written
        assert (message["id"], message["method"]) == (0, "initialize")
        return self

    def connect(self, version: str = LATEST, session: str | None = None) -> ProcessHarness:
        self.start().say(initialized(0, version))
        assert self.written == [{"jsonrpc": "2.0", "method": "notifications/initialized"}]
        self.take_events()
        return self

    def make(self, method: str = "tools/call", **options: Any) -> tuple[int, int]:
        """A call: its handle, and the id of its request."""
        handle = self.run_command(self.client.call, method, **options)
        (message,) = self.written
        assert isinstance(handle, int)
        assert isinstance(message["id"], int)
        assert message["method"] == method
        return handle, message["id"]

    def closed(self) -> CallError | None:
        """The client is closed, nothing is left to do, and why."""
        event = self.events.pop()
        assert isinstance(event, Closed)
        assert not any(isinstance(event, Closed) for event in self.events)
        assert self.client.state is ClientState.CLOSED
        assert self.client.next_deadline() is None
        return event.error


def line(message: Any) -> bytes:
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return data + b"\n"
