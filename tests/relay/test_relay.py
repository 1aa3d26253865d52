"""What a relay does when something is missing, comes too late, or exists at one side only."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sansmcp import (
    AuthorizationFailed,
    Client,
    Disconnected,
    InputRequest,
    InputRequired,
    InvalidResponse,
    JsonRpcError,
    Limits,
    LocalProtocolError,
    NegotiationFailed,
    ProcessEnded,
    RequestRefused,
    RequestTimeout,
    SessionLost,
    TaskCancelled,
    TaskLost,
)
from sansmcp.events import (
    CallCancelled,
    CallCompleted,
    CallFailed,
    CallReceived,
    ClientNotified,
    ClientResponseReceived,
    Closed,
    Connected,
    ListenersChanged,
    ListenReceived,
    ProgressReceived,
    ServerEvent,
    ServerNotified,
    ServerRequestCancelled,
    ServerRequestReceived,
    TaskUpdated,
)
from sansmcp.input_required import HandlerInput
from sansmcp.messages import Notification, Request
from sansmcp.meta_keys import ACKNOWLEDGED, LISTEN, LOG_LEVEL, UPDATED
from sansmcp.process import StdoutData
from sansmcp.reclaim import CANCEL as CANCEL_BY_KEY
from sansmcp.reclaim import EXTENSION as KEY_OF_CALL
from sansmcp.relay import Relay, ToolFilter, relay_app
from sansmcp.relay.ends import Audience
from sansmcp.relay.pairings import Pairing
from sansmcp.server_call import Peer, ServerCall
from sansmcp.tasks import EXTENSION

from .bench import EVERYTHING, HTTP, OFFERED, STDIO, Bench, Leg

OLD, OLD_HTTP = ("2025-11-25", STDIO), ("2025-11-25", HTTP)
NEW, NEW_HTTP = ("2026-07-28", STDIO), ("2026-07-28", HTTP)
ASK = "elicitation/create"
FORM: dict[str, Any] = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}


def ask(bench: Bench, call: ServerCall, method: str = ASK, **params: Any) -> int:
    id = call.ask(method, params or FORM, timeout=30, now=bench.now)
    bench.run()
    return id


def question(bench: Bench) -> Request:
    return bench.take(bench.down.events, ServerRequestReceived).request


def error_of(bench: Bench) -> JsonRpcError:
    end = bench.outcome()
    assert isinstance(end, CallFailed)
    assert isinstance(end.error, JsonRpcError)
    return end.error


def begun(bench: Bench, **settings: Any) -> ServerCall:
    bench.call(**settings)
    return bench.arrived()


def test_the_call_of_a_client_is_found_by_that_of_the_upstream() -> None:
    bench = Bench(OLD, OLD_HTTP)
    assert bench.relay is not None
    begun(bench)
    found = bench.relay.call_of(1)
    assert found is not None
    assert found.request.method == "tools/call"
    assert bench.relay.call_of(2) is None


# The app


def test_the_app_is_that_of_the_upstream_server_with_tasks_of_its_own() -> None:
    extensions = {EXTENSION: {}, "sansmcp/reclaim": {}, "com.example/x": {"a": 1}}
    connected = Connected(
        transport=HTTP,
        version="2026-07-28",
        server_info={"name": "n", "version": "2", "title": "t", "com.example/x": 1},
        capabilities={"tools": {}, "extensions": extensions},
        instructions="Ask.",
    )
    app = relay_app(connected)
    assert (app.name, app.version, app.instructions) == ("n", "2", "Ask.")
    assert app.server_info == connected.server_info
    assert app.capabilities == {"tools": {}, "extensions": {"com.example/x": {"a": 1}}}
    handler = app.handler_of("com.example/odd")
    assert handler is not None
    with pytest.raises(LocalProtocolError, match="Relay"):
        handler(None)


# Calls


def test_the_number_of_running_calls() -> None:
    bench = Bench(OLD, OLD)
    assert bench.relay
    calls = [begun(bench), begun(bench)]
    assert bench.relay.running == 2
    for call in calls:
        call.respond({"content": []}, now=bench.now)
    bench.run()
    assert bench.relay.running == 0


@pytest.mark.parametrize("down", [OLD, OLD_HTTP, NEW_HTTP], ids=str)
@pytest.mark.parametrize("tasks", [{"tasks": {}}, {}], ids=str)
@pytest.mark.parametrize(
    "declared", [{}, {"sampling": {}}, {"extensions": {"com.example/x": {}}}], ids=str
)
def test_a_request_declares_what_its_client_can_do(
    down: tuple[str, str], tasks: Any, declared: Any
) -> None:
    """The relay itself follows tasks; the rest is up to the client."""
    bench = Bench(down, NEW_HTTP, asked_of={**declared, **tasks})
    seen = dict(begun(bench).peer.client_capabilities)
    extensions = seen.pop("extensions")
    assert extensions.pop(EXTENSION) == {}
    assert {**seen, **({"extensions": extensions} if extensions else {})} == declared


@pytest.mark.parametrize("down", [OLD, OLD_HTTP, NEW], ids=str)
def test_one_client_cannot_take_all_calls(
    down: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can have as many as are left; each that ends makes room for another one."""
    bench = Bench(down, OLD)
    assert bench.relay is not None
    monkeypatch.setattr(Client, "limits", Limits(max_pending_calls=4))
    calls = [begun(bench), begun(bench)]
    bench.client.call("tools/call", {"name": "x"}, now=bench.now)
    while bench.down.drive():
        pass
    assert bench.relay.running == 2
    bench.run()
    if down[1] == STDIO:
        assert "nothing was run" in error_of(bench).message
    assert not bench.up.server_events
    bench.respond(calls[0], {})
    bench.take(bench.down.events, CallCompleted)
    if down[1] != STDIO:
        bench.wait(2)  # the client sends it again, as Retry-After says
    else:
        bench.call()
    bench.respond(bench.arrived(), {})
    assert isinstance(bench.outcome(), CallCompleted)


def test_a_call_that_ends_while_its_client_is_asked_counts_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(NEW, OLD)
    monkeypatch.setattr(Client, "limits", Limits(max_pending_calls=4))
    for _ in range(6):
        call = begun(bench)
        ask(bench, call)
        asked = question(bench)
        bench.respond(call, {})
        bench.client.respond(asked.id, {"action": "decline"}, now=bench.now)
        bench.run()
        assert isinstance(bench.outcome(), CallCompleted)


@pytest.mark.parametrize(("down", "code"), [(OLD, -32002), (OLD_HTTP, -32002), (NEW_HTTP, -32602)])
def test_a_resource_that_does_not_exist(down: tuple[str, str], code: int) -> None:
    """2026-07-28 has another code for it; the older clients of an older server get theirs."""
    bench = Bench(down, OLD_HTTP)
    bench.call("resources/read", {"uri": "a:b"})
    bench.arrived().respond_error(-32002, "no such resource", now=bench.now)
    bench.run()
    assert error_of(bench).code == code


MIRRORED: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string", "x-mcp-header": "A"}},
}


@pytest.mark.parametrize("up", [NEW_HTTP, OLD], ids=str)
def test_headers_that_repeat_arguments_are_checked_once_a_client_has_listed_the_tools(
    up: tuple[str, str],
) -> None:
    bench = Bench(NEW_HTTP, up, offered={"tools": {}})
    schema_of = bench.down.server.app.input_schema
    assert schema_of is not None
    twice = {**MIRRORED["properties"], "b": MIRRORED["properties"]["a"]}
    tools: list[Any] = [
        {"name": "x", "inputSchema": MIRRORED},
        {"name": "plain", "inputSchema": {"type": "object"}},
        {"name": "malformed", "inputSchema": {**MIRRORED, "properties": twice}},
        {"name": "none"},
        1,
    ]
    for listed, schema in ((tools, MIRRORED), ([{**tools[1], "name": "x"}], None)):
        bench.call("tools/list", {})
        bench.respond(bench.arrived(), {"tools": listed})
        bench.take_all(bench.down.events, CallCompleted)
        assert schema_of("x") == schema
        assert schema_of("plain") is schema_of("malformed") is schema_of("none") is None


def test_few_schemas_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sansmcp.relay.tool_filter._MAX_SCHEMAS", 2)
    bench = Bench(NEW_HTTP, NEW_HTTP, offered={"tools": {}})
    bench.call("tools/list", {})
    bench.respond(
        bench.arrived(), {"tools": [{"name": each, "inputSchema": MIRRORED} for each in "abc"]}
    )
    schema_of = bench.down.server.app.input_schema
    assert schema_of is not None
    assert [schema_of(each) is not None for each in "abc"] == [False, True, True]


def test_a_large_schema_is_not_kept() -> None:
    bench = Bench(NEW_HTTP, NEW_HTTP, offered={"tools": {}})
    large = {**MIRRORED, "description": "x" * 100_000}
    bench.call("tools/list", {})
    tools = [{"name": "a", "inputSchema": MIRRORED}, {"name": "b", "inputSchema": large}]
    bench.respond(bench.arrived(), {"tools": tools})
    schema_of = bench.down.server.app.input_schema
    assert schema_of is not None
    assert [schema_of(each) is not None for each in "ab"] == [True, False]


# Keys of calls


@pytest.mark.parametrize("down", [OLD, OLD_HTTP, NEW, NEW_HTTP], ids=str)
@pytest.mark.parametrize("up", [OLD, NEW_HTTP], ids=str)
def test_keys_of_clients_go_no_further(down: tuple[str, str], up: tuple[str, str]) -> None:
    bench = Bench(down, up)
    key = {"_meta": {KEY_OF_CALL: "..a-secret-of-a-client", "com.example/x": 1}}
    bench.call(params={"name": "x", **key})
    call = bench.arrived()
    about = (call.request.params or {})["_meta"]
    assert KEY_OF_CALL not in about
    assert about["com.example/x"] == 1
    bench.respond(call, {})
    bench.take_all(bench.down.events, CallCompleted)
    bench.call(KEY_OF_CALL, {"received": 0})
    assert error_of(bench).code == -32601
    bench.client.notify(CANCEL_BY_KEY, key, now=bench.now)
    bench.run()
    assert not bench.up.server_events


# Progress


def test_progress_that_starts_again_is_not_reported_twice() -> None:
    bench = Bench(OLD, OLD)
    call = begun(bench)
    call.progress(2, now=bench.now)
    bench.run()
    assert bench.relay is not None
    for progress in (1, 2):
        again = ProgressReceived(call=1, progress=progress)
        bench.relay.receive_client_event(again, now=bench.now)
    bench.run()
    (told,) = [each for each in bench.down.events if isinstance(each, ProgressReceived)]
    assert told.progress == 2


# Questions


@pytest.mark.parametrize("down", [OLD_HTTP, NEW_HTTP], ids=str)
@pytest.mark.parametrize("up", [OLD, OLD_HTTP], ids=str)
def test_a_question_that_the_upstream_withdraws(down: tuple[str, str], up: tuple[str, str]) -> None:
    bench = Bench(down, up)
    call = begun(bench)
    id = ask(bench, call)
    asked = question(bench)
    call.withdraw(id, "not needed", now=bench.now)
    bench.run()
    if down is OLD_HTTP:
        bench.take(bench.down.events, ServerRequestCancelled)
    else:
        bench.client.respond(asked.id, {"action": "decline"}, now=bench.now)
    bench.respond(call, {"a": 1})
    assert isinstance(bench.outcome(), CallCompleted)
    assert not bench.up.server_events


def message_of(asked: Request) -> Any:
    return (asked.params or {})["message"]


def test_the_questions_of_one_round_reach_a_modern_client_together() -> None:
    bench = Bench(NEW_HTTP, OLD_HTTP)
    call = begun(bench)
    requests = {name: InputRequest(ASK, {**FORM, "message": name}) for name in "ab"}
    bench.respond(call, InputRequired(requests, 1))
    asked = [each.request for each in bench.take_all(bench.down.events, ServerRequestReceived)]
    assert sorted(map(message_of, asked)) == ["a", "b"]
    for each in asked:
        accepted = {"action": "accept", "content": {"n": message_of(each)}}
        bench.client.respond(each.id, accepted, now=bench.now)
    bench.run()
    again = bench.arrived()
    assert [again.handler_input.input_responses[name]["content"]["n"] for name in "ab"] == [
        "a",
        "b",
    ]
    bench.respond(again, {})
    assert isinstance(bench.outcome(), CallCompleted)


@pytest.mark.parametrize("is_withdrawn", [True, False])
def test_a_question_that_comes_while_a_modern_client_gives_its_input(is_withdrawn: bool) -> None:
    """It is the next round, unless it is withdrawn before."""
    bench = Bench(NEW_HTTP, OLD_HTTP)
    call = begun(bench)
    ask(bench, call, **FORM)
    asked = question(bench)
    id = ask(bench, call, **{**FORM, "message": "and then?"})
    assert not bench.take_all(bench.down.events, ServerRequestReceived)
    if is_withdrawn:
        call.withdraw(id, "not needed", now=bench.now)
    bench.client.respond(asked.id, {"action": "decline"}, now=bench.now)
    bench.run()
    if not is_withdrawn:
        asked = question(bench)
        assert message_of(asked) == "and then?"
        bench.client.respond(asked.id, {"action": "decline"}, now=bench.now)
        bench.run()
    bench.respond(call, {"a": 1})
    assert isinstance(bench.outcome(), CallCompleted)


@pytest.mark.parametrize("others", [0, 1])
def test_a_question_that_is_withdrawn_at_once(others: int) -> None:
    bench = Bench(NEW_HTTP, OLD_HTTP)
    call = begun(bench)
    ids = [call.ask(ASK, FORM, timeout=30, now=bench.now) for _ in range(others + 1)]
    call.withdraw(ids[0], "not needed", now=bench.now)
    bench.run()
    for each in bench.take_all(bench.down.events, ServerRequestReceived):
        bench.client.respond(each.request.id, {"action": "decline"}, now=bench.now)
    assert len(bench.take_all(bench.up.server_events, ClientResponseReceived)) == 0
    bench.run()
    assert len(bench.take_all(bench.up.server_events, ClientResponseReceived)) == others
    bench.respond(call, {})
    assert isinstance(bench.outcome(), CallCompleted)
    assert not bench.down.events


@pytest.mark.parametrize("down", [NEW, NEW_HTTP], ids=str)
@pytest.mark.parametrize("up", [OLD, OLD_HTTP], ids=str)
@pytest.mark.parametrize("has_ended", [True, False])
def test_what_comes_while_a_modern_client_gives_its_input_waits_for_it(
    down: tuple[str, str], up: tuple[str, str], has_ended: bool
) -> None:
    bench = Bench(down, up)
    params = {"name": "x", "arguments": {}, "_meta": {LOG_LEVEL: "info"}}
    bench.call(params=params, wants_progress=True)
    *_, received = bench.take_all(bench.up.server_events, CallReceived)  # after the log level
    call = received.call
    call.progress(1, now=bench.now)
    ask(bench, call)
    asked = question(bench)
    assert [each.progress for each in bench.take_all(bench.down.events, ProgressReceived)] == [1]
    for progress in (2, 3):
        call.progress(progress, now=bench.now)
        call.notify("notifications/message", {"level": "info", "data": progress}, now=bench.now)
        call.notify("com.example/x", {"n": progress}, now=bench.now)
    bench.run()
    if has_ended:
        bench.respond(call, {"early": True})
    assert not bench.down.events
    bench.client.respond(asked.id, {"action": "decline"}, now=bench.now)
    bench.run()
    if not has_ended:
        bench.respond(call, {"early": False})
    *told, end = bench.down.events
    assert [
        each.progress if isinstance(each, ProgressReceived) else each.notification.method
        for each in told
        if isinstance(each, ProgressReceived | ServerNotified)
    ] == [2, "notifications/message", "com.example/x", 3, "notifications/message", "com.example/x"]
    assert isinstance(end, CallCompleted)
    assert end.result["early"] is has_ended
    assert not bench.lost


@pytest.mark.parametrize("is_progress", [True, False])
def test_so_much_waits_for_a_modern_client_that_gives_its_input(is_progress: bool) -> None:
    bench = Bench(NEW_HTTP, OLD_HTTP)
    call = begun(bench, wants_progress=True)
    ask(bench, call)
    asked, text = question(bench), "x" * 100_000
    for number in range(5):
        if is_progress:
            call.progress(number, message=text, now=bench.now)
        else:
            call.notify("com.example/x", {"n": number, "text": text}, now=bench.now)
        bench.run()
    bench.client.respond(asked.id, {"action": "decline"}, now=bench.now)
    bench.run()
    kind = ProgressReceived if is_progress else ServerNotified
    assert len(bench.take_all(bench.down.events, kind)) == 2
    bench.respond(call, {})
    assert isinstance(bench.outcome(), CallCompleted)


def test_a_modern_client_that_does_not_come_back() -> None:
    bench = Bench(NEW_HTTP, OLD_HTTP)
    call = begun(bench)
    call.ask(ASK, FORM, timeout=5000, now=bench.now)
    bench.run()
    asked = question(bench)
    bench.client.cancel(1, now=bench.now)
    bench.wait(599)
    assert call.is_running
    bench.wait(2)
    assert not call.is_running
    assert not bench.client.respond(asked.id, {}, now=bench.now)
    assert bench.relay is not None
    assert bench.relay.next_deadline() is None


def test_a_result_that_no_client_comes_back_for() -> None:
    bench = Bench(NEW, OLD)
    call = begun(bench)
    ask(bench, call)
    bench.respond(call, {"a": 1})
    assert bench.relay is not None
    assert bench.relay.next_deadline() is not None
    bench.wait(bench.down.server.limits.input_timeout + 1)
    assert bench.relay.next_deadline() is None
    assert not [e for e in bench.up.server_events if isinstance(e, CallCancelled)]


def test_a_client_that_comes_back_too_late() -> None:
    bench = Bench(NEW_HTTP, OLD_HTTP)
    call = begun(bench)
    ask(bench, call)
    asked = question(bench)
    bench.wait(0)
    assert bench.relay is not None
    bench.relay.handle_timeout(now=1000.0)
    bench.run()
    bench.client.respond(asked.id, {"action": "decline"}, now=bench.now)
    bench.run()
    assert error_of(bench).code == -32602


@pytest.mark.parametrize(
    ("down", "asked_of"),
    [
        (OLD_HTTP, {"roots": {}}),
        (NEW_HTTP, {"roots": {}}),
        (NEW_HTTP, {"elicitation": {"url": {}}}),
    ],
    ids=str,
)
def test_a_client_that_cannot_be_asked(down: tuple[str, str], asked_of: Any) -> None:
    bench = Bench(down, OLD_HTTP, asked_of=asked_of)
    call = begun(bench)
    ask(bench, call)
    (lost,) = bench.lost
    assert "elicitation" in lost
    assert bench.up.server_events  # it was told
    bench.respond(call, {})
    assert isinstance(bench.outcome(), CallCompleted)


def test_a_question_that_no_modern_client_takes() -> None:
    bench = Bench(NEW_HTTP, OLD_HTTP)
    call = begun(bench)
    ask(bench, call, "com.example/odd", a=1)
    (lost,) = bench.lost
    assert "com.example/odd" in lost


def test_a_question_of_no_call() -> None:
    bench = Bench(OLD_HTTP, OLD)
    call = begun(bench)
    bench.client.cancel(1, now=bench.now)
    assert bench.relay is not None
    stray = ServerRequestReceived(None, Request(77, "roots/list", None))
    bench.run()
    assert bench.relay.receive_client_event(stray, now=bench.now) is not None
    assert not call.is_running


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_question_ends_with_the_call_by_which_it_reached_the_client(is_cancelled: bool) -> None:
    """On stdio a question names no call: another call of the client may wait for the answer."""
    bench = Bench(OLD_HTTP, OLD)
    first, last = begun(bench), begun(bench)
    ask(bench, first)
    question(bench)
    bench.up.server_events.clear()
    if is_cancelled:
        bench.client.cancel(2, now=bench.now)
    else:
        bench.respond(last, {})
    bench.run()
    told = bench.take(bench.up.server_events, ClientResponseReceived)
    assert told.call is first


NO_PRIMING = [("2025-03-26", HTTP), ("2025-06-18", HTTP)]
"""The revisions at which a client has no event id before the first message."""


@pytest.mark.parametrize("up", [("2025-03-26", STDIO), OLD], ids=str)
@pytest.mark.parametrize("down", NO_PRIMING, ids=str)
@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_client_that_repeats_a_call_gets_its_question(
    down: tuple[str, str], up: tuple[str, str], seconds: float
) -> None:
    """The first call goes on, but its stream, if it has begun, is never read again."""
    bench = Bench(down, up)
    begun(bench, method="resources/read", params={"uri": "x:y"})
    bench.wait(seconds)
    bench.down.cut()
    bench.wait(5)
    repeated = bench.arrived()
    asked = ask(bench, repeated)
    bench.client.respond(question(bench).id, {"action": "decline"}, now=bench.now)
    bench.run()
    assert bench.take(bench.up.server_events, ClientResponseReceived).request_id == asked
    repeated.notify("com.example/x", {}, now=bench.now)
    bench.respond(repeated, {"contents": []})
    assert isinstance(bench.outcome(), CallCompleted)


@pytest.mark.parametrize("seconds", [0.0, 1.0])
@pytest.mark.parametrize("down", [*NO_PRIMING, OLD_HTTP], ids=str)
def test_what_names_no_call_goes_where_there_is_a_connection(
    down: tuple[str, str], seconds: float
) -> None:
    bench = Bench(down, OLD)
    calls = [begun(bench, timeout=5000), begun(bench, timeout=5000)]
    bench.wait(seconds)
    bench.down.lose_last()
    asked = ask(bench, calls[0])
    bench.client.respond(question(bench).id, {"action": "decline"}, now=bench.now)
    bench.run()
    assert bench.take(bench.up.server_events, ClientResponseReceived).request_id == asked


def refused(bench: Bench) -> bool:
    """Return True if a question has reached no client, and the upstream server knows it."""
    told = bench.take_all(bench.up.server_events, ClientResponseReceived)
    asked = bench.take_all(bench.down.events, ServerRequestReceived)
    lost, bench.lost = bench.lost, []
    is_refused = len(told) == len(lost) == 1
    assert is_refused != (len(asked) == 1)
    return is_refused


def test_a_question_that_names_no_call_reaches_none_of_several_clients() -> None:
    """Over HTTP at 2026-07-28 nothing says that two calls are of one client."""
    bench = Bench(NEW_HTTP, OLD)
    calls = [begun(bench), begun(bench)]
    ask(bench, calls[0])
    assert refused(bench)
    bench.respond(calls[0], {})
    ask(bench, calls[1])
    assert not refused(bench)


@pytest.mark.parametrize("down", [OLD, NEW_HTTP], ids=str)
def test_what_names_no_call_costs_as_much_however_many_calls_run(
    down: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = 0
    client: Any = vars(Pairing)["client"]

    def counted(pairing: Pairing) -> Any:
        nonlocal looked_at
        looked_at += 1
        return client.__get__(pairing)

    bench = Bench(down, OLD)
    calls = [begun(bench, timeout=5000) for _ in range(100)]
    monkeypatch.setattr(Pairing, "client", property(counted))
    for _ in range(10):
        ask(bench, calls[0])
        bench.take_all(bench.down.events, ServerRequestReceived)
    assert looked_at <= 10 * 64


def test_input_for_a_call_of_an_earlier_process_goes_to_no_other_call() -> None:
    """The key of states outlives a process with a store, and several processes can share it."""
    bench = Bench(NEW_HTTP, OLD)
    ask(bench, begun(bench))
    old = question(bench)
    bench.relay = bench.new_relay()
    call = begun(bench)
    asked = ask(bench, call)
    new = question(bench)
    bench.client.respond(old.id, {"action": "accept", "content": {}}, now=bench.now)
    bench.run()
    assert "has ended" in error_of(bench).message
    assert not bench.take_all(bench.up.server_events, ClientResponseReceived)
    bench.client.respond(new.id, {"action": "decline"}, now=bench.now)
    bench.run()
    assert bench.take(bench.up.server_events, ClientResponseReceived).request_id == asked


@pytest.mark.parametrize("why", ["cancelled", "no input", "timeout", "no longer open"])
def test_a_question_never_reaches_another_client_than_the_one_that_left(why: str) -> None:
    bench = Bench(NEW_HTTP, OLD)
    relay = bench.relay
    assert relay is not None
    leaving = begun(bench)
    if why == "no input":
        ask(bench, leaving)
        bench.take(bench.down.events, ServerRequestReceived)
        bench.wait(601)
    elif why == "timeout":
        event = CallFailed(1, RequestTimeout("late", seconds=1, method="tools/call", request_id=1))
        relay.receive_client_event(event, now=bench.now)
    elif why == "no longer open":
        for _ in range(3):
            bench.client.cancel(bench.call(), now=bench.now)
            bench.run()
            bench.up.server_events.clear()
    bench.client.cancel(1, now=bench.now)
    bench.run()
    bench.up.server_events.clear()
    bench.lost.clear()
    staying = begun(bench)
    ask(bench, staying)
    assert refused(bench)
    bench.respond(staying, {})
    bench.wait(bench.down.server.limits.input_timeout)
    ask(bench, begun(bench))
    assert not refused(bench)


@pytest.mark.parametrize("down", [OLD, OLD_HTTP, NEW], ids=str)
def test_the_only_client_can_be_asked_after_it_has_cancelled_a_call(down: tuple[str, str]) -> None:
    bench = Bench(down, OLD)
    cancelled = bench.call()
    bench.arrived()
    bench.client.cancel(cancelled, now=bench.now)
    bench.run()
    bench.up.server_events.clear()
    ask(bench, begun(bench))
    assert not refused(bench)


@pytest.mark.parametrize("is_timeout", [False, True])
def test_a_client_that_refuses_or_is_silent(is_timeout: bool) -> None:
    bench = Bench(OLD_HTTP, OLD_HTTP)
    call = begun(bench, timeout=5000)
    call.ask(ASK, FORM, timeout=5000, now=bench.now)
    bench.run()
    asked = question(bench)
    bench.up.server_events.clear()
    if is_timeout:
        bench.wait(601)
    else:
        bench.client.respond_exception(asked.id, JsonRpcError(-5, "no"), now=bench.now)
        bench.run()
    (event,) = bench.up.server_events
    with pytest.raises(JsonRpcError) as caught:
        event.result()  # type: ignore[union-attr]
    assert caught.value.code == (-32603 if is_timeout else -5)


def test_the_call_ends_while_its_question_is_open() -> None:
    bench = Bench(OLD_HTTP, OLD_HTTP)
    call = begun(bench)
    ask(bench, call)
    bench.client.cancel(1, now=bench.now)
    bench.run()
    assert bench.take(bench.up.server_events, CallCancelled).call is call


# Notifications, levels and subscriptions


@pytest.mark.parametrize("down", [OLD, OLD_HTTP, NEW_HTTP], ids=str)
@pytest.mark.parametrize("up", [OLD, OLD_HTTP], ids=str)
def test_notifications_of_the_server(down: tuple[str, str], up: tuple[str, str]) -> None:
    bench = Bench(down, up)
    call = begun(bench)
    call.notify("com.example/told", {"a": 1}, now=bench.now)
    bench.run()
    told = bench.take(bench.down.events, ServerNotified).notification
    assert told == Notification("com.example/told", {"a": 1})
    assert not bench.lost


def test_a_notification_that_reaches_nobody() -> None:
    bench = Bench(NEW_HTTP, OLD)
    bench.up.server.sessions[0].notify("com.example/told", now=bench.now)
    bench.run()
    (lost,) = bench.lost
    assert "com.example/told" in lost


def test_notifications_of_the_client() -> None:
    bench = Bench(OLD, OLD)
    bench.client.notify("com.example/told", {"a": 1}, now=bench.now)
    bench.run()
    told = bench.take(bench.up.server_events, ClientNotified).notification
    assert told == Notification("com.example/told", {"a": 1})


@pytest.mark.parametrize("method", ["tools/call", "initialize", "exit", "x/y", "tasks/cancel", ""])
def test_a_request_without_its_id_is_not_passed_on(method: str) -> None:
    """A server that looks at the method alone would run a tool, also one that is left out."""
    bench = Bench(OLD, OLD)
    bench.client.notify("com.example/told", {"a": 1}, now=bench.now)
    bench.client.notify(method, {"name": "delete_file"}, now=bench.now)
    bench.client.notify("notifications/roots/list_changed", now=bench.now)
    bench.run()
    told = bench.take_all(bench.up.server_events, ClientNotified)
    methods = [event.notification.method for event in told]
    assert methods == ["com.example/told", "notifications/roots/list_changed"]


def test_progress_is_that_of_what_the_client_was_asked() -> None:
    """Any other client of a shared session could keep a question open, and mislead the server."""
    bench = Bench(OLD, OLD_HTTP)
    call = begun(bench)
    form: Any = {**FORM, "_meta": {"progressToken": 1}}
    id = ask(bench, call, **form)
    asked = question(bench)
    ask(bench, call)
    plain = question(bench)
    own = (asked.params or {})["_meta"]["progressToken"]
    assert own != 1

    relay = bench.relay
    assert relay is not None

    def report(token: Any, peer: Peer | None = None) -> int:
        params = {"progressToken": token, "progress": 0.5}
        if peer is None:
            bench.client.notify("notifications/progress", params, now=bench.now)
        else:
            event = ClientNotified(peer, Notification("notifications/progress", params))
            assert relay.receive_server_event(event, now=bench.now) is None
        bench.run()
        told = bench.take_all(bench.up.server_events, ClientNotified)
        assert all((e.notification.params or {})["progressToken"] == 1 for e in told)
        return len(told)

    assert report(own) == 1
    assert [report(token) for token in (1, "1", True, None, f"{own}0", "")] == [0] * 6
    (another,) = bench.up.server.sessions
    assert report(own, another) == 0
    bench.client.respond(asked.id, {"action": "decline"}, now=bench.now)
    bench.client.respond(plain.id, {"action": "decline"}, now=bench.now)
    bench.run()
    answers = bench.take_all(bench.up.server_events, ClientResponseReceived)
    assert answers[0].request_id == id
    assert report(own) == 0


def test_progress_of_what_one_server_asked_is_of_nothing_that_another_one_asked() -> None:
    """Both may have given it the same token."""
    bench = Bench(OLD, OLD_HTTP)
    relays = [bench.new_relay(name=name) for name in ("one", "two")]
    tokens: list[str] = []
    for relay in relays:
        bench.relay = relay
        form: Any = {**FORM, "_meta": {"progressToken": 1}}
        ask(bench, begun(bench), **form)
        tokens.append((question(bench).params or {})["_meta"]["progressToken"])
    report = Notification("notifications/progress", {"progressToken": tokens[0], "progress": 0.5})
    event = ClientNotified(bench.down.server.sessions[0], report)
    for relay, times in zip(relays, (1, 0), strict=True):
        assert relay.receive_server_event(event, now=bench.now) is None
        bench.run()
        assert len(bench.take_all(bench.up.server_events, ClientNotified)) == times


def test_nothing_can_be_asked_of_an_upstream_that_is_closed() -> None:
    bench = Bench(OLD, OLD)
    bench.up.client.close(now=bench.now)
    bench.run()
    bench.call()
    assert "cannot be asked" in error_of(bench).message
    bench.client.notify("com.example/told", now=bench.now)
    bench.run()
    assert "com.example/told" in bench.lost[0]


def test_no_resource_of_an_upstream_that_is_closed_can_be_subscribed_to() -> None:
    bench = Bench(OLD, NEW_HTTP)
    bench.up.client.close(now=bench.now)
    bench.call("resources/subscribe", {"uri": "a:b"})
    assert error_of(bench).message == "The upstream server cannot be asked: it is not connected"


def test_an_upstream_that_ends_ends_its_calls() -> None:
    bench = Bench(OLD, OLD)
    begun(bench)
    bench.up.client.close("the gateway restarts", now=bench.now)
    bench.run()
    message = error_of(bench).message
    assert "gave no result" in message
    assert "was cancelled: the gateway restarts" in message


ABOUT: Any = {"method": "tools/call", "request_id": 1}
REFUSED: Any = {"http_method": "POST", "url": "SECRET", "reason": None, "body": b"SECRET"}
ENDED = ProcessEnded("SECRET", status=1, log=("SECRET",))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ENDED, "its process has ended"),
        (Disconnected("SECRET"), "outcome is unknown"),
        (Disconnected("SECRET", was_sent=False), "the call was not sent"),
        (RequestTimeout("SECRET", seconds=1.0, lines=["SECRET"], **ABOUT), "in time"),
        (SessionLost("SECRET"), "has ended the session"),
        (RequestRefused("SECRET", status=503, **REFUSED, **ABOUT), "with status 503"),
        (AuthorizationFailed("SECRET", reason="no_tokens"), "requires authorization"),
        (InvalidResponse("SECRET"), "breaks the protocol"),
        (NegotiationFailed("SECRET", lines=["SECRET"]), "no transport or revision"),
        (TaskCancelled("SECRET"), "was cancelled"),
        (TaskLost("SECRET"), "is lost"),
        (LocalProtocolError("SECRET"), "cannot be used"),
        (OSError("SECRET"), "cannot be used"),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Exception) else "",
)
def test_the_text_of_an_exception_is_for_the_log(error: Any, reason: str) -> None:
    """It has what a process printed, bodies and URLs; each client may read what it gets."""
    bench = Bench(OLD, OLD)
    begun(bench)
    assert bench.relay is not None
    handle = 1
    while bench.relay.running:
        lost = bench.relay.receive_client_event(CallFailed(handle, error), now=bench.now)
        bench.lost += [lost] if lost else []
        handle += 1
    bench.run()
    message = error_of(bench).message
    assert reason in message
    assert "SECRET" not in message
    assert "SECRET" in bench.lost[0]


def test_a_client_that_has_failed_says_once_what_its_process_printed() -> None:
    bench = Bench(OLD, OLD)
    begun(bench)
    assert bench.relay is not None
    error = Disconnected("SECRET")
    error.__cause__ = ENDED
    handle = 1
    while bench.relay.running:
        assert bench.relay.receive_client_event(CallFailed(handle, error), now=bench.now) is None
        handle += 1
    bench.run()
    assert error_of(bench).message.endswith("its process has ended and the outcome is unknown")


# Tasks


def task_of(bench: Bench) -> tuple[int, ServerCall]:
    """Make a call that becomes a task of the upstream server; return its handle and the call."""
    handle = bench.call(wants_progress=False)
    call = bench.arrived()
    assert call.become_task(now=bench.now)
    bench.run()
    assert call.is_task
    return handle, call


@pytest.mark.parametrize("down", [OLD, OLD_HTTP, NEW, NEW_HTTP], ids=str)
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_task_of_the_upstream_server(down: tuple[str, str], is_cancelled: bool) -> None:
    """A client that can follow tasks gets one of the relay's server, the others a plain call."""
    bench = Bench(down, NEW_HTTP, tasks=True)
    handle, call = task_of(bench)
    told = bench.take_all(bench.down.events, TaskUpdated)
    assert len(told) == (down in (NEW, NEW_HTTP))
    bench.wait(20)
    assert call.is_running
    if is_cancelled:
        bench.client.cancel(handle, now=bench.now)
        bench.wait(5)
        assert not call.is_running
        return
    bench.respond(call, {"a": 1})
    bench.wait(10)
    end = bench.outcome()
    assert isinstance(end, CallCompleted)
    assert end.result["a"] == 1


def test_a_task_survives_its_connection_and_asks_for_input() -> None:
    bench = Bench(NEW_HTTP, NEW_HTTP, tasks=True)
    _, call = task_of(bench)
    bench.down.cut()
    bench.wait(5)
    bench.respond(call, InputRequired({"who": InputRequest(ASK, FORM)}, "s"))
    bench.wait(10)
    accepted: dict[str, Any] = {"action": "accept", "content": {}}
    bench.client.respond(question(bench).id, accepted, now=bench.now)
    bench.wait(10)
    again = bench.arrived()
    assert dict(again.handler_input.input_responses) == {"who": accepted}
    bench.respond(again, {"a": 1})
    bench.wait(10)
    end = bench.outcome()
    assert isinstance(end, CallCompleted)
    assert end.result["a"] == 1
    assert not bench.lost


def test_the_task_of_a_call_that_no_client_made() -> None:
    bench = Bench(NEW_HTTP, NEW_HTTP)
    assert bench.relay is not None
    other = TaskUpdated(call=99, task_id="t", status="working", message=None)
    assert bench.relay.receive_client_event(other, now=0.0) is None


def test_the_tasks_of_2025_11_25_are_calls_like_others() -> None:
    """Their requests and results are relayed between clients and servers that both have them."""
    bench = Bench(OLD_HTTP, OLD, offered={"tasks": {"list": {}}})
    task = {"task": {"taskId": "t", "status": "working"}}
    bench.call("tools/call", {"name": "x", "task": {"ttl": 1}})
    call = bench.arrived()
    assert (call.request.params or {})["task"] == {"ttl": 1}
    bench.respond(call, task)
    end = bench.outcome()
    assert isinstance(end, CallCompleted)
    assert end.result == task
    bench.call("tasks/result", {"taskId": "t"})
    bench.respond(bench.arrived(), {"content": []})
    assert isinstance(bench.outcome(), CallCompleted)


def test_the_level_of_an_old_client_comes_with_each_call_to_a_new_server() -> None:
    bench = Bench(OLD, NEW)
    bench.call("logging/setLevel", {"level": "warning"})
    assert isinstance(bench.outcome(), CallCompleted)
    call = begun(bench)
    assert call.request.params is not None
    assert call.request.params["_meta"][LOG_LEVEL] == "warning"


@pytest.mark.parametrize("params", [{}, {"level": "loud"}, {"level": ["error"]}])
def test_a_wrong_level_is_refused_and_does_not_fail_the_calls_of_others(params: Any) -> None:
    bench = Bench(OLD, NEW)
    bench.call("logging/setLevel", params)
    assert error_of(bench).code == -32602
    assert LOG_LEVEL not in (begun(bench).request.params or {}).get("_meta", {})


def test_a_wrong_level_is_left_to_an_old_server() -> None:
    bench = Bench(OLD, OLD)
    bench.call("logging/setLevel", {"level": "loud"})
    assert (bench.arrived().request.params or {})["level"] == "loud"


@pytest.mark.parametrize("offers", [True, False])
def test_the_level_of_a_new_client_is_set_at_an_old_server(offers: bool) -> None:
    bench = Bench(NEW, OLD, offered=OFFERED if offers else {"tools": {}})
    for _ in range(2):
        bench.call(meta={LOG_LEVEL: "error"})
    found = [e.call.request for e in bench.up.server_events if isinstance(e, CallReceived)]
    levels = [request.params for request in found if request.method == "logging/setLevel"]
    assert len(found) - len(levels) == 2
    assert [params["level"] for params in levels if params] == ["error"] * offers


def test_subscriptions_of_an_old_client_at_a_new_server() -> None:
    bench = Bench(OLD, NEW)
    for _ in range(2):
        bench.call("resources/subscribe", {"uri": "a:b"})
        assert isinstance(bench.outcome(), CallCompleted)
    for is_told in (True, False):
        bench.up.server.publish("notifications/resources/updated", {"uri": "a:b"}, now=bench.now)
        bench.run()
        told = [event for event in bench.down.events if isinstance(event, ServerNotified)]
        assert len(told) == is_told
        bench.down.events.clear()
        bench.call("resources/unsubscribe", {"uri": "a:b"})
        assert isinstance(bench.outcome(), CallCompleted)
    assert not bench.lost


def uris_of(bench: Bench, method: str) -> list[str]:
    """Respond to the calls at the upstream server, and return the resources that they name."""
    calls = [e.call for e in bench.take_all(bench.up.server_events, CallReceived)]
    for each in calls:
        each.respond({}, now=bench.now)
    bench.run()
    return [str((c.request.params or {}).get("uri")) for c in calls if c.request.method == method]


def test_a_new_client_that_listens_is_subscribed_at_an_old_server() -> None:
    bench = Bench(NEW_HTTP, OLD)
    filters = (["a:b", "a:c"], ["a:b"])
    handles = [bench.call("subscriptions/listen", listen_to(uris)) for uris in filters]
    assert uris_of(bench, "resources/subscribe") == ["a:b", "a:c"]
    bench.client.cancel(handles[0], now=bench.now)
    bench.run()
    assert uris_of(bench, "resources/unsubscribe") == ["a:c"]


def test_a_new_client_that_listens_to_several_resources_has_one_listener_at_a_new_server() -> None:
    bench = Bench(NEW_HTTP, NEW_HTTP)
    listener = bench.call("subscriptions/listen", listen_to(["a:b", "a:c"]))
    assert bench.up.server.listened_resources == {"a:b", "a:c"}
    bench.client.cancel(listener, now=bench.now)
    bench.run()
    assert not bench.up.server.listened_resources


def test_a_listener_for_several_resources_lives_until_its_last_client_has_gone() -> None:
    bench = Bench(NEW_HTTP, NEW_HTTP)
    both, one = (bench.call(LISTEN, listen_to(uris)) for uris in (["a:b", "a:c"], ["a:b"]))

    def told() -> int:
        bench.down.events.clear()
        bench.up.server.publish(UPDATED, {"uri": "a:b"}, now=bench.now)
        bench.run()
        return len(bench.take_all(bench.down.events, ServerNotified))

    assert told() == 2
    bench.client.cancel(both, now=bench.now)
    bench.run()
    assert told() == 1
    bench.client.cancel(one, now=bench.now)
    bench.run()
    assert not bench.up.server.listened_resources


@pytest.mark.parametrize("upstream", [NEW_HTTP, OLD])
def test_clients_that_come_and_go_cost_what_they_send(
    upstream: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many resources others listen to: these are not all gathered for each client."""
    gathered = 0
    resources: Any = vars(Audience)["resources"]

    def counted(audience: Audience) -> Any:
        nonlocal gathered
        found = resources.fget(audience)
        gathered += len(found)
        return found

    monkeypatch.setattr("sansmcp.relay.subscriptions._FEW", 10)
    monkeypatch.setattr(Audience, "resources", property(counted))
    bench = Bench(NEW_HTTP, upstream)
    handles = [
        bench.call(LISTEN, listen_to([f"a:{client}.{number}" for number in range(20)]))
        for client in range(30)
    ]
    for each in bench.take_all(bench.up.server_events, CallReceived):
        each.call.respond({}, now=bench.now)
    bench.run()
    for handle in handles:
        bench.client.cancel(handle, now=bench.now)
        bench.run()
    bench.wait(60)
    assert not bench.up.server.listened_resources
    assert gathered < 3 * 600


@pytest.mark.parametrize("leaves", [False, True])
def test_subscriptions_leave_room_for_calls(leaves: bool) -> None:
    """At a server that does not answer them, and as many as it answers go on."""
    bench = Bench(NEW_HTTP, OLD)
    asked: list[ServerCall] = []
    uris = [f"a:{number}" for number in range(500)]
    handles = [bench.call(LISTEN, listen_to(uris[start : start + 250])) for start in (0, 250)]

    def take() -> None:
        asked.extend(each.call for each in bench.take_all(bench.up.server_events, CallReceived))

    take()
    assert len(asked) == 100
    bench.wait(31)
    take()
    assert len(asked) == 200
    if leaves:
        for handle in handles:
            bench.client.cancel(handle, now=bench.now)
        bench.run()
        assert not bench.take_all(bench.up.server_events, CallReceived)
        return
    while len(asked) < 500:
        before = len(asked)
        for call in asked[-100:]:
            call.respond({}, now=bench.now)
        bench.run()
        take()
        assert before < len(asked) <= before + 100
    assert {(call.request.params or {})["uri"] for call in asked} == {*uris}


def test_a_client_that_subscribes_again_keeps_its_subscription() -> None:
    """Though requests that unsubscribe from it, and from others, still wait."""
    bench = Bench(OLD, OLD)
    uris = [f"a:{number}" for number in range(110)]
    waiting: list[ServerCall] = []
    ended: list[str] = []

    def subscribe(uri: str) -> None:
        bench.call("resources/subscribe", {"uri": uri})
        for event in bench.take_all(bench.up.server_events, CallReceived):
            event.call.respond({}, now=bench.now)
        bench.run()

    def take() -> None:
        for event in bench.take_all(bench.up.server_events, CallReceived):
            assert event.call.request.method == "resources/unsubscribe"
            ended.append((event.call.request.params or {})["uri"])
            waiting.append(event.call)

    for uri in uris:
        subscribe(uri)
    for uri in uris:
        bench.call("resources/unsubscribe", {"uri": uri})
        take()
    assert len(ended) == 100
    again = next(uri for uri in uris if uri not in ended)
    subscribe(again)
    for call in waiting[:100]:
        call.respond({}, now=bench.now)
    bench.run()
    take()
    assert sorted(ended) == sorted({*uris} - {again})
    bench.call("resources/unsubscribe", {"uri": again})
    take()
    assert ended[-1] == again


@pytest.mark.parametrize("upstream", [OLD, NEW_HTTP], ids=str)
def test_what_the_upstream_server_refuses_is_asked_for_once(
    upstream: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often other clients come and go, and nothing of it stays open."""
    bench = Bench(NEW_HTTP, upstream, offered={"resources": {"subscribe": True}})
    bench.up.server.app.confirms_listeners = True
    asked: list[str] = []
    receive = Relay.receive_server_event

    def as_one_of_several(relay: Relay, event: ServerEvent, *, now: float) -> str | None:
        if isinstance(event, ListenReceived):
            event.request.acknowledge(event.request.uris, now=now)
            return None
        return receive(relay, event, now=now)

    monkeypatch.setattr(Relay, "receive_server_event", as_one_of_several)
    left: list[str] = []
    cancel = Client.cancel

    def noted(client: Client, handle: int, reason: str = "", *, now: float) -> bool:
        if client is bench.up.client:
            left.append(reason)
        return cancel(client, handle, reason, now=now)

    monkeypatch.setattr(Client, "cancel", noted)

    def refuse() -> None:
        for event in bench.take_all(bench.up.server_events, CallReceived):
            if event.call.request.method == "resources/subscribe":
                asked.append((event.call.request.params or {})["uri"])
            event.call.respond_error(-32602, "no such resource", now=bench.now)
        for each in bench.take_all(bench.up.server_events, ListenReceived):
            asked.extend(each.request.uris)
            each.request.acknowledge((), now=bench.now)
        bench.run()

    bench.call(LISTEN, listen_to([f"a:{number}" for number in range(20)]))
    refuse()
    for number in range(10):
        handle = bench.call(LISTEN, listen_to([f"b:{number}"]))
        refuse()
        bench.client.cancel(handle, now=bench.now)
        bench.run()
        refuse()
    bench.wait(1)
    assert sorted(asked) == sorted({*asked})
    assert len(asked) == 30
    is_listened = upstream == NEW_HTTP
    assert left == ["no resource was agreed to"] * (11 if is_listened else 0)
    assert bench.relay
    changed = ServerNotified(None, Notification("notifications/resources/list_changed"))
    bench.relay.receive_client_event(changed, now=bench.now)
    bench.call(LISTEN, listen_to(["c:1"]))
    refuse()
    assert len(asked) == 51  # the server may have those that it has refused by now


def test_a_resource_is_used_again_before_it_was_unsubscribed_from() -> None:
    bench = Bench(NEW_HTTP, OLD)
    uris = [f"a:{number}" for number in range(110)]

    def take() -> list[tuple[str, str]]:
        calls = [each.call for each in bench.take_all(bench.up.server_events, CallReceived)]
        asked = [(each.request.method, (each.request.params or {})["uri"]) for each in calls]
        waiting.extend(calls)
        return asked

    waiting: list[ServerCall] = []
    handle = bench.call(LISTEN, listen_to(uris))
    while len(waiting) < 110:
        take()
        for call in waiting:
            call.respond({}, now=bench.now)
        bench.run()
    bench.client.cancel(handle, now=bench.now)
    bench.run()
    ended = {uri for _, uri in take()}
    assert len(ended) == 100
    (again, *_) = {*uris} - ended
    bench.call(LISTEN, listen_to([again]))
    for call in waiting:
        call.respond({}, now=bench.now)
    bench.run()
    asked = take()
    assert {method for method, _ in asked} == {"resources/unsubscribe"}
    assert {uri for _, uri in asked} == {*uris} - ended - {again}


def test_while_clients_listen_to_many_resources_others_are_dropped_a_little_later() -> None:
    bench = Bench(NEW_HTTP, NEW_HTTP)
    bench.call(LISTEN, listen_to([f"a:{number}" for number in range(1000)]))
    one = bench.call(LISTEN, listen_to(["b:c"]))
    bench.client.cancel(one, now=bench.now)
    bench.run()
    assert "b:c" in bench.up.server.listened_resources
    bench.wait(1)
    assert "b:c" not in bench.up.server.listened_resources
    assert len(bench.up.server.listened_resources) == 1000


def test_clients_wait_together_for_a_server_that_does_not_answer_a_subscription() -> None:
    bench = Bench(NEW_HTTP, OLD)
    for _ in range(2):
        bench.call(LISTEN, listen_to(["a:b"]))
    assert not bench.down.server.listened_resources
    bench.wait(6)
    assert bench.down.server.listened_resources == {"a:b"}


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_the_id_of_an_upstream_subscription_stays_upstream(version: str) -> None:
    bench = Bench((version, STDIO), NEW_HTTP)
    bench.call("resources/subscribe", {"uri": "a:b"})
    assert isinstance(bench.outcome(), CallCompleted)
    bench.up.server.publish(UPDATED, {"uri": "a:b"}, now=bench.now)
    bench.run()
    told = bench.take(bench.down.events, ServerNotified)
    assert told.notification == Notification(UPDATED, {"uri": "a:b"})


def subscribed(bench: Bench) -> set[str]:
    """The resources of whose changes the client is told."""
    (session,) = bench.down.server.sessions or (None,)
    return set(bench.down.server.listened_resources if session is None else session.subscriptions)


@pytest.mark.parametrize("happens", ["agrees", "refuses", "is silent", "is gone"])
def test_a_subscription_is_acknowledged_when_the_server_has_agreed(happens: str) -> None:
    bench = Bench(NEW_HTTP, OLD)
    listener = bench.call(LISTEN, listen_to(["a:b", "a:c"]))
    one, two = (e.call for e in bench.take_all(bench.up.server_events, CallReceived))
    bench.respond(one, {})
    assert not subscribed(bench)
    if happens == "agrees":
        bench.respond(two, {})
    elif happens == "refuses":
        two.respond_error(-32602, "no", now=bench.now)
        bench.run()
    elif happens == "is silent":
        bench.wait(5)
    else:
        bench.client.cancel(listener, now=bench.now)
        bench.respond(two, {})
        assert sorted(uris_of(bench, "resources/unsubscribe")) == ["a:b", "a:c"]
    expected = {"refuses": {"a:b"}, "is gone": set[str]()}
    assert subscribed(bench) == expected.get(happens, {"a:b", "a:c"})


def always_77(*arguments: Any, **settings: Any) -> int:
    return 77


@pytest.mark.parametrize("down", [OLD_HTTP, NEW_HTTP], ids=str)
@pytest.mark.parametrize("agreed", [["a:b"], [], None, [1]], ids=str)
def test_a_new_server_agrees_to_some_resources_only(down: tuple[str, str], agreed: Any) -> None:
    bench = Bench(down, NEW_HTTP)
    assert bench.relay is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.up.client, "call", always_77)
        if down is NEW_HTTP:
            bench.call(LISTEN, listen_to(["a:b", "a:c"]))
        else:
            bench.call("resources/subscribe", {"uri": "a:b"})
        told = Notification(ACKNOWLEDGED, {"notifications": {"resourceSubscriptions": agreed}})
        bench.relay.receive_client_event(ServerNotified(77, told), now=bench.now)
        bench.run()
    assert subscribed(bench) == ({"a:b"} if agreed == ["a:b"] else set())
    if down is OLD_HTTP and agreed != ["a:b"]:
        assert "does not tell of changes" in error_of(bench).message


@pytest.mark.parametrize("up", [OLD, NEW_HTTP], ids=str)
def test_what_may_have_changed_while_nothing_was_subscribed_is_told(up: tuple[str, str]) -> None:
    """Once for each resource and list, when the server has agreed again."""
    bench = Bench(OLD, up)
    bench.call("resources/subscribe", {"uri": "a:b"})
    for event in bench.take_all(bench.up.server_events, CallReceived):
        bench.respond(event.call, {})
    bench.outcome()
    bench.restart_upstream()
    bench.wait(10)
    for event in bench.take_all(bench.up.server_events, CallReceived):
        bench.respond(event.call, {})
    bench.run()
    told = [each.notification for each in bench.take_all(bench.down.events, ServerNotified)]
    assert told.count(Notification(UPDATED, {"uri": "a:b"})) == 1
    assert len([each for each in told if each.method != UPDATED]) == 3


def test_a_refusal_of_a_subscription_that_worked_before_is_no_change() -> None:
    bench = Bench(OLD_HTTP, OLD)
    bench.call("resources/subscribe", {"uri": "a:b"})
    bench.respond(bench.arrived(), {})
    bench.restart_upstream()
    bench.wait(10)
    again = bench.arrived()
    again.respond_error(-32602, "no", now=bench.now)
    bench.run()
    told = [each.notification for each in bench.take_all(bench.down.events, ServerNotified)]
    assert UPDATED not in [each.method for each in told]


def test_the_listeners_of_a_relay_of_one_session_are_not_those_of_other_clients() -> None:
    bench = Bench(OLD_HTTP, NEW_HTTP)
    relay = Relay(bench.down.server, bench.up.client, session=bench.down.server.sessions[0])
    assert relay.receive_server_event(ListenersChanged(), now=0.0) is None


def listen_to(uris: list[str]) -> dict[str, Any]:
    return {"notifications": {"resourceSubscriptions": uris}}


def test_a_listener_that_the_server_ends_is_replaced() -> None:
    bench = Bench(NEW_HTTP, NEW_HTTP)
    bench.call("subscriptions/listen", listen_to(["a:b"]))
    bench.up.server.enter_lame_duck(now=bench.now)
    bench.run()
    assert bench.up.server.listened_resources == {"a:b"}
    assert bench.relay is not None
    failed = CallFailed(2, JsonRpcError(-1, "no"))
    for event in (CallCompleted(1, {}), failed):
        bench.relay.receive_client_event(event, now=bench.now)
    bench.wait(6)
    bench.up.server.publish("notifications/tools/list_changed", now=bench.now)
    bench.run()


def test_a_listener_that_gets_nothing_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server offers changes and honours none, for this user perhaps."""
    bench = Bench(NEW_HTTP, NEW_HTTP)
    relay, upstream = bench.relay, bench.up.client
    assert relay is not None
    made: list[Any] = []
    call = upstream.call

    def counted(method: str, params: Any = None, **settings: Any) -> int:
        made.append(params["notifications"])
        return call(method, params, **settings)

    monkeypatch.setattr(upstream, "call", counted)
    bench.up.server.app.capabilities = {"tools": {}, "resources": {}}
    relay.receive_client_event(CallCompleted(1, {}), now=bench.now)
    bench.wait(6)
    assert len(made) == 1
    bench.call(LISTEN, listen_to(["a:b"]))
    assert isinstance(bench.outcome(), CallCompleted)
    assert made[1:] == [listen_to(["a:b"])["notifications"]]
    relay.receive_server_event(ListenersChanged(), now=bench.now)
    bench.wait(60)
    assert len(made) == 2

    bench.up.server.app.capabilities = OFFERED
    relay.connected(bench.connected, now=bench.now)  # another session may get some
    bench.run()
    bench.up.server.publish("notifications/prompts/list_changed", now=bench.now)
    bench.run()
    assert "notifications/prompts/list_changed" in [e.notification.method for e in bench.told]


def test_subscriptions_that_have_to_wait_for_running_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(NEW_HTTP, OLD)

    def refuse(*arguments: Any, **settings: Any) -> int:
        raise LocalProtocolError("too many")

    with monkeypatch.context() as full:
        full.setattr(bench.up.client, "call", refuse)
        listener = bench.call("subscriptions/listen", listen_to(["a:b"]))
    assert not uris_of(bench, "resources/subscribe")
    bench.wait(6)
    assert uris_of(bench, "resources/subscribe") == ["a:b"]
    with monkeypatch.context() as full:
        full.setattr(bench.up.client, "call", refuse)
        bench.client.cancel(listener, now=bench.now)
        bench.run()
    assert not uris_of(bench, "resources/unsubscribe")


def test_a_session_that_ends_is_subscribed_to_nothing() -> None:
    bench = Bench(OLD_HTTP, NEW)
    bench.call("resources/subscribe", {"uri": "a:b"})
    (session,) = bench.down.server.sessions
    bench.down.server.end_session(session, "gone", now=bench.now)
    bench.run()
    bench.up.server.publish("notifications/resources/updated", {"uri": "a:b"}, now=bench.now)
    bench.run()
    assert UPDATED not in [e.notification.method for e in bench.told]
    assert bench.relay is not None
    bench.relay.connected(
        Connected(
            transport=STDIO, version="2026-07-28", server_info={}, capabilities={"tools": {}}
        ),
        now=bench.now,
    )


def test_a_new_session_of_the_upstream_listens_again() -> None:
    bench = Bench(OLD, NEW)
    relay = bench.relay
    assert relay is not None
    again = Connected(
        transport=STDIO, version="2026-07-28", server_info={}, capabilities=dict(OFFERED)
    )
    relay.receive_client_event(again, now=0.0)  # it listens already
    relay.receive_client_event(CallCompleted(1, {}), now=0.0)
    relay.receive_client_event(again, now=0.0)
    bench.run()
    bench.up.server.publish("notifications/prompts/list_changed", now=bench.now)
    bench.run()
    told = [
        each.notification.method for each in bench.down.events if isinstance(each, ServerNotified)
    ]
    # Two listeners, since the first has not ended at the server; and what may have been missed.
    assert told.count("notifications/prompts/list_changed") == 3
    assert told.count("notifications/tools/list_changed") == 1


# Results


def test_a_result_that_a_revision_does_not_have() -> None:
    bench = Bench(NEW, OLD)
    begun(bench)
    upstream_result(bench, [1])
    assert "cannot be sent" in error_of(bench).message


@pytest.mark.parametrize("meta", [None, {"com.example/x": 1}])
def test_an_old_client_gets_nothing_that_only_2026_07_28_has(meta: Any) -> None:
    bench = Bench(OLD, NEW)
    result = {"a": 1} if meta is None else {"a": 1, "_meta": meta}
    bench.respond(begun(bench), result)
    end = bench.outcome()
    assert isinstance(end, CallCompleted)
    assert end.result == result


def test_an_old_client_gets_a_result_without_a_server_as_it_is() -> None:
    bench = Bench(OLD, NEW)
    begun(bench)
    upstream_result(bench, {"resultType": "complete", "_meta": {"a": 1}}, handle=2)
    end = bench.outcome()
    assert isinstance(end, CallCompleted)
    assert end.result == {"_meta": {"a": 1}}


def test_a_client_that_comes_back_without_its_input_is_asked_again() -> None:
    bench = Bench(NEW, OLD)
    call = begun(bench)
    ask(bench, call)
    bench.client.respond(question(bench).id, {"action": "accept"}, now=bench.now)
    while bench.down.drive():
        pass
    (event,) = bench.down.server_events
    assert isinstance(event, CallReceived)
    without = HandlerInput({}, event.call.handler_input.state)
    setattr(event.call, "handler_input", without)  # noqa: B010 (an attribute of the machine's call)
    bench.run()
    bench.client.respond(question(bench).id, {"action": "decline"}, now=bench.now)
    bench.run()
    bench.respond(call, {})
    assert isinstance(bench.outcome(), CallCompleted)


# Results of other kinds, between a client and a server of 2026-07-28


@pytest.mark.parametrize("state", ["s", None])
def test_a_request_for_input_is_handed_on_and_nothing_is_kept(state: Any) -> None:
    """Another relay, of another process, can take the second round."""
    bench = Bench(NEW_HTTP, NEW_HTTP)
    first = begun(bench)
    bench.respond(first, InputRequired({"who": InputRequest(ASK, FORM)}, state))
    assert not first.is_running
    assert bench.relay is not None
    assert bench.relay.next_deadline() is None
    asked = question(bench)
    assert asked.params == FORM
    bench.relay = Relay(bench.down.server, bench.up.client)
    bench.client.respond(asked.id, {"action": "decline"}, now=bench.now)
    bench.run()
    again = bench.arrived()
    assert again.handler_input.state == state
    assert dict(again.handler_input.input_responses) == {"who": {"action": "decline"}}
    bench.respond(again, {"a": 1})
    end = bench.outcome()
    assert isinstance(end, CallCompleted)
    assert end.result["a"] == 1


@pytest.mark.parametrize("up", [OLD_HTTP, NEW_HTTP], ids=str)
@pytest.mark.parametrize("is_other", [True, False])
def test_input_for_one_upstream_server_never_goes_to_another(
    up: tuple[str, str], is_other: bool
) -> None:
    bench = Bench(NEW_HTTP, up)
    two, one = bench.new_relay(name="two"), bench.new_relay(name="one")
    for relay in (two, one):
        bench.take_all(bench.down.events, ServerRequestReceived)
        bench.relay = relay
        bench.respond(begun(bench), InputRequired({"who": InputRequest(ASK, FORM)}, "s"))
    bench.relay = two if is_other else one
    accepted: dict[str, Any] = {"action": "accept", "content": {}}
    bench.client.respond(question(bench).id, accepted, now=bench.now)
    bench.run()
    if is_other:
        assert error_of(bench).message.startswith("This input is for a call that has ended")
        assert not [e for e in bench.up.server_events if isinstance(e, CallReceived)]
    else:
        assert bench.arrived().handler_input.input_responses["who"] == accepted


@pytest.mark.parametrize("up", [OLD_HTTP, NEW_HTTP], ids=str)
def test_responses_that_come_before_they_are_asked_for(up: tuple[str, str]) -> None:
    bench = Bench(NEW_HTTP, up)
    early = {"who": {"action": "decline"}}
    bench.call("tools/call", {"name": "x", "inputResponses": early})
    responses = dict(bench.arrived().handler_input.input_responses)
    assert responses == (early if up is NEW_HTTP else {})


@pytest.mark.parametrize("requests", [{"who": 1}, {"who": {"method": ASK, "params": 1}}, {"a": {}}])
def test_a_request_for_input_that_is_malformed(requests: Any) -> None:
    bench = Bench(NEW_HTTP, NEW_HTTP, offered={"tools": {}})
    begun(bench)
    result = {"resultType": "input_required", "inputRequests": requests, "requestState": "s"}
    upstream_result(bench, result)
    error = error_of(bench)
    assert error.code == -32603
    assert error.message.startswith("The result of the upstream server cannot be sent: ")


def test_a_request_for_input_that_the_client_cannot_give() -> None:
    bench = Bench(NEW_HTTP, NEW_HTTP, asked_of={})
    bench.respond(begun(bench), InputRequired({"who": InputRequest(ASK, FORM)}))
    error = error_of(bench)
    assert error.code == -32021
    assert error.data["requiredCapabilities"] == {"elicitation": {"form": {}}}


def test_a_kind_of_result_that_no_one_has_declared() -> None:
    """The client in front of the relay refuses it."""
    bench = Bench(NEW_HTTP, NEW_HTTP, offered={"tools": {}})
    begun(bench)
    upstream_result(bench, {"resultType": "com.example/half", "a": 1})
    end = bench.outcome()
    assert isinstance(end, CallFailed)
    assert "'com.example/half'" in str(end.error)


def upstream_result(bench: Bench, result: Any, handle: int = 1) -> None:
    """Let the upstream client report a result that servers of this library do not send."""
    assert bench.relay is not None
    bench.relay.receive_client_event(CallCompleted(handle, result), now=bench.now)
    bench.run()


# What does not concern a relay


def test_other_events_change_nothing() -> None:
    bench = Bench(OLD, OLD, offered={})
    relay = bench.relay
    assert relay is not None
    assert relay.receive_client_event(Closed(None), now=0.0) is None
    assert relay.receive_client_event(CallCompleted(99, {}), now=0.0) is None
    assert relay.receive_client_event(ProgressReceived(call=99, progress=1), now=0.0) is None
    assert relay.receive_client_event(ServerRequestCancelled(99, "x"), now=0.0) is None
    call = begun(bench)
    assert relay.receive_server_event(CallCancelled(call, "not of a client"), now=0.0) is None
    assert not relay.must_wait


# Tools that are left out


def test_tools_that_are_left_out() -> None:
    bench = Bench(OLD, OLD)
    tools = ToolFilter(allow=("read_*", "x"), deny=("*_secret",))
    bench.relay = Relay(bench.down.server, bench.up.client, tools=tools)
    bench.call("tools/list", {})
    offered = [{"name": name} for name in ("read_a", "read_secret", "write", "x")]
    bench.respond(bench.arrived(), {"tools": [*offered, {"name": 1}], "nextCursor": "2"})
    end = bench.outcome()
    assert isinstance(end, CallCompleted)
    assert end.result["tools"] == [{"name": "read_a"}, {"name": "x"}]
    assert end.result["nextCursor"] == "2"
    bench.call("tools/list", {})
    bench.respond(bench.arrived(), {"tools": "none"})
    end = bench.outcome()
    assert isinstance(end, CallCompleted)
    assert end.result["tools"] == "none"
    bench.call("tools/call", {"name": "write"})
    assert error_of(bench).message == "Unknown tool: write"
    assert not bench.up.server_events
    bench.respond(begun(bench), {})
    assert isinstance(bench.outcome(), CallCompleted)


PARTS = st.lists(st.sampled_from("ab*"), max_size=8).map("".join)


@example("*a*b*", "ba")
@given(PARTS, st.text("ab", max_size=12))
def test_patterns_match_as_regular_expressions_do(pattern: str, name: str) -> None:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert ToolFilter(allow=(pattern,)).allows(name) == bool(re.fullmatch(expression, name))


def test_a_pattern_takes_linear_time() -> None:
    """Backtracking would not come to an end in the life of a person."""
    tools = ToolFilter(allow=("*a" * 25 + "*b",))
    assert not tools.allows("a" * 999)
    assert tools.allows("a" * 999 + "b")


@pytest.mark.parametrize(
    "name", ["delete_file", "Delete_File", " DELETE_FILE\t", "\uff44elete_file", "delete_stra\xdfe"]
)
def test_a_denied_tool_cannot_be_called_by_a_similar_name(name: str) -> None:
    """A server may compare names in its own way. An allowed name must be exactly that."""
    assert not ToolFilter(deny=("Delete_*",)).allows(name)
    assert not ToolFilter(deny=("*e_file", "*_strasse")).allows(name)
    assert ToolFilter(deny=("delete",)).allows(name)
    assert ToolFilter(allow=("delete_*",)).allows(name) == (name[:7] == "delete_")


@pytest.mark.parametrize("tools", [ToolFilter(), ToolFilter(deny=("x",))], ids=str)
def test_a_tool_with_a_very_long_name_is_unknown(tools: ToolFilter) -> None:
    assert tools.allows("a" * 1000)
    assert not tools.allows("a" * 1001)
    assert not tools.allows("a", "b_" + "a" * 1000)


def test_a_tool_is_left_out_by_each_of_its_names() -> None:
    tools = ToolFilter(allow=("read_*", "one_*"), deny=("*_secret", "two_*"))
    assert tools.allows("read_a", "one_read_a")
    assert tools.allows("write", "one_write")
    assert not tools.allows("write", "three_write")
    assert not tools.allows("read_a", "two_read_a")
    assert not tools.allows("read_secret", "one_read_a")


# A relay for one session


def test_a_relay_of_one_session_tells_that_session_alone() -> None:
    bench = Bench(OLD_HTTP, OLD)
    (session,) = bench.down.server.sessions
    relay = bench.relay = Relay(bench.down.server, bench.up.client, session=session)
    bench.call("resources/subscribe", {"uri": "a:folder"})
    bench.respond(bench.arrived(), {})
    assert isinstance(bench.outcome(), CallCompleted)
    for method, uri in (
        (UPDATED, "a:folder"),
        (UPDATED, "a:folder/b"),
        (UPDATED, "a:folders"),
        ("notifications/tools/list_changed", ""),
    ):
        told = ServerNotified(None, Notification(method, {"uri": uri}))
        assert relay.receive_client_event(told, now=0.0) is None
    bench.run()
    uris = [e.notification.params for e in bench.down.events if isinstance(e, ServerNotified)]
    assert uris == [{"uri": "a:folder"}, {"uri": "a:folder/b"}, {"uri": ""}]


# A new upstream session


def test_a_new_session_of_an_old_server_gets_subscriptions_and_level() -> None:
    bench = Bench(OLD, OLD)
    assert bench.relay is not None
    for method, params in (
        ("resources/subscribe", {"uri": "a:b"}),
        ("logging/setLevel", {"level": "error"}),
    ):
        bench.call(method, params)
        bench.respond(bench.arrived(), {})
        bench.outcome()
    again = Connected(
        transport=STDIO, version="2025-11-25", server_info={}, capabilities=dict(OFFERED)
    )
    bench.relay.receive_client_event(again, now=0.0)
    bench.run()
    received = [e.call for e in bench.up.server_events if isinstance(e, CallReceived)]
    asked = [(call.request.method, call.request.params or {}) for call in received]
    bench.up.server_events.clear()
    assert [(method, params.get("uri"), params.get("level")) for method, params in asked] == [
        ("resources/subscribe", "a:b", None),
        ("logging/setLevel", None, "error"),
    ]
    bench.call("resources/unsubscribe", {"uri": "a:b"})
    assert isinstance(bench.outcome(), CallCompleted)
    assert bench.arrived().request.method == "resources/unsubscribe"


@pytest.mark.parametrize("down", [OLD, NEW_HTTP], ids=str)
def test_a_call_that_the_server_has_not_run_is_sent_in_its_new_session(
    down: tuple[str, str],
) -> None:
    """The client has a session of its own, which goes on."""
    bench = Bench(down, OLD_HTTP)
    bench.restart_upstream()
    bench.respond(begun(bench), {"a": 1})
    end = bench.outcome()
    assert isinstance(end, CallCompleted)
    assert end.result["a"] == 1


def test_a_call_is_sent_again_once_and_not_if_it_may_have_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, made = Bench(OLD, OLD_HTTP), list[int]()
    upstream_call = bench.up.client.call

    def call(*arguments: Any, **settings: Any) -> int:
        made.append(upstream_call(*arguments, **settings))
        return made[-1]

    monkeypatch.setattr(bench.up.client, "call", call)
    begun(bench)
    for was_not_run, has_ended in ((True, False), (True, True), (False, True)):
        assert bench.relay is not None
        if not bench.relay.running:
            begun(bench)
        error = SessionLost("gone", was_not_run=was_not_run)
        bench.relay.receive_client_event(CallFailed(made[-1], error), now=bench.now)
        bench.run()
        assert bool(bench.take_all(bench.down.events, CallFailed)) == has_ended
        bench.up.server_events.clear()


def test_another_client_takes_the_place_of_one_that_is_closed() -> None:
    bench = Bench(NEW_HTTP, OLD)
    ask(bench, begun(bench))
    assert bench.relay is not None
    asked = question(bench)
    bench.up.client.close(now=0.0)
    bench.run()
    bench.up = Leg(OLD, bench.up.server.app, EVERYTHING)
    while bench.up.drive():
        pass
    bench.relay.replace_upstream(bench.up.client)
    bench.run()
    bench.up.server_events.clear()
    call = begun(bench)
    bench.client.respond(asked.id, {"action": "accept"}, now=bench.now)
    bench.run()
    assert "gave no result" in error_of(bench).message
    bench.respond(call, {"a": 1})
    assert isinstance(bench.outcome(), CallCompleted)


def test_a_subscription_ends_with_its_upstream() -> None:
    bench = Bench(OLD_HTTP, OLD)
    bench.call("resources/subscribe", {"uri": "a:b"})
    bench.respond(bench.arrived(), {})
    bench.up.client.close(now=0.0)
    bench.run()
    assert bench.relay is not None
    connected = Connected(transport=STDIO, version="2025-11-25", server_info={}, capabilities={})
    bench.relay.connected(connected, now=0.0)  # of a client that is closed by now
    (session,) = bench.down.server.sessions
    bench.down.server.end_session(session, "gone", now=bench.now)
    bench.run()
    assert not [e for e in bench.up.server_events if isinstance(e, CallReceived)]


# A client that is behind


@pytest.mark.parametrize("is_progress", [True, False])
@pytest.mark.parametrize("down", [OLD, NEW])
def test_a_client_that_is_behind(down: tuple[str, str], is_progress: bool) -> None:
    bench = Bench(down, OLD_HTTP)
    call = begun(bench)
    relay = bench.relay
    assert relay is not None
    assert not relay.must_wait
    text = "x" * (1 << 20)
    if is_progress:
        relay.receive_client_event(ProgressReceived(call=1, progress=1, message=text), now=0.0)
    else:
        notification = Notification("com.example/x", {"text": text})
        relay.receive_client_event(ServerNotified(1, notification), now=0.0)
    assert relay.must_wait
    bench.run()
    assert not relay.must_wait
    bench.respond(call, {})
    assert isinstance(bench.outcome(), CallCompleted)


@pytest.mark.parametrize("listens", [False, True])
def test_a_client_that_is_behind_holds_up_none_that_only_listens(listens: bool) -> None:
    bench = Bench(NEW_HTTP, NEW_HTTP)
    if listens:
        bench.call(LISTEN, listen_to(["a:b"]))
    call = begun(bench)
    relay = bench.relay
    assert relay is not None
    handle = 3 if listens else 2  # after the listeners of the relay
    progress = ProgressReceived(call=handle, progress=1, message="x" * (1 << 20))
    relay.receive_client_event(progress, now=bench.now)
    assert relay.must_wait == (not listens)
    bench.run()
    bench.respond(call, {})


def test_a_client_that_is_behind_after_others_have_given_input() -> None:
    """At 2026-07-28 the call with the input is another one, of another client for all we know."""
    bench = Bench(NEW_HTTP, OLD_HTTP)
    call = begun(bench)
    ask(bench, call)
    bench.client.respond(question(bench).id, {"action": "decline"}, now=bench.now)
    bench.run()
    bench.respond(call, {})
    assert isinstance(bench.outcome(), CallCompleted)
    begun(bench)
    relay = bench.relay
    assert relay is not None
    progress = ProgressReceived(call=2, progress=1, message="x" * (1 << 20))
    relay.receive_client_event(progress, now=bench.now)
    assert relay.must_wait  # it is alone


# What a client reads though it is not JSON: it does not get further


def upstream_writes(bench: Bench, message: bytes) -> None:
    """Let the upstream server, on stdio, write a line."""
    bench.up.client.receive_process_part(StdoutData(message + b"\n"), now=bench.now)
    bench.run()


def upstream_sends(bench: Bench, members: bytes) -> None:
    id = bench.arrived().request.id
    assert isinstance(id, int)
    upstream_writes(bench, b'{"jsonrpc":"2.0","id":%d,%b}' % (id, members))


@pytest.mark.parametrize("down", [OLD_HTTP, NEW_HTTP])
def test_a_tool_that_is_not_json_is_left_out_of_the_list(down: tuple[str, str]) -> None:
    bench = Bench(down, OLD)
    bench.call("tools/list", {})
    upstream_sends(
        bench, b'"result":{"tools":[{"name":"a","x":NaN},{"name":"b\\ud83d"},{"name":"c"}]}'
    )
    end = bench.outcome()
    assert isinstance(end, CallCompleted)
    assert [each["name"] for each in end.result["tools"]] == ["b�", "c"]
    (lost,) = bench.lost
    assert lost.startswith("1 of 3 tools were left out: Not a JSON value: ")
    assert "tools[0].x is nan" in lost


@pytest.mark.parametrize("down", [OLD_HTTP, NEW_HTTP])
def test_a_result_of_a_tool_that_is_not_json_is_an_error_of_the_tool(down: tuple[str, str]) -> None:
    bench = Bench(down, OLD)
    bench.call()
    upstream_sends(bench, b'"result":{"content":[],"structuredContent":{"x":[1,Infinity]}}')
    end = bench.outcome()
    assert isinstance(end, CallCompleted)
    assert end.result["isError"] is True
    (content,) = end.result["content"]
    assert "structuredContent.x[1] is inf" in content["text"]
    assert bench.lost == [content["text"]]


@pytest.mark.parametrize(
    ("method", "result"),
    [("tools/list", b'{"tools":[],"x":NaN}'), ("tools/list", b"NaN"), ("prompts/get", b"[NaN]")],
)
def test_other_results_that_are_not_json_are_errors(method: str, result: bytes) -> None:
    bench = Bench(OLD_HTTP, OLD)
    bench.call(method, {"name": "x"})
    upstream_sends(bench, b'"result":' + result)
    assert "cannot be sent" in error_of(bench).message
    assert len(bench.lost) == 1


def test_the_data_of_an_error_that_is_not_json_is_left_out() -> None:
    bench = Bench(OLD_HTTP, OLD)
    bench.call()
    upstream_sends(bench, b'"error":{"code":-32000,"message":"no luck","data":NaN}')
    error = error_of(bench)
    assert (error.code, error.message, error.data) == (-32000, "no luck", None)
    assert len(bench.lost) == 1


@pytest.mark.parametrize("code", [-32020, -32022])
@pytest.mark.parametrize("up", [NEW, NEW_HTTP, OLD, OLD_HTTP])
@pytest.mark.parametrize("down", [NEW, NEW_HTTP])
def test_no_error_of_the_server_says_that_the_relay_has_run_nothing(
    down: tuple[str, str], up: tuple[str, str], code: int
) -> None:
    """The client would repeat the call. On stdio the relay's own does so once."""
    bench = Bench(down, up)
    bench.call("tools/call", {"name": "pay"})
    data = {"supported": [down[0]], "requested": down[0]}
    runs = 0
    while not any(isinstance(event, CallFailed) for event in bench.down.events):
        bench.arrived().respond_error(code, "no luck", data, now=bench.now)
        bench.run()
        runs += 1
    error = error_of(bench)
    assert error.code == -32603
    assert error.message == f"The upstream server failed: no luck (code {code})"
    assert error.data == data
    assert runs == (2 if up == NEW and code == -32022 else 1)


def test_an_older_client_gets_each_error_as_it_is() -> None:
    bench = Bench(OLD_HTTP, NEW_HTTP)
    begun(bench, method="tools/call").respond_error(-32022, "no luck", now=bench.now)
    bench.run()
    assert error_of(bench).code == -32022


def test_a_notification_that_is_not_json_is_lost() -> None:
    bench = Bench(OLD_HTTP, OLD)
    begun(bench)
    upstream_writes(
        bench,
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":NaN}}',
    )
    (lost,) = bench.lost
    assert lost.startswith("'notifications/message' of the upstream server is lost: ")


def test_a_client_that_is_behind_holds_up_no_other() -> None:
    """It loses progress and notifications, in a place of bounded size."""
    bench = Bench(NEW_HTTP, OLD_HTTP)
    calls = [begun(bench), begun(bench)]
    relay = bench.relay
    assert relay is not None
    for number in range(1, 4):
        event = ProgressReceived(call=1, progress=number, message="x" * (1 << 20))
        relay.receive_client_event(event, now=0.0)
        notification = Notification("com.example/x", {"text": "x" * (1 << 20)})
        relay.receive_client_event(ServerNotified(1, notification), now=0.0)
        assert not relay.must_wait
    relay.receive_client_event(ProgressReceived(call=2, progress=1), now=0.0)
    bench.run()
    told = bench.take_all(bench.down.events, ProgressReceived)
    assert [(event.call, event.progress) for event in told] == [(1, 1), (2, 1)]
    assert not bench.take_all(bench.down.events, ServerNotified)
    bench.respond(calls[1], {})
    assert isinstance(bench.outcome(), CallCompleted)
    relay.receive_client_event(
        ProgressReceived(call=1, progress=9, message="x" * (1 << 20)), now=0.0
    )
    assert relay.must_wait  # now it is alone
    bench.run()
    assert bench.take(bench.down.events, ProgressReceived).progress == 9
