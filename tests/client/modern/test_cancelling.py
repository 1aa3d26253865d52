"""Cancelling: on HTTP by leaving the response, on stdio by a message; and what crosses it."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import RequestCancelled, RequestTimeout
from sansmcp.events import CallCompleted, Closed
from sansmcp.states import ClientState

from ..harness import error, initialized, notification, only_failure, response
from .harness import ModernClientHarness, ModernProcess, ends

requirement = pytest.mark.requirement


@pytest.fixture
def harness() -> ModernClientHarness:
    return ModernClientHarness().connect()


@pytest.fixture
def process() -> ModernProcess:
    return ModernProcess().connect()


# HTTP


@requirement("CANCEL-C-002", "CANCEL-C-003", "LIFECYCLE-C-007")
@pytest.mark.parametrize("answered", ["nothing", "head", "stream", "part of JSON"])
@pytest.mark.parametrize("how", ["cancel", "timeout", "total", "close"])
def test_leaving_the_response_cancels(
    harness: ModernClientHarness, answered: str, how: str
) -> None:
    handle, asked = harness.call(timeout=5, total_timeout=5 if how == "total" else 9)
    match answered:
        case "head" | "part of JSON":
            asked.head(content_type="application/json")
        case "stream":
            asked.open_stream()
            asked.event(notification("x"))
        case _:
            pass
    harness.take_events()
    match how:
        case "cancel":
            assert harness.run_command(harness.client.cancel, handle, "bored") is True
        case "close":
            harness.run_command(harness.client.close)
        case _:
            harness.wait(5)
    failure = only_failure(harness, handle)
    kind = RequestCancelled if how in ("cancel", "close") else RequestTimeout
    assert isinstance(failure, kind)
    assert asked.aborted
    assert harness.requests == []
    assert harness.run_command(harness.client.cancel, handle) is False
    assert harness.client.next_deadline() is None


@requirement("CANCEL-B-006", "CANCEL-C-006")
@pytest.mark.parametrize("late", ["event", "end", "cut", "refusal"])
def test_what_comes_late_is_ignored(harness: ModernClientHarness, late: str) -> None:
    handle, asked = harness.call("tools/list")  # it could be made again
    if late == "event":
        asked.open_stream()
    harness.run_command(harness.client.cancel, handle)
    harness.take_events()
    match late:
        case "event":
            asked.event(response(asked.id))
            asked.end()
        case "end":
            asked.result()
        case "cut":
            asked.cut()
        case _:
            asked.refuse(404)
    harness.wait(100)
    assert (harness.events, harness.requests) == ([], [])


@requirement("CANCEL-B-006")
def test_cancelling_late_is_no_cancelling(harness: ModernClientHarness) -> None:
    handle, asked = harness.call()
    asked.open_stream()
    asked.event(response(asked.id))
    assert harness.run_command(harness.client.cancel, handle) is False
    asked.end()
    assert ends(harness) == [CallCompleted(handle, {})]
    assert not asked.aborted


def test_a_response_that_does_not_end_after_the_answer_is_left(
    harness: ModernClientHarness,
) -> None:
    _, asked = harness.call()
    asked.open_stream()
    asked.event(response(asked.id))
    assert not asked.aborted
    harness.wait(1)
    assert asked.aborted
    assert len(ends(harness)) == 1


def test_cancelling_while_a_broken_stream_waits(harness: ModernClientHarness) -> None:
    handle, asked = harness.call("tools/list")
    asked.cut()
    harness.run_command(harness.client.cancel, handle)
    assert isinstance(only_failure(harness, handle), RequestCancelled)
    harness.wait(100)
    assert harness.requests == []


def test_one_of_several(harness: ModernClientHarness) -> None:
    first, asked = harness.call()
    second, other = harness.call()
    harness.run_command(harness.client.cancel, first)
    assert (asked.aborted, other.aborted) == (True, False)
    other.result()
    assert ends(harness)[-1] == CallCompleted(second, {})


@pytest.mark.both_eras
def test_cancelling_before_it_is_sent() -> None:
    harness = ModernClientHarness()
    asked = harness.start()
    handle = harness.run_command(harness.client.call, "tools/call")
    harness.run_command(harness.client.cancel, handle)
    assert isinstance(only_failure(harness, handle), RequestCancelled)
    asked.answer(initialized(asked.id))
    assert [each.json["method"] for each in harness.requests] == ["initialize"]


# stdio


@requirement("CANCEL-C-002", "CANCEL-C-004", "CANCEL-C-005", "LIFECYCLE-C-007")
@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_the_server_is_told(process: ModernProcess, how: str) -> None:
    handle, id = process.make(timeout=5)
    if how == "cancel":
        process.run_command(process.client.cancel, handle, "bored")
    else:
        process.wait(5)
    (told,) = process.written
    assert told["method"] == "notifications/cancelled"
    assert told["params"]["requestId"] == id
    assert told["params"]["reason"] == ("bored" if how == "cancel" else told["params"]["reason"])
    assert "id" not in told
    assert len(ends(process)) == 1
    assert process.run_command(process.client.cancel, handle) is False
    assert process.written == []


@requirement("CANCEL-B-006", "CANCEL-C-006")
@pytest.mark.parametrize("fails", [True, False])
def test_an_answer_that_crosses_is_ignored(process: ModernProcess, fails: bool) -> None:
    handle, id = process.make()
    process.run_command(process.client.cancel, handle)
    assert len(process.written) == 1
    process.take_events()
    process.say(error(id) if fails else response(id))
    process.say(notification("notifications/progress", progressToken=id, progress=1))
    assert process.events == []
    _, other = process.make()
    assert other != id


@requirement("CANCEL-S-003")
def test_a_server_cannot_cancel_a_call(process: ModernProcess) -> None:
    """It may end a subscription like that, and nothing else."""
    handle, id = process.make()
    process.say(notification("notifications/cancelled", requestId=id, reason="no time"))
    assert process.events == []
    process.say(response(id))
    assert process.events == [CallCompleted(handle, {})]


@requirement("CANCEL-C-005")
def test_what_is_answered_is_not_cancelled(process: ModernProcess) -> None:
    handle, id = process.make()
    process.say(response(id))
    assert process.run_command(process.client.cancel, handle) is False
    assert process.written == []


def test_cancellations_of_the_server_are_none(process: ModernProcess) -> None:
    """At these revisions it may end subscriptions only."""
    handle, id = process.make()
    odd_ids: list[Any] = [id, "x", None, [], True]
    for odd in odd_ids:
        process.say(notification("notifications/cancelled", requestId=odd, reason="no"))
    assert process.events == []
    process.say(response(id))
    assert ends(process) == [CallCompleted(handle, {})]


@pytest.mark.parametrize("status", [0, 1])
def test_closing(process: ModernProcess, status: int) -> None:
    handle, _ = process.make()
    process.run_command(process.client.close)
    assert isinstance(only_failure(process, handle), RequestCancelled)
    process.exit(status)
    assert process.events == [Closed(None)]
    assert process.client.state is ClientState.CLOSED
