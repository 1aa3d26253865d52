"""Timeouts of calls, and the progress that puts them off."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import InvalidResponse, Limits, RequestTimeout
from sansmcp.events import CallFailed, ProgressReceived, ProtocolViolation, ServerRequestReceived

from .bench import Bench, notification, only_failure, request, response
from .process_bench import ProcessBench

requirement = pytest.mark.requirement


@requirement(
    "LIFECYCLE-B-004",
    "LIFECYCLE-B-005",
    "LIFECYCLE-B-006",
    "LIFECYCLE-B-007",
    "SHTTP-C-008",
    "JSONRPC-B-053",
)
def test_a_call_times_out_and_is_cancelled(bench: Bench) -> None:
    handle, asked = bench.call(timeout=5)
    bench.wait(4.9)
    assert bench.events == []
    bench.wait(0.1)
    failure = only_failure(bench, handle)
    assert isinstance(failure, RequestTimeout)
    assert failure.seconds == 5
    assert "5 s without progress" in str(failure)
    cancelled = bench.take()
    assert cancelled.json["method"] == "notifications/cancelled"
    assert cancelled.json["params"]["requestId"] == asked.id
    assert asked.aborted
    asked.result()
    assert bench.events == []


# Progress


@requirement("LIFECYCLE-B-008", "LIFECYCLE-B-009")
def test_progress_resets_the_timeout_up_to_the_total(bench: Bench) -> None:
    handle, asked = bench.call(timeout=5, total_timeout=12)
    asked.open_stream()
    for step in (1, 2, 3):
        bench.wait(4)
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
    reports = [event for event in bench.events if isinstance(event, ProgressReceived)]
    assert reports == [
        ProgressReceived(call=handle, progress=step, total=9.5, message="m") for step in (1, 2)
    ]
    failure = only_failure(bench, handle)
    assert isinstance(failure, RequestTimeout)
    assert "12 s in all" in str(failure)


def test_progress_need_not_reset_the_timeout(bench: Bench) -> None:
    handle, asked = bench.call(timeout=5, reset_on_progress=False)
    asked.open_stream()
    bench.wait(4)
    asked.event(notification("notifications/progress", progressToken=asked.id, progress=1))
    bench.wait(1)
    assert isinstance(only_failure(bench, handle), RequestTimeout)


@pytest.mark.parametrize(
    ("params", "violates"),
    [
        ({"progressToken": 1}, True),
        ({"progressToken": 1, "progress": "x"}, True),
        ({"progressToken": 1, "progress": True}, True),
        ({"progressToken": "1", "progress": 1}, False),
        ({"progressToken": True, "progress": 1}, False),
        ({"progressToken": 99, "progress": 1}, False),
        ({"progress": 1}, False),
    ],
)
def test_odd_progress_is_no_progress(bench: Bench, params: dict[str, Any], violates: bool) -> None:
    _, asked = bench.call()
    asked.open_stream()
    asked.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    assert [type(event) for event in bench.events] == [ProtocolViolation] * violates


def test_odd_members_of_progress_are_left_out(bench: Bench) -> None:
    handle, asked = bench.call()
    asked.open_stream()
    asked.event(
        notification("notifications/progress", progressToken=1, progress=1, total="x", message=5)
    )
    asked.event({"jsonrpc": "2.0", "method": "notifications/progress"})
    assert bench.events[0] == ProgressReceived(call=handle, progress=1)


def test_the_progress_token_is_ours_whatever_meta_says(bench: Bench) -> None:
    _, asked = bench.call(params={"_meta": {"progressToken": "mine", "x": 1}})
    assert asked.json["params"]["_meta"] == {"progressToken": asked.id, "x": 1}


# What the server asks


def ask_until_it_ends(bench: Bench, method: str, **options: Any) -> float:
    """Ask every half second on the stream of a call; returns the seconds it lasted."""
    _, asked = bench.call(**options)
    asked.open_stream()
    for number in range(100):
        bench.wait(0.5)
        if any(isinstance(event, CallFailed) for event in bench.events):
            break
        asked.event(request(number, method))
        for event in bench.take_events():
            assert isinstance(event, ServerRequestReceived)
            bench.do(bench.client.refuse_unsupported, event.request.id)
        for post in bench.requests:
            post.accept()
        bench.requests.clear()
    return bench.now


@pytest.mark.parametrize("method", ["x/unknown", "ping", "sampling/createMessage", "roots/list"])
def test_what_cannot_be_answered_stops_no_clock(method: str) -> None:
    """Row A5 of the review: such a request every 0.5 s kept the call alive for ever.

    Neither an unknown method counts, nor an undeclared capability, nor a declared one (roots) that
    the application declines.
    """
    bench = Bench(capabilities={"roots": {}}).connect()
    assert ask_until_it_ends(bench, method, timeout=2, total_timeout=4) == 2
    assert isinstance(bench.events[0], CallFailed)


def test_a_request_of_an_unknown_method_that_is_open_stops_no_clock(bench: Bench) -> None:
    """Row A5 of the review."""
    handle, asked = bench.call(timeout=5)
    asked.open_stream()
    asked.event(request(1, "x/unknown"))
    bench.wait(5)
    assert isinstance(only_failure(bench, handle), RequestTimeout)


def test_the_total_goes_on_where_it_stood_still() -> None:
    """Row A5 of the review: each answer gave the whole total back."""
    bench = Bench(capabilities={"elicitation": {}}).connect()
    handle, asked = bench.call(timeout=5, total_timeout=10)
    asked.open_stream()
    for number in range(3):
        bench.wait(3)
        asked.event(request(number, "elicitation/create"))
        bench.wait(1000)
        bench.do(bench.client.respond, number, {})
        bench.take().accept()
    bench.take_events()
    bench.wait(0.9)
    assert bench.events == []
    bench.wait(0.1)
    failure = only_failure(bench, handle)
    assert "10 s in all" in str(failure)


def test_how_often_a_server_may_ask_within_one_call_is_bounded() -> None:
    """Row A5 of the review."""
    limits = Limits(max_server_requests_per_call=3)
    bench = Bench(capabilities={"elicitation": {}}, limits=limits).connect()
    handle, asked = bench.call()
    asked.open_stream()
    for number in range(4):
        asked.event(request(number, "elicitation/create"))
        bench.do(bench.client.respond, number, {})
    assert sum(isinstance(event, ServerRequestReceived) for event in bench.events) == 3
    failure = only_failure(bench, handle)
    assert isinstance(failure, InvalidResponse)
    assert "max_server_requests_per_call" in str(failure)
    assert asked.aborted
    assert bench.requests.pop().json["method"] == "notifications/cancelled"


def test_on_one_stream_for_all_further_questions_stop_no_clock() -> None:
    """Row A5 of the review: nothing tells which call they belong to, so none is ended."""
    limits = Limits(max_server_requests_per_call=3)
    bench = ProcessBench(capabilities={"elicitation": {}}, limits=limits).connect()
    old, _ = bench.make(timeout=10)
    for number in range(3):
        bench.ask(number)
        bench.do(bench.client.respond, number, {})
    assert len(bench.written) == 3
    _, new_id = bench.make(timeout=20)
    bench.ask("further")
    bench.take_events()
    bench.wait(100)
    assert isinstance(only_failure(bench, old), RequestTimeout)
    assert bench.do(bench.client.respond, "further", {})
    bench.wait(19)
    bench.say(response(new_id))
    assert [type(event).__name__ for event in bench.events] == ["CallCompleted"]
