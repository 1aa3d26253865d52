"""Subscriptions to tasks: after ten states the client asks when it is told of a change."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp.events import (
    CallCompleted,
    CallFailed,
    ProtocolViolation,
    Reconnecting,
    ServerNotified,
)

from ..harness import Asked, response
from .harness import TASKS, ModernClientHarness, ModernProcess, ends, failed
from .task_harness import (
    ACKNOWLEDGED,
    CHANGED,
    COMPLETED,
    DONE,
    ID,
    INSTANCE_LOST,
    LISTEN,
    TOOL,
    about,
    acknowledge,
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


def get(harness: ModernClientHarness) -> Asked:
    """The poll that is made at once."""
    harness.wait(0)
    asked = harness.take()
    check_request(asked, "tasks/get")
    return asked


def poll_ten_times(harness: ModernClientHarness) -> None:
    for _ in range(9):
        poll(harness).result(state())
        assert harness.requests == []
    poll(harness).result(state())


def subscribe(harness: ModernClientHarness, **options: Any) -> tuple[int, Asked]:
    """A call whose task has not ended after ten states, and the request that follows."""
    call = begin(harness, **options)
    poll_ten_times(harness)
    asked = harness.take()
    assert asked.json["method"] == LISTEN == asked.header("mcp-method")
    return call, asked


def listen(harness: ModernClientHarness, **options: Any) -> tuple[int, Asked]:
    """A task of whose changes the server tells; it was asked once since."""
    call, asked = subscribe(harness, **options)
    acknowledge(asked, ID)
    get(harness).result(state())
    return call, asked


def test_the_subscription_ends_with_a_task_whose_call_is_sent_again(
    harness: ModernClientHarness,
) -> None:
    call, subscription = listen(harness, idempotent=True)
    died = state("failed", error=INSTANCE_LOST)
    subscription.event(about(subscription.id, CHANGED, **died))
    get(harness).result(died)
    (event,) = [each for each in harness.take_events() if isinstance(each, Reconnecting)]
    assert event.call == call
    assert subscription.aborted
    harness.wait(event.delay + 1e-9)
    again = harness.take()
    assert again.json["method"] == "tools/call"
    again.result(DONE)
    assert [type(end) for end in ends(harness)] == [CallCompleted]
    assert harness.client.next_deadline() is None


@requirement("TASKS-C-011", "TASKS-C-028")
def test_it_subscribes_to_the_task_and_asks_once_more(harness: ModernClientHarness) -> None:
    call, asked = subscribe(harness)
    params = asked.json["params"]
    assert params["notifications"] == {"taskIds": [ID]}
    capabilities = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    assert capabilities["extensions"][TASKS] == {}
    acknowledge(asked, ID, "another")
    get(harness).result(COMPLETED)
    assert ends(harness) == [CallCompleted(call, DONE)]
    assert asked.aborted
    assert harness.client.next_deadline() is None


def test_it_asks_when_it_is_told_and_rarely_otherwise(harness: ModernClientHarness) -> None:
    call, asked = listen(harness)
    poll(harness, 15).result(state(pollIntervalMs=20_000))
    harness.wait(3)
    asked.event(about(asked.id, CHANGED, **state(statusMessage="half")))
    get(harness).result(state(pollIntervalMs=20_000))
    poll(harness, 20).result(state())
    asked.event(about(asked.id, CHANGED, **COMPLETED))
    assert ends(harness) == []  # the state is asked for
    get(harness).result(COMPLETED)
    assert ends(harness) == [CallCompleted(call, DONE)]
    assert not any(isinstance(event, ServerNotified) for event in harness.events)


def test_a_change_while_a_request_is_in_flight_is_asked_for_afterwards(
    harness: ModernClientHarness,
) -> None:
    call, asked = listen(harness)
    in_flight = poll(harness, 15)
    for _ in range(3):
        asked.event(about(asked.id, CHANGED, **COMPLETED))
    assert harness.requests == []
    in_flight.result(state())  # from before the change
    get(harness).result(COMPLETED)
    assert ends(harness) == [CallCompleted(call, DONE)]


@pytest.mark.parametrize(
    "told",
    [
        (CHANGED, {"taskId": "another", "status": "completed"}),
        (CHANGED, {}),
        ("notifications/tools/list_changed", {}),
    ],
)
def test_other_notifications_change_nothing(
    harness: ModernClientHarness, told: tuple[str, dict[str, Any]]
) -> None:
    _, asked = listen(harness)
    method, params = told
    asked.event(about(asked.id, method, **params))
    poll(harness, 15)


@pytest.mark.parametrize("ids", [[], ["another"], "hX2-task-secret", None])
def test_a_server_that_does_not_tell_of_it_is_polled(
    harness: ModernClientHarness, ids: Any
) -> None:
    _, asked = subscribe(harness)
    asked.open_stream()
    granted = {} if ids is None else {"taskIds": ids}
    asked.event(about(asked.id, ACKNOWLEDGED, notifications=granted))
    assert asked.aborted
    for _ in range(20):
        poll(harness).result(state())


@pytest.mark.parametrize("refusal", ["unknown", "error", "invalid", 400])
def test_so_is_one_that_refuses(harness: ModernClientHarness, refusal: Any) -> None:
    call, asked = subscribe(harness)
    match refusal:
        case "unknown":
            refuse_listening(asked)
        case "error":
            asked.answer(failed(asked.id, -32602, "no"))
        case "invalid":
            asked.answer(b"{")
        case _:
            asked.refuse(refusal)
    for _ in range(20):
        poll(harness).result(state())
    assert not any(isinstance(event, ProtocolViolation | CallFailed) for event in harness.events)
    poll(harness).result(COMPLETED)
    assert ends(harness) == [CallCompleted(call, DONE)]


def test_a_subscription_that_was_completed_is_not_made_again(harness: ModernClientHarness) -> None:
    _, asked = subscribe(harness)
    acknowledge(asked, ID)
    get(harness).result(state())
    asked.event(response(asked.id, {"resultType": "complete"}))
    asked.end()
    get(harness).result(state())
    for _ in range(30):
        poll(harness).result(state())
    assert harness.requests == []


@pytest.mark.parametrize("end", ["cut", "end", 503, 429])
def test_a_subscription_that_ends_is_made_again_after_ten_states(
    harness: ModernClientHarness, end: str | int
) -> None:
    _, asked = subscribe(harness)
    if isinstance(end, int):
        asked.refuse(end, retry_after="1")
        poll_ten_times(harness)
    else:
        acknowledge(asked, ID)
        get(harness).result(state())
        if end == "cut":
            asked.cut()
        else:
            asked.end()
        get(harness).result(state())  # it may have changed
        for _ in range(9):
            assert harness.requests == []
            poll(harness).result(state())
    assert harness.take().json["method"] == LISTEN


def test_a_subscription_ends_with_its_call(harness: ModernClientHarness) -> None:
    call, asked = listen(harness)
    harness.run_command(harness.client.cancel, call)
    check_request(harness.take(), "tasks/cancel")
    assert asked.aborted


def test_a_dead_subscription_does_not_hide_the_end(harness: ModernClientHarness) -> None:
    call, _ = listen(harness, timeout=5)
    poll(harness, 15).result(COMPLETED)
    assert ends(harness) == [CallCompleted(call, DONE)]


def process_that_listens() -> tuple[ModernProcess, int, Any]:
    process = ModernProcess().connect()
    call, id = process.make(params=TOOL)
    process.say(response(id, handle_of()))
    for _ in range(10):
        process.wait(2)
        (asked,) = process.written
        process.say(response(asked["id"], state()))
    (asked,) = process.written
    assert asked["method"] == LISTEN
    process.say(about(asked["id"], ACKNOWLEDGED, notifications={"taskIds": [ID]}))
    process.wait(0)
    (polled,) = process.written
    process.say(response(polled["id"], state()))
    return process, call, asked["id"]


def test_on_stdio() -> None:
    process, call, id = process_that_listens()
    process.say(about(id, CHANGED, **COMPLETED))
    process.wait(0)
    (asked,) = process.written
    process.say(response(asked["id"], COMPLETED))
    assert ends(process) == [CallCompleted(call, DONE)]
    (cancelled,) = process.written
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"]["requestId"] == id
    process.say(response(id, {"resultType": "complete"}))  # it had ended as well
    assert not any(isinstance(event, ProtocolViolation) for event in process.events)


def test_a_server_on_stdio_may_end_it() -> None:
    process, _, id = process_that_listens()
    process.say(
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
    )
    process.wait(0)
    (asked,) = process.written
    assert asked["method"] == "tasks/get"
