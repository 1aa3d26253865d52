"""Checks of clients: servers on stdio-v2, which is HTTP/2 on the pipes of a process."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from sansmcp.client.options import ClientSettings
from sansmcp.errors import Disconnected, ProcessEnded
from sansmcp.limits import Limits
from sansmcp.types import Unpack

from .adapter_under_test import ClientUnderTest, ConnectedClient, Feature
from .check import client_check, expect, raises, same, stays_the_same
from .client_stdio import Program, held_up
from .clients import MODERN, call, connected, start, until

_CANCEL = 8
"""The error code of HTTP/2 for what is no longer wanted."""


@contextmanager
def _talking(
    subject: ClientUnderTest, program: Program, **settings: Unpack[ClientSettings]
) -> Generator[ConnectedClient]:
    """Connect a client to a process that speaks stdio-v2."""
    settings.setdefault("versions", MODERN)
    with connected(subject, program.command, transport="stdio-v2", **settings) as client:
        yield client


@client_check(Feature.STDIO, Feature.STDIO_V2)
def calls_on_http2(subject: ClientUnderTest) -> None:
    """A command is started, exchanges messages as streams of HTTP/2, and is ended.

    Connect as to any command; give the machine sansmcp.http2.pipe_client.PipeClient of the command.
    """
    with Program(transport="stdio-v2") as program, _talking(subject, program) as client:
        same(client.connected.transport, "stdio-v2", "the transport")
        for text in ("a\u2028ä😀", "x" * 1_500_000):
            expect(call(client, {"text": text})["text"] == text, "the result is another one")


@client_check(Feature.STDIO, Feature.STDIO_V2, Feature.CONCURRENCY)
def calls_on_http2_do_not_wait_for_each_other(subject: ClientUnderTest) -> None:
    """Calls in flight do not hold up others, however many there are.

    Perform the effects of all exchanges in the order in which the machine returns them.
    """
    count = 90
    with Program(transport="stdio-v2") as program, _talking(subject, program) as client:
        pending = [start(client, {"hold": True}) for _ in range(count)]
        for number in range(20):
            same(call(client, {"n": number})["n"], number, "the result of another call")
        many = [start(client, {"n": number}) for number in range(2 * count)]
        found = [each.result()["n"] for each in many]
        same(found, list(range(2 * count)), "the results of more calls than streams")
        call(client, {"release": True})
        expect(
            all(each.result()["held"] for each in pending), "a call in flight has another result"
        )


@client_check(Feature.STDIO, Feature.STDIO_V2, Feature.CONCURRENCY, Feature.CANCELLING)
def a_call_on_http2_that_is_cancelled(subject: ClientUnderTest) -> None:
    """A call that the application cancels resets its stream, and no other.

    When the caller is cancelled, call Client.cancel(), then perform the effects.
    """
    with Program(transport="stdio-v2") as program, _talking(subject, program) as client:
        other, pending = start(client, {"hold": True}), start(client, {"hold": True})
        call(client)  # when it has ended, the process has the two calls
        pending.cancel()
        until(client, lambda: call(client, {"resets": []})["resets"] == [_CANCEL], "a reset")
        call(client, {"release": True})
        expect(other.result()["held"], "the call that was not cancelled has another result")


@client_check(Feature.STDIO, Feature.STDIO_V2, Feature.CONCURRENCY)
def a_process_on_http2_that_crashes(subject: ClientUnderTest) -> None:
    """If the process ends, all its calls fail with the exit status and its last lines on stderr.

    Feed StdoutClosed, StderrClosed and ProcessExited as they happen.
    """
    with Program(transport="stdio-v2") as program, _talking(subject, program) as client:
        held = start(client, {"hold": True})
        arguments = {"log": "out of memory\n", "exit": 3}
        for failing in (start(client, arguments), held):
            error = raises(Disconnected, failing.result, "a call when the process crashes")
            cause = error.__cause__
            expect(isinstance(cause, ProcessEnded), f"the cause is no ProcessEnded: {cause!r}")
            found = getattr(cause, "status", None), getattr(cause, "log", None)
            same(found, (3, ("out of memory",)), "the status, and the last lines")


@client_check(Feature.STDIO, Feature.STDIO_V2)
def text_between_the_frames(subject: ClientUnderTest) -> None:
    """Text that the process prints ends the connection, its calls and the process; none hangs.

    Keep feeding what the process sends, and perform the effects that end it.
    """
    with Program(transport="stdio-v2") as program, _talking(subject, program) as client:
        noise = "A line that no frame begins with.\n" * 1_000
        raises(Disconnected, lambda: call(client, {"noise": noise}), "a call whose server prints")


@client_check(Feature.STDIO, Feature.STDIO_V2)
def a_process_on_http2_that_does_not_end(subject: ClientUnderTest) -> None:
    """A process that ends neither with its input nor by SIGTERM is killed, with its children.

    Start it as the leader of a process group, and signal the group. Call handle_timeout() at
    next_deadline() while closing.
    """
    with (
        Program("stubborn", processes=2, transport="stdio-v2") as program,
        _talking(subject, program, close_timeout=0.1) as client,
    ):
        same(call(client, {"a": 1})["a"], 1, "the result")


@client_check(Feature.STDIO, Feature.STDIO_V2)
def frames_that_nobody_takes(subject: ClientUnderTest) -> None:
    """While the application takes no events, the process is held up; nothing is lost.

    Do not read standard output while next_effect() returns Idle.PAUSED, or while your queue of
    events for the application is full.
    """
    count = 400
    limits = Limits(max_queued_events=8)
    with (
        Program(processes=0, transport="stdio-v2") as program,
        _talking(subject, program, limits=limits) as client,
    ):
        events = client.events()
        same(held_up(program, client, events, count)["flood"], count, "the result")


@client_check(Feature.STDIO, Feature.STDIO_V2)
def nothing_is_left_of_http2(subject: ClientUnderTest) -> None:
    """A closed client leaves no thread and no pipe, also after several runs."""

    def once() -> None:
        with Program(transport="stdio-v2") as program, _talking(subject, program) as client:
            call(client)

    stays_the_same(once)
