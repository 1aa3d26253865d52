"""What becomes of a call when its server stops, with time left to end it and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sansmcp import InputRequired, ServerCall
from sansmcp.events import CallCancelled, CallReceived

from .harness import (
    LATEST,
    RawExchange,
    ServerHarness,
    expect,
    methods,
    report_progress_all,
    request,
)
from .instances import Instances
from .modern.harness import ModernServerHarness, modern
from .pipe_harness import Pipe
from .sse_harness import SseClient
from .test_rounds import ALL, NAME

Begun = tuple[ServerHarness, list[ServerCall], Callable[[], list[Any]]]
"""A server, the calls that run, and what their clients have been sent as answers."""


def received(harness: ServerHarness) -> list[ServerCall]:
    calls = [event.call for event in harness.events if isinstance(event, CallReceived)]
    harness.events.clear()
    return calls


def answers_of(talk: RawExchange) -> list[Any]:
    if talk.head is None:
        return []
    if talk.header("content-type") != "text/event-stream":
        return talk.json if talk.body.startswith(b"[") else [talk.json]
    return [message for message in talk.messages if "method" not in message]


def in_a_session(version: str = LATEST, **settings: Any) -> Begun:
    harness = ServerHarness(**settings)
    talk = harness.post(request(1), harness.open_session(version), version)
    return harness, received(harness), lambda: answers_of(talk)


def on_a_stream(**settings: Any) -> Begun:
    harness, calls, answers = in_a_session(**settings)
    harness.wait(1)
    return harness, calls, answers


def without_sessions(**settings: Any) -> Begun:
    harness = ServerHarness(sessions=False, **settings)
    headers = {"mcp-protocol-version": LATEST}
    talk = harness.post(request(1), headers=headers)
    return harness, received(harness), lambda: answers_of(talk)


def without_sessions_on_a_stream(**settings: Any) -> Begun:
    harness, calls, answers = without_sessions(**settings)
    harness.wait(1)
    return harness, calls, answers


def without_sessions_read_again() -> Begun:
    harness = ServerHarness(sessions=False)
    headers = {"mcp-protocol-version": LATEST}
    talk = harness.post(request(1), headers=headers)
    harness.wait(1)
    talk.lose_connection()
    again = harness.get(None, talk.last_id, headers)
    return harness, received(harness), lambda: answers_of(again)


def alone() -> Begun:
    harness = ModernServerHarness()
    talk = harness.ask(modern(1))
    return harness, received(harness), lambda: answers_of(talk)


def in_a_batch() -> Begun:
    harness = ServerHarness()
    session = harness.open_session("2025-03-26")
    talk = harness.post([request(1), request(2)], session, "2025-03-26")
    return harness, received(harness), lambda: answers_of(talk)


def in_a_batch_without_sessions() -> Begun:
    harness = ServerHarness(sessions=False)
    headers = {"mcp-protocol-version": "2025-03-26"}
    talk = harness.post([request(1), request(2)], headers=headers)
    return harness, received(harness), lambda: answers_of(talk)


def on_stdio() -> Begun:
    pipe = Pipe().open().say(request(1))
    return pipe.harness, received(pipe.harness), lambda: pipe.run_pending().said


def on_http_sse() -> Begun:
    harness = ServerHarness(http_sse="/sse")
    client = SseClient(harness).open()
    client.say(request(1))
    return harness, received(harness), lambda: client.said


def in_a_question() -> Begun:
    harness = ServerHarness()
    session = harness.open_session(capabilities={"roots": {}})
    talk = harness.post(request(1), session)
    calls = received(harness)
    harness.run_action(calls[0].ask, "roots/list", timeout=100)
    return harness, calls, lambda: answers_of(talk)


def at_an_instance() -> Begun:
    instances = Instances()
    talk = instances[1].post(request(1), instances.open_session())
    instances.wait(1)
    return instances[1], instances.entered, lambda: answers_of(talk)


KINDS = [
    in_a_session,
    on_a_stream,
    lambda: in_a_session(resumable=False),
    lambda: on_a_stream(resumable=False),
    lambda: in_a_session("2025-03-26"),
    without_sessions,
    without_sessions_on_a_stream,
    without_sessions_read_again,
    lambda: without_sessions(resumable=False),
    lambda: without_sessions_on_a_stream(resumable=False),
    alone,
    in_a_batch,
    in_a_batch_without_sessions,
    on_stdio,
    on_http_sse,
    in_a_question,
    at_an_instance,
]


@pytest.mark.parametrize("begin", KINDS)
def test_a_stop_with_grace_waits_for_every_kind_of_call(begin: Callable[[], Begun]) -> None:
    """Without sessions, such calls were no reason to wait."""
    harness, calls, answers = begin()
    harness.run_action(harness.server.drain)
    assert harness.server.is_busy
    for number, call in enumerate(calls):
        assert call.is_running
        harness.run_action(call.respond, {"n": number})
    results = [answer["result"]["n"] for answer in answers()]
    assert results == list(range(len(calls)))
    assert not harness.server.is_busy
    harness.run_action(harness.server.shut_down)
    assert not any(isinstance(event, CallCancelled) for event in harness.events)


@pytest.mark.parametrize("begin", KINDS)
def test_a_stop_without_grace_answers_every_kind_of_call(begin: Callable[[], Begun]) -> None:
    """Some clients got nothing, neither a result nor an error."""
    harness, calls, answers = begin()
    harness.run_action(harness.server.shut_down)
    reasons = [answer["error"]["data"]["reason"] for answer in answers()]
    assert reasons == ["shutting_down"] * len(calls)
    cancelled = {event.call for event in harness.events if isinstance(event, CallCancelled)}
    assert cancelled == set(calls)
    assert not harness.server.is_busy
    assert not any(call.is_running for call in calls)
    harness.wait(3600)


@pytest.mark.parametrize("is_late", [True, False])
def test_an_instance_that_has_stopped_takes_no_session_of_others(is_late: bool) -> None:
    """Neither for a request that comes late, nor when the store answers late."""
    first, second = Instances()
    session = first.open_session()
    second.store_works = is_late
    talk = None if is_late else second.get(session)
    second.run_action(second.server.shut_down)
    if talk is None:
        talk = second.get(session)
    else:
        second.use_store_once()
    assert (talk.status, talk.ended) == (503, True)
    assert talk.error["data"]["reason"] == "shutting_down"
    assert second.server.sessions == ()
    assert len(first.server.sessions) == 1


def test_a_stream_is_not_resumed_at_an_instance_that_has_stopped() -> None:
    first, second = Instances()
    session = first.open_session()
    talk, call = first.call(session)
    first.run_action(call.notify, "notifications/progress-of-ours")
    second.run_action(second.server.shut_down)
    resumed = second.get(session, talk.events[0].id)
    assert (resumed.status, resumed.ended) == (503, True)


def test_the_error_of_a_stop_waits_for_a_slow_store() -> None:
    """It was thrown away where an append before it was under way: the client waited in vain."""
    instances = Instances()
    session = instances.open_session()
    first, other = instances
    talk, call = first.call(session)
    first.store_works = False
    report_progress_all(first, call, "a")
    first.run_action(first.server.shut_down)
    while first.waiting:
        first.use_store_once()
    assert talk.ended
    resumed = other.get(session, talk.events[0].id)
    assert resumed.ended
    assert resumed.messages[-1]["error"]["data"]["reason"] == "shutting_down"


def test_questions_that_wait_for_a_slow_store_survive_a_stop() -> None:
    """A parked call was lost: its client waited for the timeout (found by the simulator)."""
    instances = Instances()
    session = instances.open_session(capabilities=ALL)
    first, other = instances
    talk, call = first.call(session)
    report_progress_all(first, call, "a")
    first.store_works = False
    report_progress_all(first, call, "b")
    first.run_action(call.respond, InputRequired({"name": NAME}))
    first.run_action(first.server.shut_down)
    while first.waiting:
        first.use_store_once()
    assert talk.ended
    resumed = other.get(session, talk.last_id)
    assert methods(resumed) == ["b", "elicitation/create"]


def test_a_session_that_a_stop_has_ended_is_not_unknown() -> None:
    """At 404 the client broke off a call whose error was being stored (found by the simulator)."""
    harness = ServerHarness()
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a")
    harness.store_works = False
    harness.run_action(harness.server.shut_down)
    assert not talk.ended
    expect(harness.post(request(2), session), 503, "shutting_down", id=2)
    expect(harness.get(session), 503, "shutting_down")
    while harness.waiting:
        harness.use_store_once()
    assert talk.ended
    assert talk.messages[-1]["error"]["data"]["reason"] == "shutting_down"


def test_a_response_that_follows_a_call_elsewhere_ends_without_sessions_too() -> None:
    first, second = Instances(sessions=False)
    headers = {"mcp-protocol-version": LATEST}
    talk = first.post(request(1), headers=headers)
    first.wait(1)
    talk.lose_connection()
    again = second.get(None, talk.last_id, headers)
    assert (again.status, again.ended) == (200, False)
    second.run_action(second.server.shut_down)
    assert again.ended
    assert second.server.next_deadline() is None
    (call,) = received(first)
    assert call.is_running


def test_what_waits_behind_a_slow_store_is_said_although_the_store_forgets_it() -> None:
    """The error of a call was thrown away, and its stream just ended (found by the simulator)."""
    harness = ServerHarness()
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a")
    harness.store_works = False
    report_progress_all(harness, call, "b")
    harness.run_action(harness.server.shut_down)
    assert not talk.ended
    while harness.waiting:
        harness.use_store_once()
    assert talk.ended
    assert methods(talk)[:2] == ["a", "b"]
    assert talk.messages[-1]["error"]["data"]["reason"] == "shutting_down"
    assert (talk.last_id, harness.store.count) == ("", 0)
    assert harness.server.next_deadline() is None


def test_a_server_is_busy_until_the_response_is_stored() -> None:
    """A graceful stop waits for it: the client gets nothing that is not stored."""
    harness = ServerHarness(store_works=False)
    session = harness.open_session()
    talk, call = harness.call(session)
    harness.wait(0)  # opens the stream
    harness.server.drain(now=harness.now)
    harness.run_action(call.respond, {"text": "done"})
    while harness.waiting:
        assert not talk.is_over
        assert harness.server.is_busy
        harness.use_store_once()
    assert talk.ended
    assert answers_of(talk)[0]["result"] == {"text": "done"}
    assert not harness.server.is_busy
