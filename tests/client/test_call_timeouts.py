"""Timeouts of calls, and the progress that puts them off."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import InvalidResponse, Limits, RequestTimeout
from sansmcp.events import CallFailed, ProgressReceived, ProtocolViolation, ServerRequestReceived

from .harness import ClientHarness, notification, only_failure, request, response
from .process_harness import ProcessHarness

requirement = pytest.mark.requirement


@requirement(
    "LIFECYCLE-B-004",
    "LIFECYCLE-B-005",
    "LIFECYCLE-B-006",
    "LIFECYCLE-B-007",
    "SHTTP-C-008",
    "JSONRPC-B-053",
)
def test_a_call_times_out_and_is_cancelled(harness: ClientHarness) -> None:
    handle, asked = harness.call(timeout=5)
    harness.wait(4.9)
    assert harness.events == []
    harness.wait(0.1)
    failure = only_failure(harness, handle)
    assert isinstance(failure, RequestTimeout)
    assert failure.seconds == 5
    assert "5 s without progress" in str(failure)
    cancelled = harness.take()
    assert cancelled.json["method"] == "notifications/cancelled"
    assert cancelled.json["params"]["requestId"] == asked.id
    assert asked.aborted
    asked.result()
    assert harness.events == []


# Progress


@requirement("LIFECYCLE-B-008", "LIFECYCLE-B-009")
def test_progress_resets_the_timeout_up_to_the_total(harness: ClientHarness) -> None:
    handle, asked = harness.call(timeout=5, total_timeout=12)
    asked.open_stream()
    for step in (1, 2, 3):
        harness.wait(4)
        if step < 3:
            asked.event(
                notification(
                    "notifications/progress",
                    progressToken=asked.id,
                    progress=step,
                    total=9.5,
                    message="m",
                )
            )
    reports = [event for event in harness.events if isinstance(event, ProgressReceived)]
    assert reports == [
        ProgressReceived(call=handle, progress=step, total=9.5, message="m") for step in (1, 2)
    ]
    failure = only_failure(harness, handle)
    assert isinstance(failure, RequestTimeout)
    assert "12 s in all" in str(failure)


def test_progress_need_not_reset_the_timeout(harness: ClientHarness) -> None:
    handle, asked = harness.call(timeout=5, reset_on_progress=False)
    asked.open_stream()
    harness.wait(4)
    asked.event(notification("notifications/progress", progressToken=asked.id, progress=1))
    harness.wait(1)
    assert isinstance(only_failure(harness, handle), RequestTimeout)


@pytest.mark.parametrize(
    ("params", "violates"),
    [
        ({"progressToken": 1}, True),
        ({"progressToken": 1, "progress": "x"}, True),
        ({"progressToken": 1, "progress": True}, True),
        ({"progressToken": 1, "progress": 10**400}, True),
        ({"progressToken": "1", "progress": 1}, False),
        ({"progressToken": True, "progress": 1}, False),
        ({"progressToken": 99, "progress": 1}, False),
        ({"progress": 1}, False),
    ],
)
def test_odd_progress_is_no_progress(
    harness: ClientHarness, params: dict[str, Any], violates: bool
) -> None:
    _, asked = harness.call()
    asked.open_stream()
    asked.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    assert [type(event) for event in harness.events] == [ProtocolViolation] * violates


@pytest.mark.parametrize("total", ["x", 10**400], ids=["text", "huge"])
def test_odd_members_of_progress_are_left_out(harness: ClientHarness, total: Any) -> None:
    handle, asked = harness.call()
    asked.open_stream()
    asked.event(
        notification("notifications/progress", progressToken=1, progress=1, total=total, message=5)
    )
    asked.event({"jsonrpc": "2.0", "method": "notifications/progress"})
    assert harness.events[0] == ProgressReceived(call=handle, progress=1)


def test_the_progress_token_is_ours_whatever_meta_says(harness: ClientHarness) -> None:
    _, asked = harness.call(params={"_meta": {"progressToken": "mine", "x": 1}})
    assert asked.json["params"]["_meta"] == {"progressToken": asked.id, "x": 1}


# What the server asks


def ask_until_it_ends(harness: ClientHarness, method: str, **options: Any) -> float:
    """Ask every half second on the stream of a call; returns the seconds it lasted."""
    _, asked = harness.call(**options)
    asked.open_stream()
    for number in range(100):
        harness.wait(0.5)
        if any(isinstance(event, CallFailed) for event in harness.events):
            break
        asked.event(request(number, method))
        for event in harness.take_events():
            assert isinstance(event, ServerRequestReceived)
            harness.run_command(harness.client.refuse_unsupported, event.request.id)
        for post in harness.requests:
            post.accept()
        harness.requests.clear()
    return harness.now


@pytest.mark.parametrize("method", ["x/unknown", "ping", "sampling/createMessage", "roots/list"])
def test_what_cannot_be_answered_stops_no_clock(method: str) -> None:
    """Such a request every 0.5 s kept the call alive for ever.

    Neither an unknown method counts, nor an undeclared capability, nor a declared one (roots) that
    the application declines.
    """
    harness = ClientHarness(capabilities={"roots": {}}).connect()
    assert ask_until_it_ends(harness, method, timeout=2, total_timeout=4) == 2
    assert isinstance(harness.events[0], CallFailed)


def test_a_request_of_an_unknown_method_that_is_open_stops_no_clock(harness: ClientHarness) -> None:
    handle, asked = harness.call(timeout=5)
    asked.open_stream()
    asked.event(request(1, "x/unknown"))
    harness.wait(5)
    assert isinstance(only_failure(harness, handle), RequestTimeout)


def test_the_total_goes_on_where_it_stood_still() -> None:
    """Each answer gave the whole total back."""
    harness = ClientHarness(capabilities={"elicitation": {}}).connect()
    handle, asked = harness.call(timeout=5, total_timeout=10)
    asked.open_stream()
    for number in range(3):
        harness.wait(3)
        asked.event(request(number, "elicitation/create"))
        harness.wait(1000)
        harness.run_command(harness.client.respond, number, {})
        harness.take().accept()
    harness.take_events()
    harness.wait(0.9)
    assert harness.events == []
    harness.wait(0.1)
    failure = only_failure(harness, handle)
    assert "10 s in all" in str(failure)


def test_how_often_a_server_may_ask_within_one_call_is_bounded() -> None:
    limits = Limits(max_server_requests_per_call=3)
    harness = ClientHarness(capabilities={"elicitation": {}}, limits=limits).connect()
    handle, asked = harness.call()
    asked.open_stream()
    for number in range(4):
        asked.event(request(number, "elicitation/create"))
        harness.run_command(harness.client.respond, number, {})
    assert sum(isinstance(event, ServerRequestReceived) for event in harness.events) == 3
    failure = only_failure(harness, handle)
    assert isinstance(failure, InvalidResponse)
    assert "max_server_requests_per_call" in str(failure)
    assert asked.aborted
    assert harness.requests.pop().json["method"] == "notifications/cancelled"


def test_on_one_stream_for_all_further_questions_stop_no_clock() -> None:
    """Nothing tells which call they belong to, so none is ended."""
    limits = Limits(max_server_requests_per_call=3)
    harness = ProcessHarness(capabilities={"elicitation": {}}, limits=limits).connect()
    old, _ = harness.make(timeout=10)
    for number in range(3):
        harness.ask(number)
        harness.run_command(harness.client.respond, number, {})
    assert len(harness.written) == 3
    _, new_id = harness.make(timeout=20)
    harness.ask("further")
    harness.take_events()
    harness.wait(100)
    assert isinstance(only_failure(harness, old), RequestTimeout)
    assert harness.run_command(harness.client.respond, "further", {})
    harness.wait(19)
    harness.say(response(new_id))
    assert [type(event).__name__ for event in harness.events] == ["CallCompleted"]
