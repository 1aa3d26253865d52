"""The one stream of HTTP+SSE: lost, opened again, closed."""

from __future__ import annotations

import pytest

from sansmcp import (
    BodyData,
    CallError,
    Disconnected,
    Limits,
    ReconnectPolicy,
    RequestCancelled,
    RequestRefused,
    RequestTimeout,
    encode_event,
)
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    Connected,
    Reconnecting,
    ServerNotified,
    ServerRequestCancelled,
    ServerRequestReceived,
    SessionExpired,
)
from sansmcp.states import ClientState

from .bench import (
    URL,
    Asked,
    initialized,
    notification,
    only_failure,
    request,
    response,
)
from .sse_bench import SseBench

requirement = pytest.mark.requirement
NEW = "/messages?s=second"


@pytest.fixture
def bench() -> SseBench:
    return SseBench(capabilities={"elicitation": {}}).connect()


@pytest.fixture
def opening() -> SseBench:
    """A client that asks for its first stream."""
    return SseBench(connect_timeout=7).start()


# Losing the stream


def reopened(bench: SseBench) -> Asked:
    """The session that follows, with its own endpoint; gives the POST of ``initialize``."""
    asked = bench.locate(NEW)
    assert asked.effect.url == "http://localhost:8000" + NEW
    assert asked.json["method"] == "initialize"
    assert asked.header("mcp-protocol-version") is None
    asked.accept()
    bench.say(initialized(asked.id))
    bench.take().accept()
    assert isinstance(bench.take_events()[-1], Connected)
    return asked


@requirement("LEGACYSSE-C-008", "LEGACYSSE-C-001")
@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_stream_is_a_lost_session(bench: SseBench, clean: bool) -> None:
    handle, id = bench.make()
    if clean:
        bench.stream.end()
    else:
        bench.stream.cut("reset")
    failed, expired, reconnecting = bench.take_events()
    assert isinstance(failed, CallFailed)
    assert (failed.call, failed.error.request_id) == (handle, id)
    assert isinstance(failed.error, Disconnected)
    assert ("the server closed it" if clean else "reset") in str(failed.error)
    assert expired == SessionExpired((handle,))
    assert isinstance(reconnecting, Reconnecting)
    assert (reconnecting.call, reconnecting.delay, reconnecting.attempt) == (None, 0.5, 1)
    assert bench.client.state is ClientState.CONNECTING
    bench.wait(0.4)
    assert bench.requests == []
    bench.wait(0.1)
    (asked,) = bench.requests
    assert (asked.method, asked.effect.url) == ("GET", URL)
    assert asked.header("mcp-protocol-version") is None  # it belonged to the session
    assert asked.header("last-event-id") is None
    reopened(bench)


def test_calls_that_may_be_repeated_are_made_again(bench: SseBench) -> None:
    kept, id = bench.make("tools/list")
    lost, _ = bench.make()
    bench.stream.cut()
    assert SessionExpired((lost,)) in bench.take_events()
    later = bench.do(bench.client.call, "tools/call")
    bench.wait(0.5)
    asked = bench.locate(NEW)
    asked.accept()
    bench.say(initialized(asked.id), response(id))  # the late answer of another session
    bench.take().accept()
    again, first = bench.requests
    bench.requests.clear()
    assert (again.json["method"], first.json["method"]) == ("tools/list", "tools/call")
    assert len({id, asked.id, again.id, first.id}) == 4
    assert again.effect.url == "http://localhost:8000" + NEW
    bench.take_events()
    bench.say(response(again.id), response(first.id))
    assert bench.events == [CallCompleted(kept, {}), CallCompleted(later, {})]


def test_questions_are_withdrawn_and_the_clock_goes_on(bench: SseBench) -> None:
    handle, _ = bench.make("tools/list", timeout=10)
    bench.say(request("q", "elicitation/create"))
    assert [type(event) for event in bench.take_events()] == [ServerRequestReceived]
    bench.stream.cut()
    assert ServerRequestCancelled("q", "the session has ended") in bench.take_events()
    assert bench.do(bench.client.respond, "q", {}) is False
    bench.wait(0.5)
    reopened(bench)
    bench.take().accept()
    bench.wait(9.5)
    assert isinstance(only_failure(bench, handle), RequestTimeout)


def test_posts_end_with_the_session(bench: SseBench) -> None:
    _, asked = bench.call()
    bench.say(request("q", "elicitation/create"))
    bench.do(bench.client.respond, "q", {})
    bench.take().refuse(503)  # it would be sent again
    bench.stream.cut()
    assert asked.aborted
    bench.wait(0.5)
    reopened(bench)
    bench.wait(30)
    assert bench.requests == []
    assert bench.client.next_deadline() is None


def test_a_stream_that_cannot_be_read_is_lost() -> None:
    bench = SseBench(limits=Limits(max_message_bytes=1000)).connect()
    handle, _ = bench.make()
    bench.stream.feed(BodyData(b"data: " + b"x" * 1000))
    assert bench.stream.aborted
    assert "1000 bytes" in str(only_failure(bench, handle))
    bench.wait(0.5)
    reopened(bench)


@pytest.mark.parametrize("how", ["cut", "unavailable", "handshake"])
def test_attempts_without_any_message_are_further_and_further_apart_and_bounded(
    bench: SseBench, how: str
) -> None:
    handle, _ = bench.make("tools/list")
    bench.stream.cut()
    delays: list[float] = []
    while bench.client.state is not ClientState.CLOSED:
        (event,) = [event for event in bench.take_events() if isinstance(event, Reconnecting)]
        delays.append(event.delay)
        bench.wait(event.delay)
        if how == "handshake":  # it works, but nothing comes of it
            reopened(bench)
            bench.take().accept()
            bench.stream.cut()
        elif how == "cut":
            bench.take("GET").cut()
        else:
            bench.take("GET").refuse(503)
    assert delays == [0.5, 1, 2, 4]
    failure = bench.closed()
    assert isinstance(failure, RequestRefused if how == "unavailable" else Disconnected)
    assert ("4 attempts" in str(failure)) == (how == "handshake")
    assert only_failure(bench, handle).__cause__ is failure


def test_the_server_may_say_how_long_to_wait_at_least(bench: SseBench) -> None:
    bench.stream.cut()
    bench.wait(0.5)
    bench.take("GET").refuse(503, retry_after="20")
    bench.wait(21)
    bench.take("GET").cut()  # now it has not said so
    delays = [event.delay for event in bench.take_events() if isinstance(event, Reconnecting)]
    assert delays == [0.5, 21.0, 2.0]


def test_a_message_starts_the_count_again(bench: SseBench) -> None:
    for _ in range(10):
        bench.stream.cut()
        (event,) = [event for event in bench.take_events() if isinstance(event, Reconnecting)]
        assert event.attempt == 1
        bench.wait(event.delay)
        reopened(bench)
        bench.say(notification("n"))
        assert [type(event) for event in bench.take_events()] == [ServerNotified]


def test_no_attempts_at_all() -> None:
    bench = SseBench(reconnect=ReconnectPolicy(max_attempts=0)).connect()
    bench.stream.cut()
    assert isinstance(bench.closed(), Disconnected)
    assert bench.events == []


@pytest.mark.parametrize(
    ("status", "kind"), [(404, RequestRefused), (401, RequestRefused), (None, RequestTimeout)]
)
def test_a_new_stream_that_is_refused_is_the_end(
    bench: SseBench, status: int | None, kind: type[CallError]
) -> None:
    bench.stream.cut()
    bench.wait(0.5)
    stream = bench.take("GET")
    if status is None:
        bench.wait(30)
    else:
        stream.refuse(status)
    assert isinstance(bench.closed(), kind)


@pytest.mark.parametrize("answered", [False, True])
def test_a_stream_that_breaks_during_the_handshake_is_opened_again(
    opening: SseBench, answered: bool
) -> None:
    handle = opening.do(opening.client.call, "tools/call")
    asked = opening.locate()
    if answered:
        opening.say(initialized(asked.id))
        opening.take()
        opening.requests.clear()
    opening.stream.cut()
    assert asked.aborted
    expired, reconnecting = opening.take_events()
    assert expired == SessionExpired(())
    assert isinstance(reconnecting, Reconnecting)
    opening.wait(0.5)
    reopened(opening)
    asked = opening.take()
    opening.say(response(asked.id))
    assert opening.events == [CallCompleted(handle, {})]


# Closing


@requirement("LEGACYSSE-C-007")
def test_closing_breaks_the_stream_off(bench: SseBench) -> None:
    handle, asked = bench.call()
    bench.do(bench.client.close)
    assert bench.stream.aborted
    assert asked.aborted
    assert bench.requests == []
    assert bench.closed() is None
    assert isinstance(only_failure(bench, handle), RequestCancelled)
    bench.say(notification("late"))
    bench.do(bench.client.close)
    assert bench.events == []


@pytest.mark.parametrize("steps", range(6))
def test_closing_at_any_time(steps: int) -> None:
    bench = SseBench().start()
    if steps > 0:
        asked = bench.locate()
        if steps > 1:
            asked.accept()
            bench.say(initialized(asked.id))
            post = bench.take()
            if steps > 2:
                post.accept()
                if steps > 3:
                    bench.stream.cut()
                    if steps > 4:
                        bench.wait(0.5)
    bench.do(bench.client.close)
    assert bench.closed() is None
    bench.requests.clear()
    bench.wait(100)
    assert bench.requests == []


# Every end, at every place


def test_every_truncation_of_the_stream_ends_every_call_once() -> None:
    data = b"".join(
        encode_event(line)
        for line in (
            b'{"jsonrpc":"2.0","id":1,"result":{}}',
            b'{"jsonrpc":"2.0","id":0,"method":"elicitation/create"}',
            b'{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"no"}}',
        )
    )
    for length in range(len(data) + 1):
        bench = SseBench(capabilities={"elicitation": {}}).connect()
        handles = [bench.make()[0], bench.make("tools/list")[0], bench.make()[0]]
        bench.stream.feed(BodyData(data[:length]))
        bench.stream.cut()
        for _ in range(4):
            bench.wait(8)
            bench.take("GET").cut()
        bench.closed()
        ends = [event for event in bench.events if isinstance(event, CallCompleted | CallFailed)]
        assert sorted(event.call for event in ends) == handles
