"""Checks of servers: stdio-v2, which is HTTP/2 on standard input and output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sansmcp import _lazy

from .adapter_under_test import Feature, ServerUnderTest
from .check import expect, same, server_check

if TYPE_CHECKING:
    from .raw_http2_client import Http2Process

_FIRST_WINDOW = 65_535
"""Bytes that the server may send on a stream before the client opens the window."""


def _process(subject: ServerUnderTest) -> Http2Process:
    with _lazy.needing("The check of stdio-v2", "http2", "h2"):
        from .raw_http2_client import Http2Process

    return Http2Process(subject)


@server_check(Feature.STDIO, Feature.STDIO_V2)
def calls_on_streams_of_http2(subject: ServerUnderTest) -> None:
    """Requests and responses are streams, at the revisions of both eras.

    Feed received bytes to sansmcp.http2.server_connection.ServerConnection instead of a ServerPipe,
    and write the bytes of its effects.
    """
    for is_legacy in (True, False):
        with _process(subject) as server:
            if is_legacy:
                server.open()
            for text in ("a\u2028ä😀", "x" * 1_500_000):
                found = server.result(server.call("echo", text=text))
                expect(found["echo"]["text"] == text, "the result is another one")
            expect(server.result(server.call("count", to=3))["done"], "no result after progress")
            code = server.message(server.call("raise"))["error"]["code"]
            same(code, -32603, "the error code for a handler that failed")
            code = server.message(server.post(b"this is no message", {}))["error"]["code"]
            same(code, -32700, "the error code for a body that is not a message")


@server_check(Feature.STDIO, Feature.STDIO_V2, Feature.CANCELLING)
def streams_do_not_wait_for_each_other(subject: ServerUnderTest) -> None:
    """Running calls hold up no others, and a stream that is reset ends its own call only.

    Run each handler in a task or thread of its own. Stop the one of CallCancelled.
    """
    with _process(subject) as server:
        running = [server.call("hang") for _ in range(8)]
        many = [server.call("echo", number=number) for number in range(100)]
        found = [server.result(stream)["echo"]["number"] for stream in many]
        same(found, list(range(100)), "the results beside running calls")
        for stream in running:
            server.reset(stream)
        same(server.result(server.call("echo", n=1))["echo"], {"n": 1}, "the result after resets")
        same(server.end(), 0, "the exit status, after the calls were cancelled")


@server_check(Feature.STDIO, Feature.STDIO_V2)
def a_stream_without_room(subject: ServerUnderTest) -> None:
    """A response for which the client leaves no room waits, and holds up no other.

    Keep reading while next_effect() returns Idle.NEED_DATA: the client opens the window later.
    """
    size = 1_000_000
    with _process(subject) as server:
        server.has_room = False
        large = server.call("large", size=size)
        for number in range(20):
            found = server.result(server.call("echo", n=number))
            same(found["echo"], {"n": number}, "the result beside a stream without room")
        expect(server.received(large) <= _FIRST_WINDOW, "the window was not kept")
        server.has_room = True
        server.take(large, size)
        expect(len(server.result(large)["text"]) == size, "the response is not complete")


@server_check(Feature.STDIO, Feature.STDIO_V2)
def handlers_that_print_beside_frames(subject: ServerUnderTest) -> None:
    """Text that a handler prints does not go to standard output, between the frames.

    Reserve standard output for the protocol: sansmcp_local.StandardStreams does it.
    """
    with _process(subject) as server:
        expect(server.result(server.call("print"))["done"], "the call has another result")


@server_check(Feature.STDIO, Feature.STDIO_V2)
def the_end_of_the_input_of_http2(subject: ServerUnderTest) -> None:
    """When its input ends, the server responds to the calls in flight, and exits with status 0.

    Call receive_eof(), keep driving until the connection returns CloseConnection, then exit.
    """
    with _process(subject) as server:
        stream = server.call("count", to=3)
        same(server.end(), 0, "the exit status")
        expect(server.result(stream)["done"], "the call in flight has another result")
