"""How stdio ends, and how it holds back: no call is forgotten, nothing grows, nothing is left."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from sansmcp import Idle, Limits, RequestCancelled
from sansmcp.codecs.json import is_array
from sansmcp.events import (
    CallCancelled,
    CallReceived,
    ClientResponseReceived,
    RefusalSent,
    SessionClosed,
    SessionOpened,
)

from .harness import initialize, notification, request
from .pipe_harness import Pipe, line, reason, result

requirement = pytest.mark.requirement
PING = request(7, "ping")


def expect_nothing_left(pipe: Pipe) -> None:
    assert pipe.closed
    assert pipe.next_deadline() is None
    assert pipe.harness.server.sessions == ()
    assert not pipe.harness.server.is_busy
    pipe.output = b""
    pipe.say(PING).end().lose()
    pipe.pipe.handle_timeout(now=pipe.harness.now)
    assert pipe.run_pending().said == []


def closed_with(pipe: Pipe) -> str:
    event = pipe.harness.events[-1]
    assert isinstance(event, SessionClosed)
    return event.reason


# The input ends


@requirement("STDIO-S-004")
def test_without_calls_the_end_of_the_input_is_the_end() -> None:
    pipe = Pipe().open().end()
    assert closed_with(pipe) == "the input has ended"
    expect_nothing_left(pipe)


def test_the_input_ends_before_initialize() -> None:
    pipe = Pipe().say(PING).end()
    assert pipe.said == [result(7)]
    assert pipe.events == []
    expect_nothing_left(pipe)


@requirement("STDIO-S-004")
def test_calls_that_run_may_end_before_the_pipe_is_closed() -> None:
    pipe = Pipe().open()
    first, second = pipe.call(1), pipe.call(2)
    pipe.end()
    assert pipe.next_deadline() == 5
    pipe.wait(4)
    pipe.harness.run_action(first.notify, "notifications/message")
    pipe.harness.run_action(first.respond, {})
    assert not pipe.closed
    assert pipe.harness.run_action(second.respond, {})
    assert [message.get("id") for message in pipe.said] == [None, 1, 2]
    assert pipe.events == [SessionClosed]
    expect_nothing_left(pipe)


@requirement("STDIO-S-004", "CANCEL-B-003")
def test_calls_that_take_too_long_are_left_behind() -> None:
    pipe = Pipe(graceful_timeout=3).open(capabilities={"roots": {}})
    call = pipe.call(1)
    pipe.harness.run_action(call.ask, "roots/list", timeout=60)
    pipe.end()
    pipe.pipe.handle_timeout(now=2.9)
    pipe.wait(2.9)
    assert call.is_running
    pipe.wait(0.1)
    assert pipe.events == [CallCancelled, ClientResponseReceived, SessionClosed]
    assert pipe.harness.run_action(call.respond, {}) is False
    # An error that nothing waits for ends the program of a client on mcp 1.30.
    assert [message for message in pipe.said if "error" in message] == []
    expect_nothing_left(pipe)


def test_a_batch_keeps_what_was_answered_when_the_rest_is_left_behind() -> None:
    pipe = Pipe().open("2025-03-26")
    pipe.say([request(1), request(2)])
    pipe.harness.run_action(pipe.harness.last_call().respond, {})
    pipe.end().wait(5)
    assert pipe.said == [[result(2)]]
    expect_nothing_left(pipe)


def test_half_a_line_at_the_end_is_a_line() -> None:
    pipe = Pipe().feed(line(initialize()) + line(PING).strip()).end()
    assert [answer["id"] for answer in pipe.said] == [0, 7]
    pipe = Pipe().feed(line(PING)[:-3]).end()
    assert reason(pipe.said[0]) == (-32700, "malformed_json")
    expect_nothing_left(pipe)


def test_what_comes_after_the_end_is_not_read() -> None:
    pipe = Pipe().open()
    call = pipe.call()
    pipe.end().say(PING).wait(1)
    pipe.end()
    assert pipe.next_deadline() == 5
    pipe.harness.run_action(call.respond, {})
    assert pipe.said == [result(1)]


# The output ends


def test_when_nobody_reads_any_more_everything_ends_at_once() -> None:
    pipe = Pipe().open(capabilities={"roots": {}})
    first, second = pipe.call(1), pipe.call(2)
    pipe.harness.run_action(first.ask, "roots/list", timeout=60)
    session = pipe.session
    pipe.output = b""
    pipe.lose().lose()
    assert closed_with(pipe) == "the output is closed"
    assert pipe.events == [CallCancelled, ClientResponseReceived, CallCancelled, SessionClosed]
    assert not first.is_running
    assert pipe.harness.run_action(second.respond, {}) is False
    assert pipe.harness.run_action(session.notify, "x") is False
    with pytest.raises(RequestCancelled):
        first.ask("ping", timeout=1, now=0)
    assert pipe.said == []
    expect_nothing_left(pipe)


def test_what_waited_to_be_sent_is_dropped_when_nobody_reads_any_more() -> None:
    pipe = Pipe().open("2025-03-26")
    pipe.reads = False
    pipe.say([request(1), request(2)])
    pipe.harness.run_action(pipe.harness.last_call().respond, {})
    pipe.lose()
    pipe.reads = True
    assert pipe.run_pending().said == []
    expect_nothing_left(pipe)


def test_a_pipe_is_lost_while_its_input_ends() -> None:
    pipe = Pipe().open()
    call = pipe.call()
    pipe.end().lose()
    assert not call.is_running
    expect_nothing_left(pipe)


# The server ends it


def test_a_server_that_drains_takes_no_new_requests() -> None:
    pipe = Pipe().open("2025-03-26")
    fresh = Pipe()
    call = pipe.call(1)
    pipe.harness.run_action(pipe.harness.server.drain)
    fresh.harness.run_action(fresh.harness.server.drain)
    said = [*pipe.say(request(2), PING).said, *fresh.say(initialize()).said]
    assert [reason(answer) for answer in said] == [(-32600, "shutting_down")] * 3
    (answers,) = pipe.say([request(2), PING]).said
    assert [reason(answer)[1] for answer in answers] == ["shutting_down"] * 2
    assert pipe.events == [RefusalSent] * 4
    pipe.say(notification("notifications/cancelled", requestId=1))
    assert not call.is_running
    assert fresh.harness.server.sessions == ()


@requirement("STDIO-S-003")
def test_a_server_that_shuts_down_closes_the_pipe() -> None:
    pipe = Pipe().open()
    call = pipe.call()
    pipe.harness.run_action(pipe.harness.server.shut_down)
    assert closed_with(pipe) == "the server shuts down"
    assert pipe.events == [CallCancelled, SessionClosed]
    assert not call.is_running
    expect_nothing_left(pipe)


def test_a_server_that_shuts_down_closes_a_pipe_without_a_session() -> None:
    pipe = Pipe().say(PING)
    gone = Pipe()
    gone.lose()
    for each in (pipe, gone):
        each.harness.run_action(each.harness.server.shut_down)
        assert each.events == []
        expect_nothing_left(each)


@requirement("STDIO-S-003")
def test_the_application_can_end_the_session() -> None:
    pipe = Pipe().open()
    call = pipe.call()
    pipe.reads = False
    pipe.harness.run_action(call.notify, "notifications/message")
    pipe.harness.run_action(pipe.harness.server.end_session, pipe.session, "no more credit")
    pipe.feed(line(PING))
    pipe.reads = True
    pipe.run_pending()
    assert [message["method"] for message in pipe.said] == ["notifications/message"]
    assert pipe.events == [CallCancelled, SessionClosed]
    expect_nothing_left(pipe)


# Holding back


def test_while_the_application_takes_no_events_nothing_is_read() -> None:
    pipe = Pipe(limits=Limits(max_queued_events=2)).open()
    pipe.harness.takes_events = False
    pipe.say(request(1), request(2), request(3), PING)
    idle = [pipe.idle]
    assert pipe.said == []
    pipe.harness.takes_events = True
    pipe.harness.run_pending()
    assert [*idle, pipe.idle] == [Idle.PAUSED, Idle.NEED_DATA]
    assert pipe.said == [result(7)]
    assert pipe.events == [CallReceived] * 3


def test_lines_that_wait_for_the_application_survive_the_end_of_the_input() -> None:
    pipe = Pipe(limits=Limits(max_queued_events=1))
    pipe.harness.takes_events = False
    pipe.say(initialize(), PING, request(1)).end()
    assert pipe.idle is Idle.PAUSED
    assert not pipe.closed
    pipe.harness.takes_events = True
    pipe.harness.run_pending()
    assert [answer["id"] for answer in pipe.said] == [0, 7]
    pipe.harness.run_action(pipe.harness.last_call().respond, {})
    assert pipe.said == [result(1)]
    expect_nothing_left(pipe)


def test_a_pipe_that_is_lost_while_it_waits_is_not_woken() -> None:
    pipe = Pipe(limits=Limits(max_queued_events=1))
    pipe.harness.takes_events = False
    pipe.say(initialize(), PING)
    pipe.lose()
    pipe.harness.takes_events = True
    pipe.harness.run_pending()
    assert pipe.events == [SessionOpened, SessionClosed]
    assert [answer["id"] for answer in pipe.said] == [0]
    expect_nothing_left(pipe)


def test_a_handler_waits_while_the_client_takes_nothing() -> None:
    pipe = Pipe(limits=Limits(max_unsent_bytes=1000)).open()
    call = pipe.call()
    pipe.reads = False
    assert not call.is_above_high_water
    said = 0
    while not call.is_above_high_water:
        assert pipe.harness.run_action(call.notify, "notifications/message", {"data": "x" * 100})
        said += 1
    assert 5 < said < 10
    pipe.reads = True
    pipe.run_pending()
    assert not call.is_above_high_water
    assert len(pipe.said) == said
    pipe.harness.run_action(call.respond, {})
    assert not call.is_above_high_water


def test_a_client_that_only_writes_cannot_fill_the_memory() -> None:
    pipe = Pipe(limits=Limits(max_unsent_bytes=1000)).open()
    pipe.reads = False
    pipe.feed(line(PING) * 1000)
    effects = 0
    while not isinstance(effect := pipe.pipe.next_effect(), Idle):
        data: bytes = getattr(effect, "data", b"")
        assert 0 < len(data) < 1100
        effects += 1
    assert effects > 30


# Cut anywhere

INPUT = b"".join(
    (
        line(initialize("2025-03-26")),
        line(notification("notifications/initialized")),
        line(request(1)),
        line([request(2), request("ä"), request(3, "ping")]),
        line(notification("notifications/cancelled", requestId=2)),
        line(request(1)),
        b"stray\n",
        line(request(4)),
    )
)


@pytest.mark.no_cover
@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("every", [1, 2])
def test_wherever_the_input_is_cut_each_call_ends_once(every: int, lost: bool) -> None:
    for length in range(len(INPUT) + 1):
        pipe = Pipe().feed(INPUT[:length]).end()
        calls = [event.call for event in pipe.harness.events if isinstance(event, CallReceived)]
        answered = [
            call for call in calls[::every] if pipe.harness.run_action(call.respond, {"by": "call"})
        ]
        if lost:
            pipe.lose()
        pipe.wait(5)
        events = pipe.harness.events
        cancelled = [event.call for event in events if isinstance(event, CallCancelled)]
        assert Counter([*answered, *cancelled]) == Counter(calls)
        said = list(itertools.chain(*(as_list(message) for message in pipe.said)))
        results = Counter(each["id"] for each in said if each.get("result") == {"by": "call"})
        expected = Counter(call.request.id for call in answered)
        assert results <= expected if lost else results == expected
        expect_nothing_left(pipe)


def as_list(message: Any) -> list[Any]:
    return message if is_array(message) else [message]
