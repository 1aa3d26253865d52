"""Timeouts of calls, and the progress that puts them off."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import RequestTimeout
from sansmcp.events import ProgressReceived, Violation

from .bench import Bench, notification, only_failure

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
    assert [type(event) for event in bench.events] == [Violation] * violates


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
