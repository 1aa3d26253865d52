"""Answers that a request needs before it can be answered: asked, gathered, given with the next."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import (
    InvalidResponse,
    JsonRpcError,
    Limits,
    LocalProtocolError,
    RequestCancelled,
    RequestTimeout,
)
from sansmcp.events import CallCompleted, CallFailed, ServerRequestCancelled, ServerRequestReceived
from sansmcp.messages import Request

from ..harness import Asked, ClientHarness, error, notification, only_failure, response
from .harness import (
    MODERN,
    ModernClientHarness,
    ModernProcess,
    asked_ids,
    discovered,
    ends,
    input_required,
    mirrored,
    question,
    refused_version,
    tool,
)

requirement = pytest.mark.requirement
CAPABILITIES: dict[str, Any] = {"elicitation": {}, "roots": {}}
PARAMS = {"name": "query", "arguments": {"region": "eu"}, "_meta": {"x": 1}}
ACCEPTED = {"action": "accept", "content": {"a": "ä"}}


@pytest.fixture
def harness() -> ModernClientHarness:
    return ModernClientHarness(capabilities=CAPABILITIES).connect()


def begin(
    harness: ModernClientHarness, questions: Any = None, state: Any = None, **options: Any
) -> tuple[int, Asked]:
    """A call that is answered by questions."""
    handle, asked = harness.call(params=PARAMS, **options)
    asked.result(input_required(questions, state))
    return handle, asked


def respond(harness: ClientHarness, id: Any, result: Any = None) -> bool:
    answered = harness.run_command(harness.client.respond, id, {} if result is None else result)
    assert isinstance(answered, bool)
    return answered


def without(params: Any, *names: str) -> dict[str, Any]:
    """Parameters but for what differs from request to request."""
    kept = {name: value for name, value in params.items() if name not in names}
    meta = dict(kept.get("_meta", {}))
    meta.pop("progressToken", None)
    return {**kept, "_meta": meta}


# A round


@requirement(
    "MRTR-C-001", "MRTR-C-002", "MRTR-C-004", "MRTR-C-005", "MRTR-C-007", "MRTR-C-009", "MRTR-B-001"
)
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("state", ["opaque", '{"no":"JSON"}', "ä\u2028\n", "", None])
def test_questions_are_answered_by_the_next_request(
    harness: ModernClientHarness, streams: bool, state: str | None
) -> None:
    harness.learn(tool("query", region=mirrored("Region")))
    harness.take_events()
    handle, asked = harness.call(params=PARAMS)
    first = input_required({"k": question(message="?"), "roots": {"method": "roots/list"}}, state)
    if streams:
        asked.open_stream()
        asked.event(response(asked.id, first))
        asked.end()
    else:
        asked.result(first)
    ids = asked_ids(harness)
    assert harness.events == [
        ServerRequestReceived(handle, Request(ids[0], "elicitation/create", {"message": "?"})),
        ServerRequestReceived(handle, Request(ids[1], "roots/list", {})),
    ]
    assert respond(harness, ids[1], {"roots": []})
    assert harness.requests == []
    assert respond(harness, ids[0], ACCEPTED)
    again = harness.take()
    assert again.id != asked.id
    params = again.json["params"]
    assert params["inputResponses"] == {"k": ACCEPTED, "roots": {"roots": []}}
    assert params.get("requestState") == state
    assert without(params, "inputResponses", "requestState") == without(asked.json["params"])
    assert params["_meta"]["progressToken"] == again.id
    assert again.json["method"] == "tools/call"
    for name in ("mcp-method", "mcp-name", "mcp-param-region", "mcp-protocol-version"):
        assert again.header(name) == asked.header(name) is not None
    again.result({"resultType": "complete", "x": 1})
    assert harness.events[-1] == CallCompleted(handle, {"resultType": "complete", "x": 1})
    assert not any(respond(harness, id) for id in ids)


@requirement("MRTR-C-007", "MRTR-C-009")
def test_rounds_on_stdio() -> None:
    harness = ModernProcess(capabilities=CAPABILITIES).connect()
    handle = harness.run_command(harness.client.call, "tools/call", PARAMS)
    (first,) = harness.written
    harness.say(response(first["id"], input_required({"k": question()}, "s")))
    harness.say(response(first["id"], {}))  # once more, which is none any more
    (id,) = asked_ids(harness)
    assert harness.written == []
    respond(harness, id, ACCEPTED)
    (again,) = harness.written
    assert again["id"] != first["id"]
    assert again["params"]["inputResponses"] == {"k": ACCEPTED}
    assert again["params"]["requestState"] == "s"
    harness.say(response(again["id"]))
    assert harness.events[-1] == CallCompleted(handle, {})


@requirement("MRTR-C-003", "MRTR-C-004")
@pytest.mark.parametrize("questions", [None, {}])
def test_a_state_alone_is_brought_back_at_once(
    harness: ModernClientHarness, questions: Any
) -> None:
    handle, _ = begin(harness, questions, "s")
    again = harness.take()
    params = again.json["params"]
    assert params["requestState"] == "s"
    assert "inputResponses" not in params
    again.result()
    assert harness.events == [CallCompleted(handle, {})]


@requirement("MRTR-C-006", "MRTR-C-008")
def test_nothing_is_kept_from_round_to_round(harness: ModernClientHarness) -> None:
    handle, _ = begin(harness, {"a": question()}, "s1")
    respond(harness, asked_ids(harness)[-1], {"r": 1})
    second = harness.take()
    second.result(input_required({"b": question()}))
    respond(harness, asked_ids(harness)[-1], {"r": 2})
    third = harness.take()
    assert third.json["params"]["inputResponses"] == {"b": {"r": 2}}
    assert "requestState" not in third.json["params"]
    third.result(input_required(None, "s3"))
    fourth = harness.take()
    assert fourth.json["params"]["requestState"] == "s3"
    assert "inputResponses" not in fourth.json["params"]
    _, other = harness.call(params=PARAMS)
    assert without(other.json["params"]) == without(fourth.json["params"], "requestState")
    fourth.result()
    assert [event.call for event in ends(harness)] == [handle]


def test_questions_of_several_calls_are_told_apart(harness: ModernClientHarness) -> None:
    first, _ = begin(harness, {"k": question()})
    second, _ = begin(harness, {"k": question()})
    ids = asked_ids(harness)
    assert len(set(ids)) == 2
    respond(harness, ids[1], {"for": second})
    asked = harness.take()
    assert asked.json["params"]["inputResponses"] == {"k": {"for": second}}
    asked.result()
    respond(harness, ids[0], {"for": first})
    assert harness.take().json["params"]["inputResponses"] == {"k": {"for": first}}


def test_the_number_of_rounds_is_bounded() -> None:
    harness = ModernClientHarness(limits=Limits(max_rounds=3)).connect()
    handle, _ = begin(harness, None, "s")
    for _ in range(3):
        assert harness.events == []
        harness.take().result(input_required(None, "s"))
    failure = only_failure(harness, handle)
    assert isinstance(failure, InvalidResponse)
    assert "input requests 4 times" in str(failure)
    assert harness.requests == []


def test_nobody_is_asked_in_vain() -> None:
    harness = ModernClientHarness(limits=Limits(max_rounds=1), capabilities=CAPABILITIES).connect()
    handle, _ = begin(harness, None, "s")
    harness.take().result(input_required({"k": question()}))
    assert asked_ids(harness) == []
    assert isinstance(only_failure(harness, handle), InvalidResponse)


def test_a_round_that_is_lost_may_be_made_again(harness: ModernClientHarness) -> None:
    handle, _ = begin(harness, {"k": question()}, "s", idempotent=True)
    respond(harness, asked_ids(harness)[0], ACCEPTED)
    lost = harness.take()
    lost.cut()
    harness.wait(10)
    again = harness.take()
    assert without(again.json["params"]) == without(lost.json["params"])
    assert again.id != lost.id
    again.result()
    assert ends(harness) == [CallCompleted(handle, {})]


# What cannot be answered


@pytest.mark.parametrize(
    "result",
    [
        input_required(),
        input_required({}),
        input_required([question()]),
        input_required("k", "s"),
        input_required(None, 5),
        input_required({"k": question()}, {"a": 1}),
        input_required({"k": 5}),
        input_required({"k": {}}, "s"),
        input_required({"k": {"method": 5}}),
        input_required({"k": {"method": "roots/list", "params": []}}),
        input_required({"k": question("sampling/createMessage")}),
        input_required({"k": question("x" * 1000)}),
        input_required({"k": question(), "l": question("ping")}),
        input_required({f"k{n}": question() for n in range(1025)}),
    ],
)
@requirement("MRTR-C-001")
def test_questions_that_cannot_be_answered(harness: ModernClientHarness, result: Any) -> None:
    handle, asked = harness.call()
    asked.result(result)
    assert asked_ids(harness) == []
    failure = only_failure(harness, handle)
    assert isinstance(failure, InvalidResponse)
    assert len(str(failure)) < 200
    assert harness.requests == []
    assert harness.client.next_deadline() is None


def test_how_many_questions_are_open_is_bounded() -> None:
    limits = Limits(max_pending_calls=3)
    harness = ModernClientHarness(limits=limits, capabilities=CAPABILITIES).connect()
    begin(harness, {"a": question(), "b": question()})
    handle, _ = begin(harness, {"a": question(), "b": question()})
    assert "2 input requests, which are too many" in str(only_failure(harness, handle))


@pytest.mark.parametrize("declines", [True, False])
def test_an_error_for_an_answer_ends_the_call(harness: ModernClientHarness, declines: bool) -> None:
    handle, _ = begin(harness, {"k": question(), "l": question()}, "s")
    first, second = asked_ids(harness)
    if declines:
        harness.run_command(harness.client.refuse_unsupported, first)
    else:
        harness.run_command(
            harness.client.respond_exception, first, JsonRpcError(-5, "not now", [1])
        )
    withdrew = [event for event in harness.events if isinstance(event, ServerRequestCancelled)]
    assert [event.request_id for event in withdrew] == [second]
    failure = only_failure(harness, handle)
    assert isinstance(failure, JsonRpcError)
    assert (failure.code, failure.data) == ((-32601, None) if declines else (-5, [1]))
    assert respond(harness, second) is False
    assert harness.requests == []
    assert harness.client.next_deadline() is None


def test_an_answer_that_is_no_json_changes_nothing(harness: ModernClientHarness) -> None:
    begin(harness, {"k": question()})
    (id,) = asked_ids(harness)
    with pytest.raises(LocalProtocolError):
        harness.client.respond(id, float("inf"), now=0)
    assert respond(harness, id) is True


@pytest.mark.parametrize("message", [error(1, -32042), error(None, -32602)])
def test_a_round_may_be_answered_by_an_error(harness: ModernClientHarness, message: Any) -> None:
    handle, _ = begin(harness, None, "s")
    again = harness.take()
    if message["id"] is not None:
        message = {**message, "id": again.id}
    again.answer(message)
    assert isinstance(only_failure(harness, handle), JsonRpcError)


# While questions are open


def test_the_clocks_stand_still(harness: ModernClientHarness) -> None:
    handle, _ = begin(harness, {"a": question(), "b": question()}, timeout=5, total_timeout=20)
    first, second = asked_ids(harness)
    harness.wait(10_000)
    respond(harness, first)
    harness.wait(10_000)
    assert ends(harness) == []
    assert harness.client.next_deadline() is None
    respond(harness, second)
    asked = harness.take()
    asked.open_stream()
    for _ in range(4):
        harness.wait(4)
        asked.event(notification("notifications/progress", progressToken=asked.id, progress=1))
    harness.wait(4)
    failure = only_failure(harness, handle)
    assert isinstance(failure, RequestTimeout)
    assert "20 s in all" in str(failure)
    assert asked.aborted


@requirement("CANCEL-C-003", "CANCEL-C-005")
@pytest.mark.parametrize("closes", [True, False])
def test_cancelling_meanwhile(harness: ModernClientHarness, closes: bool) -> None:
    handle, _ = begin(harness, {"a": question(), "b": question()})
    first, second = asked_ids(harness)
    respond(harness, first)
    if closes:
        harness.run_command(harness.client.close)
    else:
        assert harness.run_command(harness.client.cancel, handle) is True
    withdrew = [
        event.request_id for event in harness.events if isinstance(event, ServerRequestCancelled)
    ]
    assert withdrew == [second]
    assert isinstance(only_failure(harness, handle), RequestCancelled)
    if not closes:
        assert respond(harness, second) is False
    assert harness.requests == []
    assert harness.client.next_deadline() is None


@requirement("CANCEL-C-005")
def test_cancelling_meanwhile_on_stdio() -> None:
    """No request is under way, so there is nothing that the server could be told."""
    harness = ModernProcess(capabilities=CAPABILITIES).connect()
    handle, id = harness.make()
    harness.say(response(id, input_required({"k": question()})))
    (asked,) = asked_ids(harness)
    # the server has no say in a question that came in a result
    harness.say(notification("notifications/cancelled", requestId=asked))
    harness.run_command(harness.client.cancel, handle)
    assert harness.written == []
    kinds = [type(event) for event in harness.events]
    assert kinds == [ServerRequestReceived, ServerRequestCancelled, CallFailed]


def test_a_process_that_ends_meanwhile() -> None:
    harness = ModernProcess(capabilities=CAPABILITIES).connect()
    handle, id = harness.make()
    harness.say(response(id, input_required({"k": question()})))
    harness.exit(1)
    assert [event.call for event in ends(harness)] == [handle]
    assert harness.closed() is not None


@pytest.mark.both_eras
def test_at_older_revisions_a_result_is_a_result_whatever_is_in_it() -> None:
    harness = ModernClientHarness(standalone_stream=False)
    harness.start().refuse(400)
    harness.initialize()
    handle, asked = harness.call()
    asked.result(input_required({"k": question()}))
    assert ends(harness) == [CallCompleted(handle, input_required({"k": question()}))]


@pytest.mark.parametrize("kind", ["input_required", "com.example/half"])
def test_a_gateway_takes_results_of_every_kind(harness: ModernClientHarness, kind: str) -> None:
    call, asked = harness.call(any_result=True)
    result = {"resultType": kind, "inputRequests": {"k": question()}, "requestState": "s"}
    asked.result(result)
    assert harness.events == [CallCompleted(call, result)]


def test_the_questions_end_when_another_call_finds_another_server(
    harness: ModernClientHarness,
) -> None:
    """The call is made again from its last request on; what it asks now is a new question."""
    handle, first = begin(harness, {"q": question()}, state="s")
    (asked_for,) = asked_ids(harness)
    other, asked = harness.call("tools/list")
    asked.answer(refused_version(asked.id, MODERN), 400)
    assert any(isinstance(event, ServerRequestCancelled) for event in harness.take_events())
    assert not respond(harness, asked_for)
    probe = harness.take()
    probe.answer(discovered(probe.id))
    again, listing = harness.requests
    harness.requests.clear()
    assert again.id > first.id
    assert "inputResponses" not in again.json["params"]
    again.result()
    listing.result({"tools": []})
    ended = [event.call for event in ends(harness)]
    assert ended == [handle, other]
