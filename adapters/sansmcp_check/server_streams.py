"""Checks of servers: streams that break, are let go, are left, or are not read."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from typing import Any

from sansmcp.limits import Limits

from .adapter_under_test import Feature, ServerUnderTest
from .check import expect, happened, same, server_check, stands_still
from .raw_client import RawPeer, Response, result_of
from .servers import LEGACY, MODERN, alive, begun, serving


class _Reader:
    """Reads the streams of one call, as a client that comes back does."""

    def __init__(self) -> None:
        self.last_id = ""
        self.reports: list[float] = []
        self.is_done = False

    def read(self, response: Response, most: int = 1000) -> None:
        """Read so many events, or all."""
        same(response.status, 200, "the status of the stream")
        for event in itertools.islice(response.events(), most):
            self.last_id = event.id or self.last_id
            if event.data:
                self._take(json.loads(event.data))

    def _take(self, message: dict[str, Any]) -> None:
        if "result" in message:
            self.is_done = True
        else:
            self.reports.append(message["params"]["progress"])


@server_check()
def broken_streams_can_be_resumed(subject: ServerUnderTest) -> None:
    """A client whose connection broke fetches the rest; nothing is lost or doubled.

    When a connection is gone, feed ConnectionLost or call connection_lost(), and let the handler go
    on. Perform the store effects in their order, and tell the machine what came of them.
    """
    with serving(subject) as (_, running), RawPeer(running.url, LEGACY) as peer:
        for cut in range(1, 7):
            reader = _Reader()
            response = peer.begin("count", {"to": 5})
            reader.read(response, cut)
            response.connection.reset()
            reader.read(peer.get(reader.last_id))
            same(reader.reports, [1, 2, 3, 4, 5], f"the progress, when cut after {cut} events")
            expect(reader.is_done, f"the result did not come, when cut after {cut} events")


@server_check()
def calls_can_be_resumed_before_they_say_anything(subject: ServerUnderTest) -> None:
    """A call that takes time has a stream, and an id to come back to, at once (2025-11-25).

    Call handle_timeout() when next_deadline() has come, also when that is now; but let handlers
    that were just started take their first step before.
    """
    with serving(subject) as (tools, running), RawPeer(running.url, LEGACY) as peer:
        reader = _Reader()
        response = peer.begin("hang")
        reader.read(response, 1)
        expect(reader.last_id, "the stream does not begin with an id")
        begun(tools)
        response.connection.reset()
        response = peer.get(reader.last_id)
        tools.over.set()
        reader.read(response)
        expect(reader.is_done, "the result did not come")


@server_check()
def handlers_outlive_their_connection(subject: ServerUnderTest) -> None:
    """In a session a handler works on when its client has gone, and its result waits (2025-11-25).

    Do not tie a handler to the connection that its call came on.
    """
    with serving(subject) as (tools, running), RawPeer(running.url, LEGACY) as peer:
        reader = _Reader()
        response = peer.begin("wait")
        reader.read(response, 2)
        begun(tools)
        response.connection.reset()
        alive(running)
        tools.go_on.set()
        reader.read(peer.get(reader.last_id))
        same((reader.reports, reader.is_done), ([1, 2], True), "the progress, and the end")


@server_check()
def handlers_that_let_go(subject: ServerUnderTest) -> None:
    """A handler lets its client go, who comes back for the rest (SEP-1699).

    End the response properly for SendEnd: the last chunk, and no broken connection.
    """
    with serving(subject) as (tools, running), RawPeer(running.url, LEGACY) as peer:
        reader = _Reader()
        response = peer.begin("let go")
        reader.read(response)
        expect(response.is_complete, "the response was broken off instead of ended")
        same((reader.reports, reader.is_done), ([1], False), "the progress before the pause")
        begun(tools)
        tools.go_on.set()
        reader.read(peer.get(reader.last_id))
        same((reader.reports, reader.is_done), ([1, 2], True), "the progress, and the end")


@server_check(Feature.DISCONNECTS, Feature.CANCELLING)
def a_client_that_leaves_has_cancelled(subject: ServerUnderTest) -> None:
    """Without sessions, a client that goes away cancels its call (2026-07-28).

    Notice that a client has gone though nothing is sent to it, feed ConnectionLost or call
    connection_lost(), and stop the handler when CallCancelled comes.
    """
    for arguments in ({}, {"says something": True}):
        with serving(subject) as (tools, running), RawPeer(running.url, MODERN) as peer:
            with peer.connect() as connection:
                connection.send(peer.tool("hang", arguments))
                begun(tools)
            happened(tools.stopped, "the handler was not stopped")
            alive(running)


@server_check(Feature.CANCELLING)
def a_call_that_is_cancelled(subject: ServerUnderTest) -> None:
    """The notification that cancels a call stops its handler (2025-11-25).

    When CallCancelled comes, stop the handler in the manner of the adapter.
    """
    with serving(subject) as (tools, running), RawPeer(running.url, LEGACY) as peer:
        with peer.connect() as connection:
            connection.send(peer.tool("hang", id="mine"))
            begun(tools)
            peer.tell("notifications/cancelled", {"requestId": "mine"})
            happened(tools.stopped, "the handler was not stopped")
        alive(running)


@server_check()
def the_standalone_stream(subject: ServerUnderTest) -> None:
    """A GET opens an event stream that stays open, with signs of life."""
    limits = Limits(stream_comment_interval=0.05)
    with serving(subject, limits=limits) as (_, running), RawPeer(running.url, LEGACY) as peer:
        response = peer.get()
        same((response.status, response.is_stream), (200, True), "the status, and the form")
        pieces = response.pieces()
        for _ in range(3):
            next(pieces)


@server_check()
def what_is_said_to_a_session_is_sent_at_once(subject: ServerUnderTest) -> None:
    """What a handler tells its session arrives while the handler still works (2025-11-25).

    Pull the effects after every method of a call, also those of ``call.peer``.
    """
    with (
        serving(subject, standalone_streams=True) as (tools, running),
        RawPeer(running.url, LEGACY) as peer,
    ):
        stream = peer.get()
        connection = peer.connect()
        connection.send(peer.tool("tell"))
        message = next(stream.messages())
        same(message["method"], "notifications/tools/list_changed", "the message")
        tools.go_on.set()
        same(connection.response().result(), {"done": True}, "the result")


_COUNT = 1500


@server_check()
def clients_that_do_not_read(subject: ServerUnderTest) -> None:
    """A client that reads nothing holds up its own handler, nobody else, and loses nothing.

    Wait until what was sent is taken, before the next effect of an exchange is pulled; and let the
    methods of a call wait as long as Call.is_above_high_water is set.
    """
    limits = Limits(max_unsent_bytes=64 * 1024)
    with (
        serving(subject, resumable=False, limits=limits) as (tools, running),
        RawPeer(running.url, LEGACY) as peer,
    ):
        response = peer.begin("flood", {"count": _COUNT}, peer.connect(window=4096))
        sent = stands_still(lambda: tools.sent)
        expect(sent < _COUNT, "the handler went on though its client reads nothing")
        alive(running)
        *notifications, answer = response.messages()
        numbers = [each["params"]["data"]["number"] for each in notifications]
        same(numbers, list(range(_COUNT)), "the notifications")
        same(result_of(answer), {"done": True}, "the result")


@server_check(Feature.OWN_HTTP)
def clients_that_read_slowly(subject: ServerUnderTest) -> None:
    """A client that reads all the time gets everything, however long that takes.

    Count ``limits.send_timeout`` from the last byte that was taken, not from the first of an
    effect. A socket with a large buffer hides progress: see TCP_NOTSENT_LOWAT.
    """
    size = 12_000_000  # more than the buffers of any system take at once
    with (
        serving(subject, limits=Limits(send_timeout=1.0)) as (_, running),
        RawPeer(running.url, MODERN) as peer,
    ):
        connection = peer.connect(window=32 * 1024)
        connection.send(peer.tool("large", {"size": size}))
        response = connection.response()
        body = b""
        for piece in response.read_in_pieces(256 * 1024):
            body += piece
            threading.Event().wait(0.05)
        expect(response.is_complete, f"the connection was dropped after {len(body)} bytes")
        same(len(json.loads(body)["result"]["text"]), size, "the length of the result")


@server_check(Feature.OWN_HTTP)
def clients_that_take_nothing_are_dropped(subject: ServerUnderTest) -> None:
    """A connection on which nothing can be sent for ``limits.send_timeout`` seconds is dropped.

    Give up a SendBytes that takes longer, and call connection_lost().
    """
    limits = Limits(max_unsent_bytes=64 * 1024, send_timeout=0.1)
    with (
        serving(subject, resumable=False, limits=limits) as (tools, running),
        RawPeer(running.url, LEGACY) as peer,
    ):
        response = peer.begin("flood", {"count": _COUNT}, peer.connect(window=4096))
        # The handler outlives its connection, and nobody holds it up any more.
        happened(tools.flooded, "the connection was not dropped")
        with contextlib.suppress(ConnectionError, ValueError):
            list(response.messages())
        expect(not response.is_complete, "the connection was not dropped")
        alive(running)
