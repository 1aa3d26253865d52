"""How a call that is a task ends: by its clocks, its caller, its client; or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import (
    Disconnected,
    JsonRpcError,
    Limits,
    LocalProtocolError,
    RequestCancelled,
    RequestTimeout,
    TaskLost,
)
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    Closed,
    MessageUndelivered,
    ProtocolViolation,
    Reconnecting,
    TaskUpdated,
)
from sansmcp.messages import Request
from sansmcp.states import ClientState

from ..harness import (
    LATEST,
    Asked,
    ClientHarness,
    initialized,
    notification,
    only_failure,
    response,
)
from .harness import (
    MODERN,
    ModernClientHarness,
    ModernProcess,
    discovered,
    ends,
    failed,
    offered,
    refused_version,
)
from .task_harness import (
    COMPLETED,
    DONE,
    ID,
    INSTANCE_LOST,
    TOOL,
    begin,
    check_request,
    handle_of,
    poll,
    refuse_listening,
    state,
)

requirement = pytest.mark.requirement


@pytest.fixture
def harness() -> ModernClientHarness:
    return ModernClientHarness(standalone_stream=False).connect()


def cancellation(harness: ModernClientHarness, id: str = ID) -> Asked:
    """The one request of the client, which cancels a task."""
    asked = harness.take()
    assert check_request(asked, "tasks/cancel", id) == {}
    return asked


def reject(harness: ClientHarness, error: type[Exception], seconds: float) -> None:
    """Wait until the call ends with an error; it must not end before."""
    harness.wait(seconds - 0.01)
    assert ends(harness) == []
    harness.wait(0.02)
    (end,) = ends(harness)
    assert isinstance(end, CallFailed)
    assert isinstance(end.error, error)
    assert end.error.task_id == ID


# Clocks


def test_silence_counts_from_the_poll_on(harness: ModernClientHarness) -> None:
    """The server has asked for the time before it."""
    begin(harness, handle_of(pollIntervalMs=9000), timeout=5)
    poll(harness, 9)
    reject(harness, RequestTimeout, 5)


def test_each_answer_ends_it(harness: ModernClientHarness) -> None:
    call = begin(harness, timeout=5, total_timeout=100, reset_on_progress=False)
    for number in range(30):
        asked = poll(harness)
        harness.wait(1)
        asked.result(state())
        if number == 9:
            refuse_listening(harness.take())
    poll(harness).result(COMPLETED)
    assert ends(harness) == [CallCompleted(call, DONE)]


def test_polls_that_fail_do_not(harness: ModernClientHarness) -> None:
    begin(harness, timeout=5)
    poll(harness).cut()
    poll(harness, 2.5).refuse(503)
    reject(harness, RequestTimeout, 2.5)
    cancellation(harness)


def test_nor_does_the_acceptance_of_a_request_without_an_answer(
    harness: ModernClientHarness,
) -> None:
    begin(harness, timeout=5)
    poll(harness).open_stream()
    reject(harness, RequestTimeout, 5)


def test_all_answers_do_not_move_the_total(harness: ModernClientHarness) -> None:
    begin(harness, timeout=5, total_timeout=11)
    for _ in range(5):
        poll(harness).result(state())
    reject(harness, RequestTimeout, 1)
    cancellation(harness)


def test_the_last_poll_is_in_time(harness: ModernClientHarness) -> None:
    """However long the server wants to be left alone, it is asked once more before the end."""
    begin(harness, handle_of(pollIntervalMs=3_600_000), total_timeout=100)
    for seconds in (60, 39):
        poll(harness, seconds).result(state(pollIntervalMs=3_600_000))
    reject(harness, RequestTimeout, 1)


@pytest.mark.parametrize("total", [0.5, 1.0])
def test_a_total_that_is_shorter_than_a_poll(harness: ModernClientHarness, total: float) -> None:
    begin(harness, total_timeout=total)
    reject(harness, RequestTimeout, total)
    cancellation(harness).result()
    assert harness.client.next_deadline() is None


# The caller


@requirement("TASKS-C-009", "TASKS-C-027")
@pytest.mark.parametrize("polling", [True, False])
def test_a_caller_that_gives_up_cancels_the_task(
    harness: ModernClientHarness, polling: bool
) -> None:
    call = begin(harness)
    asked = poll(harness) if polling else None
    harness.run_command(harness.client.cancel, call)
    assert asked is None or asked.aborted
    failure = only_failure(harness, call)
    assert isinstance(failure, RequestCancelled)
    assert failure.task_id == ID
    cancellation(harness).result({"resultType": "complete"})
    assert harness.client.next_deadline() is None
    assert harness.events == []
    assert not harness.run_command(harness.client.cancel, call)


@requirement("TASKS-C-009")
def test_so_it_does_on_stdio() -> None:
    harness = ModernProcess().connect()
    call, id = harness.make(params=TOOL)
    harness.say(response(id, handle_of()))
    harness.run_command(harness.client.cancel, call)
    (asked,) = harness.written
    assert (asked["method"], asked["params"]["taskId"]) == ("tasks/cancel", ID)
    assert asked["id"] > id
    harness.say(response(asked["id"], {"resultType": "complete"}))
    harness.say(failed(asked["id"], -32602))
    assert [type(event) for event in harness.events] == [TaskUpdated, CallFailed]


def test_before_the_handle_it_is_a_call_like_any_other(harness: ModernClientHarness) -> None:
    call, asked = harness.call(params=TOOL)
    harness.run_command(harness.client.cancel, call)
    assert asked.aborted
    assert harness.requests == []


@pytest.mark.parametrize("status", [None, 429, 500, 503])
def test_a_cancellation_that_fails_is_sent_again(
    harness: ModernClientHarness, status: int | None
) -> None:
    call = begin(harness)
    harness.run_command(harness.client.cancel, call)
    asked = cancellation(harness)
    if status is None:
        asked.cut()
    else:
        asked.refuse(status)
    harness.wait(1)
    cancellation(harness).result()
    assert harness.client.next_deadline() is None


def test_one_of_a_task_that_is_gone_is_not(harness: ModernClientHarness) -> None:
    call = begin(harness)
    harness.run_command(harness.client.cancel, call)
    harness.take_events()
    asked = cancellation(harness)
    asked.answer(failed(asked.id, -32602, "unknown task"), 400)
    (event,) = harness.events
    assert isinstance(event, MessageUndelivered)
    assert "unknown task" in event.reason
    assert harness.client.next_deadline() is None


def test_a_page_of_a_proxy_in_place_of_a_state_says_nothing_about_the_task(
    harness: ModernClientHarness,
) -> None:
    """The server is asked again, as after a 502."""
    call = begin(harness)
    poll(harness).refuse(200, b"<html>Sorry", content_type="text/html")
    (event,) = [each for each in harness.take_events() if isinstance(each, Reconnecting)]
    assert event.call == call
    assert "text/html instead of JSON" in event.reason
    poll(harness, event.delay).result(COMPLETED)
    (end,) = ends(harness)
    assert isinstance(end, CallCompleted)
    assert end.result == DONE


def test_a_task_whose_instance_has_died_is_begun_anew_if_its_call_may_be(
    harness: ModernClientHarness,
) -> None:
    call = begin(harness, idempotent=True)
    poll(harness).result(state("failed", error=INSTANCE_LOST))
    (event,) = [each for each in harness.take_events() if isinstance(each, Reconnecting)]
    assert event.call == call
    harness.wait(event.delay + 1e-9)
    again = harness.take()
    assert again.json["method"] == "tools/call"
    again.result(handle_of(taskId="second"))
    harness.wait(2.001)
    asked = harness.take()
    check_request(asked, "tasks/get", "second")
    asked.result(state("completed", taskId="second", result=DONE))
    (end,) = ends(harness)
    assert isinstance(end, CallCompleted)
    assert end.result == DONE
    assert harness.client.next_deadline() is None


def test_a_task_whose_instance_has_died_ends_its_call_if_it_may_not_be_repeated(
    harness: ModernClientHarness,
) -> None:
    call = begin(harness)
    poll(harness).result(state("failed", error=INSTANCE_LOST))
    failure = only_failure(harness, call)
    assert isinstance(failure, JsonRpcError)
    assert failure.task_id == ID


def test_as_many_cancellations_wait_as_other_messages() -> None:
    harness = ModernClientHarness(
        standalone_stream=False, limits=Limits(max_pending_calls=2)
    ).connect()
    for _ in range(3):
        harness.run_command(harness.client.cancel, begin(harness))
        sent = harness.requests.copy()
        harness.requests.clear()
        assert len(sent) <= 1
    assert isinstance(harness.events[-2], MessageUndelivered)


# The client


@requirement("TASKS-C-009")
def test_a_cancellation_is_not_lost_if_the_client_closes_at_once() -> None:
    harness = ModernClientHarness(standalone_stream=False).connect()
    harness.run_command(harness.client.cancel, begin(harness))
    asked = cancellation(harness)
    harness.run_command(harness.client.close)
    assert asked.aborted
    assert harness.client.state is ClientState.CLOSING
    cancellation(harness).result()
    assert harness.take_events()[-1] == Closed(None)


@pytest.mark.parametrize("how", ["close", "fail", "a new session"])
def test_a_cancellation_that_does_not_arrive_is_reported(how: str) -> None:
    harness = ModernClientHarness(standalone_stream=False, close_timeout=3).connect()
    harness.run_command(harness.client.cancel, begin(harness))
    asked = cancellation(harness)
    harness.events.clear()
    match how:
        case "close":
            harness.run_command(harness.client.close)
            asked = cancellation(harness)
            harness.wait(3)
        case "fail":
            _, other = harness.call()
            other.answer(refused_version(other.id, "2099-01-01"), 400)
        case _:
            _, other = harness.call()
            other.answer(refused_version(other.id, MODERN), 400)
    undelivered = [event for event in harness.events if isinstance(event, MessageUndelivered)]
    assert [event.message for event in undelivered] == [
        Request(asked.id, "tasks/cancel", {"taskId": ID})
    ]
    assert asked.aborted


NO_MESSAGE = "Not a JSON-RPC message: a message has exactly one of method, result and error"


def answer_cancellation(asked: Asked, how: str) -> None:
    """Answer with the status of a success, whatever the answer is."""
    match how:
        case "the store fails":
            asked.answer(failed(asked.id, -32603, "the store fails"))
        case "the store fails, on a stream":
            asked.open_stream()
            asked.event(notification("notifications/message", level="info", data="x"))
            asked.event(failed(asked.id, -32603, "the store fails"))
        case "a stream without a response":
            asked.open_stream()
            asked.end()
        case "an error for good":
            asked.answer(failed(asked.id, -32602, "no such task"))
        case "no message":
            asked.answer({"jsonrpc": "2.0", "id": asked.id})
        case "a result, on a stream that stays open":
            asked.open_stream()
            asked.event(response(asked.id, {"resultType": "complete"}))
        case _:
            asked.result()


@pytest.mark.parametrize(
    "how", ["the store fails", "the store fails, on a stream", "a stream without a response"]
)
def test_a_cancellation_without_a_result_is_sent_again(
    harness: ModernClientHarness, how: str
) -> None:
    harness.run_command(harness.client.cancel, begin(harness))
    answer_cancellation(cancellation(harness), how)
    assert harness.requests == []
    harness.wait(2)
    cancellation(harness).result()
    harness.wait(3600)
    assert harness.requests == []
    assert not any(isinstance(event, MessageUndelivered) for event in harness.events)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("an error for good", "no such task"),
        ("no message", NO_MESSAGE),
        ("a result", None),
        ("a result, on a stream that stays open", None),
    ],
)
def test_a_cancellation_has_arrived_with_its_result(
    harness: ModernClientHarness, how: str, reason: str | None
) -> None:
    harness.run_command(harness.client.cancel, begin(harness))
    answer_cancellation(cancellation(harness), how)
    harness.wait(3600)
    assert harness.requests == []
    undelivered = [event for event in harness.events if isinstance(event, MessageUndelivered)]
    assert len(undelivered) == (reason is not None)
    assert [event.reason for event in undelivered] == ([] if reason is None else [reason])


@requirement("TASKS-C-009")
def test_a_client_that_closes_cancels_its_tasks() -> None:
    harness = ModernClientHarness(
        standalone_stream=False, limits=Limits(max_open_posts=2)
    ).connect()
    for number in range(3):
        begin(harness, handle_of(taskId=f"t{number}"))
    begin_attached(harness)
    harness.take().result(state())
    harness.events.clear()
    harness.run_command(harness.client.close)
    assert [type(event) for event in harness.events] == [CallFailed] * 4
    assert harness.client.state is ClientState.CLOSING
    first, second = harness.requests
    harness.requests.clear()
    check_request(first, "tasks/cancel", "t0")
    check_request(second, "tasks/cancel", "t1")
    first.result()
    cancellation(harness, "t2").refuse(404)
    assert Closed(None) not in harness.events
    second.result()
    assert harness.take_events()[-1] == Closed(None)


def test_but_not_for_ever() -> None:
    harness = ModernClientHarness(standalone_stream=False, close_timeout=3).connect()
    begin(harness)
    harness.run_command(harness.client.close)
    asked = cancellation(harness)
    asked.cut()
    harness.wait(1)
    again = cancellation(harness)
    harness.wait(2.1)
    assert again.aborted
    assert harness.events[-1] == Closed(None)


def test_on_stdio_the_process_ends_afterwards() -> None:
    harness = ModernProcess().connect()
    _, id = harness.make(params=TOOL)
    harness.say(response(id, handle_of()))
    harness.run_command(harness.client.close)
    (asked,) = harness.written
    assert asked["method"] == "tasks/cancel"
    harness.exit()
    assert harness.events[-1] == Closed(None)


def test_a_process_that_ends_leaves_the_id() -> None:
    harness = ModernProcess().connect()
    call, id = harness.make(params=TOOL)
    harness.say(response(id, handle_of()))
    harness.exit(1)
    (end,) = ends(harness)
    assert isinstance(end, CallFailed)
    assert isinstance(end.error, Disconnected)
    assert (end.call, end.error.task_id) == (call, ID)


# Servers that change


def renegotiate(harness: ModernClientHarness) -> Asked:
    """Another call finds that the server has become another one."""
    asked = harness.call("x/y")[1]
    asked.answer(refused_version(asked.id, MODERN), 400)
    probe = harness.take()
    assert probe.json["method"] == "server/discover"
    return probe


@pytest.mark.parametrize("polling", [True, False])
def test_a_task_outlives_a_negotiation(harness: ModernClientHarness, polling: bool) -> None:
    call = begin(harness)
    asked = poll(harness) if polling else None
    probe = renegotiate(harness)
    assert asked is None or asked.aborted
    harness.wait(4)
    assert harness.requests == []
    probe.answer(discovered(probe.id))
    polled, again = harness.requests
    harness.requests.clear()
    check_request(polled, "tasks/get")
    again.result()
    polled.result(COMPLETED)
    assert CallCompleted(call, DONE) in ends(harness)


@pytest.mark.both_eras
def test_unless_the_server_has_become_older(harness: ModernClientHarness) -> None:
    call = begin(harness)
    probe = renegotiate(harness)
    probe.answer(refused_version(probe.id, LATEST), 400)
    opening = harness.take()
    assert offered(opening) == LATEST
    opening.answer(initialized(opening.id, LATEST))
    harness.take().accept()
    (lost,) = ends(harness)
    assert isinstance(lost, CallFailed)
    assert isinstance(lost.error, TaskLost)
    assert (lost.call, lost.error.task_id) == (call, ID)
    assert LATEST in str(lost.error)


@pytest.mark.both_eras
def test_a_client_that_closes_meanwhile_has_no_server_to_tell(
    harness: ModernClientHarness,
) -> None:
    begin(harness)
    asked = harness.call("x/y")[1]
    asked.answer(refused_version(asked.id, LATEST), 400)
    probe = harness.take()
    probe.answer(refused_version(probe.id, LATEST), 400)
    harness.requests.clear()
    harness.run_command(harness.client.close)
    assert harness.requests == []
    assert harness.events[-1] == Closed(None)


# Another client


def begin_attached(harness: ModernClientHarness, **options: float) -> int:
    call = harness.run_command(harness.client.attach, ID, **options)
    assert isinstance(call, int)
    return call


@requirement("TASKS-C-022")
def test_a_task_can_be_left_to_another_client(harness: ModernClientHarness) -> None:
    call, asked = harness.call(params=TOOL, detach=True)
    asked.result(handle_of())
    assert harness.events == [CallCompleted(call, handle_of())]
    harness.run_command(harness.client.close)
    assert harness.requests == []
    other = ModernClientHarness(standalone_stream=False).connect()
    attached = begin_attached(other)
    asked = other.take()
    check_request(asked, "tasks/get")
    asked.result(state(statusMessage="half"))
    assert other.events == [
        TaskUpdated(call=attached, task_id=ID, status="working", message="half")
    ]
    poll(other).result(COMPLETED)
    assert other.events[-1] == CallCompleted(attached, DONE)


def test_a_result_that_is_there_is_the_result(harness: ModernClientHarness) -> None:
    call, asked = harness.call(params=TOOL, detach=True)
    asked.result(DONE)
    assert harness.events == [CallCompleted(call, DONE)]


def test_it_waits_for_the_opening() -> None:
    harness = ModernClientHarness(standalone_stream=False)
    probe = harness.start()
    call = begin_attached(harness)
    assert harness.requests == []
    probe.answer(discovered(probe.id))
    harness.take().result(COMPLETED)
    assert harness.events[-1] == CallCompleted(call, DONE)


def test_who_is_attached_does_not_own_the_task(harness: ModernClientHarness) -> None:
    call = begin_attached(harness, timeout=5, total_timeout=50)
    harness.take().result(state())
    harness.run_command(harness.client.cancel, call)
    assert isinstance(only_failure(harness, call), RequestCancelled)
    call = begin_attached(harness, timeout=5)
    harness.take()
    harness.wait(5)
    failure = only_failure(harness, call)
    assert isinstance(failure, RequestTimeout)
    assert failure.method == "tools/call"
    assert [asked.json["method"] for asked in harness.requests] == ["tasks/get"]  # asked again
    assert harness.requests[0].aborted


@pytest.mark.parametrize("error", [{"code": 1, "message": "m"}, None])
def test_it_gets_what_the_call_would_get(
    harness: ModernClientHarness, error: dict[str, object] | None
) -> None:
    call = begin_attached(harness)
    asked = harness.take()
    if error is None:
        asked.answer(failed(asked.id, -32602))
        assert isinstance(only_failure(harness, call), TaskLost)
    else:
        asked.result(state("failed", error=error))
        failure = only_failure(harness, call)
        assert isinstance(failure, JsonRpcError)
        assert (failure.code, failure.method) == (1, "tools/call")


def test_what_attaching_refuses() -> None:
    harness = ModernClientHarness(limits=Limits(max_pending_calls=1))
    attach = harness.client.attach
    with pytest.raises(LocalProtocolError, match="not connected"):
        attach(ID, now=0)
    harness.connect()
    with pytest.raises(LocalProtocolError, match="task_id must be str"):
        attach(5, now=0)  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError, match="above zero"):
        attach(ID, timeout=0, now=0)
    begin_attached(harness)
    with pytest.raises(LocalProtocolError, match="max_pending_calls"):
        attach(ID, now=0)
    harness.run_command(harness.client.close)
    with pytest.raises(LocalProtocolError, match="closed"):
        attach(ID, now=0)


# A cancellation that crosses the handle


@requirement("TASKS-C-009")
def test_on_stdio_a_handle_that_comes_after_the_cancellation_is_cancelled() -> None:
    process = ModernProcess().connect()
    call, id = process.make(params=TOOL)
    process.run_command(process.client.cancel, call)
    (cancelled,) = process.written
    assert cancelled["params"]["requestId"] == id
    for _ in range(2):
        process.say(response(id, handle_of()))
    (asked,) = process.written
    assert (asked["method"], asked["params"]["taskId"]) == ("tasks/cancel", ID)
    process.say(response(asked["id"], {"resultType": "complete"}))
    assert not any(isinstance(event, ProtocolViolation) for event in process.events)


@pytest.mark.parametrize(
    "late",
    [
        response(1, DONE),
        response(1, {"resultType": "task"}),
        response(1, {"resultType": "task", "taskId": ""}),
        response(1, {"resultType": "task", "taskId": 7}),
        response(1, "task"),
        failed(1, -32603, "late"),
    ],
)
def test_any_other_late_response_is_ignored(late: dict[str, Any]) -> None:
    process = ModernProcess().connect()
    call, id = process.make(params=TOOL)
    process.run_command(process.client.cancel, call)
    assert process.written
    process.say({**late, "id": id})
    assert process.written == []


def test_late_handles_of_so_many_calls_are_known() -> None:
    process = ModernProcess().connect()
    ids: list[Any] = []
    for _ in range(1001):
        call, id = process.make(params=TOOL)
        process.run_command(process.client.cancel, call)
        ids.append(id)
        assert len(process.written) == 1
    process.say(response(ids[0], handle_of()))
    assert process.written == []
    process.say(response(ids[1], handle_of()))
    assert [each["method"] for each in process.written] == ["tasks/cancel"]
