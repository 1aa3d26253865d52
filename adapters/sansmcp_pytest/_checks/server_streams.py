"""Checks of servers: streams that break, disconnect, are abandoned, or are not read."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Iterable
from typing import Any

from sansmcp.limits import Limits
from sansmcp.reclaim import EXTENSION

from .adapter_under_test import Feature, ServerUnderTest
from .check import expect, happened, same, server_check, stands_still
from .raw_client import RawPeer, Response, result_of
from .servers import LEGACY, MODERN, alive, begun, serving


class _Reader:
    """Reads the event streams of one call, as a client that reconnects does."""

    def __init__(self) -> None:
        self.last_id = ""
        self.reports: list[float] = []
        self.is_done = False

    def read(self, response: Response, most: int = 1000) -> None:
        """Read up to ``most`` events."""
        same(response.status, 200, "the status of the stream")
        for event in itertools.islice(response.events(), most):
            self.last_id = event.id or self.last_id
            if event.data:
                self.take((json.loads(event.data),))

    def take(self, messages: Iterable[dict[str, Any]]) -> None:
        """Take messages of the call."""
        for message in messages:
            if "result" in message:
                self.is_done = True
            else:
                self.reports.append(message["params"]["progress"])


@server_check()
def broken_streams_can_be_resumed(subject: ServerUnderTest) -> None:
    """A client whose connection broke resumes the stream; nothing is lost or duplicated.

    When a connection is lost, feed ConnectionLost or call connection_lost(), and let the handler
    continue. Perform the store effects in their order, and report the completion of each.
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
    """A call that takes time gets a stream with an event id at once (2025-11-25).

    Call handle_timeout() at next_deadline(), also if that is now, but let handlers that were just
    started take their first step before.
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
    """In a session a handler continues when its client disconnects (2025-11-25).

    The result is stored for the client. Do not tie a handler to the connection of its call.
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
def calls_with_a_key_outlive_their_connection(subject: ServerUnderTest) -> None:
    """A call with a key continues when its client disconnects; another connection gets the rest.

    The key is that of docs/reclaim.md (2026-07-28). Do not tie a handler to the connection of its
    call.
    """
    key = {EXTENSION: "..key-of-the-only-call"}
    with serving(subject, reclaim=True) as (tools, running), RawPeer(running.url, MODERN) as peer:
        params = {"name": "wait", "_meta": {**key, "progressToken": "p"}}
        response = peer.send(peer.message("tools/call", params, id="call"))
        same(next(response.messages())["params"]["progress"], 1, "the progress before the cut")
        begun(tools)
        response.connection.reset()
        alive(running)
        tools.go_on.set()
        rest = peer.message(EXTENSION, {"received": 1, "_meta": key}, id="call")
        for _ in range(2):  # also after the end
            reader = _Reader()
            reader.take(peer.send(rest).messages())
            same((reader.reports, reader.is_done), ([2], True), "the progress, and the end")


@server_check()
def handlers_that_let_go(subject: ServerUnderTest) -> None:
    """A handler disconnects its client, which reconnects for the rest (SEP-1699).

    For SendEnd, end the response properly with the last chunk; do not abort the connection.
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
    """A client that disconnects cancels its call (2026-07-28).

    Detect that a client has disconnected also while no bytes are sent to it. Feed ConnectionLost or
    call connection_lost(), and stop the handler for CallCancelled.
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

    For CallCancelled, stop the handler in the way of your event loop.
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
    """A GET opens an event stream that stays open, with comments that keep it alive."""
    limits = Limits(stream_comment_interval=0.05)
    with serving(subject, limits=limits) as (_, running), RawPeer(running.url, LEGACY) as peer:
        response = peer.get()
        same((response.status, response.is_stream), (200, True), "the status, and the form")
        pieces = response.pieces()
        for _ in range(3):
            next(pieces)


@server_check()
def what_is_said_to_a_session_is_sent_at_once(subject: ServerUnderTest) -> None:
    """Notifications of a handler to its session arrive while the handler runs (2025-11-25).

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
    """A client that does not read blocks only its own handler, and loses nothing.

    Wait until the bytes of an effect are sent before you pull the next one of the exchange. Let the
    methods of a call wait while ServerCall.is_above_high_water is True.
    """
    limits = Limits(max_unsent_bytes=64 * 1024)
    with (
        serving(subject, resumable=False, limits=limits) as (tools, running),
        RawPeer(running.url, LEGACY) as peer,
    ):
        response = peer.begin("flood", {"count": _COUNT}, peer.connect(window=4096))
        sent = stands_still(lambda: tools.sent)
        expect(sent < _COUNT, "the handler continued although its client does not read")
        alive(running)
        *notifications, answer = response.messages()
        numbers = [each["params"]["data"]["number"] for each in notifications]
        same(numbers, list(range(_COUNT)), "the notifications")
        same(result_of(answer), {"done": True}, "the result")


@server_check(Feature.OWN_HTTP)
def clients_that_read_slowly(subject: ServerUnderTest) -> None:
    """A client that reads slowly gets the whole response, however long that takes.

    Measure ``limits.send_timeout`` from the last byte that the socket accepted, not from the start
    of an effect. A large socket buffer hides progress: see TCP_NOTSENT_LOWAT.
    """
    size = 12_000_000  # more than any system's socket buffers hold
    with (
        serving(subject, limits=Limits(send_timeout=1.0), stream_after=60.0) as (_, running),
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
    """A connection that accepts no bytes for ``limits.send_timeout`` seconds is dropped.

    Abort a SendBytes that makes no progress for that long, and call connection_lost().
    """
    limits = Limits(max_unsent_bytes=64 * 1024, send_timeout=0.1)
    with (
        serving(subject, resumable=False, limits=limits) as (tools, running),
        RawPeer(running.url, LEGACY) as peer,
    ):
        response = peer.begin("flood", {"count": _COUNT}, peer.connect(window=4096))
        # The handler outlives its connection, and no longer waits for the client.
        happened(tools.flooded, "the connection was not dropped")
        with contextlib.suppress(ConnectionError, ValueError):
            list(response.messages())
        expect(not response.is_complete, "the connection was not dropped")
        alive(running)
