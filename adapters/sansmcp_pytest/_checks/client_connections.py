"""Checks of clients: connections are reused, replaced, and closed."""

from __future__ import annotations

import threading

from sansmcp.errors import Disconnected
from sansmcp.reclaim import EXTENSION, UNKNOWN_KEY

from .adapter_under_test import ClientUnderTest
from .check import client_check, expect, raises, same, stays_the_same
from .client_calls import by_stream
from .clients import LEGACY, MODERN, call, connected, talking
from .fake_server import SCRIPTS, Exchange, FakeServer, Script, echo, encode, in_turn

_STEPS = ("initialize", "notifications/initialized")


@client_check()
def connections_are_used_again(subject: ClientUnderTest) -> None:
    """After a complete response its connection is reused for the next request.

    Keep the connection if ClientConnection.is_reusable is True: sansmcp.ConnectionPool does it.
    """
    answers: list[Script] = [echo, by_stream] * 5
    with FakeServer({"tools/call": in_turn(*answers)}) as server:
        with connected(subject, server.url, versions=LEGACY) as client:
            for _ in answers:
                call(client)
        same(server.connections, 1, "the connections for consecutive requests")


@client_check()
def connections_that_fail_while_it_connects(subject: ClientUnderTest) -> None:
    """A server that is not yet available is tried again, at every step of the handshake.

    Feed ConnectionLost for an exchange whose connection cannot be opened, or is lost before the
    response. Do not close the client.
    """
    for version, methods in ((LEGACY, _STEPS), (MODERN, ("server/discover",))):
        scripts = {
            method: in_turn(Exchange.close, Exchange.reset, SCRIPTS[method]) for method in methods
        }
        with talking(subject, scripts, versions=version) as (client, server):
            same(call(client, {"a": 1}), {"a": 1}, "the result")
            for method in methods:
                same(server.asked.count(method), 3, f"how often {method} was sent")


@client_check()
def connections_that_were_closed(subject: ClientUnderTest) -> None:
    """A connection that the server has closed while it was idle is not reused.

    Before you reuse a connection, check whether it is readable: then it is closed, or unusable.
    """

    def answer_and_close(exchange: Exchange) -> None:
        echo(exchange)
        exchange.close()

    with talking(subject, {"tools/call": answer_and_close}) as (client, server):
        for number in range(3):
            same(call(client, {"n": number}), {"n": number}, "the result")
            server.wait(lambda: not server.is_open, "the connection is closed")


@client_check()
def connections_that_close_under_a_request(subject: ClientUnderTest) -> None:
    """A request whose outcome is unknown is repeated only if that is safe.

    Do not repeat requests yourself, and do not let an HTTP library do it.
    """
    fails = threading.Event()

    def fail_once(exchange: Exchange) -> None:
        if not fails.is_set():
            fails.set()
            exchange.close()
        exchange.result({"tools": []})

    with talking(subject, {"tools/call": fail_once, "tools/list": fail_once}) as (client, server):
        raises(Disconnected, lambda: call(client), "a call without a response")
        same(server.asked.count("tools/call"), 1, "the calls that were sent")
        fails.clear()
        same(client.start("tools/list").result(), {"tools": []}, "a list that was requested again")
        same(server.asked.count("tools/list"), 2, "the requests for a list")


@client_check()
def connections_that_lead_to_another_process(subject: ClientUnderTest) -> None:
    """The rest of a call is asked for on a new connection each time.

    One that is kept alive may lead to another process than that of the call. Open a connection for
    a request with the header ``Connection: close``, or at least close it after the response:
    sansmcp.ConnectionPool does both.
    """
    place = {"place": "process.0", "timeoutSeconds": 60}
    declared = {"tools": {}, "extensions": {EXTENSION: place}}

    def discover(exchange: Exchange) -> None:
        result = {"supportedVersions": list(MODERN), "capabilities": declared}
        exchange.result({"resultType": "complete", **result})

    def elsewhere(exchange: Exchange) -> None:
        data = {"reason": UNKNOWN_KEY, "place": "other.0", "neverArrived": False}
        error = {"code": -32600, "message": "unknown", "data": data}
        body = encode({"id": exchange.id, "error": error})
        exchange.reply(409, body, content_type="application/json")

    def answer(exchange: Exchange) -> None:
        exchange.result({"resultType": "complete", "content": []})

    scripts = {
        "server/discover": discover,
        "tools/call": Exchange.close,
        EXTENSION: in_turn(elsewhere, elsewhere, answer),
    }
    with FakeServer(scripts) as server:
        with connected(subject, server.url, versions=MODERN, reclaim=True) as client:
            same(call(client)["content"], [], "the result")
        same(server.connections, 4, "the connections of the call and its three repetitions")


@client_check()
def requests_that_were_not_sent(subject: ClientUnderTest) -> None:
    """The client knows whether a byte of a request may have been sent.

    If no connection can be opened, feed ConnectionLost with its ``unsent``, or pass that to
    ClientConnection.connection_lost().
    """

    def call_nobody() -> None:
        error = raises(Disconnected, lambda: call(client), "a call without a server")
        expect(not error.was_sent, "the error says that nothing was sent")

    with talking(subject) as (client, server):
        call(client)
        server.restart(call_nobody)
        same(call(client, {"a": 1}), {"a": 1}, "the result")
        same(server.asked.count("tools/call"), 2, "the calls that were sent")


@client_check()
def nothing_is_left(subject: ClientUnderTest) -> None:
    """A closed client leaves no thread and no file descriptor, also after several runs."""

    def once() -> None:
        with talking(subject) as (client, _):
            call(client)

    stays_the_same(once)
