"""Checks of clients: connections are used again, replaced, and closed."""

from __future__ import annotations

import threading

from sansmcp.errors import Disconnected

from .adapter_under_test import ClientUnderTest
from .check import client_check, raises, same, stays_the_same
from .client_calls import by_stream
from .clients import LEGACY, MODERN, call, connected, talking
from .fake_server import SCRIPTS, Exchange, FakeServer, Script, echo, in_turn

_STEPS = ("initialize", "notifications/initialized")


@client_check()
def connections_are_used_again(subject: ClientUnderTest) -> None:
    """A response that has ended properly leaves a connection that serves the next request.

    Keep the connection if ClientConnection.is_reusable: sansmcp.ConnectionPool does it.
    """
    answers: list[Script] = [echo, by_stream] * 5
    with FakeServer({"tools/call": in_turn(*answers)}) as server:
        with connected(subject, server.url, versions=LEGACY) as client:
            for _ in answers:
                call(client)
        same(server.connections, 1, "the connections for requests one after the other")


@client_check()
def connections_that_fail_while_it_connects(subject: ClientUnderTest) -> None:
    """A server that is not quite there yet is asked again, at every step of the handshake.

    Feed ConnectionLost for an exchange whose connection cannot be made, or is lost before the
    response; do not end the client.
    """
    for version, methods in ((LEGACY, _STEPS), (MODERN, ("server/discover",))):
        scripts = {
            method: in_turn(Exchange.close, Exchange.reset, SCRIPTS[method]) for method in methods
        }
        with talking(subject, scripts, versions=version) as (client, server):
            same(call(client, {"a": 1}), {"a": 1}, "the result")
            for method in methods:
                same(server.asked.count(method), 3, f"how often {method} was asked")


@client_check()
def connections_that_were_closed(subject: ClientUnderTest) -> None:
    """A connection that the server has closed meanwhile is not used for the next request.

    Before a connection is used again, look whether anything has come on it: the end, for one.
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
    """A request whose outcome is unknown is repeated only where that does no harm.

    Do not repeat requests on your own, nor let an HTTP library do it.
    """
    fails = threading.Event()

    def fail_once(exchange: Exchange) -> None:
        if not fails.is_set():
            fails.set()
            exchange.close()
        exchange.result({"tools": []})

    with talking(subject, {"tools/call": fail_once, "tools/list": fail_once}) as (client, server):
        raises(Disconnected, lambda: call(client), "a call that was not answered")
        same(server.asked.count("tools/call"), 1, "the calls that were sent")
        fails.clear()
        same(client.start("tools/list").result(), {"tools": []}, "a list that was asked again")
        same(server.asked.count("tools/list"), 2, "the lists that were asked for")


@client_check()
def nothing_is_left(subject: ClientUnderTest) -> None:
    """A client that was closed leaves no thread, and no descriptor, however often that is done."""

    def once() -> None:
        with talking(subject) as (client, _):
            call(client)

    stays_the_same(once)
