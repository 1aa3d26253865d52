"""Checks of clients: event streams that break, disconnect, or are not read."""

from __future__ import annotations

import threading

from sansmcp.base_client import OnProgress
from sansmcp.errors import RequestCancelled
from sansmcp.limits import Limits

from .adapter_under_test import ClientUnderTest, Feature
from .check import client_check, expect, happened, raises, same, stands_still
from .clients import LEGACY, MODERN, call, connected, notified, start, talking, until
from .fake_server import Exchange, FakeServer, event, progress


def _log(exchange: Exchange) -> list[bytes]:
    """Return the events of a call; each one has an id."""
    return [
        event(None, id="e-0", retry=1),
        event(progress(exchange, 1), id="e-1"),
        event(progress(exchange, 2), id="e-2"),
        event({"id": exchange.id, "result": {"done": True}}, id="e-3"),
    ]


class _Broken:
    """A server whose stream breaks after some bytes; a GET resumes it."""

    def __init__(self) -> None:
        self.cut = 0
        self._log: list[bytes] = []

    def call(self, exchange: Exchange) -> None:
        self._log = _log(exchange)
        body = b"".join(self._log)
        exchange.begin_stream()
        exchange.chunk(body[: self.cut])
        exchange.reset() if self.cut % 2 else exchange.close()

    def resume(self, exchange: Exchange) -> None:
        seen = int(exchange.headers["last-event-id"].removeprefix("e-"))
        exchange.begin_stream()
        exchange.end(*self._log[seen + 1 :])


def _append_to(reports: list[float]) -> OnProgress[None]:
    return lambda report: reports.append(report.progress)


@client_check()
def broken_streams_are_resumed(subject: ClientUnderTest) -> None:
    """A stream that breaks at any byte is resumed; nothing is lost or duplicated.

    When a connection is closed, call receive_eof(). When it is reset or fails, call
    connection_lost(), or feed ConnectionLost. Call handle_timeout() at next_deadline(): the machine
    waits before it reconnects.
    """
    server_side = _Broken()
    scripts = {"tools/call": server_side.call, "GET": server_side.resume}
    with talking(subject, scripts) as (client, _):
        for cut in range(40, 330, 17):
            server_side.cut = cut
            reports: list[float] = []
            result = call(client, on_progress=_append_to(reports))
            same(result, {"done": True}, f"the result, when cut after {cut} bytes")
            same(reports, [1, 2], f"the progress, when cut after {cut} bytes")


@client_check()
def a_server_that_lets_go(subject: ClientUnderTest) -> None:
    """A stream that ends before the response is resumed after the server's ``retry`` delay.

    Call handle_timeout() at next_deadline(), which you read after everything that changes the
    machine.
    """
    logs: list[list[bytes]] = []

    def begin(exchange: Exchange) -> None:
        logs.append(_log(exchange))
        exchange.begin_stream()
        exchange.end(*logs[0][:1])

    def go_on(exchange: Exchange) -> None:
        seen = int(exchange.headers["last-event-id"].removeprefix("e-"))
        exchange.begin_stream()
        exchange.end(logs[0][seen + 1])

    with FakeServer({"tools/call": begin, "GET": go_on}) as server:
        with connected(subject, server.url, versions=LEGACY) as client:
            same(call(client), {"done": True}, "the result")
        same(server.asked.count("GET"), 3, "how often the client reconnected")
        same(server.connections, 1, "the connections, since every stream was ended properly")


@client_check(Feature.CONCURRENCY)
def a_server_that_falls_silent(subject: ClientUnderTest) -> None:
    """A resumable stream that falls silent is aborted and resumed.

    Call handle_timeout() at next_deadline(), also while a response is being read.
    """
    logs: list[list[bytes]] = []

    def begin(exchange: Exchange) -> None:
        logs.append(_log(exchange))
        exchange.begin_stream()
        exchange.chunk(*logs[0][:2])
        exchange.wait_until_gone()

    def go_on(exchange: Exchange) -> None:
        same(exchange.headers["last-event-id"], "e-1", "the event id from which the client resumes")
        exchange.begin_stream()
        exchange.end(*logs[0][2:])

    limits = Limits(stream_idle_timeout=0.2)
    with talking(subject, {"tools/call": begin, "GET": go_on}, limits=limits) as (client, _):
        same(call(client), {"done": True}, "the result")


@client_check(Feature.CONCURRENCY)
def the_standalone_stream(subject: ClientUnderTest) -> None:
    """Messages on the standalone stream are received while no call is in flight."""
    listening = threading.Event()

    def stream(exchange: Exchange) -> None:
        exchange.begin_stream()
        happened(listening, "the application got no event")
        exchange.chunk(event({"method": "notifications/x"}))
        exchange.wait_until_gone()

    with talking(subject, {"GET": stream}, standalone_stream=True) as (client, _):
        events = client.events()
        same(call(client, {"a": 1}), {"a": 1}, "the result of a call meanwhile")
        listening.set()
        notified(events, 1)


@client_check(Feature.CONCURRENCY)
def what_the_client_listens_for(subject: ClientUnderTest) -> None:
    """Notifications of a subscriptions/listen call arrive as events while it runs (2026-07-28).

    Set no limit on how long the response of such a call may last.
    """
    listening = threading.Event()

    def stream(exchange: Exchange) -> None:
        exchange.begin_stream()
        happened(listening, "the application got no event")
        exchange.chunk(event({"method": "notifications/x", "params": {"number": 1}}))
        exchange.wait_until_gone()

    with talking(subject, {"subscriptions/listen": stream}, versions=MODERN) as (client, server):
        events = client.events()
        pending = client.start("subscriptions/listen", {"notifications": {}})
        until(client, lambda: "subscriptions/listen" in server.asked, "the request")
        listening.set()
        same([each["number"] for each in notified(events, 1)], [1], "the notifications")
        same(call(client, {"a": 1}), {"a": 1}, "the result of a call meanwhile")
    raises(RequestCancelled, pending.result, "listening when the client was closed")


@client_check(Feature.CONCURRENCY)
def a_subscription_that_the_server_completes(subject: ClientUnderTest) -> None:
    """A completed subscriptions/listen ends with its result, and is not made again (2026-07-28).

    Complete the call at CallCompleted, and leave it to the application to subscribe again.
    """

    def empty(exchange: Exchange) -> None:
        meta = {"io.modelcontextprotocol/subscriptionId": exchange.id}
        told = {"notifications": {}, "_meta": meta}
        exchange.begin_stream()
        exchange.chunk(
            event({"method": "notifications/subscriptions/acknowledged", "params": told})
        )
        exchange.end(exchange.answer({"resultType": "complete", "_meta": meta}))

    with talking(subject, {"subscriptions/listen": empty}, versions=MODERN) as (client, server):
        pending = client.start(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        )
        same(pending.result().get("resultType"), "complete", "the result of the subscription")
        same(call(client, {"a": 1}), {"a": 1}, "the result of a call after it")
        same(server.asked.count("subscriptions/listen"), 1, "the number of subscriptions")


class _Flood:
    """A call with more notifications than the client reads while no events are taken."""

    count = 150
    _text = "x" * 160_000

    def __init__(self) -> None:
        self.sent = 0
        self.is_held_up = threading.Event()

    def call(self, exchange: Exchange) -> None:
        exchange.begin_stream()
        for number in range(self.count):
            params = {"number": number, "text": self._text}
            exchange.chunk(event({"method": "notifications/x", "params": params}))
            self.sent += 1
        exchange.end(exchange.answer({}))

    def watch(self) -> None:
        """Set the event as soon as no bytes have been sent for a while."""
        stands_still(lambda: self.sent)
        self.is_held_up.set()


@client_check(Feature.CONCURRENCY)
def events_that_nobody_takes(subject: ClientUnderTest) -> None:
    """While the application takes no events, responses are not read; nothing is lost.

    Do not read responses while next_effect() returns Idle.PAUSED, or while your queue of events for
    the application is full. Read again when it has taken some.
    """
    flood = _Flood()
    limits = Limits(max_queued_events=8)
    with talking(subject, {"tools/call": flood.call}, limits=limits) as (client, _):
        events = client.events()
        pending = start(client)
        until(client, lambda: flood.sent, "the call")
        threading.Thread(target=flood.watch, daemon=True).start()
        until(client, flood.is_held_up.is_set, "the server being blocked")
        expect(
            flood.sent < flood.count,
            "the client kept reading although no events were taken",
        )
        numbers = [each["number"] for each in notified(events, flood.count)]
        same(numbers, list(range(flood.count)), "the notifications")
        same(pending.result(), {}, "the result")
