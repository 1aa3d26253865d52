"""A server that floods its client: what it leaves behind is bounded, and the rest goes on."""

from __future__ import annotations

import pytest

from sansmcp import Limits
from sansmcp.events import CallCompleted, ProtocolViolation, ServerNotified, ServerRequestReceived

from .harness import ClientHarness, notification, request, response
from .process_harness import ProcessHarness

LIMITS = Limits(max_pending_calls=3)


def test_questions_that_wait_for_the_application_are_bounded() -> None:
    harness = ProcessHarness(limits=LIMITS).connect()
    handle, id = harness.make()
    for number in range(10):
        harness.ask(number, "x")
    kinds = [type(event) for event in harness.take_events()]
    assert kinds == [ServerRequestReceived] * 3 + [ProtocolViolation]  # said once
    harness.run_command(harness.client.respond, 1, {})
    harness.ask(11, "x")
    assert [type(event) for event in harness.take_events()] == [ServerRequestReceived]
    harness.ask(12, "x")
    harness.say(response(id))
    violation, *_, completed = harness.events
    assert isinstance(violation, ProtocolViolation)
    assert "3 requests" in violation.error.message
    assert completed == CallCompleted(handle, {})


def test_answers_that_the_server_does_not_take_are_bounded() -> None:
    harness = ClientHarness(limits=LIMITS).connect()
    handle, asked = harness.call()
    asked.open_stream()
    for number in range(10):
        asked.event(request(number, "ping"))
    posts = harness.requests.copy()
    harness.requests.clear()
    assert [post.id for post in posts] == [0, 1, 2]
    assert [type(event) for event in harness.take_events()] == [ProtocolViolation]
    posts[0].accept()
    asked.event(request(11, "ping"))
    assert harness.take().json == response(11)
    asked.event(response(asked.id))
    assert harness.events == [CallCompleted(handle, {})]


@pytest.mark.parametrize(("length", "resumes"), [(2048, True), (2049, False)])
def test_an_event_id_that_no_header_could_bring_back_is_none(length: int, resumes: bool) -> None:
    harness = ClientHarness().connect()
    _, asked = harness.call()
    asked.open_stream()
    asked.event(id="short")
    asked.event(notification("n"), id="x" * length)
    kinds = [type(event) for event in harness.take_events()]
    assert kinds == [ProtocolViolation] * (not resumes) + [ServerNotified]
    asked.cut()
    harness.wait(1)
    assert harness.take("GET").header("last-event-id") == ("x" * length if resumes else "short")


def test_reading_goes_on_when_half_of_the_events_are_taken() -> None:
    harness = ProcessHarness(limits=Limits(max_queued_events=4)).connect()
    harness.takes_events = False
    harness.say(*[notification(str(number)) for number in range(9)])
    taken: list[tuple[str, bool]] = []
    for _ in range(9):
        event = harness.client.next_event()
        assert isinstance(event, ServerNotified)
        harness.run_pending()
        taken.append((event.notification.method, harness.is_paused))
    assert taken == [(str(number), number < 5) for number in range(9)]
