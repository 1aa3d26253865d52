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

from .bench import LATEST, POLICY, SESSION, URL, Asked, Bench, initialized, response
from .sse_bench import SseBench, tell_endpoint


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


def start(policy: ReconnectPolicy = POLICY, **settings: float) -> Bench:
    bench = Bench(reconnect=policy, **settings)  # type: ignore[arg-type]
    bench.do(bench.client.start)
    return bench


def closed(bench: Bench) -> CallError:
    event = bench.events[-1]
    assert isinstance(event, Closed)
    assert event.error is not None
    assert bench.requests == []
    assert bench.client.state is ClientState.CLOSED
    assert bench.client.next_deadline() is None
    return event.error


@failing
def test_initialize_is_made_again(fail: Callable[[Asked], None]) -> None:
    """Row A3 of the review: a server that starts a second after its client."""
    bench = start()
    handle = bench.do(bench.client.call, "tools/list")
    ids: list[int] = []
    for attempt in (1, 2, 3):
        asked = bench.take()
        ids.append(asked.id)
        fail(asked)
        (event,) = bench.take_events()
        assert isinstance(event, Reconnecting)
        assert (event.call, event.attempt) == (None, attempt)
        assert "initialize was" in event.reason
        assert event.delay == 0.5 * 2 ** (attempt - 1)
        assert bench.requests == []
        bench.wait(event.delay)
    assert ids == sorted(set(ids))
    bench.take_initialize()
    bench.take().accept()
    (connected,) = bench.take_events()
    assert isinstance(connected, Connected)
    asked = bench.take()
    asked.result()
    assert bench.events == [CallCompleted(handle, {})]


@failing
def test_the_opening_ends_with_the_last_reason_and_all_attempts(
    fail: Callable[[Asked], None],
) -> None:
    """Row A3 of the review."""
    bench = start(ReconnectPolicy(initial_delay=1.0, max_delay=8.0, max_attempts=1000))
    begin = bench.now
    bench.take().cut("no route to host")
    count = 1
    while bench.client.state is ClientState.CONNECTING:
        deadline = bench.client.next_deadline()
        assert deadline is not None
        bench.wait(deadline - bench.now)
        if bench.requests:
            count += 1
            fail(bench.take())
        if count == 50:
            break
    assert bench.now - begin <= 30.0
    bench.wait(30)
    for asked in bench.requests:
        assert asked.aborted
    bench.requests.clear()
    error = closed(bench)
    assert len(error.attempts) >= 6
    assert "- 1 of them: initialize was not answered by" in str(error)
    assert "no route to host" in str(error)


def test_attempts_are_bounded_by_the_policy_too() -> None:
    bench = start()
    for delay in (0.5, 1.0, 2.0, 4.0):
        bench.take().cut("refused")
        bench.wait(delay)
    bench.take().cut("refused for good")
    error = closed(bench)
    assert isinstance(error, Disconnected)
    text = f"initialize was not answered by {URL}: refused"
    assert str(error).split("\n") == [
        f"{text} for good",
        "4 attempts before this one have failed, too:",
        f"- 4 of them: {text}",
    ]
    assert [str(attempt) for attempt in error.attempts] == [text] * 4


def test_calls_that_wait_are_told_all_attempts() -> None:
    """In lines, as the client is."""
    bench = start()
    handle = bench.do(bench.client.call, "tools/list")
    for delay in (0.5, 1.0, 2.0, 4.0):
        bench.take().cut(f"refused {delay}")
        bench.wait(delay)
    bench.take().cut("refused for good")
    failed = next(event for event in bench.events if isinstance(event, CallFailed))
    assert failed.call == handle
    assert str(failed.error).split("\n") == [
        f"tools/list was not completed: initialize was not answered by {URL}: refused for good",
        "4 attempts before this one have failed, too:",
        *(
            f"- 1 of them: initialize was not answered by {URL}: refused {delay}"
            for delay in (0.5, 1.0, 2.0, 4.0)
        ),
    ]


def test_an_attempt_that_hangs_ends_with_the_time_for_all() -> None:
    bench = start(connect_timeout=10.0)
    bench.take().cut("refused")
    bench.wait(5)
    asked = bench.take()
    bench.wait(4.9)
    assert not asked.aborted
    bench.wait(0.1)
    assert asked.aborted
    error = closed(bench)
    assert isinstance(error, RequestTimeout)
    assert "- 1 of them: initialize was not answered" in str(error)


@pytest.mark.parametrize("status", [502, 503, 504])
def test_the_server_says_how_long_to_wait(status: int) -> None:
    """Row A3 of the review."""
    bench = start()
    bench.take().refuse(status, retry_after="7")
    event = bench.events[-1]
    assert isinstance(event, Reconnecting)
    assert event.delay == 7.5
    bench.wait(7.4)
    assert bench.requests == []
    bench.wait(0.1)
    bench.take().refuse(status, b"until tomorrow", retry_after="90")
    error = closed(bench)
    assert isinstance(error, RequestRefused)
    assert "until tomorrow" in str(error)
    assert len(error.attempts) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429, 500, 501])
def test_other_refusals_are_final(status: int) -> None:
    bench = Bench(transports=("streamable-http",))
    bench.do(bench.client.start)
    bench.take().refuse(status)
    assert isinstance(closed(bench), RequestRefused)


def test_a_response_without_an_answer_is_final() -> None:
    bench = start()
    asked = bench.take()
    asked.open_stream()
    asked.end()
    assert isinstance(closed(bench), Disconnected)


def test_closing_while_the_next_attempt_is_waited_for() -> None:
    bench = start()
    bench.take().cut()
    bench.do(bench.client.close)
    assert bench.events[-1] == Closed(None)
    bench.wait(100)
    assert bench.requests == []
    assert bench.client.next_deadline() is None


# The confirmation


@pytest.mark.parametrize(
    "fail", [refuse_connection, refuse_with_502, refuse_with_503], ids=lambda each: each.__name__
)
def test_the_confirmation_is_sent_again(fail: Callable[[Asked], None]) -> None:
    """Row A3 of the review: the session stays, so that none is left behind."""
    bench = start()
    bench.take_initialize()
    for _ in range(3):
        asked = bench.take()
        assert asked.json == {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert asked.header("mcp-session-id") == SESSION
        fail(asked)
        assert bench.events == []
        bench.wait(4)
    bench.take().accept()
    (connected,) = bench.events
    assert isinstance(connected, Connected)
    bench.wait(1000)
    assert len(bench.events) == 1


def test_a_confirmation_that_is_never_taken() -> None:
    bench = start(
        ReconnectPolicy(initial_delay=1.0, max_delay=2.0, max_attempts=100), connect_timeout=10.0
    )
    bench.take_initialize()
    while bench.client.state is ClientState.CONFIRMING:
        if bench.requests:
            bench.take().cut("connection refused")
        bench.wait(0.5)
    error = closed(bench)
    assert isinstance(error, RequestTimeout)
    taken = "did not take notifications/initialized within 10 s: connection refused"
    assert str(error) == f"{URL} {taken}"


# HTTP+SSE


@pytest.mark.parametrize(
    "fail", [refuse_connection, refuse_with_503], ids=lambda each: each.__name__
)
def test_the_stream_of_http_sse_is_asked_for_again(fail: Callable[[Asked], None]) -> None:
    """Row A3 of the review."""
    bench = SseBench(transports=("http+sse",)).start()
    for attempt in (1, 2, 3):
        fail(bench.take("GET"))
        event = bench.take_events()[-1]
        assert isinstance(event, Reconnecting)
        assert (event.attempt, event.delay) == (attempt, 0.5 * 2 ** (attempt - 1))
        bench.wait(event.delay)
    bench.shake_hands()
    assert bench.client.state is ClientState.READY


def test_a_stream_of_http_sse_that_is_never_there() -> None:
    bench = SseBench(transports=("http+sse",)).start()
    for _ in range(4):
        bench.take("GET").cut("connection refused")
        bench.wait(8)
    bench.take("GET").cut("connection refused")
    error = closed(bench)
    assert isinstance(error, Disconnected)
    assert len(error.attempts) == 4


def test_initialize_on_http_sse_is_made_again() -> None:
    """Row A3 of the review: with a new stream, since the old one was one of the session."""
    bench = SseBench(transports=("http+sse",)).start()
    stream = bench.take("GET")
    stream.open_stream()
    tell_endpoint(stream)
    bench.take().cut()
    assert stream.aborted
    bench.wait(0.5)
    bench.shake_hands()
    assert bench.client.state is ClientState.READY


def test_a_confirmation_that_is_given_up() -> None:
    bench = start()
    bench.take_initialize()
    for delay in (0.5, 1.0, 2.0, 4.0):
        bench.take().cut("connection refused")
        bench.wait(delay)
    bench.take().cut("connection refused")
    text = f"{URL} did not take notifications/initialized: connection refused"
    assert str(closed(bench)) == text


def test_the_detour_begins_with_its_own_time() -> None:
    bench = Bench(reconnect=ReconnectPolicy(initial_delay=0.5, max_delay=8.0, max_attempts=100))
    bench.do(bench.client.start)
    while bench.now < 20:
        bench.take().cut("connection refused")
        bench.wait(max((bench.client.next_deadline() or 0.0) - bench.now, 0.0))
    bench.take().refuse(405)
    for _ in range(3):
        bench.take("GET").cut("connection refused")
        bench.wait(8)
    bench.take("GET").refuse(405)
    error = closed(bench)
    assert isinstance(error, NegotiationFailed)
    post, get = error.attempts
    assert len(post.attempts) >= 3
    assert len(get.attempts) == 3


def test_a_session_that_is_replaced_may_find_its_server_away() -> None:
    """Row A15 of the review: a server that restarts."""
    bench = Bench().connect()
    bench.call()[1].refuse(404)
    bench.take().cut("connection refused")
    bench.wait(0.5)
    bench.take_initialize(LATEST, "session-secret-0002")
    bench.take().accept()
    handle, asked = bench.call()
    assert asked.header("mcp-session-id") == "session-secret-0002"
    asked.answer(response(asked.id))
    assert bench.events[-1] == CallCompleted(handle, {})


def test_what_comes_late_of_an_attempt_is_ignored() -> None:
    bench = start()
    first = bench.take()
    first.open_stream()
    first.cut()
    bench.wait(0.5)
    second = bench.take()
    first.event(initialized(first.id))
    assert bench.requests == []
    second.answer(initialized(second.id), mcp_session_id=SESSION)
    bench.take().accept()
    assert bench.client.state is ClientState.READY
