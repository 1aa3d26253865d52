"""Pairs of a client and a server process whose bytes are cut off in the middle of a frame.

What happens, the pieces in which bytes arrive, the byte after which one end is gone and the manner
in which it goes are drawn by a seed. Whatever they are, each call ends exactly once, and at once if
the process is gone. It has a result if that has arrived as a whole, and only then. At the server
each call of 2026-07-28 is over when the client is gone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from sansmcp import Idle, ServerCall
from sansmcp.effects import CloseStdin, KillProcess, TerminateProcess, WriteStdin
from sansmcp.events import (
    CallCancelled,
    CallCompleted,
    CallFailed,
    CallReceived,
    ClientEvent,
    Closed,
    Connected,
)
from sansmcp.http2.frames import FrameType
from sansmcp.http2.pipe_client import PipeClient
from sansmcp.process import (
    ProcessExited,
    ProcessPart,
    StderrClosed,
    StderrData,
    StdoutClosed,
    StdoutData,
)

from .harness import LARGE_WINDOW, ServerHarness

SIZES = (0, 0, 10, 2_000, 20_000, 100_000)
ACTIONS = (
    *("call", "call", "cancel", "progress", "respond", "respond"),
    *("up", "up", "down", "down", "down"),
)
REACHED: Counter[str] = Counter()
"""What the cases of this process have come to."""


class Delivered:
    """What the client got of the frames of the server: which bodies, and which of them whole."""

    def __init__(self) -> None:
        self._unread = b""
        self.bodies: dict[int, bytes] = {}
        self.whole: set[int] = set()

    def receive(self, data: bytes) -> None:
        self._unread += data
        while len(self._unread) >= 9:
            end = 9 + int.from_bytes(self._unread[:3], "big")
            if len(self._unread) < end:
                return
            kind, flags = self._unread[3:5]
            stream = int.from_bytes(self._unread[5:9], "big")
            if kind == FrameType.DATA:
                body = self.bodies.get(stream, b"") + self._unread[9:end]
                self.bodies[stream] = body
                if flags & 1:
                    self.whole.add(stream)
            self._unread = self._unread[end:]

    @property
    def is_within_a_frame(self) -> bool:
        return bool(self._unread)

    def has(self, number: int, *, whole: bool) -> bool:
        """Whether the result of a call has arrived."""
        mark = _mark(number).encode()
        streams = self.whole if whole else self.bodies
        return any(mark in self.bodies[stream] for stream in streams)


def _mark(number: int) -> str:
    return f"the end of {number}."


class Pair:
    """A client and a server, and what is on its way between them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        versions = self.random.choice((("2026-07-28",), ("2025-11-25",)))
        self.client = PipeClient(
            ["server"], jitter=lambda: 0.0, known_servers=None, versions=versions
        )
        self.server = ServerHarness(window=LARGE_WINDOW)
        self.server.takes = False
        self.up: bytes = b""
        self.down: bytes = b""
        self.delivered = Delivered()
        self.ended: Counter[int] = Counter()
        self.completed: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}
        """The number of each call by its handle."""
        self.cancelled: set[int] = set()
        self.running: list[ServerCall] = []
        self.seen = 0
        """How many of the server's events were looked at."""
        self.reports = 0
        self.has_opened = False
        self.closed: Closed | None = None
        self.is_ending = False
        self.left = self.random.choice((100, 4_000, 8_000, 20_000, 60_000, 300_000))
        self.left = self.random.randrange(self.left + 200)
        """Bytes until the cut."""

    # Carrying

    def turn(self) -> None:
        """Let both ends do what they have to do, but carry nothing."""
        while True:
            while not isinstance(effect := self.client.next_effect(), Idle):
                if isinstance(effect, WriteStdin):
                    self.up += effect.data
                elif isinstance(effect, CloseStdin | TerminateProcess | KillProcess):
                    self.is_ending = True
            event = self.client.next_event()
            if isinstance(event, Idle):
                break
            self._happened(event)
        self.server.turn()
        data, self.server.sent = self.server.sent, b""
        self.down += data
        events = self.server.machine.events
        while self.seen < len(events):
            found = events[self.seen]
            self.seen += 1
            if isinstance(found, CallReceived):
                self.running.append(found.call)

    def _happened(self, event: ClientEvent) -> None:
        match event:
            case Connected():
                self.has_opened = True
            case CallCompleted(call=handle):
                self.ended[handle] += 1
                self.completed[handle] = event.result
            case CallFailed(call=handle):
                self.ended[handle] += 1
            case Closed():
                assert self.closed is None
                self.closed = event
            case _:
                pass

    def carry(self, *, up: bool, size: int | None = None) -> None:
        """Carry some bytes, but none beyond the cut."""
        waiting = self.up if up else self.down
        most = min(len(waiting), self.left)
        size = min(
            most, self.random.choice((1, 9, 100, 5_000, most, most)) if size is None else size
        )
        data = waiting[:size]
        self.left -= size
        if up:
            self.up = waiting[size:]
            if data:
                self.server.feed(data)
        else:
            self.down = waiting[size:]
            self.hear(StdoutData(data))
        self.turn()

    def hear(self, part: ProcessPart) -> None:
        """A part of the process reaches the client."""
        if isinstance(part, StdoutData):
            self.delivered.receive(part.data)
            if not part.data:
                return
        self.client.receive_process_part(part, now=self.now)
        self.turn()

    # What happens

    def act(self) -> None:
        """Something happens, that was drawn."""
        match self.random.choice(ACTIONS):
            case "call" if self.has_opened and not self.is_ending and len(self.numbers) < 12:
                number = len(self.numbers)
                arguments = {"n": number, "text": "x" * self.random.choice(SIZES)}
                handle = self.client.call(
                    "tools/call",
                    {"name": "add", "arguments": arguments},
                    idempotent=self.random.random() < 0.5,
                    now=self.now,
                )
                self.numbers[handle] = number
            case "cancel" if self.numbers:
                handle = self.random.choice(tuple(self.numbers))
                if not self.ended[handle] and self.random.random() < 0.4:
                    self.client.cancel(handle, now=self.now)
                    self.cancelled.add(handle)
            case "progress" if self.running:
                self.reports += 1
                self.random.choice(self.running).progress(self.reports, now=self.server.now)
            case "respond" if self.running:
                call = self.running.pop(self.random.randrange(len(self.running)))
                self._respond(call)
            case "up":
                self.carry(up=True)
            case _:
                self.carry(up=False)
        self.turn()

    def _respond(self, call: ServerCall) -> None:
        number = (call.request.params or {})["arguments"]["n"]
        text = "y" * self.random.choice(SIZES) + _mark(number)
        call.respond({"content": [{"type": "text", "text": text}]}, now=self.server.now)

    # Ends

    def process_ends(self) -> None:
        """The process is killed; what it has written before is read."""
        parts: list[ProcessPart] = [
            StderrData(b"the end is near\n"),
            StdoutClosed(),
            StderrClosed(),
            ProcessExited(-9),
        ]
        if self.random.random() < 0.3:
            parts = [ProcessExited(-9), *parts[:3]]
        for part in parts:
            self.hear(part)

    def output_ends(self) -> None:
        """The process closes its output and lives on, until it is ended."""
        self.hear(StdoutClosed())
        for _ in range(20):
            if self.is_ending:
                break
            self._wait()
        assert self.is_ending, "the process is left"
        self.hear(StderrClosed())
        self.hear(ProcessExited(-15))

    def output_breaks(self) -> None:
        """Something else is written where the rest of a frame should be; then all is closed."""
        self.hear(StdoutData(b"Segmentation fault\n" * 2_000))
        assert sum(self.ended.values()) == len(self.numbers), "calls wait for the process to end"
        self.process_ends()

    def _wait(self) -> None:
        due = self.client.next_deadline()
        assert due is not None
        self.now = max(self.now, due)
        self.client.handle_timeout(now=self.now)
        self.turn()

    def check_client(self) -> None:
        """Each call has ended once, with a result only if that has arrived."""
        assert self.closed is not None
        assert self.client.next_deadline() is None
        for handle, number in self.numbers.items():
            assert self.ended[handle] == 1, f"call {number} ended {self.ended[handle]} times"
            if handle in self.completed:
                text = self.completed[handle]["content"][0]["text"]
                assert text.strip("y") == _mark(number), "the result of another call"
                assert self.delivered.has(number, whole=False), "a result that was not sent"
            elif handle not in self.cancelled:
                assert not self.delivered.has(number, whole=True), "a result that was lost"
        REACHED["cut within a frame"] += self.delivered.is_within_a_frame
        REACHED["completed"] += len(self.completed)
        REACHED["failed"] += sum(self.ended.values()) - len(self.completed)

    def client_ends(self) -> None:
        """The client is killed: what it has written before is read, and the input ends."""
        if self.random.random() < 0.5:
            self.server.end()
            self.server.wait(10.0)
        else:
            self.server.connection.connection_lost(now=self.server.now)
        self.server.turn()
        assert self.server.closed
        events = self.server.machine.events
        cancelled = Counter(event.call for event in events if isinstance(event, CallCancelled))
        assert all(count == 1 for count in cancelled.values())
        left = [call for call in self.running if call.is_running]
        assert all(call.peer.revision.name != "2026-07-28" for call in left), "a call goes on"
        REACHED["cancelled at the server"] += len(cancelled)

    def stop(self) -> None:
        """The server stops; nothing is left of its calls."""
        self.server.connection.connection_lost(now=self.server.now)
        self.server.machine.server.shut_down(now=self.server.now)
        self.server.turn()
        assert not self.server.machine.server.is_busy


def run(seed: int) -> None:
    """A pair, up to its cut and what follows."""
    pair = Pair(seed)
    pair.client.start(now=0.0)
    pair.turn()
    for _ in range(400):
        if pair.left == 0:
            break
        pair.act()
    for up in (True, False, True, False):  # nothing more happens, but the rest is on its way
        pair.carry(up=up, size=pair.left)
    ends = (pair.process_ends, pair.output_ends, pair.output_breaks, pair.client_ends)
    end = ends[seed % 4]
    end()
    if end != pair.client_ends:
        pair.check_client()
    pair.stop()


def check(seeds: Sequence[int]) -> None:
    for seed in seeds:
        try:
            run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def test_cuts() -> None:
    REACHED.clear()
    check(range(200))
    assert REACHED["cut within a frame"] > 20
    assert REACHED["completed"] > 50
    assert REACHED["failed"] > 50
    assert REACHED["cancelled at the server"] > 10


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(1_000, 2_000, 250))
def test_a_thousand_cuts(first: int) -> None:
    check(range(first, first + 250))
