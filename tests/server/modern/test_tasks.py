"""A call that becomes a task: its handle, its states and its end."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sansmcp import App, LocalProtocolError, Server, ServerCall
from sansmcp.events import CallCancelled
from sansmcp.tasks import EXTENSION, GET, METHODS, PROGRESS, PROGRESS_UNSHOWN

from ...handlers import nothing
from ..harness import initialize, request
from .harness import SERVER_INFO, meta, modern
from .task_harness import ADA, AGE, ASKABLE, NAME, RESULT, TASKS, TaskHarness, task_app, task_id

requirement = pytest.mark.requirement


@pytest.fixture
def harness() -> TaskHarness:
    return TaskHarness()


@requirement("TASKS-S-005", "TASKS-S-008", "TASKS-S-009", "TASKS-S-010")
def test_a_handle_is_flat(harness: TaskHarness) -> None:
    talk, _ = harness.call_tool()
    result = talk.json["result"]
    assert len(result.pop("taskId")) >= 16
    assert result == {
        "resultType": "task",
        "status": "working",
        "createdAt": "2027-01-15T08:00:00.000Z",
        "lastUpdatedAt": "2027-01-15T08:00:00.000Z",
        "ttlMs": 900_000,
        "pollIntervalMs": 1000,
        "_meta": {SERVER_INFO: {"name": "bench", "version": "1"}},
    }


@requirement("TASKS-S-011", "TASKS-S-013", "TASKS-S-035")
def test_a_task_ends_with_the_result_of_its_call(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    state = harness.get(id)
    assert (state["resultType"], state["status"]) == ("complete", "working")
    assert "result" not in state
    harness.run_action(call.respond, RESULT)
    state = harness.get(id)
    assert state["status"] == "completed"
    about = {"_meta": {SERVER_INFO: {"name": "bench", "version": "1"}}}
    assert state["result"] == {"resultType": "complete", **RESULT, **about}


@requirement("TASKS-S-015")
def test_an_error_of_the_tool_is_a_result(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    harness.run_action(call.respond, {**RESULT, "isError": True})
    assert harness.get(id)["status"] == "completed"


@requirement("TASKS-S-014", "TASKS-S-053")
def test_a_task_fails_with_the_error_of_its_call(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    harness.run_action(call.respond_error, -32000, "no luck", {"why": "so"})
    state = harness.get(id)
    assert (state["status"], state["statusMessage"]) == ("failed", "no luck")
    assert state["error"] == {"code": -32000, "message": "no luck", "data": {"why": "so"}}
    assert "result" not in state


@requirement("TASKS-S-016", "TASKS-S-017", "TASKS-S-020")
def test_a_cancelled_task_stays_cancelled(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    acknowledged = harness.cancel(id).json["result"]
    assert acknowledged.keys() == {"resultType", "_meta"}
    assert harness.cancelled(call)
    assert not harness.run_action(call.respond, RESULT)
    assert harness.get(id)["status"] == "cancelled"
    assert {"result", "error"}.isdisjoint(harness.get(id))
    assert harness.cancel(id).json["result"]["resultType"] == "complete"
    assert harness.get(id)["status"] == "cancelled"


@requirement("TASKS-S-017", "TASKS-S-020")
def test_a_completed_task_is_not_cancelled(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    harness.run_action(call.respond, RESULT)
    assert harness.cancel(id).json["result"]["resultType"] == "complete"
    assert harness.get(id)["status"] == "completed"


# Who gets a task


@requirement("TASKS-S-002", "TASKS-S-029", "TASKS-S-057")
@pytest.mark.parametrize(
    "capabilities",
    [{}, {"tasks": {}}, {"extensions": {}}, {"extensions": {EXTENSION: True}}],
)
def test_a_client_that_has_not_declared_tasks_gets_a_result(
    harness: TaskHarness, capabilities: Any
) -> None:
    harness.new_task()
    talk, call = harness.call_tool(capabilities)
    assert not harness.run_action(call.become_task)
    harness.wait(5)
    harness.run_action(call.respond, RESULT)
    assert talk.messages[-1]["result"]["resultType"] == "complete"


@requirement("TASKS-S-003", "TASKS-S-004", "TASKS-S-054")
def test_a_call_that_needs_a_task_is_refused_without_the_declaration() -> None:
    harness = TaskHarness(task_app(task="required"))
    talk = harness.ask(modern(1))
    assert talk.status == 400
    assert talk.error["code"] == -32021
    assert talk.error["data"]["requiredCapabilities"] == TASKS
    assert len(harness.events) == 1, "no handler was entered"


def test_a_call_that_needs_a_task_gets_one_however_fast_it_is() -> None:
    harness = TaskHarness(task_app(task="required"))
    talk, call = harness.call_tool()
    harness.run_action(call.respond, RESULT)
    assert harness.get(task_id(talk))["status"] == "completed"


def test_a_call_that_needs_a_task_may_fail_without_one() -> None:
    harness = TaskHarness(task_app(task="required"))
    talk, call = harness.call_tool()
    harness.run_action(call.respond_error, -32602, "no such tool")
    assert talk.error["code"] == -32602


def two_and_a_half(call: ServerCall) -> float:
    return 2.5


@pytest.mark.parametrize("rule", [2.5, two_and_a_half])
def test_a_call_becomes_a_task_after_a_time(rule: Any) -> None:
    harness = TaskHarness(task_app(task=rule, stream_after=math.inf))
    talk, call = harness.call_tool()
    harness.wait(2.25)
    assert not talk.ended
    harness.wait(0.25)
    id = task_id(talk)
    assert call.is_task
    harness.run_action(call.respond, RESULT)
    assert harness.status(id) == "completed"


def test_a_call_that_is_answered_in_time_is_no_task() -> None:
    harness = TaskHarness(task_app(task="optional"))
    talk, call = harness.call_tool()
    harness.run_action(call.respond, RESULT)
    assert talk.json["result"]["resultType"] == "complete"
    assert not call.is_task
    assert not harness.run_action(call.become_task)


def test_the_function_of_the_application_sees_the_call() -> None:
    rules = {"add": 0, "never": "never"}

    def rule(call: ServerCall) -> Any:
        return rules[(call.request.params or {})["name"]]

    harness = TaskHarness(task_app(task=rule))
    harness.new_task()
    talk, call = harness.call_tool(name="never")
    assert not harness.run_action(call.become_task)
    harness.run_action(call.respond, RESULT)
    assert talk.json["result"]["resultType"] == "complete"
    asked = modern(9, about=meta(TASKS), name="other")
    refused = harness.ask(asked, {"mcp-name": "other"})
    assert (refused.status, refused.error["data"]["reason"]) == (500, "bad_task_rule")
    assert "KeyError" in refused.error["message"]


@requirement("TASKS-S-028")
def test_a_request_cannot_ask_for_a_task() -> None:
    harness = TaskHarness(task_app(task="optional"))
    talk, call = harness.call_tool(task={"ttl": 1})
    harness.run_action(call.respond, RESULT)
    assert talk.json["result"]["resultType"] == "complete"


@pytest.mark.parametrize(
    ("about", "is_task"),
    [
        ({}, True),
        ({"progressToken": 1}, False),
        ({"progressToken": 1, PROGRESS_UNSHOWN: True}, True),
        ({"io.modelcontextprotocol/logLevel": "info"}, False),
    ],
)
def test_by_default_a_call_becomes_a_task_where_the_store_is_shared(
    about: Any, is_task: bool
) -> None:
    harness = TaskHarness(task_app(task=None), shared_store=True, stream_after=math.inf)
    talk = harness.ask(modern(1, about={**meta(ASKABLE), **about}))
    harness.wait(1.25)
    assert harness.entered().is_task == is_task == talk.ended


def test_by_default_no_call_becomes_a_task_without_a_shared_store() -> None:
    harness = TaskHarness(task_app(task=None))
    _, call = harness.call_tool()
    harness.wait(5)
    assert not call.is_task
    assert EXTENSION not in str(harness.ask(modern(1, "server/discover")).json)


def test_a_handler_decides_itself() -> None:
    harness = TaskHarness(task_app(task="optional"), task_after=None)
    talk, call = harness.call_tool()
    harness.wait(5)
    assert not call.is_task
    assert call.is_connected
    assert harness.run_action(call.become_task)
    assert harness.run_action(call.become_task), "again, without an effect"
    assert harness.status(task_id(talk)) == "working"
    assert not call.is_connected, "the client polls"


# What the server declares, and refuses


@requirement("TASKS-S-001")
def test_the_extension_is_declared() -> None:
    app = App("a", "1", capabilities={"tasks": {"list": {}}, "extensions": {"a.b/c": {}}})
    app.handler("tools/call", task="optional")(nothing)
    harness = TaskHarness(app, reclaim=False)
    found = harness.ask(modern(1, "server/discover")).json["result"]["capabilities"]
    assert found == {"tools": {}, "extensions": {"a.b/c": {}, EXTENSION: {}}}


@requirement("TASKS-S-022")
@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_request_about_a_task_needs_the_declaration(harness: TaskHarness, method: str) -> None:
    id, _ = harness.new_task()
    talk = harness.about(method, id, {}, inputResponses={})
    assert talk.status == 400
    assert talk.error["code"] == -32021
    assert talk.error["data"]["requiredCapabilities"] == TASKS


@requirement("TASKS-S-021", "TASKS-S-051", "TASKS-S-031", "TASKS-S-032")
@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_foreign_task_is_an_unknown_one(harness: TaskHarness, method: str) -> None:
    id, _ = harness.new_task(principal="ada")
    foreign = harness.about(method, id, principal="eve", inputResponses={})
    unknown = harness.about(method, "x" * len(id), principal="eve", inputResponses={})
    assert (foreign.status, unknown.status) == (200, 200)
    assert foreign.error == unknown.error
    assert foreign.error["code"] == -32602
    assert harness.about(GET, id, principal="ada").json["result"]["status"] == "working"


@pytest.mark.parametrize("id", ["", "short", "x" * 200, "../../../etc/passwd", ".lease"])
def test_a_made_up_id_is_not_looked_up(harness: TaskHarness, id: str) -> None:
    harness.store_works = False
    assert harness.about(GET, id).error["code"] == -32602


@pytest.mark.parametrize("id", [None, 7, ["a"]])
def test_an_id_is_a_string(harness: TaskHarness, id: Any) -> None:
    asked = modern(1, GET, meta(TASKS), taskId=id)
    header = None if id is None or isinstance(id, list) else str(id)
    talk = harness.ask(asked, {"mcp-name": header})
    assert talk.error["code"] in (-32602, -32020)


@requirement("TASKS-S-027")
@pytest.mark.parametrize("method", ["tasks/result", "tasks/list", "tasks/stream"])
def test_the_methods_of_other_tasks_are_unknown(harness: TaskHarness, method: str) -> None:
    talk = harness.ask(modern(1, method, meta(TASKS), taskId="x" * 20))
    assert talk.status == 404
    assert talk.error["code"] == -32601


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_server_without_tasks_knows_none_of_the_methods(method: str) -> None:
    harness = TaskHarness(task_app(task="never"))
    talk = harness.about(method, "x" * 20)
    assert (talk.status, talk.error["code"]) == (404, -32601)


@requirement("TASKS-S-033")
@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("name", ["", "y" * 20])
def test_the_header_names_the_task(harness: TaskHarness, method: str, name: str) -> None:
    asked = modern(1, method, meta({}), taskId="x" * 20)
    talk = harness.ask(asked, {"mcp-name": name})
    assert (talk.status, talk.error["code"]) == (400, -32020)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_header_may_be_missing(harness: TaskHarness, method: str) -> None:
    """As from fastmcp-tasks 4.1."""
    id, _ = harness.new_task()
    asked = modern(1, method, meta(TASKS), taskId=id, inputResponses={})
    assert "result" in harness.ask(asked, {"mcp-name": None}).json


@pytest.mark.parametrize("responses", [None, [], "no", {"a": 1}])
def test_input_responses_are_objects(harness: TaskHarness, responses: Any) -> None:
    id, _ = harness.new_task()
    assert harness.update(id, responses).error["code"] == -32602


@requirement("TASKS-S-006")
def test_a_result_is_not_passed_off_as_a_task(harness: TaskHarness) -> None:
    _, call = harness.new_task()
    with pytest.raises(LocalProtocolError, match="become_task"):
        harness.run_action(call.respond, {**RESULT, "resultType": "task"})


# Registration


def test_a_rule_is_no_async_function() -> None:
    async def rule(call: ServerCall) -> None: ...

    wrong: Any = rule
    with pytest.raises(LocalProtocolError, match="task must not be an async function"):
        App("a").handler("tools/call", task=wrong)


@pytest.mark.parametrize("options", [{"task": "optional"}, {"restartable": True}])
def test_only_calls_of_tools_become_tasks(options: Any) -> None:
    with pytest.raises(LocalProtocolError, match="tools/call"):
        App("a").handler("resources/read", **options)


@pytest.mark.parametrize("rule", ["sometimes", -1, True, [1]])
def test_a_rule_is_one_of_those_that_are_known(rule: Any) -> None:
    with pytest.raises(LocalProtocolError, match="task"):
        App("a").handler("tools/call", task=rule)


@pytest.mark.parametrize("settings", [{"wall_clock": None}, {"resumable": False}])
def test_tasks_need_a_clock_and_a_store(settings: Any) -> None:
    with pytest.raises(LocalProtocolError, match="wall_clock"):
        TaskHarness(**settings)


def test_an_application_with_tasks_of_its_own_keeps_them() -> None:
    app = task_app(task=None)
    app.handler(GET)(nothing)
    harness = TaskHarness(app, shared_store=True)
    harness.about(GET, "of its own")
    assert harness.last_call().request.method == GET
    app = task_app()
    app.handler(GET)(nothing)
    with pytest.raises(LocalProtocolError, match="tasks/get"):
        TaskHarness(app)


@pytest.mark.both_eras
def test_a_server_of_the_handshake_revisions_has_no_tasks() -> None:
    server = Server(task_app(), new_token=lambda: "t" * 20, versions=("2025-11-25",))
    assert not server.is_busy


@pytest.mark.both_eras
@requirement("TASKS-S-030")
def test_a_client_of_2025_11_25_gets_no_task() -> None:
    harness = TaskHarness()
    opened = harness.post(initialize("2025-11-25", TASKS))
    assert EXTENSION not in str(opened.json)
    session = harness.open_session("2025-11-25", TASKS)
    talk, call = harness.call(session)
    assert not harness.run_action(call.become_task)
    assert not call.is_task
    harness.wait(5)
    harness.run_action(call.respond, RESULT)
    assert talk.messages[-1]["result"] == RESULT
    unknown = harness.post(request(7, GET), session)
    assert unknown.json["error"]["code"] == -32601


def test_a_rule_may_leave_it_to_the_server() -> None:
    def rule(call: ServerCall) -> None:
        return None

    harness = TaskHarness(task_app(task=rule))
    _, call = harness.call_tool()
    harness.wait(5)
    assert not call.is_task


# Progress


@requirement("TASKS-S-026")
def test_progress_is_the_status_message(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    harness.wait(2)
    harness.run_action(call.progress, 1, 4)
    state = harness.get(id)
    assert state["statusMessage"] == "1 of 4"
    assert state["_meta"][PROGRESS] == {"progress": 1, "total": 4}
    assert state["lastUpdatedAt"] == "2027-01-15T08:00:02.000Z"
    harness.run_action(call.progress, 2, None, "half way")
    assert harness.get(id)["statusMessage"] == "1 of 4", "not more than once per poll interval"
    harness.run_action(call.progress, 3)
    harness.wait(1)
    assert harness.get(id)["statusMessage"] == "3"
    with pytest.raises(LocalProtocolError, match="increase"):
        call.progress(3, now=harness.now)
    assert not harness.run_action(call.notify, "notifications/message", {"level": "error"})


def test_progress_before_the_handle_goes_on_the_stream() -> None:
    harness = TaskHarness(task_app(task=1))
    about = {**meta(TASKS), "progressToken": 7}
    talk = harness.ask(modern(1, about=about))
    call = harness.entered()
    harness.run_action(call.progress, 1)
    harness.wait(1)
    assert [message.get("method") for message in talk.messages] == ["notifications/progress", None]
    assert task_id(talk)
    assert talk.ended


def test_what_is_no_json_is_not_reported(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    with pytest.raises(LocalProtocolError):
        harness.run_action(call.progress, 1, None, object())
    harness.run_action(call.progress, 1)
    assert not harness.run_action(call.disconnect)
    harness.run_action(call.respond, RESULT)
    assert harness.get(id)["statusMessage"] == "1"


def test_progress_between_two_steps_goes_both_ways() -> None:
    harness = TaskHarness(store_works=False)
    talk = harness.ask(modern(1, about={**meta(TASKS), "progressToken": 7}))
    call = harness.entered()
    assert harness.run_action(call.progress, 1)
    assert talk.messages[0]["params"]["progress"] == 1
    harness.use_store_once()
    harness.store_works = True
    id = task_id(talk)
    harness.wait(1)
    assert harness.get(id)["statusMessage"] == "1"


def test_many_reports_are_few_entries(harness: TaskHarness) -> None:
    _, call = harness.new_task()
    before = harness.store.count
    for number in range(1000):
        harness.run_action(call.progress, number)
        harness.wait(0.01)
    assert harness.store.count - before <= 11


# Input inside the task


@requirement("TASKS-S-012", "TASKS-S-019", "TASKS-S-058", "TASKS-S-052")
def test_a_task_asks_and_is_answered_one_by_one(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    harness.ask_input(call, ["state"], name=NAME, age=AGE)
    state = harness.get(id)
    assert state["status"] == "input_required"
    asked = {request["params"]["message"]: key for key, request in state["inputRequests"].items()}
    assert state["inputRequests"][asked["Name?"]]["method"] == "elicitation/create"
    acknowledged = harness.update(id, {asked["Name?"]: ADA, "unknown": {}}).json["result"]
    assert acknowledged.keys() == {"resultType", "_meta"}
    state = harness.get(id)
    assert (state["status"], list(state["inputRequests"])) == ("input_required", [asked["Age?"]])
    harness.update(id, {asked["Name?"]: {"action": "cancel"}})
    entered = len(harness.events)
    harness.update(id, {asked["Age?"]: {"action": "decline"}})
    assert len(harness.events) == entered + 1
    again = harness.entered()
    assert again.handler_input.input_responses == {"name": ADA, "age": {"action": "decline"}}
    assert again.handler_input.state == ["state"]
    assert again.request == call.request
    assert again.is_task
    assert harness.status(id) == "working"
    harness.run_action(again.respond, RESULT)
    assert harness.status(id) == "completed"
    assert harness.update(id, {asked["Age?"]: ADA}).json["result"]["resultType"] == "complete"


@requirement("TASKS-S-018")
def test_keys_are_not_used_again(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    seen: set[str] = set()
    for _ in range(32):
        harness.ask_input(call, name=NAME)
        (key,) = harness.get(id)["inputRequests"]
        assert key not in seen
        seen.add(key)
        harness.update(id, {key: ADA})
        call = harness.entered()
    with pytest.raises(LocalProtocolError, match="max_rounds"):
        harness.ask_input(call, name=NAME)


def test_a_question_that_the_client_cannot_be_asked_fails_the_task(harness: TaskHarness) -> None:
    talk, call = harness.call_tool(TASKS)
    harness.ask_input(call, name=NAME)
    error = harness.get(task_id(talk))["error"]
    assert error["code"] == -32021
    assert error["data"]["requiredCapabilities"] == {"elicitation": {"form": {}}}


def test_a_handler_may_return_a_state_alone(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    harness.ask_input(call, "step 2")
    again = harness.entered()
    assert again.handler_input.state == "step 2"
    harness.run_action(again.respond, RESULT)
    assert harness.status(id) == "completed"


@requirement("TASKS-S-050")
def test_questions_before_the_handle_are_rounds_of_the_request() -> None:
    from .harness import new_seal

    harness = TaskHarness(task_app(task="required"), state_signer=new_seal())
    talk, call = harness.call_tool()
    harness.ask_input(call, "state", name=NAME)
    asked = talk.json["result"]
    assert (asked["resultType"], "taskId" in asked) == ("input_required", False)
    rest: dict[str, Any] = {"inputResponses": {"name": ADA}, "requestState": asked["requestState"]}
    talk, call = harness.call_tool(**rest)
    assert call.handler_input.state == "state"
    harness.run_action(call.become_task)
    id = task_id(talk)
    assert "requestState" not in talk.json["result"]
    harness.ask_input(call, name=NAME)
    assert list(harness.get(id)["inputRequests"]) == ["1.name"]


def test_a_parked_task_can_be_cancelled(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    harness.ask_input(call, name=NAME)
    harness.cancel(id)
    harness.update(id, {"1.name": ADA})
    assert harness.status(id) == "cancelled"
    assert harness.entered() is call


# Clocks


@requirement("TASKS-S-034", "TASKS-S-061")
def test_a_task_can_be_read_for_its_time_to_live(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    harness.wait(3600)
    state = harness.get(id)
    assert 3600_000 < state["ttlMs"] <= 4500_000
    assert state["lastUpdatedAt"] == state["createdAt"], "a poll is no news"
    harness.run_action(call.respond, RESULT)
    assert harness.get(id)["ttlMs"] == 4500_000
    harness.wait(899)
    assert harness.status(id) == "completed"
    harness.wait(1)
    assert harness.about(GET, id).error["code"] == -32602


def test_a_task_that_takes_too_long_fails(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    harness.wait(86_399)
    assert harness.status(id) == "working"
    harness.wait(2)
    state = harness.get(id)
    assert (state["status"], state["error"]["data"]["reason"]) == ("failed", "task_timeout")
    assert harness.cancelled(call)
    assert harness.events[-1] == CallCancelled(call, "the task takes too long")


# The connection


def test_a_client_that_leaves_after_the_handle_costs_nothing(harness: TaskHarness) -> None:
    talk, call = harness.call_tool()
    talk.lose_connection()
    harness.wait(10)
    assert call.is_running
    harness.run_action(call.respond, RESULT)
    assert harness.status(task_id(talk)) == "completed"


def test_a_client_that_leaves_before_the_handle_cancels_its_call() -> None:
    harness = TaskHarness(store_works=False)
    talk, call = harness.call_tool()
    talk.lose_connection()
    assert harness.cancelled(call)
    while harness.waiting:
        harness.use_store_once()
    assert not harness.server.is_busy


def test_a_client_that_leaves_after_the_result_and_before_the_handle() -> None:
    harness = TaskHarness(store_works=False)
    talk, call = harness.call_tool()
    harness.run_action(call.respond, RESULT)
    talk.lose_connection()
    while harness.waiting:
        harness.use_store_once()
    assert not talk.ended
    assert not harness.server.is_busy


@requirement("TASKS-S-007")
def test_the_handle_waits_for_the_store() -> None:
    harness = TaskHarness(store_works=False)
    talk, call = harness.call_tool()
    harness.wait(1)
    assert not talk.messages
    assert call.is_above_high_water
    harness.use_store_once()
    assert not call.is_above_high_water
    assert task_id(talk)
