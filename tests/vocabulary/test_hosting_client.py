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
from sansmcp.events import ClientEvent, Closed, ProgressReceived, ServerNotified
from sansmcp.messages import Params
from sansmcp.meta_keys import MULTI_TURN
from sansmcp.process import ProcessExited

from ..client.bench import Asked, Bench, error, initialized, notification, request, response
from ..client.modern.bench import MODERN, discovered, input_required, question

ABLE: Mapping[str, Any] = {"capabilities": {"elicitation": {}, "roots": {}, "sampling": {}}}


class Host(ClientDriver[PendingResult, None]):
    """Its results are promises; nobody waits."""

    def __init__(self, bench: HostBench) -> None:
        self.bench = bench
        self.opened, self.closed = PendingResult(), PendingResult()
        answers = {"elicitation/create": self.elicit, "roots/list": self.roots}
        super().__init__(bench.client, answers, self.opened, self.closed)
        self.failures: list[tuple[str, Exception]] = []
        self.bugs: list[Exception] = []
        self.asked = 0
        self.requests: list[ServerRequest] = []

    def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        **options: Any,
    ) -> PendingResult:
        promise = PendingResult()
        self.handle = self.begin_call(promise, method, params, on_progress, options)  # type: ignore[arg-type]
        return promise

    def notify(
        self, method: str, params: Params | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> None:
        raise NotImplementedError

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

    def _respond(self, request: ServerRequest, result: Any) -> None:
        if "later" not in request.params:
            super()._respond(request, result)

    def answer_later(self, request: ServerRequest) -> None:
        """Answer as hosts do whose functions are async."""
        super()._respond(request, {"heard": request.params["later"]})

    def fail_later(self, request: ServerRequest) -> None:
        """Answer that the function has failed."""
        self._answer_with(request, RuntimeError())

    def now(self) -> float:
        return self.bench.now

    def perform_effect(self, effect: ClientEffect) -> None:
        self.bench.perform(effect)

    def unexpected(self, error: Exception) -> None:
        self.bugs.append(error)

    def on_handler_error(self, request: ServerRequest, error: Exception) -> None:
        self.failures.append((request.method, error))


class HostBench(Bench):
    """A bench whose client is driven by a host."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**ABLE, **settings})
        self.host = Host(self)

    def settle(self) -> None:
        self.host.run_pending()

    def ask(self, *messages: dict[str, Any], **options: Any) -> tuple[PendingResult, Asked]:
        """A call that is under way, with these messages on its stream."""
        promise = self.host.call("tools/call", **options)
        asked = self.take()
        asked.open_stream()
        for message in messages:
            asked.event(message)
        return promise, asked


@pytest.fixture
def bench() -> HostBench:
    bench = HostBench()
    bench.connect()
    return bench


def test_the_opening_and_the_end(bench: HostBench) -> None:
    assert bench.host.opened.is_done
    assert bench.host.connected.version == "2025-11-25"
    assert bench.host.take_events() == []
    bench.host.begin_close()
    bench.take("DELETE").refuse(200)
    assert bench.host.closed.is_done
    assert bench.host.take_events() == [Closed(None)]


def test_an_opening_that_fails() -> None:
    bench = HostBench()
    bench.host.begin_session()
    asked = bench.take()
    asked.head(401)
    asked.end()
    with pytest.raises(RequestRefused):
        bench.host.opened.result()
    assert bench.host.closed.is_done


def test_results_and_errors_are_delivered(bench: HostBench) -> None:
    good, asked = bench.ask()
    asked.event({"jsonrpc": "2.0", "id": asked.id, "result": {"a": 1}})
    bad, asked = bench.ask()
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


def test_progress_is_reported_until_nobody_waits(bench: HostBench) -> None:
    reports: list[ProgressReceived] = []
    promise, asked = bench.ask(on_progress=reports.append)
    asked.event(progress(1, asked))
    bench.host.abandon_call(bench.host.handle)
    assert [report.progress for report in reports] == [1]
    assert not promise.is_done
    cancelled = bench.take()
    assert cancelled.json["method"] == "notifications/cancelled"
    bench.host.abandon_call(bench.host.handle)
    assert bench.requests == []


def test_a_call_that_takes_too_long(bench: HostBench) -> None:
    promise, _ = bench.ask(timeout=5)
    bench.now += 5
    bench.host.handle_timeout()
    with pytest.raises(RequestTimeout):
        promise.result()


@pytest.mark.parametrize("end", [response, error])
def test_a_call_that_nobody_waits_for(bench: HostBench, end: Callable[[Any], Any]) -> None:
    bench.do(bench.client.call, "tools/call")
    asked = bench.take()
    asked.open_stream()
    asked.event(progress(1, asked))
    asked.event(end(asked.id))
    assert bench.host.take_events() == []


def test_a_call_whose_beginning_is_interrupted_is_cancelled(bench: HostBench) -> None:
    _, asked = bench.ask()
    interrupt = at_once(request("q", "elicitation/create", interrupts=True))
    bench.client.receive_part(asked.effect.exchange, interrupt, now=bench.now)
    with pytest.raises(KeyboardInterrupt):
        bench.host.call("tools/call")
    assert [sent.json["method"] for sent in bench.requests] == [
        "tools/call",
        "notifications/cancelled",
    ]


def test_progress_that_nobody_wants(bench: HostBench) -> None:
    promise, asked = bench.ask()
    asked.event(progress(1, asked))
    assert not promise.is_done


def test_what_a_function_for_progress_raises_is_delivered(bench: HostBench) -> None:
    broken = ZeroDivisionError()

    def report(_: object) -> None:
        raise broken

    promise, asked = bench.ask(on_progress=report)
    asked.event(progress(1, asked))
    with pytest.raises(ZeroDivisionError):
        promise.result()


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
    bench: HostBench, method: str, params: dict[str, Any], answer: Any, failed: list[str]
) -> None:
    bench.ask(request("q", method, **params))
    said = bench.take().json
    assert (said.get("result") or said["error"]["code"]) == answer
    assert [method for method, _ in bench.host.failures] == failed


def test_a_function_that_answers_may_call(bench: HostBench) -> None:
    bench.ask(request("q", "elicitation/create", calls=True))
    call, answer = bench.requests
    call.result({"inner": True})
    assert bench.host.inner.result() == {"inner": True}
    assert answer.json["result"] == {"heard": None}


def test_what_is_withdrawn_at_once_is_not_answered(bench: HostBench) -> None:
    _, asked = bench.ask()
    withdrawn = notification("notifications/cancelled", requestId="q")
    asked.feed(at_once(request("q", "elicitation/create"), withdrawn))
    assert bench.host.asked == 0
    assert bench.requests == []


def test_all_is_answered_that_is_asked_at_once(bench: HostBench) -> None:
    _, asked = bench.ask()
    asked.feed(at_once(*(request(id, "elicitation/create") for id in "ab")))
    assert [answer.json["id"] for answer in bench.requests] == ["a", "b"]


def test_a_late_answer_is_not_given_to_another_request_of_the_same_id(bench: HostBench) -> None:
    """A server that was started again counts from 1 again (found by the simulator)."""
    _, asked = bench.ask(request(1, "elicitation/create", later="first"))
    asked.event(notification("notifications/cancelled", requestId=1))
    asked.event(request(1, "elicitation/create", later="second"))
    first, second = bench.host.requests
    bench.host.answer_later(first)
    bench.host.fail_later(first)
    bench.settle()
    assert bench.requests == []
    bench.host.answer_later(second)
    bench.settle()
    assert bench.take().json["result"] == {"heard": "second"}


def test_events_are_kept_for_who_takes_them() -> None:
    bench = HostBench(limits=Limits(max_queued_events=2))
    bench.connect()
    noise = notification("notifications/x")
    _, asked = bench.ask(noise)
    assert bench.host.take_events() == []
    asked.event(noise)
    assert not bench.host.is_paused
    asked.event(noise)
    assert bench.host.is_paused
    assert [type(event) for event in bench.host.take_events()] == [ServerNotified] * 2
    assert not bench.host.is_paused


def test_calls_end_when_the_client_closes(bench: HostBench) -> None:
    promise, _ = bench.ask()
    bench.host.begin_close()
    with pytest.raises(RequestCancelled):
        promise.result()


def test_an_answerer_is_told_which_call_asks(bench: HostBench) -> None:
    """Row C9 of the review: answers never learnt which call asks."""
    params = {"name": "t", "_meta": {"a": 1}}
    bench.ask(request("q", "elicitation/create", message="?", _meta={"b": 1}), params=params)
    bench.requests.clear()
    bench.ask(request("r", "elicitation/create"))
    first, second = bench.host.requests
    assert first.call == OriginatingCall(bench.host.handle - 1, "tools/call", params)
    assert (first.id, first.method, first.meta) == ("q", "elicitation/create", {"b": 1})
    assert first.params["message"] == "?"
    assert second.call == OriginatingCall(bench.host.handle, "tools/call", {})
    assert second.meta == {}


def test_nothing_tells_which_call_asks_on_the_standalone_stream() -> None:
    bench = HostBench(standalone_stream=True)
    bench.do(bench.client.start)
    bench.take_initialize()
    bench.take().accept()
    stream = bench.take("GET")
    stream.open_stream()
    bench.ask()
    stream.event(request("q", "elicitation/create"))
    assert [asked.call for asked in bench.host.requests] == [None]
    stream.event(request("r", "elicitation/create"))
    assert bench.host.asked == 2


def test_a_call_that_its_host_has_forgotten_is_none(bench: HostBench) -> None:
    _, asked = bench.ask()
    bench.do(bench.client.call, "tools/call")
    other = bench.take()
    other.open_stream()
    other.event(request("q", "elicitation/create"))
    assert [each.call for each in bench.host.requests] == [None]
    asked.end()


class Broken(Exception):
    """What no machine raises."""


def breaking(*_: Any, **__: Any) -> Any:
    raise Broken


def is_ended(bench: HostBench, promise: PendingResult) -> None:
    """Everyone who waits is told; nothing can be asked any more."""
    with pytest.raises(Disconnected, match="internal error: Broken"):
        promise.result()
    assert bench.host.closed.is_done
    with pytest.raises(Disconnected):
        bench.host.call("tools/call")
    assert {type(bug) for bug in bench.host.bugs} == {Broken}


def test_an_exchange_that_cannot_be_carried_ends_its_call(
    bench: HostBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row B3 of the review: so with all of these tests."""
    good, asked = bench.ask()
    with monkeypatch.context() as patch:
        patch.setattr(bench.host, "perform_effect", breaking)
        bad = bench.host.call("tools/call")
    with pytest.raises(Disconnected, match="internal error: Broken"):
        bad.result()
    asked.event(response(asked.id))
    assert good.is_done
    assert len(bench.host.bugs) == 1


def test_an_exchange_that_cannot_even_be_ended_ends_the_client(
    bench: HostBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    promise, asked = bench.ask()
    monkeypatch.setattr(bench.client, "receive_part", breaking)
    bench.host.exchange_failed(asked.effect.exchange, Broken())
    bench.host.exchange_failed(asked.effect.exchange, Broken())
    is_ended(bench, promise)


def test_what_the_process_says_may_end_the_client(bench: HostBench) -> None:
    promise, _ = bench.ask()
    bench.host.process_said(ProcessExited(0))
    with pytest.raises(Disconnected, match="no process of ours"):
        promise.result()


def test_an_event_that_cannot_be_taken_ends_the_client(
    bench: HostBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    promise, asked = bench.ask()
    monkeypatch.setattr(bench.host, "on_other_event", breaking)
    asked.event(notification("notifications/message", level="info", data=1))
    is_ended(bench, promise)


def test_a_question_that_cannot_be_answered_ends_the_client(
    bench: HostBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    promise, asked = bench.ask()
    monkeypatch.setattr(bench.client, "refuse_unsupported", breaking)
    asked.event(request("q", "sampling/createMessage"))
    is_ended(bench, promise)


def test_an_answer_that_cannot_be_given_is_given_up(
    bench: HostBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    promise, asked = bench.ask()
    monkeypatch.setattr(bench.client, "respond_exception", breaking)
    asked.event(request("q", "elicitation/create", code=-7))
    assert [type(error) for _, error in bench.host.failures] == [Broken, Broken]
    assert not promise.is_done


@pytest.mark.parametrize("method", ["drive", "handle_timeout", "next_deadline"])
def test_a_machine_that_raises_ends_the_client(
    bench: HostBench, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    promise, _ = bench.ask()
    monkeypatch.setattr(bench.client, method, breaking)
    bench.host.handle_timeout()
    bench.host.next_deadline()
    is_ended(bench, promise)


def test_a_machine_that_cannot_be_closed_is_left(
    bench: HostBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    promise, _ = bench.ask()
    monkeypatch.setattr(bench.client, "close", breaking)
    monkeypatch.setattr(bench.client, "handle_timeout", breaking)
    bench.host.handle_timeout()
    is_ended(bench, promise)


def test_a_process_effect_that_fails_ends_the_client(
    bench: HostBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    promise, _ = bench.ask()
    monkeypatch.setattr(bench.host, "perform_effect", breaking)
    effects = iter([KillProcess()])
    monkeypatch.setattr(bench.client, "next_effect", lambda: next(effects, Idle.NEED_DATA))
    bench.host.run_pending()
    is_ended(bench, promise)


def test_a_round_names_the_call_that_asks() -> None:
    """Row C9 of the review."""
    bench = HostBench(versions=(MODERN,))
    bench.do(bench.client.start)
    asked = bench.take()
    asked.answer(discovered(asked.id, MODERN))
    promise = bench.host.call("tools/call", {"name": "t"})
    bench.take().result(input_required({"k": question()}, "state"))
    (asks,) = bench.host.requests
    assert asks.call == OriginatingCall(bench.host.handle, "tools/call", {"name": "t"})
    bench.take().result({"resultType": "complete", "done": True})
    assert promise.result()["done"] is True


def test_a_turn_names_the_call_that_asks() -> None:
    """Row C9 of the review."""
    bench = HostBench(multi_turn=True)
    bench.do(bench.client.start)
    asked = bench.take()
    answer = initialized(asked.id)
    answer["result"]["capabilities"]["experimental"] = {MULTI_TURN: {"sep": 1858}}
    asked.answer(answer)
    bench.take().accept()
    _, asked = bench.ask(params={"name": "t"})
    asked.feed(BodyData(encode_event(None, event="buffer_input", id="e0")))
    asked.event(request("q", "elicitation/create", message="?"), id="e1")
    (asks,) = bench.host.requests
    assert asks.call == OriginatingCall(bench.host.handle, "tools/call", {"name": "t"})
    assert bench.requests == []  # the answer is kept back until the turn ends
