"""An instance that dies: those that follow its streams end its calls, and continue the others."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import InputRequired
from sansmcp.effects import StoreRead
from sansmcp.events import CallCancelled, CallReceived

from .harness import LATEST, RawExchange, ServerHarness, methods, report_progress_all
from .instances import Instances
from .pipe_harness import result
from .test_parked_calls import ask
from .test_rounds import ACCEPTED, NAME

CHANGED = "notifications/tools/list_changed"
LEASE = 10.0
"""Seconds: the default of ``Limits.lease_timeout``."""
VERSIONS = ["2025-03-26", "2025-06-18", "2025-11-25"]


def followed(
    first: ServerHarness, *followers: ServerHarness, version: str = LATEST
) -> tuple[str, Any, list[RawExchange]]:
    """A call of the first instance whose client goes on reading at others."""
    session = first.open_session(version)
    talk, call = first.call(session, version=version)
    report_progress_all(first, call, "a")
    talk.lose_connection()
    last_id = talk.last_id
    return (
        session,
        call,
        [each.get(session, last_id, {"mcp-protocol-version": version}) for each in followers],
    )


def wait(seconds: float, *harnesses: ServerHarness) -> None:
    """Let time pass at some instances only; the others are dead, or hang."""
    for _ in range(round(seconds / 0.25)):
        for harness in harnesses:
            harness.wait(0.25)


def reason_of(talk: RawExchange) -> str:
    reason: str = talk.messages[-1]["error"]["data"]["reason"]
    return reason


@pytest.mark.parametrize("version", VERSIONS)
def test_a_call_whose_instance_has_died_ends_with_an_error(version: str) -> None:
    first, second = Instances()
    _, call, (resumed,) = followed(first, second, version=version)
    wait(LEASE - 1, second)
    assert not resumed.ended
    wait(2, second)
    assert reason_of(resumed) == "instance_lost"
    assert resumed.messages[-1]["id"] == call.request.id
    assert resumed.ended


def test_a_call_that_says_nothing_for_long_goes_on_while_its_instance_lives() -> None:
    first, second = instances = Instances()
    _, call, (resumed,) = followed(first, second)
    instances.wait(12 * LEASE)
    assert not resumed.ended
    first.run_action(call.respond, {})
    instances.wait(0.5)
    assert methods(resumed) == ["answer"]


def test_of_several_followers_one_ends_the_call() -> None:
    first, *others = Instances(4)
    _, _, resumed = followed(first, *others)
    wait(LEASE + 1, *others)
    assert [len(each.messages) for each in resumed] == [1, 1, 1]
    assert {reason_of(each) for each in resumed} == {"instance_lost"}


def test_an_instance_that_was_only_slow_is_told_to_cancel() -> None:
    first, second = Instances()
    _, call, (resumed,) = followed(first, second)
    wait(2, first)  # the call has opened its mailbox
    wait(LEASE + 1, second)
    assert resumed.ended
    wait(1, first)
    assert not call.is_running
    assert any(isinstance(event, CallCancelled) for event in first.events)
    assert len(resumed.messages) == 1


def test_what_a_slow_instance_says_late_is_not_sent() -> None:
    first, second = Instances()
    session, call, (resumed,) = followed(first, second)
    wait(LEASE + 1, second)
    first.run_action(call.respond, {"late": True})
    again = second.get(session, resumed.events[0].id)
    assert again.messages == resumed.messages
    assert reason_of(again) == "instance_lost"


def test_nobody_is_judged_while_the_store_cannot_be_read() -> None:
    first, second = instances = Instances()
    _, _, (resumed,) = followed(first, second)
    instances.wait(5)
    second.store_works = second.leases_work = False
    for _ in range(80):
        second.wait(0.25)
        while second.waiting:
            second.fail_store_once()
    second.store_works = second.leases_work = True
    wait(2, second)
    assert not resumed.ended, "the first one could not write, either"
    instances.wait(3 * LEASE)
    assert not resumed.ended


def test_an_instance_that_stops_is_not_waited_for() -> None:
    first, second = Instances()
    _, _, (resumed,) = followed(first, second)
    first.run_action(first.server.shut_down)
    wait(0.5, second)
    assert reason_of(resumed) == "shutting_down"


def test_a_parked_call_waits_for_its_client_without_an_instance() -> None:
    _, second = instances = Instances()
    session, talk, (question,) = ask(instances)
    talk.lose_connection()
    resumed = second.get(session, talk.last_id)
    wait(6 * LEASE, second)
    assert not resumed.ended
    second.post(result(question["id"], ACCEPTED), session)
    second.run_action(second.last_call().respond, {})
    wait(0.5, second)
    assert resumed.messages == [result("original")]


def test_the_instance_that_continues_a_parked_call_is_the_one_that_counts() -> None:
    first, second, third = instances = Instances(3)
    session, talk, (question,) = ask(instances)
    talk.lose_connection()
    resumed = third.get(session, talk.last_id)
    second.post(result(question["id"], ACCEPTED), session)
    wait(3 * LEASE, second, third)
    assert not resumed.ended, "the first one is dead, but the second one has the call"
    wait(LEASE + 1, first, third)
    assert reason_of(resumed) == "instance_lost"


def test_a_call_that_is_parked_again_is_not_ended() -> None:
    _, second, third = instances = Instances(3)
    session, talk, (question,) = ask(instances)
    talk.lose_connection()
    second.post(result(question["id"], ACCEPTED), session)
    second.run_action(second.last_call().respond, InputRequired({"again": NAME}))
    resumed = third.get(session, talk.last_id)
    wait(5 * LEASE, third)
    assert [message["method"] for message in resumed.messages] == ["elicitation/create"]
    assert not resumed.ended


def test_a_standalone_stream_is_continued_where_it_is_read() -> None:
    first, second = Instances()
    session = first.open_session()
    listener = first.get(session)
    first.run_action(first.server.publish, CHANGED)
    assert methods(listener) == [CHANGED]
    listener.lose_connection()
    moved = second.get(session, listener.last_id)
    wait(LEASE + 1, second)
    assert not moved.ended
    second.run_action(second.server.publish, CHANGED)
    assert methods(moved) == [CHANGED]
    first.run_action(first.server.publish, CHANGED)  # it was only slow: its own append conflicts
    wait(1, second)
    assert methods(moved) == [CHANGED, CHANGED]


def test_only_the_requests_of_a_batch_that_have_no_response_get_an_error() -> None:
    first, second = Instances()
    session = first.open_session("2025-03-26")
    requests = [{"jsonrpc": "2.0", "id": id, "method": "tools/list"} for id in ("x", "y", "z")]
    talk = first.post(requests, session, "2025-03-26")
    calls = {
        event.call.request.id: event.call
        for event in first.events
        if isinstance(event, CallReceived)
    }
    report_progress_all(first, calls["x"], "a")
    talk.lose_connection()
    first.run_action(calls["y"].respond, {})
    resumed = second.get(session, talk.last_id, {"mcp-protocol-version": "2025-03-26"})
    wait(LEASE + 1, second)
    assert resumed.ended
    ends = {message["id"]: "error" in message for message in resumed.messages}
    assert ends == {"x": True, "y": False, "z": True}


def test_an_instance_without_streams_writes_nothing() -> None:
    first, _ = instances = Instances()
    session = instances.open_session()
    count = instances.store.count
    instances.wait(5 * LEASE)
    assert instances.store.count == count
    _, call = first.call(session)
    first.run_action(call.respond, {})
    instances.wait(LEASE)
    count = instances.store.count
    instances.wait(5 * LEASE)
    assert instances.store.count == count


def test_the_lease_is_read_only_while_a_stream_is_followed() -> None:
    first, second = instances = Instances()
    _, _, (resumed,) = followed(first, second)
    resumed.lose_connection()
    second.store_works = second.leases_work = False
    instances.wait(3 * LEASE)
    leases = [
        effect
        for effect in second.waiting
        if isinstance(effect, StoreRead) and effect.stream.stream == ".lease"
    ]
    assert leases == []
