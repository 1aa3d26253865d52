"""What a driver makes of tasks: handles, waiting for them, and the events that tell of them."""

from __future__ import annotations

import pytest

from sansmcp import (
    Disconnected,
    LocalProtocolError,
    OriginatingCall,
    PendingResult,
    RequestCancelled,
)
from sansmcp.base_client import task_id_of, tool_call
from sansmcp.events import ProgressReceived, TaskUpdated

from ..client.modern.harness import MODERN, discovered, question
from ..client.modern.task_harness import COMPLETED, DONE, ID, handle_of, state
from .test_hosting_client import DriverHarness, breaking


@pytest.fixture
def harness() -> DriverHarness:
    harness = DriverHarness(versions=(MODERN,))
    harness.run_command(harness.client.start)
    asked = harness.take()
    asked.answer(discovered(asked.id, MODERN))
    return harness


def start(harness: DriverHarness) -> PendingResult:
    pending = PendingResult()
    harness.host.handle = harness.host.begin_call(
        pending, *tool_call("t", {"a": 1}), None, {"timeout": 5}, detach=True
    )
    return pending


def test_a_task_is_started(harness: DriverHarness) -> None:
    pending = start(harness)
    asked = harness.take()
    assert asked.json["params"]["name"] == "t"
    assert asked.json["params"]["arguments"] == {"a": 1}
    asked.result(handle_of())
    assert task_id_of(pending.result()) == ID
    harness.wait(100)
    harness.host.abandon_call(harness.host.handle)
    assert harness.requests == []


def test_one_that_is_done_at_once_is_its_result(harness: DriverHarness) -> None:
    pending = start(harness)
    harness.take().result(DONE)
    assert pending.result() == DONE
    assert task_id_of(DONE) is None


def test_a_caller_waits_for_a_task(harness: DriverHarness) -> None:
    pending = PendingResult()
    reports: list[ProgressReceived] = []
    handle = harness.host.begin_attach(pending, ID, reports.append, 5, 50)
    asking = state(
        "input_required",
        inputRequests={"k": question(message="?")},
        _meta={"sansmcp/progress": {"progress": 3}},
    )
    harness.take().result(asking)
    (asks,) = harness.host.requests
    assert asks.call == OriginatingCall(handle, "tools/call", {})
    assert [report.progress for report in reports] == [3]
    answered = harness.take()
    assert answered.json["params"]["inputResponses"] == {"k": {"heard": "?"}}
    answered.result()
    harness.wait(2)
    harness.take().result(COMPLETED)
    assert pending.result() == DONE
    harness.host.abandon_call(handle)


def test_who_gives_up_waiting_does_not_cancel_the_task(harness: DriverHarness) -> None:
    handle = harness.host.begin_attach(PendingResult(), ID, None, None, None)
    asked = harness.take()
    harness.host.abandon_call(handle)
    assert asked.aborted
    assert harness.requests == []


def test_who_gives_up_a_call_does(harness: DriverHarness) -> None:
    pending = harness.host.call("tools/call")
    harness.take().result(handle_of())
    harness.host.abandon_call(harness.host.handle)
    assert harness.take().json["method"] == "tasks/cancel"
    assert not pending.is_done


def test_what_a_task_says_can_be_taken(harness: DriverHarness) -> None:
    harness.host.take_events()
    harness.host.call("tools/call")
    harness.take().result(handle_of(statusMessage="queued"))
    (event,) = harness.host.take_events()
    assert isinstance(event, TaskUpdated)
    assert (event.task_id, event.message) == (ID, "queued")


@pytest.mark.parametrize("on_progress", [None, print])
def test_only_progress_that_is_wanted_is_asked_for(
    harness: DriverHarness, on_progress: object
) -> None:
    harness.host.call("tools/call", on_progress=on_progress)  # type: ignore[arg-type]
    meta = harness.take().json["params"]["_meta"]
    assert meta.get("sansmcp/progressUnshown", False) is (on_progress is None)


def test_a_client_that_is_closed(harness: DriverHarness) -> None:
    waiting, pending = PendingResult(), harness.host.call("tools/call")
    harness.take().result(handle_of())
    harness.host.begin_attach(waiting, ID, None, None, None)
    harness.requests.clear()
    harness.host.begin_close()
    for each in (waiting, pending):
        with pytest.raises(RequestCancelled):
            each.result()
    assert not harness.host.closed.is_done
    harness.take().result()
    assert harness.host.closed.is_done
    with pytest.raises(LocalProtocolError, match="closed"):
        harness.host.begin_attach(waiting, ID, None, None, None)


def test_a_client_that_a_bug_has_ended(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(harness.client, "next_effect", breaking)
        harness.run_pending()
    with pytest.raises(Disconnected):
        harness.host.begin_attach(PendingResult(), ID, None, None, None)
