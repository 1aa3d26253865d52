"""Checks of clients: event streams that break, are let go, or are not read."""

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
    """What the server says about a call: each event has an id."""
    return [
        event(None, id="e-0", retry=1),
        event(progress(exchange, 1), id="e-1"),
        event(progress(exchange, 2), id="e-2"),
        event({"id": exchange.id, "result": {"done": True}}, id="e-3"),
    ]


class _Broken:
    """A server whose stream breaks after some bytes; what follows is fetched by GET."""

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
    """Wherever a stream breaks, the client comes back for the rest; nothing is lost or doubled.

    When a connection is closed feed the end; when it is reset or fails call connection_lost, or
    feed ConnectionLost. Tick the timers: the machine waits before it comes back.
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
    """A stream that ends before the answer is fetched further, after the delay the server wants.

    Tick the timers: ask next_deadline() after everything that changes the machine.
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
        same(server.asked.count("GET"), 3, "how often the client came back")
        same(server.connections, 1, "the connections, as every stream was ended properly")


@client_check(Feature.CONCURRENCY)
def a_server_that_falls_silent(subject: ClientUnderTest) -> None:
    """A stream that can be resumed and says nothing any more is aborted, and fetched further.

    Call handle_timeout() at next_deadline(), also while a response is read.
    """
    logs: list[list[bytes]] = []

    def begin(exchange: Exchange) -> None:
        logs.append(_log(exchange))
        exchange.begin_stream()
        exchange.chunk(*logs[0][:2])
        exchange.wait_until_gone()

    def go_on(exchange: Exchange) -> None:
        same(exchange.headers["last-event-id"], "e-1", "where the client goes on")
        exchange.begin_stream()
        exchange.end(*logs[0][2:])

    limits = Limits(stream_idle_timeout=0.2)
    with talking(subject, {"tools/call": begin, "GET": go_on}, limits=limits) as (client, _):
        same(call(client), {"done": True}, "the result")


@client_check(Feature.CONCURRENCY)
def the_standalone_stream(subject: ClientUnderTest) -> None:
    """What the server says on its own accord is read while nothing is asked."""
    listening = threading.Event()

    def stream(exchange: Exchange) -> None:
        exchange.begin_stream()
        happened(listening, "the application did not listen")
        exchange.chunk(event({"method": "notifications/x"}))
        exchange.wait_until_gone()

    with talking(subject, {"GET": stream}, standalone_stream=True) as (client, _):
        events = client.events()
        same(call(client, {"a": 1}), {"a": 1}, "the result of a call meanwhile")
        listening.set()
        notified(events, 1)


@client_check(Feature.CONCURRENCY)
def what_the_client_listens_for(subject: ClientUnderTest) -> None:
    """Changes that a client listens for come as events, as long as it does (2026-07-28).

    Let a call of subscriptions/listen last as long as the server likes.
    """
    listening = threading.Event()

    def stream(exchange: Exchange) -> None:
        exchange.begin_stream()
        happened(listening, "the application did not listen")
        exchange.chunk(event({"method": "notifications/x", "params": {"number": 1}}))
        exchange.wait_until_gone()

    with talking(subject, {"subscriptions/listen": stream}, versions=MODERN) as (client, server):
        events = client.events()
        pending = client.start("subscriptions/listen", {"notifications": {}})
        until(client, lambda: "subscriptions/listen" in server.asked, "the request")
        listening.set()
        same([each["number"] for each in notified(events, 1)], [1], "what was told")
        same(call(client, {"a": 1}), {"a": 1}, "the result of a call meanwhile")
    raises(RequestCancelled, pending.result, "listening when the client was closed")


class _Flood:
    """A call that brings more notifications than anybody takes."""

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
        """Set the event as soon as nothing has been sent for a while."""
        stands_still(lambda: self.sent)
        self.is_held_up.set()


@client_check(Feature.CONCURRENCY)
def events_that_nobody_takes(subject: ClientUnderTest) -> None:
    """When the application takes no events, the server is not read, and nothing is lost by that.

    Read no response while next_effect() gives Idle.PAUSED, or while you keep as many events for
    the application as you want to; go on when it has taken some.
    """
    flood = _Flood()
    limits = Limits(max_queued_events=8)
    with talking(subject, {"tools/call": flood.call}, limits=limits) as (client, _):
        events = client.events()
        pending = start(client)
        until(client, lambda: flood.sent, "the call")
        threading.Thread(target=flood.watch, daemon=True).start()
        until(client, flood.is_held_up.is_set, "the server being held up")
        expect(
            flood.sent < flood.count,
            "the client read on though nobody took its events",
        )
        numbers = [each["number"] for each in notified(events, flood.count)]
        same(numbers, list(range(flood.count)), "the notifications")
        same(pending.result(), {}, "the result")
