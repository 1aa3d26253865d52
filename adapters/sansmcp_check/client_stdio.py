"""Checks of clients: servers that are processes."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from types import TracebackType

from sansmcp.errors import Disconnected, ProcessEnded
from sansmcp.events import StderrLine
from sansmcp.limits import Limits
from sansmcp.types import Self

from .adapter_under_test import ClientUnderTest, Feature
from .check import MOMENT, client_check, expect, raises, same, stays_the_same
from .clients import LEGACY, call, connected, notified, start, until


class _Program:
    """The command of a server, and whether its processes live; afterwards none may."""

    def __init__(self, manners: str = "polite", processes: int = 1) -> None:
        self._manners = manners
        self._processes = processes

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(MOMENT)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._listener:
            for _ in range(self._processes if error is None else 0):
                with self.witness() as process:
                    expect(_hears(process) == b"", "a process of the server still lives")

    @property
    def command(self) -> list[str]:
        program = Path(__file__).with_name("stdio_program.py")
        port = self._listener.getsockname()[1]
        return [sys.executable, "-IS", str(program), str(port), self._manners]

    def witness(self) -> socket.socket:
        """The next process that has connected itself; it tells things besides its output."""
        process, _ = self._listener.accept()
        process.settimeout(MOMENT)
        return process


def _hears(process: socket.socket) -> bytes | None:
    """What a process tells: nothing at its end, None if it waits."""
    try:
        return process.recv(100)
    except TimeoutError:
        return None


@client_check(Feature.STDIO)
def calls_to_a_process(subject: ClientUnderTest) -> None:
    """A command is started, talked to line by line, and ended.

    Perform the effects of the process in their order, and feed all its output and its exit.
    """
    with _Program() as program, connected(subject, program.command, versions=LEGACY) as client:
        same(client.connected.transport, "stdio", "the transport")
        for text in ("a\u2028ä😀", "x" * 5_000_000):
            expect(call(client, {"text": text}) == {"text": text}, "the result is another one")
        noise = {"noise": "hello\n{\n"}
        same(call(client, noise), noise, "the result after noise")


@client_check(Feature.STDIO)
def the_environment_of_a_process(subject: ClientUnderTest) -> None:
    """A process inherits PATH and a few other variables by default, and no secrets.

    Start it with the environment that sansmcp_local.environment_of() gives.
    """
    secret = "SANSMCP_CHECK_SECRET"
    os.environ[secret] = "x"
    try:
        with _Program() as program, connected(subject, program.command, versions=LEGACY) as client:
            found = call(client, {"variables": [secret, "PATH"]})
    finally:
        del os.environ[secret]
    same(found, {secret: False, "PATH": "PATH" in os.environ}, "the variables that it has")


@client_check(Feature.STDIO)
def standard_error_is_read(subject: ClientUnderTest) -> None:
    """What a process writes to its standard error comes as events, and never holds it up.

    Read standard error all the time, also while the output is not to be read.
    """
    with _Program() as program, connected(subject, program.command, versions=LEGACY) as client:
        events = client.events()
        log = "noted\n" + "x" * 200_000 + "\n"
        same(call(client, {"log": log}), {"log": log}, "the result")
        expect(StderrLine("noted") in events, "the client was closed")


@client_check(Feature.STDIO)
def a_process_that_crashes(subject: ClientUnderTest) -> None:
    """A process that ends during a call ends the call, with its status and its last words.

    Feed StdoutClosed, StderrClosed and ProcessExited, when they come.
    """
    with _Program() as program, connected(subject, program.command, versions=LEGACY) as client:
        arguments = {"log": "out of memory\n", "exit": 3}
        error = raises(Disconnected, lambda: call(client, arguments), "a call that crashes")
        cause = error.__cause__
        expect(isinstance(cause, ProcessEnded), f"the cause is no ProcessEnded: {cause!r}")
        found = getattr(cause, "status", None), getattr(cause, "log", None)
        same(found, (3, ("out of memory",)), "the status, and the last words")


@client_check(Feature.STDIO)
def a_command_that_is_none(subject: ClientUnderTest) -> None:
    """A command that cannot be started raises ProcessEnded, alone.

    Whatever keeps a process from being started is ProcessStartFailed(reason).
    """
    command = [str(Path(__file__).with_name("there is no such program"))]
    raises(
        ProcessEnded,
        lambda: subject.connect(command, request_handlers={}, versions=LEGACY),
        "connecting to a program that there is not",
    )


@client_check(Feature.STDIO)
def a_process_that_ends_at_once(subject: ClientUnderTest) -> None:
    """A process that ends before it can be talked to raises ProcessEnded, with its status.

    Its exit and the ends of its streams may all be there before you look for the first time.
    """
    error = raises(
        ProcessEnded,
        lambda: subject.connect(["false"], request_handlers={}),
        "connecting to a program that ends at once",
    )
    same(getattr(error, "status", None), 1, "the status")


@client_check(Feature.STDIO)
def a_process_that_does_not_end(subject: ClientUnderTest) -> None:
    """A process that ends neither with its input nor by SIGTERM is killed, with its children.

    Start it at the head of a process group, tick the timers while closing, and signal the group.
    """
    with (
        _Program("stubborn", processes=2) as program,
        connected(subject, program.command, versions=LEGACY, close_timeout=0.1) as client,
    ):
        same(call(client, {"a": 1}), {"a": 1}, "the result")


@client_check(Feature.STDIO)
def output_that_nobody_takes(subject: ClientUnderTest) -> None:
    """When the application takes no events, the output is not read, and nothing is lost by that.

    Read no output while next_effect() gives Idle.PAUSED, or while you keep as many events for the
    application as you want to.
    """
    count = 200
    limits = Limits(max_queued_events=8)
    heard: list[bytes | None] = []
    with (
        _Program(processes=0) as program,
        connected(subject, program.command, versions=LEGACY, limits=limits) as client,
        program.witness() as process,
    ):
        process.settimeout(0.01)
        events = client.events()
        pending = start(client, {"flood": count})

        def hears_something() -> bytes | None:
            heard.append(_hears(process))
            return heard[-1]

        until(client, hears_something, "the flood")
        told = (heard[-1] or b"")[:7]  # it may have been told several times
        same(told, b"held up", "the output, though nobody takes the events")
        numbers = [each["number"] for each in notified(events, count)]
        same(numbers, list(range(count)), "the notifications")
        same(pending.result(), {"flood": count}, "the result")


@client_check(Feature.STDIO)
def nothing_is_left_of_processes(subject: ClientUnderTest) -> None:
    """A client that was closed leaves no thread and no end of a pipe, however often."""

    def once() -> None:
        with _Program() as program, connected(subject, program.command, versions=LEGACY) as client:
            call(client)

    stays_the_same(once)
