"""A server that is not there yet: the opening is tried again, within ``connect_timeout``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sansmcp import (
    BodyData,
    CallError,
    Disconnected,
    NegotiationFailed,
    ReconnectPolicy,
    RequestRefused,
    RequestTimeout,
)
from sansmcp.events import CallCompleted, CallFailed, Closed, Connected, Reconnecting
from sansmcp.states import ClientState

from .harness import LATEST, POLICY, SESSION, URL, Asked, ClientHarness, initialized, response
from .sse_harness import SseHarness, tell_endpoint


def refuse_connection(asked: Asked) -> None:
    asked.cut("connection refused")


def break_the_head(asked: Asked) -> None:
    asked.cut("reset by peer")


def break_the_body(asked: Asked) -> None:
    asked.head(content_type="application/json", content_length="1000")
    asked.feed(BodyData(b'{"jsonrpc":'))
    asked.cut("the body broke off")


def break_the_stream(asked: Asked) -> None:
    asked.open_stream()
    asked.feed(BodyData(b":\n\ndata: {"))
    asked.cut("the body broke off")


def refuse_with_502(asked: Asked) -> None:
    asked.refuse(502)


def refuse_with_503(asked: Asked) -> None:
    asked.refuse(503)


def refuse_with_504(asked: Asked) -> None:
    asked.refuse(504)


FAILURES = (
    refuse_connection,
    break_the_head,
    break_the_body,
    break_the_stream,
    refuse_with_502,
    refuse_with_503,
    refuse_with_504,
)
failing = pytest.mark.parametrize("fail", FAILURES, ids=lambda each: each.__name__)


def start(policy: ReconnectPolicy = POLICY, **settings: float) -> ClientHarness:
    harness = ClientHarness(reconnect=policy, **settings)  # type: ignore[arg-type]
    harness.run_command(harness.client.start)
    return harness


def closed(harness: ClientHarness) -> CallError:
    event = harness.events[-1]
    assert isinstance(event, Closed)
    assert event.error is not None
    assert harness.requests == []
    assert harness.client.state is ClientState.CLOSED
    assert harness.client.next_deadline() is None
    return event.error


@failing
def test_initialize_is_made_again(fail: Callable[[Asked], None]) -> None:
    """A server that starts a second after its client."""
    harness = start()
    handle = harness.run_command(harness.client.call, "tools/list")
    ids: list[int] = []
    for attempt in (1, 2, 3):
        asked = harness.take()
        ids.append(asked.id)
        fail(asked)
        (event,) = harness.take_events()
        assert isinstance(event, Reconnecting)
        assert (event.call, event.attempt) == (None, attempt)
        assert "initialize " in event.reason
        assert event.delay == 0.5 * 2 ** (attempt - 1)
        assert harness.requests == []
        harness.wait(event.delay)
    assert ids == sorted(set(ids))
    harness.take_initialize()
    harness.take().accept()
    (connected,) = harness.take_events()
    assert isinstance(connected, Connected)
    asked = harness.take()
    asked.result()
    assert harness.events == [CallCompleted(handle, {})]


@failing
def test_the_opening_ends_with_the_last_reason_and_all_attempts(
    fail: Callable[[Asked], None],
) -> None:
    harness = start(ReconnectPolicy(initial_delay=1.0, max_delay=8.0, max_attempts=1000))
    begin = harness.now
    harness.take().cut("no route to host")
    count = 1
    while harness.client.state is ClientState.CONNECTING:
        deadline = harness.client.next_deadline()
        assert deadline is not None
        harness.wait(deadline - harness.now)
        if harness.requests:
            count += 1
            fail(harness.take())
        if count == 50:
            break
    assert harness.now - begin <= 30.0
    harness.wait(30)
    for asked in harness.requests:
        assert asked.aborted
    harness.requests.clear()
    error = closed(harness)
    assert len(error.attempts) >= 6
    assert "- 1 of them: initialize got no response from" in str(error)
    assert "no route to host" in str(error)


def test_attempts_are_bounded_by_the_policy_too() -> None:
    harness = start()
    for delay in (0.5, 1.0, 2.0, 4.0):
        harness.take().cut("refused")
        harness.wait(delay)
    harness.take().cut("refused for good")
    error = closed(harness)
    assert isinstance(error, Disconnected)
    text = f"initialize got no response from {URL}: refused"
    assert str(error).split("\n") == [
        f"{text} for good",
        "4 attempts before this one have failed, too:",
        f"- 4 of them: {text}",
    ]
    assert [str(attempt) for attempt in error.attempts] == [text] * 4


def test_calls_that_wait_are_told_all_attempts() -> None:
    """In lines, as the client is."""
    harness = start()
    handle = harness.run_command(harness.client.call, "tools/list")
    for delay in (0.5, 1.0, 2.0, 4.0):
        harness.take().cut(f"refused {delay}")
        harness.wait(delay)
    harness.take().cut("refused for good")
    failed = next(event for event in harness.events if isinstance(event, CallFailed))
    assert failed.call == handle
    assert str(failed.error).split("\n") == [
        f"tools/list was not completed: initialize got no response from {URL}: refused for good",
        "4 attempts before this one have failed, too:",
        *(
            f"- 1 of them: initialize got no response from {URL}: refused {delay}"
            for delay in (0.5, 1.0, 2.0, 4.0)
        ),
    ]


def test_an_attempt_that_hangs_ends_with_the_time_for_all() -> None:
    harness = start(connect_timeout=10.0)
    harness.take().cut("refused")
    harness.wait(5)
    asked = harness.take()
    harness.wait(4.9)
    assert not asked.aborted
    harness.wait(0.1)
    assert asked.aborted
    error = closed(harness)
    assert isinstance(error, RequestTimeout)
    assert "- 1 of them: initialize got no response" in str(error)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_the_server_says_how_long_to_wait(status: int) -> None:
    harness = start()
    harness.take().refuse(status, retry_after="7")
    event = harness.events[-1]
    assert isinstance(event, Reconnecting)
    assert event.delay == 7.5
    harness.wait(7.4)
    assert harness.requests == []
    harness.wait(0.1)
    harness.take().refuse(status, b"until tomorrow", retry_after="90")
    error = closed(harness)
    assert isinstance(error, RequestRefused)
    assert "until tomorrow" in str(error)
    assert len(error.attempts) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 500, 501])
def test_other_refusals_are_final(status: int) -> None:
    harness = ClientHarness(transports=("streamable-http",))
    harness.run_command(harness.client.start)
    harness.take().refuse(status)
    assert isinstance(closed(harness), RequestRefused)


def test_a_response_without_an_answer_is_final() -> None:
    harness = start()
    asked = harness.take()
    asked.open_stream()
    asked.end()
    assert isinstance(closed(harness), Disconnected)


def test_closing_while_the_next_attempt_is_waited_for() -> None:
    harness = start()
    harness.take().cut()
    harness.run_command(harness.client.close)
    assert harness.events[-1] == Closed(None)
    harness.wait(100)
    assert harness.requests == []
    assert harness.client.next_deadline() is None


# The confirmation


@pytest.mark.parametrize(
    "fail", [refuse_connection, refuse_with_502, refuse_with_503], ids=lambda each: each.__name__
)
def test_the_confirmation_is_sent_again(fail: Callable[[Asked], None]) -> None:
    """The session stays, so that none is left behind."""
    harness = start()
    harness.take_initialize()
    for _ in range(3):
        asked = harness.take()
        assert asked.json == {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert asked.header("mcp-session-id") == SESSION
        fail(asked)
        assert harness.events == []
        harness.wait(4)
    harness.take().accept()
    (connected,) = harness.events
    assert isinstance(connected, Connected)
    harness.wait(1000)
    assert len(harness.events) == 1


def test_a_confirmation_that_is_never_taken() -> None:
    harness = start(
        ReconnectPolicy(initial_delay=1.0, max_delay=2.0, max_attempts=100), connect_timeout=10.0
    )
    harness.take_initialize()
    while harness.client.state is ClientState.CONFIRMING:
        if harness.requests:
            harness.take().cut("connection refused")
        harness.wait(0.5)
    error = closed(harness)
    assert isinstance(error, RequestTimeout)
    taken = (
        "did not accept notifications/initialized within 10 s (connect_timeout): connection refused"
    )
    assert str(error) == f"{URL} {taken}"


# HTTP+SSE


@pytest.mark.parametrize(
    "fail", [refuse_connection, refuse_with_503], ids=lambda each: each.__name__
)
def test_the_stream_of_http_sse_is_asked_for_again(fail: Callable[[Asked], None]) -> None:
    harness = SseHarness(transports=("http+sse",)).start()
    for attempt in (1, 2, 3):
        fail(harness.take("GET"))
        event = harness.take_events()[-1]
        assert isinstance(event, Reconnecting)
        assert (event.attempt, event.delay) == (attempt, 0.5 * 2 ** (attempt - 1))
        harness.wait(event.delay)
    harness.initialize()
    assert harness.client.state is ClientState.READY


def test_a_stream_of_http_sse_that_is_never_there() -> None:
    harness = SseHarness(transports=("http+sse",)).start()
    for _ in range(4):
        harness.take("GET").cut("connection refused")
        harness.wait(8)
    harness.take("GET").cut("connection refused")
    error = closed(harness)
    assert isinstance(error, Disconnected)
    assert len(error.attempts) == 4


def test_initialize_on_http_sse_is_made_again() -> None:
    """With a new stream, since the old one was one of the session."""
    harness = SseHarness(transports=("http+sse",)).start()
    stream = harness.take("GET")
    stream.open_stream()
    tell_endpoint(stream)
    harness.take().cut()
    assert stream.aborted
    harness.wait(0.5)
    harness.initialize()
    assert harness.client.state is ClientState.READY


def test_a_confirmation_that_is_given_up() -> None:
    harness = start()
    harness.take_initialize()
    for delay in (0.5, 1.0, 2.0, 4.0):
        harness.take().cut("connection refused")
        harness.wait(delay)
    harness.take().cut("connection refused")
    text = f"{URL} did not accept notifications/initialized: connection refused"
    assert str(closed(harness)) == text


def test_the_detour_begins_with_its_own_time() -> None:
    harness = ClientHarness(
        reconnect=ReconnectPolicy(initial_delay=0.5, max_delay=8.0, max_attempts=100)
    )
    harness.run_command(harness.client.start)
    while harness.now < 20:
        harness.take().cut("connection refused")
        harness.wait(max((harness.client.next_deadline() or 0.0) - harness.now, 0.0))
    harness.take().refuse(405)
    for _ in range(3):
        harness.take("GET").cut("connection refused")
        harness.wait(8)
    harness.take("GET").refuse(405)
    error = closed(harness)
    assert isinstance(error, NegotiationFailed)
    post, get = error.attempts
    assert len(post.attempts) >= 3
    assert len(get.attempts) == 3


def test_a_session_that_is_replaced_may_find_its_server_away() -> None:
    """A server that restarts."""
    harness = ClientHarness().connect()
    harness.call()[1].refuse(404)
    harness.take().cut("connection refused")
    harness.wait(0.5)
    harness.take_initialize(LATEST, "session-secret-0002")
    harness.take().accept()
    handle, asked = harness.call()
    assert asked.header("mcp-session-id") == "session-secret-0002"
    asked.answer(response(asked.id))
    assert harness.events[-1] == CallCompleted(handle, {})


def test_what_comes_late_of_an_attempt_is_ignored() -> None:
    harness = start()
    first = harness.take()
    first.open_stream()
    first.cut()
    harness.wait(0.5)
    second = harness.take()
    first.event(initialized(first.id))
    assert harness.requests == []
    second.answer(initialized(second.id), mcp_session_id=SESSION)
    harness.take().accept()
    assert harness.client.state is ClientState.READY
