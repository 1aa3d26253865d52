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

from .harness import (
    URL,
    Asked,
    initialized,
    notification,
    only_failure,
    request,
    response,
)
from .sse_harness import SseHarness

requirement = pytest.mark.requirement
NEW = "/messages?s=second"


@pytest.fixture
def harness() -> SseHarness:
    return SseHarness(capabilities={"elicitation": {}}).connect()


@pytest.fixture
def opening() -> SseHarness:
    """A client that asks for its first stream."""
    return SseHarness(connect_timeout=7).start()


# Losing the stream


def reopened(harness: SseHarness) -> Asked:
    """The session that follows, with its own endpoint; gives the POST of ``initialize``."""
    asked = harness.locate(NEW)
    assert asked.effect.url == "http://localhost:8000" + NEW
    assert asked.json["method"] == "initialize"
    assert asked.header("mcp-protocol-version") is None
    asked.accept()
    harness.say(initialized(asked.id))
    harness.take().accept()
    assert isinstance(harness.take_events()[-1], Connected)
    return asked


@requirement("LEGACYSSE-C-008", "LEGACYSSE-C-001")
@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_stream_is_a_lost_session(harness: SseHarness, clean: bool) -> None:
    handle, id = harness.make()
    if clean:
        harness.stream.end()
    else:
        harness.stream.cut("reset")
    failed, expired, reconnecting = harness.take_events()
    assert isinstance(failed, CallFailed)
    assert (failed.call, failed.error.request_id) == (handle, id)
    assert isinstance(failed.error, Disconnected)
    assert ("the server closed it" if clean else "reset") in str(failed.error)
    assert expired == SessionExpired((handle,))
    assert isinstance(reconnecting, Reconnecting)
    assert (reconnecting.call, reconnecting.delay, reconnecting.attempt) == (None, 0.5, 1)
    assert harness.client.state is ClientState.CONNECTING
    harness.wait(0.4)
    assert harness.requests == []
    harness.wait(0.1)
    (asked,) = harness.requests
    assert (asked.method, asked.effect.url) == ("GET", URL)
    assert asked.header("mcp-protocol-version") is None  # it belonged to the session
    assert asked.header("last-event-id") is None
    reopened(harness)


def test_calls_that_may_be_repeated_are_made_again(harness: SseHarness) -> None:
    kept, id = harness.make("tools/list")
    lost, _ = harness.make()
    harness.stream.cut()
    assert SessionExpired((lost,)) in harness.take_events()
    later = harness.run_command(harness.client.call, "tools/call")
    harness.wait(0.5)
    asked = harness.locate(NEW)
    asked.accept()
    harness.say(initialized(asked.id), response(id))  # the late answer of another session
    harness.take().accept()
    again, first = harness.requests
    harness.requests.clear()
    assert (again.json["method"], first.json["method"]) == ("tools/list", "tools/call")
    assert len({id, asked.id, again.id, first.id}) == 4
    assert again.effect.url == "http://localhost:8000" + NEW
    harness.take_events()
    harness.say(response(again.id), response(first.id))
    assert harness.events == [CallCompleted(kept, {}), CallCompleted(later, {})]


def test_questions_are_withdrawn_and_the_clock_goes_on(harness: SseHarness) -> None:
    handle, _ = harness.make("tools/list", timeout=10)
    harness.say(request("q", "elicitation/create"))
    assert [type(event) for event in harness.take_events()] == [ServerRequestReceived]
    harness.stream.cut()
    assert ServerRequestCancelled("q", "the session has ended") in harness.take_events()
    assert harness.run_command(harness.client.respond, "q", {}) is False
    harness.wait(0.5)
    reopened(harness)
    harness.take().accept()
    harness.wait(9.5)
    assert isinstance(only_failure(harness, handle), RequestTimeout)


def test_posts_end_with_the_session(harness: SseHarness) -> None:
    _, asked = harness.call()
    harness.say(request("q", "elicitation/create"))
    harness.run_command(harness.client.respond, "q", {})
    harness.take().refuse(503)  # it would be sent again
    harness.stream.cut()
    assert asked.aborted
    harness.wait(0.5)
    reopened(harness)
    harness.wait(30)
    assert harness.requests == []
    assert harness.client.next_deadline() == harness.now - 30 + Limits().stream_idle_timeout


def test_a_stream_that_cannot_be_read_is_lost() -> None:
    harness = SseHarness(limits=Limits(max_message_bytes=1000)).connect()
    handle, _ = harness.make()
    harness.stream.feed(BodyData(b"data: " + b"x" * 1000))
    assert harness.stream.aborted
    assert "1000 bytes" in str(only_failure(harness, handle))
    harness.wait(0.5)
    reopened(harness)


@pytest.mark.parametrize("how", ["cut", "unavailable", "handshake"])
def test_attempts_without_any_message_are_further_and_further_apart_and_bounded(
    harness: SseHarness, how: str
) -> None:
    handle, _ = harness.make("tools/list")
    harness.stream.cut()
    delays: list[float] = []
    while harness.client.state is not ClientState.CLOSED:
        (event,) = [event for event in harness.take_events() if isinstance(event, Reconnecting)]
        delays.append(event.delay)
        harness.wait(event.delay)
        if how == "handshake":  # it works, but nothing comes of it
            reopened(harness)
            harness.take().accept()
            harness.stream.cut()
        elif how == "cut":
            harness.take("GET").cut()
        else:
            harness.take("GET").refuse(503)
    assert delays == [0.5, 1, 2, 4]
    failure = harness.closed()
    assert isinstance(failure, RequestRefused if how == "unavailable" else Disconnected)
    assert ("4 attempts" in str(failure)) == (how == "handshake")
    assert only_failure(harness, handle).__cause__ is failure


def test_the_server_may_say_how_long_to_wait_at_least(harness: SseHarness) -> None:
    harness.stream.cut()
    harness.wait(0.5)
    harness.take("GET").refuse(503, retry_after="20")
    harness.wait(21)
    harness.take("GET").cut()  # now it has not said so
    delays = [event.delay for event in harness.take_events() if isinstance(event, Reconnecting)]
    assert delays == [0.5, 21.0, 2.0]


def test_a_message_starts_the_count_again(harness: SseHarness) -> None:
    for _ in range(10):
        harness.stream.cut()
        (event,) = [event for event in harness.take_events() if isinstance(event, Reconnecting)]
        assert event.attempt == 1
        harness.wait(event.delay)
        reopened(harness)
        harness.say(notification("n"))
        assert [type(event) for event in harness.take_events()] == [ServerNotified]


def test_no_attempts_at_all() -> None:
    harness = SseHarness(reconnect=ReconnectPolicy(max_attempts=0)).connect()
    harness.stream.cut()
    assert isinstance(harness.closed(), Disconnected)
    assert harness.events == []


@pytest.mark.parametrize(
    ("status", "kind"), [(404, RequestRefused), (401, RequestRefused), (None, RequestTimeout)]
)
def test_a_new_stream_that_is_refused_is_the_end(
    harness: SseHarness, status: int | None, kind: type[CallError]
) -> None:
    harness.stream.cut()
    harness.wait(0.5)
    stream = harness.take("GET")
    if status is None:
        harness.wait(30)
    else:
        stream.refuse(status)
    assert isinstance(harness.closed(), kind)


@pytest.mark.parametrize("answered", [False, True])
def test_a_stream_that_breaks_during_the_handshake_is_opened_again(
    opening: SseHarness, answered: bool
) -> None:
    handle = opening.run_command(opening.client.call, "tools/call")
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
def test_closing_breaks_the_stream_off(harness: SseHarness) -> None:
    handle, asked = harness.call()
    harness.run_command(harness.client.close)
    assert harness.stream.aborted
    assert asked.aborted
    assert harness.requests == []
    assert harness.closed() is None
    assert isinstance(only_failure(harness, handle), RequestCancelled)
    harness.say(notification("late"))
    harness.run_command(harness.client.close)
    assert harness.events == []


@pytest.mark.parametrize("steps", range(6))
def test_closing_at_any_time(steps: int) -> None:
    harness = SseHarness().start()
    if steps > 0:
        asked = harness.locate()
        if steps > 1:
            asked.accept()
            harness.say(initialized(asked.id))
            post = harness.take()
            if steps > 2:
                post.accept()
                if steps > 3:
                    harness.stream.cut()
                    if steps > 4:
                        harness.wait(0.5)
    harness.run_command(harness.client.close)
    assert harness.closed() is None
    harness.requests.clear()
    harness.wait(100)
    assert harness.requests == []


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
        harness = SseHarness(capabilities={"elicitation": {}}).connect()
        handles = [harness.make()[0], harness.make("tools/list")[0], harness.make()[0]]
        harness.stream.feed(BodyData(data[:length]))
        harness.stream.cut()
        for _ in range(4):
            harness.wait(8)
            harness.take("GET").cut()
        harness.closed()
        ends = [event for event in harness.events if isinstance(event, CallCompleted | CallFailed)]
        assert sorted(event.call for event in ends) == handles
