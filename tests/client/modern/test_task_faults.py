"""Any interleaving of faults, states and questions ends a call once, and within its clocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import JsonRpcError, RequestTimeout, TaskCancelled
from sansmcp.events import CallCompleted, CallFailed, ServerRequestReceived

from ..harness import Asked, notification, response
from .harness import ModernClientHarness, failed, question
from .task_harness import DONE, ID, TOOL, acknowledge, handle_of, refuse_listening, state

FAULTS = (
    "good",
    "good stream",
    "lost",
    "answer lost",
    "half an answer",
    "silent",
    "busy",
    "broken",
    "limited",
    "page",
    "store",
    "stale",
)
ENDS = ("completed", "failed", "cancelled")
LISTENING = ("refused", "told", "cut", "ended", "silent", "of another task")


@attrs.define
class Plan:
    """What a server does with a task: work and questions in turn, then the end."""

    stages: list[int]
    """For each: 0 is a poll's time of work, n are so many questions at once."""
    end: str
    faults: list[str]
    """What becomes of the requests about the task, one after the other; then all is good."""
    delays: list[float]
    """How long the person needs for each answer; then none."""
    interval: int
    listening: str
    """What becomes of subscriptions to the task."""
    timeout: float = 1e6
    total_timeout: float = 1e6


PLANS = st.builds(
    Plan,
    st.lists(st.integers(0, 3), max_size=5) | st.lists(st.integers(0, 1), max_size=25),
    st.sampled_from(ENDS),
    st.lists(st.sampled_from(FAULTS), max_size=12),
    st.lists(st.floats(0, 20), max_size=5),
    st.sampled_from([200, 1000, 5000, 90_000]),
    st.sampled_from(LISTENING),
)
WITHIN_CLOCKS = st.builds(
    attrs.evolve, PLANS, timeout=st.floats(1, 60), total_timeout=st.floats(1, 200)
)


class Server:
    """A server that runs one task, and its network."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.faults: Iterator[str] = iter(plan.faults)
        self.stages = iter(plan.stages)
        self.keys = 0
        self.open: list[str] = []
        self.answers: dict[str, list[Any]] = {}
        self.is_over = False
        self.last: dict[str, Any] = {}
        """The state that was given last; a slow replica may give it again."""
        self.was_told_to_cancel = False
        self.listener: Asked | None = None

    def listen(self, asked: Asked) -> None:
        """Take a subscription."""
        if self.plan.listening == "refused":
            refuse_listening(asked)
            return
        if self.plan.listening == "silent":
            return
        acknowledge(asked, *(["other"] if self.plan.listening == "of another task" else [ID]))
        if self.plan.listening == "cut":
            asked.cut()
        elif self.plan.listening == "ended":
            asked.event(response(asked.id, {"resultType": "complete"}))
            asked.end()
        else:
            self.listener = asked

    def tell(self) -> None:
        """Tell the client of a change, if it has subscribed to that."""
        if self.plan.listening == "told" and self.listener and not self.listener.aborted:
            self.listener.event(notification("notifications/tasks", **state()))

    def take(self, asked: Asked) -> None:
        """Take a request: perform it, unless it is lost, and answer it, unless that is lost."""
        if asked.json["method"] == "subscriptions/listen":
            self.listen(asked)
            return
        fault = next(self.faults, "good")
        if asked.json["method"] == "tasks/cancel":
            self.was_told_to_cancel = True
        match fault:
            case "lost":
                asked.cut()
            case "silent":
                pass
            case "busy":
                asked.refuse(503)
            case "broken":
                asked.refuse(500, b"<html>")
            case "limited":
                asked.refuse(429, retry_after="3")
            case "page":  # of a proxy
                asked.refuse(200, b"<html>", content_type="text/html")
            case "store":
                asked.answer(failed(asked.id, -32603, "the store fails"))
            case "stale" if asked.json["method"] == "tasks/get" and self.last:
                asked.result(self.last)
            case _:
                self.answer(asked, self.perform(asked), fault)
                if not self.open:
                    self.tell()

    def answer(self, asked: Asked, result: Any, fault: str) -> None:
        if fault in ("good", "stale"):
            asked.result(result)
        elif fault == "good stream":
            asked.open_stream()
            asked.event(response(asked.id, result))
            asked.end()
        elif fault == "half an answer":
            asked.open_stream()
            asked.cut()
        else:
            assert fault == "answer lost"
            asked.cut()

    def perform(self, asked: Asked) -> Any:
        params = asked.json["params"]
        match asked.json["method"]:
            case "tasks/get":
                if not self.is_over:
                    self.last = self.state()
                return self.last
            case "tasks/update":
                assert params["inputResponses"]
                for key, answer in params["inputResponses"].items():
                    self.answers[key].append(answer)
                    if key in self.open:
                        self.open.remove(key)
            case method:
                assert method == "tasks/cancel"
        return {"resultType": "complete"}

    def state(self) -> dict[str, Any]:
        if not self.open and not self.is_over:
            stage = next(self.stages, None)
            self.is_over = stage is None
            for _ in range(stage or 0):
                self.keys += 1
                self.open.append(f"q{self.keys}")
                self.answers[f"q{self.keys}"] = []
        interval = self.plan.interval
        if self.is_over:
            end: dict[str, Any] = {"result": DONE, "error": {"code": 7, "message": "m"}}
            member = {"completed": "result", "failed": "error"}.get(self.plan.end)
            return state(self.plan.end, **({member: end[member]} if member else {}))
        if self.open:
            questions = {key: question(key=key) for key in self.open}
            return state("input_required", inputRequests=questions, pollIntervalMs=interval)
        return state(pollIntervalMs=interval)


def run(plan: Plan) -> tuple[ModernClientHarness, Server, CallCompleted | CallFailed]:
    """Play until the call ends, and until the client is quiet."""
    harness = ModernClientHarness(standalone_stream=False, capabilities={"elicitation": {}})
    harness.connect()
    server = Server(plan)
    call, asked = harness.call(params=TOOL, timeout=plan.timeout, total_timeout=plan.total_timeout)
    asked.result(handle_of(pollIntervalMs=plan.interval))
    delays = iter(plan.delays)
    person: list[tuple[float, Any]] = []
    ends: list[CallCompleted | CallFailed] = []
    seen: set[str] = set()
    for _ in range(2000):
        for event in harness.take_events():
            if isinstance(event, ServerRequestReceived):
                key = (event.request.params or {})["key"]
                assert key not in seen
                seen.add(key)
                person.append((harness.now + next(delays, 0), event.request.id))
            elif isinstance(event, CallCompleted | CallFailed):
                ends.append(event)
        if harness.requests:
            server.take(harness.requests.pop(0))
            continue
        due = harness.next_deadline()
        times = [when for when, _ in person] + ([] if due is None else [due])
        if not times:
            break
        harness.wait(max(min(times) - harness.now, 0))
        for when, id in tuple(person):
            if when <= harness.now:
                person.remove((when, id))
                harness.run_command(harness.client.respond, id, {"action": "accept"})
    else:
        raise AssertionError("it has no end")
    (end,) = ends
    assert end.call == call
    return harness, server, end


@given(PLANS)
def test_where_the_clocks_allow_it_a_call_has_the_end_of_its_task(plan: Plan) -> None:
    """Whatever is lost meanwhile; and every question has been answered."""
    _, server, end = run(plan)
    error = end.error if isinstance(end, CallFailed) else None
    match plan.end:
        case "completed":
            assert isinstance(end, CallCompleted)
            assert end.result == DONE
        case "failed":
            assert isinstance(error, JsonRpcError)
            assert error.code == 7
        case _:
            assert isinstance(error, TaskCancelled)
    assert not server.was_told_to_cancel
    assert all(
        answers == [{"action": "accept"}] * len(answers) for answers in server.answers.values()
    )
    assert all(server.answers.values())


@given(WITHIN_CLOCKS)
def test_otherwise_it_times_out_in_time_and_cancels_the_task(plan: Plan) -> None:
    harness, server, end = run(plan)
    if isinstance(end, CallFailed) and isinstance(end.error, RequestTimeout):
        person = sum(plan.delays) + 1e-6
        assert end.error.seconds <= plan.total_timeout + person
        assert server.was_told_to_cancel
    else:
        assert isinstance(end, CallCompleted) or type(end.error) in (JsonRpcError, TaskCancelled)
        assert not server.was_told_to_cancel
    assert harness.client.next_deadline() is None
