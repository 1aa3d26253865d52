"""Checks of clients: calls that fail end exactly once, and later calls work."""

from __future__ import annotations

import socket
from functools import partial

from sansmcp.errors import (
    CallError,
    Disconnected,
    RequestCancelled,
    RequestRefused,
    RequestTimeout,
    SessionLost,
)

from .adapter_under_test import ClientUnderTest, ConnectedClient, Feature
from .check import client_check, raises, same
from .clients import LEGACY, MODERN, SOON, call, connected, start, talking, until
from .fake_server import (
    SESSION,
    Exchange,
    FakeServer,
    Script,
    echo,
    encode,
    server_result,
)


def _hang(exchange: Exchange) -> None:
    exchange.wait_until_gone()


def _hang_or_echo(exchange: Exchange) -> None:
    """Respond only to calls that have arguments."""
    echo(exchange) if exchange.message["params"].get("arguments") else _hang(exchange)


def _time_out(client: ConnectedClient, server: FakeServer) -> None:
    """Make calls without a response, until one was sent before it timed out."""
    timeout = 0.1
    while "tools/call" not in server.asked:
        raises(RequestTimeout, partial(call, client, timeout=timeout), "a call with a timeout")
        timeout *= 2


def _gone(server: FakeServer) -> None:
    """Wait until the client has disconnected from the call that hangs."""
    calls = server.wait_for("tools/call")
    server.wait(calls[0].gone.is_set, "the client closed the connection of the call")


@client_check()
def a_call_that_takes_too_long(subject: ClientUnderTest) -> None:
    """A timed-out call raises RequestTimeout, not in a group; the server is notified (2025-11-25).

    Wait at most until next_deadline(), then call handle_timeout(). Read next_deadline() again after
    everything that changes the machine. For AbortExchange, close the exchange's connection.
    """
    with talking(subject, {"tools/call": _hang_or_echo}) as (client, server):
        _time_out(client, server)
        until(client, lambda: "notifications/cancelled" in server.asked, "a cancellation")
        _gone(server)
        same(call(client, {"a": 1}), {"a": 1}, "the result of another call")


@client_check()
def a_request_that_takes_too_long(subject: ClientUnderTest) -> None:
    """A timed-out request is cancelled by closing its connection (2026-07-28).

    For AbortExchange, close the exchange's connection.
    """
    with talking(subject, {"tools/call": _hang_or_echo}, versions=MODERN) as (client, server):
        _time_out(client, server)
        _gone(server)
        same(call(client, {"a": 1}), {"a": 1}, "the result of another call")


@client_check(Feature.CANCELLING, Feature.CONCURRENCY)
def a_call_that_is_cancelled(subject: ClientUnderTest) -> None:
    """A call that the application cancels is cancelled at the server.

    When the caller is cancelled, call Client.cancel(), then perform the effects.
    """
    with talking(subject, {"tools/call": _hang_or_echo}) as (client, server):
        pending = start(client)
        until(client, lambda: "tools/call" in server.asked, "the call")
        pending.cancel()
        until(client, lambda: "notifications/cancelled" in server.asked, "a cancellation")
        _gone(server)
        same(call(client, {"a": 1}), {"a": 1}, "the result of another call")


@client_check(Feature.CONCURRENCY)
def closing_ends_calls(subject: ClientUnderTest) -> None:
    """Calls in flight raise RequestCancelled when the client is closed; none hangs.

    Call Client.close(), and keep driving the machine until the event Closed.
    """
    with FakeServer({"tools/call": _hang}) as server:
        with connected(subject, server.url, versions=LEGACY) as client:
            pending = [start(client) for _ in range(3)]
            until(client, lambda: server.asked.count("tools/call") == 3, "the calls")
        for each in pending:
            raises(RequestCancelled, each.result, "a call when the client was closed")
        same(server.asked[-1], "DELETE", "the last request")


@client_check()
def a_server_that_says_nothing(subject: ClientUnderTest) -> None:
    """Connecting to a server that accepts the connection and never responds fails in time.

    Call handle_timeout() at next_deadline() from the start, also while connect() waits.
    """
    with FakeServer({"initialize": _hang}) as server:
        raises(
            RequestTimeout,
            lambda: subject.connect(
                server.url, request_handlers={}, versions=LEGACY, connect_timeout=0.2
            ),
            "connecting to a server that does not respond",
        )


@client_check()
def nobody_is_there(subject: ClientUnderTest) -> None:
    """A refused connection raises Disconnected, not in a group, with the reason.

    If a request cannot be sent, for any reason, feed ConnectionLost(reason).
    """
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        raises(
            Disconnected,
            lambda: subject.connect(url, request_handlers={}, versions=LEGACY, reconnect=SOON),
            "connecting to a port without a listener",
        )


def _bad_json(exchange: Exchange) -> None:
    exchange.reply(200, b'{"jsonrpc": "2.0", "id":', content_type="application/json")


def _another_id(exchange: Exchange) -> None:
    exchange.json({"id": "another", "result": {}})


def _half(exchange: Exchange) -> None:
    body = encode({"id": exchange.id, "result": {}})
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    exchange.send(exchange.head(200, headers) + body[:-1])
    exchange.close()


def _half_a_chunk(exchange: Exchange) -> None:
    exchange.begin_stream()
    exchange.send(b"fff\r\ndata: {")
    exchange.reset()


def _raw(data: bytes) -> Script:
    def say(exchange: Exchange) -> None:
        exchange.send(data)
        exchange.close()

    return say


_GARBAGE: dict[str, Script] = {
    "bad JSON": _bad_json,
    "another id": _another_id,
    "nothing": lambda exchange: exchange.close(),
    "a reset": lambda exchange: exchange.reset(),
    "half a body": _half,
    "half a chunk": _half_a_chunk,
    "half a head": _raw(b"HTTP/1.1 200 OK\r\ncontent-ty"),
    "another protocol": _raw(b"220 mail.example.org ESMTP\r\n"),
    "a bad chunk": _raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n"),
    "a bad length": _raw(b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"),
    "a web page": lambda exchange: exchange.reply(200, b"<html>", content_type="text/html"),
    "status 500": lambda exchange: exchange.reply(500, b"oops"),
    "status 302": lambda exchange: exchange.reply(302, location="http://192.0.2.1/"),
    "an endless head": _raw(b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 50_000),
}


@client_check()
def answers_that_are_none(subject: ClientUnderTest) -> None:
    """After any invalid response the call raises a CallError, and the next call works.

    Nothing that a server sends makes the machine raise. If the connection itself raises, feed
    ConnectionLost(reason) or call connection_lost(), and do not reuse that connection.
    """

    def answer(exchange: Exchange) -> None:
        _GARBAGE.get(exchange.message["params"]["arguments"].get("kind"), echo)(exchange)

    with talking(subject, {"tools/call": answer}) as (client, _):
        for kind in _GARBAGE:
            raises(CallError, partial(call, client, {"kind": kind}), f"a call that gets {kind}")
            same(call(client, {"a": 1}), {"a": 1}, f"the call after {kind}")


@client_check()
def refusals_that_come_early(subject: ClientUnderTest) -> None:
    """A refusal that arrives while the request is still being sent raises RequestRefused.

    While sending blocks, and after it fails, read: a response may have arrived.
    """

    def refuse(exchange: Exchange) -> None:
        if int(exchange.headers.get("content-length", 0)) > 1_000_000:
            exchange.reply(413, connection="close")
            exchange.wait_until_gone()
            exchange.close()

    with talking(subject) as (client, server):
        server.early = refuse
        large = {"text": "x" * 5_000_000}
        error = raises(RequestRefused, lambda: call(client, large), "a call that is too large")
        same(error.status, 413, "the status in the error")
        same(call(client, {"a": 1}), {"a": 1}, "the result of another call")


@client_check()
def a_session_that_is_lost(subject: ClientUnderTest) -> None:
    """When the server has lost the session, exactly one new session is opened, at once.

    The machine does it. Perform all of its effects, also those that belong to no call.
    """
    sessions = iter([SESSION, "second"])
    alive: list[str] = []

    def initialize(exchange: Exchange) -> None:
        alive[:] = [next(sessions)]
        exchange.result(server_result(*LEGACY), mcp_session_id=alive[0])

    def work(exchange: Exchange) -> None:
        if exchange.headers["mcp-session-id"] in alive:
            echo(exchange)
        else:
            exchange.reply(404)

    with FakeServer({"initialize": initialize, "tools/call": work}) as server:
        with connected(subject, server.url, versions=LEGACY) as client:
            same(call(client, {"a": 1}), {"a": 1}, "the first result")
            alive.clear()
            raises(SessionLost, lambda: call(client), "a call in the lost session")
            same(call(client, {"a": 2}), {"a": 2}, "the result in the new session")
        same(server.asked.count("initialize"), 2, "the handshakes")


@client_check()
def closing_does_not_wait_for_the_server(subject: ClientUnderTest) -> None:
    """The client closes in time if the server does not respond to the end of the session.

    Call handle_timeout() at next_deadline() until the event Closed.
    """
    close_timeout = 0.1
    with FakeServer({"DELETE": _hang}) as server:
        while "DELETE" not in server.asked:  # the close may time out before it is sent
            with connected(subject, server.url, versions=LEGACY, close_timeout=close_timeout):
                pass
            server.wait(lambda: not server.is_open, "the client has closed its connections")
            close_timeout *= 2
