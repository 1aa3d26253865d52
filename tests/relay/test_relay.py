"""What a relay does when something is missing, comes too late, or exists at one side only."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import InputRequest, InputRequired, JsonRpcError, LocalProtocolError
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
    ProgressReceived,
    ServerNotified,
    ServerRequestCancelled,
    ServerRequestReceived,
    TaskUpdated,
)
from sansmcp.input_required import HandlerInput
from sansmcp.messages import Notification, Request
from sansmcp.meta_keys import LOG_LEVEL, UPDATED
from sansmcp.relay import Relay, ToolFilter, relay_app
from sansmcp.server_call import ServerCall
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


# The app


def test_the_app_is_that_of_the_upstream_server_with_tasks_of_its_own() -> None:
    extensions = {EXTENSION: {}, "com.example/x": {"a": 1}}
    connected = Connected(
        transport=HTTP,
        version="2026-07-28",
        server_info={"name": "n", "version": "2"},
        capabilities={"tools": {}, "extensions": extensions},
        instructions="Ask.",
    )
    app = relay_app(connected)
    assert (app.name, app.version, app.instructions) == ("n", "2", "Ask.")
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


def test_the_result_waits_for_a_modern_client_that_gives_its_input() -> None:
    bench = Bench(NEW_HTTP, OLD_HTTP)
    call = begun(bench)
    ask(bench, call)
    asked = question(bench)
    call.progress(1, now=bench.now)  # nobody can be told
    bench.respond(call, {"early": True})
    assert not [event for event in bench.down.events if isinstance(event, ProgressReceived)]
    bench.client.respond(asked.id, {"action": "decline"}, now=bench.now)
    bench.run()
    end = bench.outcome()
    assert isinstance(end, CallCompleted)
    assert end.result["early"] is True


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


def test_nothing_can_be_asked_of_an_upstream_that_is_closed() -> None:
    bench = Bench(OLD, OLD)
    bench.up.client.close(now=bench.now)
    bench.run()
    bench.call()
    assert "cannot be asked" in error_of(bench).message
    bench.client.notify("com.example/told", now=bench.now)
    bench.run()
    assert "com.example/told" in bench.lost[0]


def test_an_upstream_that_ends_ends_its_calls() -> None:
    bench = Bench(OLD, OLD)
    begun(bench)
    bench.up.client.close("the gateway restarts", now=bench.now)
    bench.run()
    message = error_of(bench).message
    assert "gave no result" in message
    assert "was cancelled: the gateway restarts" in message


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
    """Return the resources that calls at the upstream server name."""
    calls = [e.call for e in bench.take_all(bench.up.server_events, CallReceived)]
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
    told = [each for each in bench.down.events if isinstance(each, ServerNotified)]
    assert len(told) == 2  # the first listener has not ended at the server


# Results


def test_a_result_that_a_revision_does_not_have() -> None:
    bench = Bench(NEW, OLD)
    call = begun(bench)
    bench.respond(call, [1])
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
def test_a_client_that_is_behind(is_progress: bool) -> None:
    bench = Bench(OLD, OLD_HTTP)
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
