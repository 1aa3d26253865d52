"""A page of HTML with status 200 that a proxy shows in place of the server's response.

It says nothing about the message: what may be sent again is, and what may not is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sansmcp import BodyData, Disconnected, RequestRefused
from sansmcp.events import (
    CallCompleted,
    Closed,
    Connected,
    MessageUndelivered,
    Reconnecting,
    ServerNotified,
    StandaloneStreamClosed,
)
from sansmcp.states import ClientState

from .harness import (
    POLICY,
    Asked,
    ClientHarness,
    notification,
    only_failure,
    open_call,
    request,
    response,
)
from .modern.harness import ModernClientHarness
from .modern.task_harness import begin
from .sse_harness import SseHarness

PAGE = b"\n<!doctype html><title>Sorry</title>"
METHOD = "notifications/roots/list_changed"
ABLE: Any = {"capabilities": {"elicitation": {}}}


def show_page(asked: Asked) -> None:
    asked.refuse(200, PAGE, content_type="text/html; charset=utf-8")


def break_page_off(asked: Asked) -> None:
    asked.head(200, content_type="text/html")
    asked.feed(BodyData(b"\xef\xbb\xbf<html>"))
    asked.cut()


def opened(kind: str) -> ClientHarness:
    return (SseHarness(**ABLE) if kind == "http+sse" else ClientHarness(**ABLE)).connect()


def answer(harness: ClientHarness) -> Asked:
    """A question of the server, and the POST of its answer."""
    if isinstance(harness, SseHarness):
        harness.say(request("q", "elicitation/create"))
    else:
        _, asked = harness.call(timeout=10_000)
        asked.open_stream()
        asked.event(request("q", "elicitation/create"))
    harness.take_events()
    harness.run_command(harness.client.respond, "q", {"action": "accept"})
    return harness.take()


@pytest.mark.parametrize("kind", ["streamable-http", "http+sse"])
@pytest.mark.parametrize("refuse", [show_page, break_page_off])
def test_an_answer_is_sent_again(kind: str, refuse: Callable[[Asked], None]) -> None:
    """The call of the server would wait for it until its timeout."""
    harness = opened(kind)
    first = answer(harness)
    refuse(first)
    assert harness.requests == []
    harness.wait(0.5)
    again = harness.take()
    assert again.json == first.json
    again.accept()
    harness.wait(1000)
    assert not any(isinstance(event, MessageUndelivered) for event in harness.events)


def test_an_answer_is_not_sent_again_for_ever() -> None:
    harness = opened("streamable-http")
    show_page(answer(harness))
    for _ in range(POLICY.max_attempts):
        harness.wait(8)
        show_page(harness.take())
    (event,) = harness.take_events()
    assert isinstance(event, MessageUndelivered)
    assert "answered with HTTP 200: text/html instead of JSON" in event.reason


def test_an_answer_that_follows_a_redirect_is_sent_again_there() -> None:
    harness = opened("streamable-http")
    answer(harness).refuse(307, location="/elsewhere")
    show_page(harness.take())
    harness.wait(0.5)
    again = harness.take()
    assert (again.effect.url, again.id) == ("http://localhost:8000/elsewhere", "q")


def test_the_end_of_the_handshake_is_sent_again() -> None:
    harness = ClientHarness()
    harness.run_command(harness.client.start)
    harness.take_initialize()
    show_page(harness.take())
    assert harness.events == []
    harness.wait(0.5)
    again = harness.take()
    assert again.json["method"] == "notifications/initialized"
    again.accept()
    assert isinstance(harness.events[-1], Connected)


def test_the_cancellation_of_a_task_is_sent_again() -> None:
    harness = ModernClientHarness().connect()
    call = begin(harness)
    harness.run_command(harness.client.cancel, call)
    first = harness.take()
    show_page(first)
    harness.wait(0.5)
    assert harness.take().json["params"] == first.json["params"]


@pytest.mark.parametrize("kind", ["streamable-http", "http+sse"])
@pytest.mark.parametrize("method", [METHOD, "notifications/progress", "notifications/cancelled"])
def test_a_notification_is_reported_and_sent_once(kind: str, method: str) -> None:
    harness = opened(kind)
    if method == "notifications/cancelled":
        handle, asked = harness.call()
        asked.open_stream()
        harness.run_command(harness.client.cancel, handle)
        harness.take_events()
    else:
        harness.run_command(harness.client.notify, method, {"progress": 1, "progressToken": "t"})
    show_page(harness.take())
    (event,) = harness.take_events()
    assert isinstance(event, MessageUndelivered)
    assert "text/html instead of JSON" in event.reason
    harness.wait(10)
    assert harness.requests == []


@pytest.mark.parametrize(
    ("status", "body"), [(200, b""), (200, b"Accepted"), (202, PAGE), (204, b"")]
)
def test_html_that_is_no_page_is_an_acceptance(status: int, body: bytes) -> None:
    """Web frameworks send that type where the application has named none."""
    harness = opened("streamable-http")
    answer(harness).refuse(status, body, content_type="text/html; charset=utf-8")
    harness.wait(1000)
    assert not any(isinstance(event, MessageUndelivered) for event in harness.events)
    assert [asked for asked in harness.requests if asked.method == "POST"] == []


def test_html_that_breaks_off_before_it_is_a_page_is_a_broken_response() -> None:
    harness = opened("streamable-http")
    harness.run_command(harness.client.notify, METHOD)
    asked = harness.take()
    asked.head(200, content_type="text/html")
    asked.cut("cable cut")
    (event,) = harness.take_events()
    assert isinstance(event, MessageUndelivered)
    assert event.reason == "cable cut"


@pytest.mark.parametrize("kind", ["streamable-http", "http+sse"])
def test_the_outcome_of_a_call_is_unknown(kind: str) -> None:
    harness = opened(kind)
    handle, asked = harness.call()
    show_page(asked)
    error = only_failure(harness, handle)
    assert isinstance(error, RequestRefused)
    assert "got a web page instead of a response, and its outcome is unknown" in str(error)


def test_a_stream_is_resumed_from_the_same_event(harness: ClientHarness) -> None:
    handle, asked = open_call(harness)
    asked.cut()
    harness.wait(1)
    show_page(harness.take("GET"))
    harness.wait(2)
    resumed = harness.take("GET")
    assert resumed.header("last-event-id") == "e1"
    resumed.open_stream()
    resumed.event(response(asked.id), id="e2")
    assert harness.events[-1] == CallCompleted(handle, {})


def test_the_standalone_stream_is_opened_again_if_it_was_open() -> None:
    harness = ClientHarness(standalone_stream=True).connect()
    stream = harness.take("GET")
    stream.open_stream()
    stream.event(notification("n"), id="e1")
    stream.cut()
    harness.wait(0.5)
    show_page(harness.take("GET"))
    harness.wait(2)
    again = harness.take("GET")
    assert again.header("last-event-id") == "e1"
    kinds = [type(event) for event in harness.events]
    assert kinds == [ServerNotified, Reconnecting, Reconnecting]
    assert StandaloneStreamClosed not in kinds


def test_the_stream_of_http_sse_is_opened_again() -> None:
    harness = opened("http+sse")
    assert isinstance(harness, SseHarness)
    harness.stream.cut()
    harness.wait(0.5)
    show_page(harness.take("GET"))
    harness.wait(2)
    assert harness.locate().json["method"] == "initialize"
    assert harness.client.state is ClientState.CONNECTING


def test_a_subscription_is_made_again() -> None:
    harness = ModernClientHarness().connect()
    handle, asked = harness.call("subscriptions/listen", params={"notifications": {}})
    asked.open_stream()
    asked.event(notification("notifications/subscriptions/acknowledged", notifications={}))
    asked.cut()
    harness.wait(0.5)
    show_page(harness.take())
    harness.wait(2)
    assert harness.take().json["method"] == "subscriptions/listen"
    attempts = [event.attempt for event in harness.events if isinstance(event, Reconnecting)]
    assert attempts == [1, 2]
    assert all(event.call == handle for event in harness.events if isinstance(event, Reconnecting))


def test_a_client_that_leaves_asks_once(harness: ClientHarness) -> None:
    harness.run_command(harness.client.close)
    show_page(harness.take("DELETE"))
    assert harness.events[-1] == Closed(None)
    harness.wait(100)
    assert harness.requests == []


def test_a_stream_that_ends_for_another_reason_is_lost_as_before(harness: ClientHarness) -> None:
    """Plain text is no page: what has answered there has no stream."""
    handle, asked = open_call(harness)
    asked.cut()
    harness.wait(1)
    harness.take("GET").refuse(200, b"<no stream>", content_type="text/plain")
    assert isinstance(only_failure(harness, handle), Disconnected)
