"""A server that floods its client: what it leaves behind is bounded, and the rest goes on."""

from __future__ import annotations

import pytest

from sansmcp import Limits
from sansmcp.events import CallCompleted, ProtocolViolation, ServerNotified, ServerRequestReceived

from .bench import Bench, notification, request, response
from .process_bench import ProcessBench

LIMITS = Limits(max_pending_calls=3)


def test_questions_that_wait_for_the_application_are_bounded() -> None:
    bench = ProcessBench(limits=LIMITS).connect()
    handle, id = bench.make()
    for number in range(10):
        bench.ask(number, "x")
    kinds = [type(event) for event in bench.take_events()]
    assert kinds == [ServerRequestReceived] * 3 + [ProtocolViolation]  # said once
    bench.do(bench.client.respond, 1, {})
    bench.ask(11, "x")
    assert [type(event) for event in bench.take_events()] == [ServerRequestReceived]
    bench.ask(12, "x")
    bench.say(response(id))
    violation, *_, completed = bench.events
    assert isinstance(violation, ProtocolViolation)
    assert "3 requests" in violation.error.message
    assert completed == CallCompleted(handle, {})


def test_answers_that_the_server_does_not_take_are_bounded() -> None:
    bench = Bench(limits=LIMITS).connect()
    handle, asked = bench.call()
    asked.open_stream()
    for number in range(10):
        asked.event(request(number, "ping"))
    posts = bench.requests.copy()
    bench.requests.clear()
    assert [post.id for post in posts] == [0, 1, 2]
    assert [type(event) for event in bench.take_events()] == [ProtocolViolation]
    posts[0].accept()
    asked.event(request(11, "ping"))
    assert bench.take().json == response(11)
    asked.event(response(asked.id))
    assert bench.events == [CallCompleted(handle, {})]


@pytest.mark.parametrize(("length", "resumes"), [(2048, True), (2049, False)])
def test_an_event_id_that_no_header_could_bring_back_is_none(length: int, resumes: bool) -> None:
    bench = Bench().connect()
    _, asked = bench.call()
    asked.open_stream()
    asked.event(id="short")
    asked.event(notification("n"), id="x" * length)
    kinds = [type(event) for event in bench.take_events()]
    assert kinds == [ProtocolViolation] * (not resumes) + [ServerNotified]
    asked.cut()
    bench.wait(1)
    assert bench.take("GET").header("last-event-id") == ("x" * length if resumes else "short")


def test_reading_goes_on_when_half_of_the_events_are_taken() -> None:
    bench = ProcessBench(limits=Limits(max_queued_events=4)).connect()
    bench.takes_events = False
    bench.say(*[notification(str(number)) for number in range(9)])
    taken: list[tuple[str, bool]] = []
    for _ in range(9):
        event = bench.client.next_event()
        assert isinstance(event, ServerNotified)
        bench.settle()
        taken.append((event.notification.method, bench.is_paused))
    assert taken == [(str(number), number < 5) for number in range(9)]
