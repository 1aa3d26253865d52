"""A client of a process that speaks HTTP/2: HTTP in front, a process behind."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import (
    Disconnected,
    Idle,
    InvalidResponse,
    LocalProtocolError,
    NegotiationFailed,
    ProcessEnded,
)
from sansmcp.auth.options import Authorization
from sansmcp.effects import (
    AbortExchange,
    CloseStdin,
    KillProcess,
    OpenExchange,
    StartProcess,
    TerminateProcess,
    WriteStdin,
)
from sansmcp.events import (
    CallCancelled,
    CallCompleted,
    CallFailed,
    ClientEvent,
    Closed,
    Connected,
    ProgressReceived,
    StderrLine,
)
from sansmcp.http2.h2_connection import encode_goaway
from sansmcp.http2.pipe_client import PipeClient
from sansmcp.process import (
    ProcessExited,
    ProcessPart,
    ProcessStartFailed,
    StderrClosed,
    StderrData,
    StdoutClosed,
    StdoutData,
)
from sansmcp.trace import Tracer

from .harness import ServerHarness

COMMAND = ["server", "--token", "secret"]


class Process:
    """A client, and a server that it has started."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("known_servers", None)
        self.client = PipeClient(COMMAND, jitter=lambda: 0.0, **settings)
        self.server: ServerHarness | None = ServerHarness()
        self.server.takes = False
        self.events: list[ClientEvent] = []
        self.effects: list[object] = []
        self.now = 0.0
        self.client.start(now=0.0)

    def feed(self, part: ProcessPart) -> None:
        self.client.receive_process_part(part, now=self.now)
        self.turn()

    def turn(self) -> None:
        """Do everything that there is to do."""
        while True:
            moved = False
            while not isinstance(effect := self.client.next_effect(), Idle):
                assert not isinstance(effect, OpenExchange | AbortExchange)
                moved = True
                if isinstance(effect, WriteStdin) and self.server is not None:
                    self.server.feed(effect.data)
                else:
                    self.effects.append(effect)
            while not isinstance(event := self.client.next_event(), Idle):
                self.events.append(event)
            if self.server is not None:
                self.server.turn()
                data, self.server.sent = self.server.sent, b""
                if data:
                    moved = True
                    self.client.receive_process_part(StdoutData(data), now=self.now)
            if not moved:
                return

    def exit(self, status: int = 0) -> None:
        self.server = None
        for part in (StdoutClosed(), StderrClosed(), ProcessExited(status)):
            self.feed(part)

    def call(self, **settings: Any) -> int:
        handle = self.client.call("tools/call", {"name": "add"}, now=self.now, **settings)
        self.turn()
        return handle

    def wait(self) -> None:
        """Pass the time of the next deadline."""
        deadline = self.client.next_deadline()
        assert deadline is not None
        self.now = deadline
        self.client.handle_timeout(now=self.now)
        self.turn()

    @property
    def last(self) -> ClientEvent:
        return self.events[-1]


@pytest.fixture
def process() -> Process:
    process = Process()
    process.turn()
    return process


def test_the_process_is_started_and_asked(process: Process) -> None:
    assert process.effects == [StartProcess(tuple(COMMAND))]
    (connected,) = process.events
    assert isinstance(connected, Connected)
    assert connected.transport == "stdio-v2"
    assert connected.version == "2026-07-28"
    assert repr(process.client) == "<PipeClient server 2026-07-28>"


def test_calls_run_at_once_and_are_cancelled_one_by_one(process: Process) -> None:
    assert process.server is not None
    first = process.call()
    one = process.server.machine.last_call()
    second = process.call()
    two = process.server.machine.last_call()
    process.client.cancel(first, now=0.0)
    process.turn()
    two.respond({"content": []}, now=0.0)
    process.turn()
    cancelled = process.server.machine.events[-1]
    assert isinstance(cancelled, CallCancelled)
    assert cancelled.call is one
    assert isinstance(process.events[-2], CallFailed)
    assert isinstance(process.last, CallCompleted)
    assert process.last.call == second


def test_progress_comes_before_the_result(process: Process) -> None:
    assert process.server is not None
    process.call()
    call = process.server.machine.last_call()
    call.progress(1, now=0.0)
    process.turn()
    assert isinstance(process.last, ProgressReceived)
    call.respond({"content": []}, now=0.0)
    process.turn()
    assert isinstance(process.last, CallCompleted)


def test_handshake_revisions_have_their_session_and_its_end() -> None:
    process = Process(versions=("2025-11-25",))
    process.turn()
    assert process.server is not None
    (connected,) = process.events
    assert isinstance(connected, Connected)
    assert connected.version == "2025-11-25"
    assert len(process.server.machine.server.sessions) == 1
    process.client.close(now=0.0)
    process.turn()
    assert not process.server.machine.server.sessions
    assert process.effects[-1] == CloseStdin()
    process.exit()
    assert repr(process.last) == repr(Closed(None))


def test_closing_shuts_the_process_down(process: Process) -> None:
    process.client.close(now=0.0)
    process.turn()
    process.server = None
    process.wait()
    process.wait()
    assert process.effects[1:] == [CloseStdin(), TerminateProcess(), KillProcess()]
    assert not isinstance(process.last, Closed)
    process.wait()
    assert repr(process.last) == repr(Closed(None))


def test_the_last_bytes_are_written_before_the_input_of_the_process_closes(
    process: Process,
) -> None:
    process.client.call("tools/call", {"name": "add"}, now=0.0)
    process.client.close(now=0.0)
    write = process.client.next_effect()
    assert isinstance(write, WriteStdin)
    assert write.data.endswith(encode_goaway(0))
    assert process.client.next_effect() == CloseStdin()
    assert process.client.next_effect() is Idle.NEED_DATA


def test_a_client_that_was_not_started_closes_at_once() -> None:
    client = PipeClient(COMMAND, jitter=lambda: 0.0)
    client.close(now=0.0)
    assert client.next_event() == Closed(None)


def test_a_process_that_dies_ends_each_call_with_its_last_words(process: Process) -> None:
    handles = [process.call(), process.call(idempotent=True)]
    process.feed(StderrData(b"out of memory\n"))
    assert process.last == StderrLine("out of memory")
    process.exit(3)
    failed = [event for event in process.events if isinstance(event, CallFailed)]
    assert [event.call for event in failed] == handles
    for event in failed:
        assert isinstance(event.error, Disconnected)
        assert "status 3" in str(event.error)
        assert "out of memory" in str(event.error)
        assert "secret" not in str(event.error)
    assert isinstance(process.last, Closed)
    assert not isinstance(process.effects[-1], StartProcess)


def test_a_process_that_dies_at_its_first_request_is_not_started_again() -> None:
    process = Process()
    process.server = None
    process.turn()
    process.exit(1)
    assert isinstance(process.last, Closed)
    assert isinstance(process.last.error, ProcessEnded)
    assert [type(effect) for effect in process.effects].count(StartProcess) == 1


def test_a_process_that_cannot_be_started() -> None:
    process = Process()
    process.server = None
    process.feed(ProcessStartFailed("no such file"))
    assert isinstance(process.last, Closed)
    assert "no such file" in str(process.last.error)


def test_a_process_that_closes_its_output_and_lives_is_ended(process: Process) -> None:
    process.call()
    process.server = None
    process.feed(StdoutClosed())
    process.wait()
    assert isinstance(process.events[-1], CallFailed)
    process.wait()
    assert TerminateProcess() in process.effects
    process.feed(ProcessExited(-15))
    assert isinstance(process.last, Closed)
    process.feed(StdoutData(b"from a child of it"))
    assert isinstance(process.last, Closed)


def test_a_server_of_stdio_is_named_and_ended() -> None:
    process = Process()
    process.server = None
    process.turn()
    process.feed(StdoutData(b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"}}\n'))
    process.exit()
    assert isinstance(process.last, Closed)
    assert isinstance(process.last.error, NegotiationFailed)
    assert "speaks stdio" in str(process.last.error)


def test_a_server_that_prints_ends_the_calls(process: Process) -> None:
    process.call()
    process.server = None
    process.feed(StdoutData(b"Hello world!"))
    process.feed(StdoutData(b" And more"))
    (failed,) = (event for event in process.events if isinstance(event, CallFailed))
    assert "standard output" in str(failed.error)
    process.exit()
    assert isinstance(process.last, Closed)
    assert isinstance(process.last.error, InvalidResponse)


def test_what_a_process_has_printed_is_in_the_error_of_a_timeout() -> None:
    process = Process(connect_timeout=1.0)
    process.server = None
    process.feed(StderrData(b"waiting for the database\n"))
    while not any(isinstance(effect, CloseStdin) for effect in process.effects):
        process.wait()
    process.exit()
    assert isinstance(process.last, Closed)
    assert "waiting for the database" in str(process.last.error)


def test_exchanges_are_traced_and_frames_are_not() -> None:
    lines: list[str] = []
    process = Process(trace=Tracer("client", lines.append))
    process.turn()
    assert "client #1 > POST /mcp" in lines
    assert "client #1 < 200 application/json" in lines
    assert not any("\\u0000" in line for line in lines)


def test_a_url_is_no_command() -> None:
    with pytest.raises(LocalProtocolError, match="must be a command"):
        PipeClient("http://localhost/mcp", jitter=lambda: 0.0)


def test_there_is_no_authorization() -> None:
    settings: dict[str, Any] = {"authorization": Authorization(login=lambda url: url)}
    client = PipeClient(COMMAND, jitter=lambda: 0.0, **settings)
    client.start(now=0.0)
    assert isinstance(client.next_effect(), StartProcess)
    assert isinstance(client.next_effect(), WriteStdin)
