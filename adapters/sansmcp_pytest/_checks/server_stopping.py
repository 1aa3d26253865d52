"""Checks of servers: how they stop."""

from __future__ import annotations

import errno
import itertools
import socket
import threading
import time

from sansmcp.http import Url

from .adapter_under_test import Feature, Running, ServerUnderTest
from .check import MOMENT, expect, happened, raises, same, server_check, stays_the_same
from .raw_client import Connection, RawPeer
from .servers import LEGACY, MODERN, begun, serving


def _stopping(running: Running) -> threading.Event:
    """Stop a server in a thread. Return an event that is set when it has stopped."""
    stopped = threading.Event()

    def stop() -> None:
        running.stop()
        stopped.set()

    threading.Thread(target=stop, daemon=True).start()
    return stopped


@server_check(Feature.GRACE)
def calls_get_time_to_end(subject: ServerUnderTest) -> None:
    """Calls that run at a stop get ``graceful_timeout`` seconds, and their results arrive.

    Close the listener, call Server.drain(), and wait until Server.is_busy is False.
    """
    with (
        serving(subject, graceful_timeout=MOMENT) as (tools, running),
        RawPeer(running.url, LEGACY) as peer,
    ):
        response = peer.begin("wait")
        begun(tools)
        stopped = _stopping(running)
        expect(not stopped.wait(0.2), "the server did not wait for the call")
        tools.go_on.set()
        same(response.result(), {"done": True}, "the result")
        expect(response.is_complete, "the response was aborted instead of ended")
        happened(stopped, "the server did not stop")


@server_check(Feature.GRACE)
def calls_without_sessions_get_time_to_end(subject: ServerUnderTest) -> None:
    """A server without sessions waits for its calls, too, at every revision.

    Use Server.is_busy; do not count calls or sessions yourself.
    """
    for version in (LEGACY, MODERN):
        with (
            serving(subject, graceful_timeout=MOMENT, sessions=False) as (tools, running),
            RawPeer(running.url, version) as peer,
        ):
            connection = peer.connect()
            connection.send(peer.tool("wait"))
            begun(tools)
            stopped = _stopping(running)
            expect(not stopped.wait(0.2), f"the server did not wait for the call of {version}")
            tools.go_on.set()
            same(connection.response().result(), {"done": True}, "the result")
            happened(stopped, "the server did not stop")


@server_check(Feature.GRACE)
def calls_that_get_no_time_are_answered(subject: ServerUnderTest) -> None:
    """Calls that still run after ``graceful_timeout`` seconds get an error response.

    Call Server.shut_down(), and send the effects of all exchanges before you close connections.
    """
    with (
        serving(subject, graceful_timeout=0.1) as (tools, running),
        RawPeer(running.url, LEGACY) as peer,
    ):
        connection = peer.connect()
        connection.send(peer.tool("hang"))
        begun(tools)
        stopped = _stopping(running)
        response = connection.response()
        error = response.answer().get("error", {})
        same(error.get("data", {}).get("reason"), "shutting_down", "the reason")
        expect(response.is_complete, "the response was aborted instead of ended")
        tools.over.set()
        happened(stopped, "the server did not stop")


@server_check(Feature.GRACE, Feature.OWN_HTTP)
def newcomers_are_refused(subject: ServerUnderTest) -> None:
    """A server that stops closes its listener first, so new connections are refused at once.

    Close the listener before Server.drain().
    """
    with (
        serving(subject, graceful_timeout=MOMENT) as (tools, running),
        RawPeer(running.url, LEGACY) as peer,
    ):
        response = peer.begin("wait")
        begun(tools)
        knocks = map(_is_refused, itertools.repeat(running.url))
        expect(not next(knocks), "a running server refuses connections")
        stopped = _stopping(running)
        expect(any(itertools.islice(knocks, 1000)), "a stopping server accepts new connections")
        tools.go_on.set()
        same(response.result(), {"done": True}, "the result of a call that ran")
        happened(stopped, "the server did not stop")


def _is_refused(url: str) -> bool:
    """True if a connection to the URL is refused. Called a hundred times a second."""
    time.sleep(0.01)
    parsed = Url.parse(url)
    with socket.socket() as newcomer:
        return newcomer.connect_ex((parsed.host, parsed.port)) == errno.ECONNREFUSED


@server_check(Feature.GRACE)
def streams_are_ended(subject: ServerUnderTest) -> None:
    """Event streams end properly when the server stops.

    Call Server.shut_down(), send the effects of all exchanges, and only then close connections.
    """
    with serving(subject) as (_, running), RawPeer(running.url, LEGACY) as peer:
        response = peer.get()
        stopped = _stopping(running)
        list(response.events())
        expect(response.is_complete, "the response was aborted instead of ended")
        happened(stopped, "the server did not stop")


@server_check(Feature.CANCELLING)
def handlers_are_stopped(subject: ServerUnderTest) -> None:
    """Handlers that still run after ``graceful_timeout`` are stopped, and do not delay the stop.

    After Server.shut_down(), take the events: CallCancelled names each handler to stop.
    """
    for version in (LEGACY, MODERN):
        with (
            serving(subject, graceful_timeout=0.1) as (tools, running),
            RawPeer(running.url, version) as peer,
        ):
            peer.connect().send(peer.tool("hang"))
            begun(tools)
            stopped = _stopping(running)
            happened(tools.stopped, "the handler was not stopped")
            happened(stopped, "the server did not stop")


@server_check()
def connections_are_closed(subject: ServerUnderTest) -> None:
    """A stopped server has closed its port and its connections, also the idle ones."""
    with serving(subject) as (_, running), RawPeer(running.url, LEGACY) as peer:
        fresh, used = peer.connect(), peer.connect()
        peer.call("echo", on=used)
        begin = time.monotonic()
        running.stop()
        expect(time.monotonic() - begin < MOMENT, "idle connections delayed the stop")
        expect(used.is_closed(), "a connection that was used is still open")
        expect(fresh.is_closed(), "a connection that was not used is still open")
        raises(OSError, lambda: Connection(running.url), "connecting again")


@server_check()
def nothing_is_left(subject: ServerUnderTest) -> None:
    """A stopped server leaves no thread and no file descriptor, also after several runs."""

    def once() -> None:
        with serving(subject) as (_, running), RawPeer(running.url, LEGACY) as peer:
            peer.call("echo")

    stays_the_same(once)
