"""Checks of clients: servers on stdio."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from sansmcp.errors import Disconnected, ProcessEnded
from sansmcp.events import ClientEvent, StderrLine
from sansmcp.limits import Limits
from sansmcp.types import Self

from .adapter_under_test import ClientUnderTest, ConnectedClient, Feature
from .check import MOMENT, client_check, expect, raises, same, stays_the_same
from .clients import LEGACY, call, connected, notified, start, until


class Program:
    """The command of a server. On exit it checks that all processes of the server have ended."""

    def __init__(
        self, manners: str = "polite", processes: int = 1, transport: str = "stdio"
    ) -> None:
        self._manners = manners
        self._processes = processes
        self._transport = transport

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
                    expect(hears(process) == b"", "a process of the server is still running")

    @property
    def command(self) -> list[str]:
        program = Path(__file__).with_name("stdio_program.py")
        port = self._listener.getsockname()[1]
        isolated = "-IS" if self._transport == "stdio" else "-I"  # h2 is in the site-packages
        return [sys.executable, isolated, str(program), str(port), self._manners, self._transport]

    def witness(self) -> socket.socket:
        """Accept the connection that the next process opens to report outside of stdio."""
        process, _ = self._listener.accept()
        process.settimeout(MOMENT)
        return process


def hears(process: socket.socket) -> bytes | None:
    """Return what a process reports: ``b""`` if it has ended, None if it has sent nothing."""
    try:
        return process.recv(100)
    except TimeoutError:
        return None


def held_up(
    program: Program, client: ConnectedClient, events: Iterator[ClientEvent], count: int
) -> Any:
    """Take no events until a process that sends ``count`` notifications is held up, then all.

    Returns the result of the call that asks for them.
    """
    heard: list[bytes | None] = []
    with program.witness() as process:
        process.settimeout(0.01)
        pending = start(client, {"flood": count})

        def hears_something() -> bytes | None:
            heard.append(hears(process))
            return heard[-1]

        until(client, hears_something, "the flood")
        told = (heard[-1] or b"")[:7]  # it may have reported this several times
        same(told, b"held up", "the output, while no events are taken")
        numbers = [each["number"] for each in notified(events, count)]
        same(numbers, list(range(count)), "the notifications")
        return pending.result()


@client_check(Feature.STDIO)
def calls_to_a_process(subject: ClientUnderTest) -> None:
    """A command is started, exchanges messages as lines, and is ended.

    Perform the effects of the process in order, and feed all of its output and its exit.
    """
    with Program() as program, connected(subject, program.command, versions=LEGACY) as client:
        same(client.connected.transport, "stdio", "the transport")
        for text in ("a\u2028ä😀", "x" * 5_000_000):
            expect(call(client, {"text": text}) == {"text": text}, "the result is another one")
        noise = {"noise": "hello\n{\n"}
        same(call(client, noise), noise, "the result after noise")


@client_check(Feature.STDIO)
def the_environment_of_a_process(subject: ClientUnderTest) -> None:
    """A process inherits PATH and a few other variables by default, and no secrets.

    Start it with the environment that sansmcp_local.environment_of() returns.
    """
    secret = "SANSMCP_CHECK_SECRET"
    os.environ[secret] = "x"
    try:
        with Program() as program, connected(subject, program.command, versions=LEGACY) as client:
            found = call(client, {"variables": [secret, "PATH"]})
    finally:
        del os.environ[secret]
    same(found, {secret: False, "PATH": "PATH" in os.environ}, "the variables that it has")


@client_check(Feature.STDIO)
def standard_error_is_read(subject: ClientUnderTest) -> None:
    """Lines on a process's standard error become events, and writing them never blocks it.

    Read standard error at all times, also while reading its standard output is paused.
    """
    with Program() as program, connected(subject, program.command, versions=LEGACY) as client:
        events = client.events()
        log = "noted\n" + "x" * 200_000 + "\n"
        same(call(client, {"log": log}), {"log": log}, "the result")
        expect(StderrLine("noted") in events, "the client was closed")


@client_check(Feature.STDIO)
def a_process_that_crashes(subject: ClientUnderTest) -> None:
    """If the process ends, its calls fail with the exit status and its last lines on stderr.

    Feed StdoutClosed, StderrClosed and ProcessExited as they happen.
    """
    with Program() as program, connected(subject, program.command, versions=LEGACY) as client:
        arguments = {"log": "out of memory\n", "exit": 3}
        error = raises(Disconnected, lambda: call(client, arguments), "a call that crashes")
        cause = error.__cause__
        expect(isinstance(cause, ProcessEnded), f"the cause is no ProcessEnded: {cause!r}")
        found = getattr(cause, "status", None), getattr(cause, "log", None)
        same(found, (3, ("out of memory",)), "the status, and the last lines")


@client_check(Feature.STDIO)
def a_command_that_is_none(subject: ClientUnderTest) -> None:
    """A command that cannot be started raises ProcessEnded, not in a group.

    If a process cannot be started, for any reason, feed ProcessStartFailed(reason).
    """
    command = [str(Path(__file__).with_name("there is no such program"))]
    raises(
        ProcessEnded,
        lambda: subject.connect(command, request_handlers={}, versions=LEGACY),
        "connecting to a program that does not exist",
    )


@client_check(Feature.STDIO)
def a_process_that_ends_at_once(subject: ClientUnderTest) -> None:
    """A process that ends at once raises ProcessEnded, with its exit status.

    Its exit and the end of both of its streams may have happened before you first check.
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

    Start it as the leader of a process group, and signal the group. Call handle_timeout() at
    next_deadline() while closing.
    """
    with (
        Program("stubborn", processes=2) as program,
        connected(subject, program.command, versions=LEGACY, close_timeout=0.1) as client,
    ):
        same(call(client, {"a": 1}), {"a": 1}, "the result")


@client_check(Feature.STDIO)
def output_that_nobody_takes(subject: ClientUnderTest) -> None:
    """While the application takes no events, standard output is not read; nothing is lost.

    Do not read standard output while next_effect() returns Idle.PAUSED, or while your queue of
    events for the application is full.
    """
    count = 200
    limits = Limits(max_queued_events=8)
    with (
        Program(processes=0) as program,
        connected(subject, program.command, versions=LEGACY, limits=limits) as client,
    ):
        events = client.events()
        same(held_up(program, client, events, count), {"flood": count}, "the result")


@client_check(Feature.STDIO)
def nothing_is_left_of_processes(subject: ClientUnderTest) -> None:
    """A closed client leaves no thread and no pipe, also after several runs."""

    def once() -> None:
        with Program() as program, connected(subject, program.command, versions=LEGACY) as client:
            call(client)

    stays_the_same(once)
