"""A call that the server answers by a task: what the client makes of what it hears of the task."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import (
    InvalidResponse,
    JsonRpcError,
    LocalProtocolError,
    RequestRefused,
    TaskCancelled,
    TaskLost,
)
from sansmcp.events import CallCompleted, CallFailed, ProgressReceived, Reconnecting, TaskUpdated

from ..harness import ClientHarness, notification, only_failure, response
from .harness import TASKS, ModernClientHarness, ModernProcess, ends, failed
from .task_harness import (
    COMPLETED,
    DONE,
    ID,
    TOOL,
    begin,
    check_request,
    handle_of,
    poll,
    state,
    updates,
)

requirement = pytest.mark.requirement


@pytest.fixture
def harness() -> ModernClientHarness:
    return ModernClientHarness(standalone_stream=False).connect()


# To the result


@requirement(
    "TASKS-C-001", "TASKS-C-002", "TASKS-C-005", "TASKS-C-008", "TASKS-C-011", "TASKS-C-029"
)
@pytest.mark.parametrize("streams", [True, False])
def test_a_task_is_followed_to_its_result(harness: ModernClientHarness, streams: bool) -> None:
    call, asked = harness.call(params=TOOL)
    capabilities = asked.json["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    assert capabilities["extensions"] == {TASKS: {}}
    assert asked.json["params"].keys() == {"name", "arguments", "_meta"}
    if streams:
        asked.open_stream()
        asked.event(response(asked.id, handle_of()))
        asked.end()
    else:
        asked.result(handle_of())
    assert ends(harness) == []
    first = poll(harness)
    first.result(state())
    second = poll(harness)
    assert second.id > first.id > asked.id
    second.result(COMPLETED)
    assert ends(harness) == [CallCompleted(call, DONE)]
    assert harness.client.next_deadline() is None


@requirement("TASKS-C-001", "TASKS-C-009", "TASKS-C-011")
def test_so_it_is_on_stdio() -> None:
    harness = ModernProcess().connect()
    call, id = harness.make(params=TOOL)
    harness.say(response(id, handle_of()))
    harness.wait(2)
    (asked,) = harness.written
    assert asked["method"] == "tasks/get"
    assert asked["params"]["taskId"] == ID
    meta = asked["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    assert meta["extensions"] == {TASKS: {}}
    harness.say(response(id, handle_of()))  # once more, which is none any more
    harness.say(response(asked["id"], COMPLETED))
    assert ends(harness) == [CallCompleted(call, DONE)]
    assert harness.written == []


@requirement("TASKS-C-002")
def test_a_result_at_once_is_one(harness: ModernClientHarness) -> None:
    call, asked = harness.call(params=TOOL)
    asked.result(DONE)
    assert harness.events == [CallCompleted(call, DONE)]


@pytest.mark.parametrize("result", [{"isError": True}, {}, {"resultType": "complete", "ttlMs": 9}])
def test_the_result_is_what_the_server_says(harness: ModernClientHarness, result: Any) -> None:
    call = begin(harness)
    poll(harness).result(state("completed", result=result))
    assert ends(harness) == [CallCompleted(call, result)]


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "input_required", "new"])
def test_a_handle_that_has_ended_or_asks_is_looked_at_at_once(
    harness: ModernClientHarness, status: str
) -> None:
    """It has neither the result nor the questions."""
    call = begin(harness, handle_of(status))
    poll(harness, 0).result(COMPLETED)
    assert ends(harness) == [CallCompleted(call, DONE)]


def test_an_error_of_the_call(harness: ModernClientHarness) -> None:
    call = begin(harness)
    error = {"code": -32050, "message": "no such scene", "data": {"scene": 7}}
    poll(harness).result(state("failed", error=error))
    failure = only_failure(harness, call)
    assert type(failure) is JsonRpcError
    assert (failure.code, failure.message, failure.data) == (-32050, "no such scene", {"scene": 7})
    assert (failure.method, failure.task_id) == ("tools/call", ID)


@pytest.mark.parametrize("message", ["by an operator", None])
def test_a_task_that_was_cancelled(harness: ModernClientHarness, message: str | None) -> None:
    call = begin(harness)
    poll(harness).result(state("cancelled", statusMessage=message))
    failure = only_failure(harness, call)
    assert isinstance(failure, TaskCancelled)
    assert (message or "was cancelled") in str(failure)
    assert harness.requests == []


@pytest.mark.parametrize("status", [200, 400, 404])
@pytest.mark.parametrize("code", [-32602, -32601, -32021, -32020, -32022])
def test_a_task_that_the_server_does_not_know(
    harness: ModernClientHarness, code: int, status: int
) -> None:
    call = begin(harness)
    asked = poll(harness)
    asked.answer(failed(asked.id, code, "what task?"), status)
    failure = only_failure(harness, call)
    assert isinstance(failure, TaskLost)
    assert "unknown" in str(failure)
    assert "what task?" in str(failure)
    assert ID not in str(failure)
    assert failure.task_id == ID
    assert isinstance(failure.__cause__, JsonRpcError)
    assert failure.__cause__.code == code
    assert harness.requests == []


@requirement("TASKS-C-020", "TASKS-C-021")
def test_the_newest_interval_holds(harness: ModernClientHarness) -> None:
    call = begin(harness, handle_of(pollIntervalMs=500))
    waits: list[tuple[Any, float]] = [
        (7000, 7),
        (None, 7),
        (0, 1),
        (-5, 1),
        (True, 1),
        ("9", 1),
        (1500.0, 1),
        (10**400, 60),
        (1, 0.05),
    ]
    due = 0.5
    for interval, seconds in waits:
        poll(harness, due).result(state(pollIntervalMs=interval))
        due = seconds
    poll(harness, due).result(COMPLETED)
    assert ends(harness) == [CallCompleted(call, DONE)]


def test_without_an_interval_it_is_a_second(harness: ModernClientHarness) -> None:
    begin(harness, handle_of(pollIntervalMs=None))
    poll(harness, 1.0)


@requirement("TASKS-C-022")
def test_what_the_task_does_is_reported_when_it_changes(harness: ModernClientHarness) -> None:
    call = begin(harness, handle_of(statusMessage="queued"))
    (event,) = harness.events
    assert event == TaskUpdated(call=call, task_id=ID, status="working", message="queued")
    assert ID not in repr(event)
    poll(harness).result(state(statusMessage="queued", lastUpdatedAt="2026-08-01T10:00:02Z"))
    poll(harness).result(state(statusMessage="x" * 5000))
    poll(harness).result(state("paused", statusMessage=7))
    poll(harness).result(state())
    poll(harness).result(COMPLETED)
    assert updates(harness) == [
        ("working", "queued"),
        ("working", "x" * 1000),
        ("paused", None),
        ("working", None),
    ]
    assert harness.events[-1] == CallCompleted(call, DONE)


def test_progress_goes_on_after_the_handle(harness: ModernClientHarness) -> None:
    """With a server of this library; the extension has no numbers."""
    call = begin(harness)
    for numbers in ({"progress": 1, "total": 4}, {"progress": 1, "total": 4}, {"progress": 2.5}):
        poll(harness).result(state(statusMessage="frames", _meta={"sansmcp/progress": numbers}))
    for none in (5, {"progress": "1"}, {"progress": True}, {}):
        poll(harness).result(state(statusMessage="frames", _meta={"sansmcp/progress": none}))
    poll(harness).result(COMPLETED)
    reports = [event for event in harness.events if isinstance(event, ProgressReceived)]
    assert reports == [
        ProgressReceived(call=call, progress=1, total=4, message="frames"),
        ProgressReceived(call=call, progress=2.5, total=None, message="frames"),
    ]


def test_progress_that_was_reported_before_the_handle_is_not_reported_again(
    harness: ModernClientHarness,
) -> None:
    call, asked = harness.call(params=TOOL)
    asked.open_stream()
    asked.event(notification("notifications/progress", progressToken=asked.id, progress=1, total=4))
    asked.event(response(asked.id, handle_of()))
    asked.end()
    for done in (1, 1, 2):
        progress = {"sansmcp/progress": {"progress": done, "total": 4}}
        poll(harness).result(state(_meta=progress))
    reports = [event for event in harness.events if isinstance(event, ProgressReceived)]
    assert [(event.call, event.progress) for event in reports] == [(call, 1), (call, 2)]


@pytest.mark.parametrize("timeout", [10, 20, 30])
def test_a_poll_without_an_answer_is_made_again_within_a_short_timeout(
    harness: ModernClientHarness, timeout: float
) -> None:
    call = begin(harness, timeout=timeout)
    silent = poll(harness)
    harness.wait(timeout / 2)
    assert silent.aborted
    assert len(reconnections(harness)) == 1
    harness.wait(timeout / 2 - 0.5)
    harness.requests[-1].result(COMPLETED)
    assert ends(harness) == [CallCompleted(call, DONE)]


@pytest.mark.parametrize("tasks", [True, False])
@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
@pytest.mark.parametrize("wanted", [True, False])
def test_progress_that_only_moves_the_deadline_is_marked(
    method: str, *, tasks: bool, wanted: bool
) -> None:
    harness = ModernClientHarness(standalone_stream=False, tasks=tasks).connect()
    _, asked = harness.call(method, params=TOOL, wants_progress=wanted)
    meta = asked.json["params"]["_meta"]
    assert meta["progressToken"] == asked.id
    is_marked = tasks and method == "tools/call" and not wanted
    assert meta.get("sansmcp/progressUnshown", False) is is_marked


def test_states_are_never_cached() -> None:
    """``ttlMs`` of a task is no hint for caches."""
    harness = ModernClientHarness(cache=True, standalone_stream=False).connect()
    for _ in range(2):
        begin(harness)
        for _ in range(2):
            poll(harness).result({**state(), "cacheScope": "private"})
        poll(harness).result(COMPLETED)
    for _ in range(2):
        _, asked = harness.call("tasks/get", params={"taskId": ID})
        asked.result(COMPLETED)


# What is not valid


@pytest.mark.parametrize(
    ("result", "what"),
    [
        ([], "no status"),
        ("x", "no status"),
        ({**state(), "status": 5}, "no status"),
        ({**state(), "resultType": "input_required"}, "unknown resultType"),
        ({**state(), "resultType": ["task"]}, "unknown resultType"),
        (state(taskId="another"), "another task"),
        (state("completed"), "no result"),
        (state("completed", result=[1]), "no result"),
        (state("completed", result={"resultType": "task"}), "unknown resultType"),
        (state("completed", result={"resultType": "input_required"}), "unknown resultType"),
        (state("completed", result={"resultType": 7}), "unknown resultType"),
        (state("failed"), "no error"),
        (state("failed", error={"code": "1", "message": "m"}), "no error"),
        (state("failed", error={"code": 1}), "no error"),
        (state("input_required"), "no inputRequests"),
        (state("input_required", inputRequests=[1]), "no inputRequests"),
    ],
)
def test_a_state_that_is_not_valid(harness: ModernClientHarness, result: Any, what: str) -> None:
    call = begin(harness)
    poll(harness).result(result)
    failure = only_failure(harness, call)
    assert isinstance(failure, InvalidResponse)
    assert what in str(failure)
    assert failure.task_id == ID
    assert harness.client.next_deadline() is None


@pytest.mark.parametrize("data", [b"{", b'{"jsonrpc":"2.0","id":2}'])
def test_an_answer_that_is_not_valid(harness: ModernClientHarness, data: bytes) -> None:
    call = begin(harness)
    poll(harness).answer(data)
    assert isinstance(only_failure(harness, call), InvalidResponse)


def test_a_task_of_the_kind_task_is_taken(harness: ModernClientHarness) -> None:
    """Two examples of the specification have that kind in answers to ``tasks/get``."""
    call = begin(harness)
    poll(harness).result({**COMPLETED, "resultType": "task"})
    assert ends(harness) == [CallCompleted(call, DONE)]
    own, asked = harness.call("tasks/get", params={"taskId": ID})
    check_request_of_application(asked.json)
    asked.result(handle_of())
    assert harness.events[-1] == CallCompleted(own, handle_of())


def check_request_of_application(message: Any) -> None:
    assert message["params"]["taskId"] == ID
    assert "progressToken" in message["params"]["_meta"]


@pytest.mark.parametrize(
    "handle",
    [
        {"resultType": "task"},
        {"resultType": "task", "status": "working"},
        {**handle_of(), "taskId": ""},
        {**handle_of(), "taskId": 5},
        {**handle_of(), "status": None},
    ],
)
def test_a_handle_that_is_not_valid(harness: ModernClientHarness, handle: Any) -> None:
    call = begin(harness, handle)
    failure = only_failure(harness, call)
    assert isinstance(failure, InvalidResponse)
    assert "without an id" in str(failure)


@requirement("TASKS-C-003", "JSONRPC-C-003")
@pytest.mark.parametrize("method", ["tools/list", "prompts/get", "tasks/cancel", "x/y"])
def test_no_other_method_can_become_a_task(harness: ModernClientHarness, method: str) -> None:
    call, asked = harness.call(method)
    asked.result(handle_of())
    failure = only_failure(harness, call)
    assert isinstance(failure, InvalidResponse)
    assert "unknown resultType" in str(failure)


@requirement("TASKS-C-004", "JSONRPC-B-054")
@pytest.mark.parametrize("method", ["tools/call", "tasks/get"])
def test_nor_can_one_of_a_client_that_has_not_said_so(method: str) -> None:
    harness = ModernClientHarness(standalone_stream=False, tasks=False).connect()
    call, asked = harness.call(method)
    assert "extensions" not in str(asked.json)
    asked.result(handle_of())
    assert isinstance(only_failure(harness, call), InvalidResponse)
    with pytest.raises(LocalProtocolError, match="tasks=True"):
        harness.run_command(harness.client.attach, ID)


@pytest.mark.both_eras
def test_before_2026_there_are_no_kinds_of_results() -> None:
    harness = ClientHarness().connect()
    call, asked = harness.call(params=TOOL)
    assert "extensions" not in str(asked.json)
    asked.result(handle_of())
    assert ends(harness) == [CallCompleted(call, handle_of())]


# Kinds of results that the application knows


@requirement("JSONRPC-B-054")
@pytest.mark.parametrize("tasks", [True, False])
def test_kinds_of_a_declared_extension_are_handed_through(tasks: bool) -> None:
    harness = ModernClientHarness(
        standalone_stream=False,
        tasks=tasks,
        capabilities={"extensions": {"com.example/partial": {"x": 1}}},
        result_types={"partial": "com.example/partial"},
    ).connect()
    partial = {"resultType": "partial", "x": 1}
    call, asked = harness.call()
    capabilities = asked.json["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    assert capabilities["extensions"]["com.example/partial"] == {"x": 1}
    assert (TASKS in capabilities["extensions"]) is tasks
    asked.result(partial)
    assert harness.events == [CallCompleted(call, partial)]
    _, asked = harness.call()
    asked.result({"resultType": "other"})
    (end,) = ends(harness)[1:]
    assert isinstance(end, CallFailed)
    if tasks:
        call = begin(harness)
        poll(harness).result(state("completed", result=partial))
        assert ends(harness)[2:] == [CallCompleted(call, partial)]


def test_an_application_may_follow_tasks_itself() -> None:
    harness = ModernClientHarness(
        standalone_stream=False,
        tasks=False,
        capabilities={"extensions": {TASKS: {}}},
        result_types={"task": TASKS},
    ).connect()
    call, asked = harness.call(params=TOOL)
    asked.result(handle_of())
    assert harness.events == [CallCompleted(call, handle_of())]


@requirement("JSONRPC-B-054")
@pytest.mark.parametrize(
    ("kind", "extension", "why"),
    [
        ("partial", "com.example/other", "not declared"),
        ("complete", TASKS, "itself"),
        ("input_required", TASKS, "itself"),
        ("task", TASKS, "tasks=False"),
    ],
)
def test_kinds_that_cannot_be_declared(kind: str, extension: str, why: str) -> None:
    with pytest.raises(LocalProtocolError, match=why):
        ModernClientHarness(
            capabilities={"extensions": {TASKS: {}}}, result_types={kind: extension}
        )


# Polls that fail


def reconnections(harness: ClientHarness) -> list[tuple[int | None, float, int]]:
    found = [event for event in harness.events if isinstance(event, Reconnecting)]
    return [(event.call, event.delay, event.attempt) for event in found]


@pytest.mark.parametrize(
    ("failure", "delay"),
    [
        ("cut", 2.5),
        ("cut in the head", 2.5),
        ("cut in a stream", 2.5),
        ("the end of a stream", 2.5),
        (408, 2.5),
        (425, 2.5),
        (429, 2.5),
        (500, 2.5),
        (502, 2.5),
        (503, 9.5),
        ("store", 2.5),
        ("no room for another task", 2.5),
        ("error with a body", 2.5),
    ],
)
def test_a_poll_that_fails_is_made_again(
    harness: ModernClientHarness, failure: int | str, delay: float
) -> None:
    call = begin(harness)
    asked = poll(harness)
    match failure:
        case "cut":
            asked.cut()
        case "cut in the head":
            asked.head(content_type="application/json")
            asked.cut()
        case "cut in a stream":
            asked.open_stream()
            asked.cut()
        case "the end of a stream":
            asked.open_stream()
            asked.end()
        case "store":
            asked.answer(failed(asked.id, -32603, "the store fails"))
        case "no room for another task":
            refusal = failed(asked.id, -32600, "wait for some of them to end")
            refusal["error"]["data"] = {"reason": "too_many_tasks"}
            asked.answer(refusal)
        case "error with a body":
            asked.answer(failed(asked.id, -32602, "unknown?"), 500)
        case 503:
            asked.refuse(503, retry_after="9")
        case _:
            assert isinstance(failure, int)
            asked.refuse(failure)
    assert reconnections(harness) == [(call, delay, 1)]
    poll(harness, delay).result(COMPLETED)
    assert ends(harness) == [CallCompleted(call, DONE)]


def test_they_come_later_and_later_until_one_succeeds() -> None:
    harness = ModernClientHarness(standalone_stream=False, timeout=1000).connect()
    call = begin(harness, handle_of(pollIntervalMs=30_000))
    asked = poll(harness, 30)
    for attempt, delay in enumerate((5.5, 6.0, 7.0, 9.0, 9.0, 9.0), 1):
        asked.cut()
        assert reconnections(harness)[-1] == (call, delay, attempt)
        asked = poll(harness, delay)
    asked.result(state(pollIntervalMs=30_000))
    poll(harness, 30).refuse(502)
    assert reconnections(harness)[-1] == (call, 5.5, 1)


def test_a_poll_without_an_answer_is_made_again(harness: ModernClientHarness) -> None:
    call = begin(harness)
    silent = poll(harness)
    harness.wait(29.9)
    assert not silent.aborted
    harness.wait(0.2)
    assert silent.aborted
    assert reconnections(harness) == [(call, 2.5, 1)]
    harness.wait(2.5)
    harness.take().result(COMPLETED)
    assert ends(harness) == [CallCompleted(call, DONE)]


def test_on_stdio_a_late_answer_to_such_a_poll_is_ignored() -> None:
    harness = ModernProcess().connect()
    call, id = harness.make(params=TOOL)
    harness.say(response(id, handle_of()))
    harness.wait(32)
    (first,) = harness.written
    harness.wait(2)
    (second,) = harness.written
    harness.say(response(first["id"], state("failed")))
    assert ends(harness) == []
    harness.say(response(second["id"], COMPLETED))
    assert ends(harness) == [CallCompleted(call, DONE)]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413])
def test_a_poll_that_is_refused_for_good(harness: ModernClientHarness, status: int) -> None:
    """The task may go on: with other credentials it can be attached to."""
    call = begin(harness)
    poll(harness).refuse(status, b"no", www_authenticate="Bearer")
    failure = only_failure(harness, call)
    assert isinstance(failure, RequestRefused)
    assert (failure.status, failure.method, failure.task_id) == (status, "tasks/get", ID)
    assert failure.challenges == ("Bearer",)
    assert harness.requests == []


def test_a_redirect_of_a_poll_is_followed(harness: ModernClientHarness) -> None:
    call = begin(harness)
    poll(harness).refuse(307, location="http://localhost:8000/other")
    asked = harness.take()
    check_request(asked, "tasks/get")
    asked.result(COMPLETED)
    assert ends(harness) == [CallCompleted(call, DONE)]
