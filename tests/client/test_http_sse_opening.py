"""How the stream of HTTP+SSE is opened: what has to come first, and all that may come instead."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import (
    BodyData,
    Disconnected,
    InvalidResponse,
    Limits,
    RequestRefused,
    RequestTimeout,
    encode_event,
)

from .harness import (
    ONCE,
    URL,
    response,
)
from .sse_harness import SseHarness, tell_endpoint

requirement = pytest.mark.requirement


@pytest.fixture
def opening() -> SseHarness:
    """A client that asks for its first stream."""
    return SseHarness(connect_timeout=7, reconnect=ONCE).start()


@requirement("LEGACYSSE-C-017")
@pytest.mark.parametrize(
    "endpoint",
    [
        "https://localhost:8000/x",
        "http://localhost:8001/x",
        "http://127.0.0.1:8000/x",
        "http://localhost/x",
        "//evil.example/x",
    ],
)
def test_an_endpoint_of_another_origin_is_refused(opening: SseHarness, endpoint: str) -> None:
    stream = opening.take("GET")
    stream.open_stream()
    tell_endpoint(stream, endpoint)
    assert stream.aborted
    failure = opening.failure()
    assert isinstance(failure, InvalidResponse)
    assert "another origin" in str(failure)
    assert endpoint.split("/")[2] in str(failure)


@pytest.mark.parametrize(
    "endpoint", ["file:///etc/passwd", "http://[::1", "http://u@localhost/", "\u00e4"]
)
def test_an_endpoint_that_is_no_url(opening: SseHarness, endpoint: str) -> None:
    stream = opening.take("GET")
    stream.open_stream()
    tell_endpoint(stream, endpoint)
    failure = opening.failure()
    assert isinstance(failure, InvalidResponse)
    assert "URL" in str(failure)


@requirement("LEGACYSSE-C-017")
@pytest.mark.parametrize(("event", "data"), [("message", b"{}"), ("endpoint", b""), ("ping", b"1")])
def test_another_event_comes_first(opening: SseHarness, event: str, data: bytes) -> None:
    stream = opening.take("GET")
    stream.open_stream()
    stream.feed(BodyData(encode_event(data, event=event) + encode_event(b"/m", event="endpoint")))
    assert stream.aborted
    failure = opening.failure()
    assert isinstance(failure, InvalidResponse)
    assert "another event than endpoint" in str(failure)
    assert f"GET {URL}" in str(failure)


@pytest.mark.parametrize("messages", [response(1), [response(1), response(2)]])
def test_json_is_no_stream(opening: SseHarness, messages: Any) -> None:
    opening.take("GET").answer(messages)
    failure = opening.failure()
    assert isinstance(failure, InvalidResponse)
    assert "JSON instead of an event stream" in str(failure)


@pytest.mark.parametrize("body", [b"{}", b"nonsense", b""])
def test_json_that_is_no_message_is_no_stream_either(opening: SseHarness, body: bytes) -> None:
    opening.take("GET").answer(body)
    assert isinstance(opening.failure(), InvalidResponse)


@requirement("LEGACYSSE-C-017")
@pytest.mark.parametrize("status", [200, 202, 302, 400, 404, 405, 406])
def test_the_stream_is_refused(opening: SseHarness, status: int) -> None:
    opening.take("GET").refuse(status, b"<html>", content_type="text/html", location="http://x/")
    failure = opening.failure()
    assert isinstance(failure, RequestRefused)
    assert (failure.status, failure.http_method, failure.url) == (status, "GET", URL)


@requirement("AUTH-C-026")
@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_a_refusal_that_says_nothing_about_the_transport_is_reported(
    opening: SseHarness, status: int
) -> None:
    opening.take("GET").refuse(status)
    failure = opening.closed()
    assert isinstance(failure, RequestRefused)
    assert failure.status == status


@pytest.mark.parametrize("begun", [False, True])
def test_the_first_stream_breaks_before_it_says_anything(opening: SseHarness, begun: bool) -> None:
    stream = opening.take("GET")
    if begun:
        stream.open_stream()
    stream.cut("no route to host")
    failure = opening.closed()
    assert isinstance(failure, Disconnected)
    assert "no route to host" in str(failure)
    assert opening.events == []


def test_a_stream_that_ends_without_a_word_is_none_of_this_transport(opening: SseHarness) -> None:
    stream = opening.take("GET")
    stream.open_stream()
    stream.end()
    assert isinstance(opening.failure(), Disconnected)


@pytest.mark.parametrize("begun", [False, True])
def test_the_endpoint_does_not_come(opening: SseHarness, begun: bool) -> None:
    stream = opening.take("GET")
    if begun:
        stream.open_stream()
    opening.wait(6.9)
    assert opening.requests == []
    opening.wait(0.1)
    assert stream.aborted
    failure = opening.failure()
    assert isinstance(failure, RequestTimeout)
    assert failure.seconds == 7


def test_the_first_event_is_too_large() -> None:
    harness = SseHarness(limits=Limits(max_message_bytes=100)).start()
    stream = harness.take("GET")
    stream.open_stream()
    stream.feed(BodyData(b"data: " + b"x" * 100))
    failure = harness.failure()
    assert isinstance(failure, InvalidResponse)
    assert "100 bytes" in str(failure)


@requirement("SSE-C-029")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_within_the_origin_are_followed(opening: SseHarness, status: int) -> None:
    opening.take("GET").refuse(status, location="/v2/sse")
    assert opening.requests[0].effect.url == "http://localhost:8000/v2/sse"
    asked = opening.locate("messages")
    assert asked.effect.url == "http://localhost:8000/v2/messages"


def test_the_endpoint_may_move() -> None:
    harness = SseHarness().connect()
    _, asked = harness.call()
    asked.refuse(307, location="/moved")
    assert harness.take().effect.url == "http://localhost:8000/moved"
    harness.run_command(harness.client.notify, "x")
    assert harness.take().effect.url == "http://localhost:8000/moved"
