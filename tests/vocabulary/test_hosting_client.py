"""What clients have in common, without a host that waits."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sansmcp import (
    BodyData,
    ClientDriver,
    Disconnected,
    Idle,
    JsonRpcError,
    Limits,
    OriginatingCall,
    PendingResult,
    RequestCancelled,
    RequestRefused,
    RequestTimeout,
    ServerRequest,
    encode_event,
)
from sansmcp.base_client import OnProgress
from sansmcp.effects import ClientEffect, KillProcess
from sansmcp.events import ClientEvent, Closed, ProgressReceived, Reconnecting, ServerNotified
from sansmcp.messages import Params
from sansmcp.meta_keys import MULTI_TURN
from sansmcp.process import ProcessExited

from ..client.harness import (
    Asked,
    ClientHarness,
    error,
    initialized,
    notification,
    request,
    response,
)
from ..client.modern.harness import MODERN, discovered, input_required, question

ABLE: Mapping[str, Any] = {"capabilities": {"elicitation": {}, "roots": {}, "sampling": {}}}


class Host(ClientDriver):
    """Its results are promises; nobody waits."""

    def __init__(
        self,
        harness: DriverHarness,
        handlers: Mapping[str, Callable[[ServerRequest], Any]] | None = None,
    ) -> None:
        self.harness = harness
        self.opened, self.closed = PendingResult(), PendingResult()
        if handlers is None:
            handlers = {"elicitation/create": self.elicit, "roots/list": self.roots}
        super().__init__(harness.client, handlers, self.opened, self.closed)
        self.failures: list[tuple[str, Exception]] = []
        self.bugs: list[Exception] = []
        self.first_failures: list[Reconnecting] = []
        self.asked = 0
        self.requests: list[ServerRequest] = []

    def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        **settings: Any,
    ) -> PendingResult:
        pending = PendingResult()
        self.handle = self.begin_call(pending, method, params, on_progress, settings)  # type: ignore[arg-type]
        return pending

    def take_events(self) -> list[ClientEvent]:
        """Those that were kept; from the first time on they are."""
        self.keeps_events = True
        events: list[ClientEvent] = []
        while (event := self.next_unclaimed_event()) is not None:
            events.append(event)
        return events

    def elicit(self, request: ServerRequest) -> Any:
        self.asked += 1
        self.requests.append(request)
        params = request.params
        if "code" in params:
            raise JsonRpcError(params["code"], "mine")
        if "interrupts" in params:
            raise KeyboardInterrupt
        if "unsayable" in params:
            raise JsonRpcError(-7, "mine", object())
        if "calls" in params:
            self.inner = self.call("tools/call")
        return {"heard": params.get("message")}

    def roots(self, request: ServerRequest) -> Any:
        return object()

    def respond_result(self, request: ServerRequest, result: Any) -> None:
        if "later" not in request.params:
            super().respond_result(request, result)

    def answer_later(self, request: ServerRequest) -> None:
        """Answer as hosts do whose functions are async."""
        super().respond_result(request, {"heard": request.params["later"]})

    def fail_later(self, request: ServerRequest) -> None:
        """Answer that the function has failed."""
        self.respond_internal_error(request)

    def now(self) -> float:
        return self.harness.now

    def perform_effect(self, effect: ClientEffect) -> None:
        self.harness.perform(effect)

    def unexpected(self, error: Exception) -> None:
        self.bugs.append(error)

    def on_first_failure(self, event: Reconnecting) -> None:
        super().on_first_failure(event)
        self.first_failures.append(event)

    def on_handler_error(self, request: ServerRequest, error: Exception) -> None:
        self.failures.append((request.method, error))


class DriverHarness(ClientHarness):
    """A bench whose client is driven by a host."""

    def __init__(
        self,
        handlers: Mapping[str, Callable[[ServerRequest], Any]] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**{**ABLE, **settings})
        self.host = Host(self, handlers)

    def run_pending(self) -> None:
        self.host.pump()

    def ask(self, *messages: dict[str, Any], **options: Any) -> tuple[PendingResult, Asked]:
        """A call that is under way, with these messages on its stream."""
        pending = self.host.call("tools/call", **options)
        asked = self.take()
        asked.open_stream()
        for message in messages:
            asked.event(message)
        return pending, asked


@pytest.fixture
def harness() -> DriverHarness:
    harness = DriverHarness()
    harness.connect()
    return harness


def test_the_opening_and_the_end(harness: DriverHarness) -> None:
    assert harness.host.opened.is_done
    assert harness.host.connected.version == "2025-11-25"
    assert harness.host.take_events() == []
    harness.host.begin_close()
    assert not harness.host.is_closed
    harness.take("DELETE").refuse(200)
    assert harness.host.closed.is_done
    assert harness.host.is_closed
    assert harness.host.take_events() == [Closed(None)]


def test_an_opening_that_fails() -> None:
    harness = DriverHarness()
    harness.host.begin_session()
    asked = harness.take()
    asked.head(401)
    asked.end()
    with pytest.raises(RequestRefused):
        harness.host.opened.result()
    assert harness.host.closed.is_done


def test_the_first_failure_of_the_opening_is_reported() -> None:
    """Only that one: the error at the end has all of them."""
    harness = DriverHarness()
    harness.host.begin_session()
    for _ in range(3):
        harness.take().cut("no route to host")
        harness.wait(4)
    (event,) = harness.host.first_failures
    assert "no route to host" in event.reason
    harness.initialize()
    _, asked = harness.ask()
    asked.cut()
    assert len(harness.host.first_failures) == 1


def test_results_and_errors_are_delivered(harness: DriverHarness) -> None:
    good, asked = harness.ask()
    asked.event({"jsonrpc": "2.0", "id": asked.id, "result": {"a": 1}})
    bad, asked = harness.ask()
    asked.event({"jsonrpc": "2.0", "id": asked.id, "error": {"code": -7, "message": "no"}})
    assert good.result() == {"a": 1}
    with pytest.raises(JsonRpcError):
        bad.result()


def at_once(*messages: dict[str, Any]) -> BodyData:
    """Events that come in one piece."""
    return BodyData(b"".join(encode_event(json.dumps(each).encode()) for each in messages))


def progress(number: int, asked: Asked) -> dict[str, Any]:
    token = asked.json["params"]["_meta"]["progressToken"]
    return notification("notifications/progress", progressToken=token, progress=number)


def test_progress_is_reported_until_nobody_waits(harness: DriverHarness) -> None:
    reports: list[ProgressReceived] = []
    pending, asked = harness.ask(on_progress=reports.append)
    asked.event(progress(1, asked))
    harness.host.abandon_call(harness.host.handle)
    assert [report.progress for report in reports] == [1]
    assert not pending.is_done
    cancelled = harness.take()
    assert cancelled.json["method"] == "notifications/cancelled"
    harness.host.abandon_call(harness.host.handle)
    assert harness.requests == []


def test_a_call_that_takes_too_long(harness: DriverHarness) -> None:
    pending, _ = harness.ask(timeout=5)
    harness.now += 5
    harness.host.handle_timeout()
    with pytest.raises(RequestTimeout):
        pending.result()


@pytest.mark.parametrize("end", [response, error])
def test_a_call_that_nobody_waits_for(harness: DriverHarness, end: Callable[[Any], Any]) -> None:
    harness.run_command(harness.client.call, "tools/call")
    asked = harness.take()
    asked.open_stream()
    asked.event(progress(1, asked))
    asked.event(end(asked.id))
    assert harness.host.take_events() == []


def test_a_call_whose_beginning_is_interrupted_is_cancelled(harness: DriverHarness) -> None:
    _, asked = harness.ask()
    interrupt = at_once(request("q", "elicitation/create", interrupts=True))
    harness.client.receive_part(asked.effect.exchange, interrupt, now=harness.now)
    with pytest.raises(KeyboardInterrupt):
        harness.host.call("tools/call")
    assert [sent.json["method"] for sent in harness.requests] == [
        "tools/call",
        "notifications/cancelled",
    ]


def test_progress_that_nobody_wants(harness: DriverHarness) -> None:
    pending, asked = harness.ask()
    asked.event(progress(1, asked))
    assert not pending.is_done


def test_what_a_function_for_progress_raises_is_delivered(harness: DriverHarness) -> None:
    broken = ZeroDivisionError()

    def report(_: object) -> None:
        raise broken

    pending, asked = harness.ask(on_progress=report)
    asked.event(progress(1, asked))
    with pytest.raises(ZeroDivisionError):
        pending.result()


@pytest.mark.parametrize(
    ("method", "params", "answer", "failed"),
    [
        ("elicitation/create", {"message": "?"}, {"heard": "?"}, []),
        ("elicitation/create", {"code": -7}, -7, []),
        ("elicitation/create", {"unsayable": True}, -32603, ["elicitation/create"]),
        ("roots/list", {}, -32603, ["roots/list"]),
        ("sampling/createMessage", {}, -32601, []),
    ],
)
def test_questions_are_answered_by_functions(
    harness: DriverHarness, method: str, params: dict[str, Any], answer: Any, failed: list[str]
) -> None:
    harness.ask(request("q", method, **params))
    said = harness.take().json
    assert (said.get("result") or said["error"]["code"]) == answer
    assert [method for method, _ in harness.host.failures] == failed


def test_a_function_that_answers_may_call(harness: DriverHarness) -> None:
    harness.ask(request("q", "elicitation/create", calls=True))
    call, answer = harness.requests
    call.result({"inner": True})
    assert harness.host.inner.result() == {"inner": True}
    assert answer.json["result"] == {"heard": None}


def test_what_is_withdrawn_at_once_is_not_answered(harness: DriverHarness) -> None:
    _, asked = harness.ask()
    withdrawn = notification("notifications/cancelled", requestId="q")
    asked.feed(at_once(request("q", "elicitation/create"), withdrawn))
    assert harness.host.asked == 0
    assert harness.requests == []


def test_all_is_answered_that_is_asked_at_once(harness: DriverHarness) -> None:
    _, asked = harness.ask()
    asked.feed(at_once(*(request(id, "elicitation/create") for id in "ab")))
    assert [answer.json["id"] for answer in harness.requests] == ["a", "b"]


def test_a_late_answer_is_not_given_to_another_request_of_the_same_id(
    harness: DriverHarness,
) -> None:
    """A server that was started again counts from 1 again (found by the simulator)."""
    _, asked = harness.ask(request(1, "elicitation/create", later="first"))
    asked.event(notification("notifications/cancelled", requestId=1))
    asked.event(request(1, "elicitation/create", later="second"))
    first, second = harness.host.requests
    harness.host.answer_later(first)
    harness.host.fail_later(first)
    harness.run_pending()
    assert harness.requests == []
    harness.host.answer_later(second)
    harness.run_pending()
    assert harness.take().json["result"] == {"heard": "second"}


def test_events_are_kept_for_who_takes_them() -> None:
    harness = DriverHarness(limits=Limits(max_queued_events=2))
    harness.connect()
    noise = notification("notifications/x")
    _, asked = harness.ask(noise)
    assert harness.host.take_events() == []
    asked.event(noise)
    assert not harness.host.is_paused
    asked.event(noise)
    assert harness.host.is_paused
    assert [type(event) for event in harness.host.take_events()] == [ServerNotified] * 2
    assert not harness.host.is_paused


def test_calls_end_when_the_client_closes(harness: DriverHarness) -> None:
    pending, _ = harness.ask()
    harness.host.begin_close()
    with pytest.raises(RequestCancelled):
        pending.result()


def test_an_answerer_is_told_which_call_asks(harness: DriverHarness) -> None:
    """Answers never learnt which call asks."""
    params = {"name": "t", "_meta": {"a": 1}}
    harness.ask(request("q", "elicitation/create", message="?", _meta={"b": 1}), params=params)
    harness.requests.clear()
    harness.ask(request("r", "elicitation/create"))
    first, second = harness.host.requests
    assert first.call == OriginatingCall(harness.host.handle - 1, "tools/call", params)
    assert (first.id, first.method, first.meta) == ("q", "elicitation/create", {"b": 1})
    assert first.params["message"] == "?"
    assert second.call == OriginatingCall(harness.host.handle, "tools/call", {})
    assert second.meta == {}


def test_nothing_tells_which_call_asks_on_the_standalone_stream() -> None:
    harness = DriverHarness(standalone_stream=True)
    harness.run_command(harness.client.start)
    harness.take_initialize()
    harness.take().accept()
    stream = harness.take("GET")
    stream.open_stream()
    harness.ask()
    stream.event(request("q", "elicitation/create"))
    assert [asked.call for asked in harness.host.requests] == [None]
    stream.event(request("r", "elicitation/create"))
    assert harness.host.asked == 2


def test_a_call_that_its_host_has_forgotten_is_none(harness: DriverHarness) -> None:
    _, asked = harness.ask()
    harness.run_command(harness.client.call, "tools/call")
    other = harness.take()
    other.open_stream()
    other.event(request("q", "elicitation/create"))
    assert [each.call for each in harness.host.requests] == [None]
    asked.end()


class Broken(Exception):
    """What no machine raises."""


def breaking(*_: Any, **__: Any) -> Any:
    raise Broken


def is_ended(harness: DriverHarness, pending: PendingResult) -> None:
    """Everyone who waits is told; nothing can be asked any more."""
    with pytest.raises(Disconnected, match="internal error: Broken"):
        pending.result()
    assert harness.host.closed.is_done
    with pytest.raises(Disconnected):
        harness.host.call("tools/call")
    assert {type(bug) for bug in harness.host.bugs} == {Broken}


def test_an_exchange_that_cannot_be_carried_ends_its_call(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So with all of these tests."""
    good, asked = harness.ask()
    with monkeypatch.context() as patch:
        patch.setattr(harness.host, "perform_effect", breaking)
        bad = harness.host.call("tools/call")
    with pytest.raises(Disconnected, match="internal error: Broken"):
        bad.result()
    asked.event(response(asked.id))
    assert good.is_done
    assert len(harness.host.bugs) == 1


def test_an_exchange_that_cannot_even_be_ended_ends_the_client(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending, asked = harness.ask()
    monkeypatch.setattr(harness.client, "receive_part", breaking)
    harness.host.exchange_failed(asked.effect.exchange, Broken())
    harness.host.exchange_failed(asked.effect.exchange, Broken())
    is_ended(harness, pending)


def test_what_the_process_says_may_end_the_client(harness: DriverHarness) -> None:
    pending, _ = harness.ask()
    harness.host.receive_process_part(ProcessExited(0))
    with pytest.raises(Disconnected, match="has no process"):
        pending.result()


def test_an_event_that_cannot_be_taken_ends_the_client(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending, asked = harness.ask()
    monkeypatch.setattr(harness.host, "on_other_event", breaking)
    asked.event(notification("notifications/message", level="info", data=1))
    is_ended(harness, pending)


def test_a_question_that_cannot_be_answered_ends_the_client(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending, asked = harness.ask()
    monkeypatch.setattr(harness.client, "refuse_unsupported", breaking)
    asked.event(request("q", "sampling/createMessage"))
    is_ended(harness, pending)


def test_an_answer_that_cannot_be_given_is_given_up(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending, asked = harness.ask()
    monkeypatch.setattr(harness.client, "respond_exception", breaking)
    asked.event(request("q", "elicitation/create", code=-7))
    assert [type(error) for _, error in harness.host.failures] == [Broken, Broken]
    assert not pending.is_done


@pytest.mark.parametrize("method", ["drive", "handle_timeout", "next_deadline"])
def test_a_machine_that_raises_ends_the_client(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    pending, _ = harness.ask()
    monkeypatch.setattr(harness.client, method, breaking)
    harness.host.handle_timeout()
    harness.host.next_deadline()
    is_ended(harness, pending)


def test_a_machine_that_cannot_be_closed_is_left(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending, _ = harness.ask()
    monkeypatch.setattr(harness.client, "close", breaking)
    monkeypatch.setattr(harness.client, "handle_timeout", breaking)
    harness.host.handle_timeout()
    is_ended(harness, pending)


def test_a_process_effect_that_fails_ends_the_client(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending, _ = harness.ask()
    monkeypatch.setattr(harness.host, "perform_effect", breaking)
    effects = iter([KillProcess()])
    monkeypatch.setattr(harness.client, "next_effect", lambda: next(effects, Idle.NEED_DATA))
    harness.host.pump()
    is_ended(harness, pending)


def test_a_round_names_the_call_that_asks() -> None:
    harness = DriverHarness(versions=(MODERN,))
    harness.run_command(harness.client.start)
    asked = harness.take()
    asked.answer(discovered(asked.id, MODERN))
    pending = harness.host.call("tools/call", {"name": "t"})
    harness.take().result(input_required({"k": question()}, "state"))
    (asks,) = harness.host.requests
    assert asks.call == OriginatingCall(harness.host.handle, "tools/call", {"name": "t"})
    harness.take().result({"resultType": "complete", "done": True})
    assert pending.result()["done"] is True


def test_a_turn_names_the_call_that_asks() -> None:
    harness = DriverHarness(multi_turn=True)
    harness.run_command(harness.client.start)
    asked = harness.take()
    answer = initialized(asked.id)
    answer["result"]["capabilities"]["experimental"] = {MULTI_TURN: {"sep": 1858}}
    asked.answer(answer)
    harness.take().accept()
    _, asked = harness.ask(params={"name": "t"})
    asked.feed(BodyData(encode_event(None, event="buffer_input", id="e0")))
    asked.event(request("q", "elicitation/create", message="?"), id="e1")
    (asks,) = harness.host.requests
    assert asks.call == OriginatingCall(harness.host.handle, "tools/call", {"name": "t"})
    assert harness.requests == []  # the answer is kept back until the turn ends
