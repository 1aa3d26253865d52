"""A rate limit that all instances count together, in the store that they share."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from sansmcp import MemoryStore, RateLimit
from sansmcp.effects import ServerEffect, StoreTake
from sansmcp.events import StoreFailed
from sansmcp.server import admission

from .harness import LATEST, ServerHarness, expect, initialize, notification, request
from .instances import Instances
from .modern.harness import ModernServerHarness, modern, modern_app
from .sse_harness import SseClient
from .test_rates import LIMIT, calls_of, refused


class Taking(ModernServerHarness):
    """An instance whose store is asked for tokens, and has not answered yet."""

    def __init__(self, **settings: Any) -> None:
        self.takes: list[StoreTake] = []
        defaults: dict[str, Any] = {"shared_store": True, "rate_limit": LIMIT, "stream_after": 0.5}
        super().__init__(modern_app(), **{**defaults, **settings})

    def perform(self, effect: ServerEffect) -> None:
        if isinstance(effect, StoreTake):
            self.takes.append(effect)
        else:
            super().perform(effect)

    def answer(self, wait: float) -> None:
        """Let the store answer the oldest question."""
        self.run_action(self.server.take_completed, self.takes.pop(0), wait)

    def fail(self) -> None:
        """Let the store fail at the oldest question."""
        self.run_action(self.server.store_failed, self.takes.pop(0), "disk full")


def slow(version: str = LATEST, **settings: Any) -> tuple[Taking, str]:
    """Such an instance, and a session that has taken one of three tokens."""
    harness = Taking(**settings)
    talk = harness.post(initialize(version, {}))
    harness.answer(0.0)
    session = talk.header("mcp-session-id")
    assert session is not None
    return harness, session


def test_instances_count_together() -> None:
    first, second = instances = Instances(rate_limit=LIMIT)
    session = instances.open_session()
    talks = [each.post(request(id), session) for id, each in enumerate((second, first))]
    assert calls_of(first) + calls_of(second) == 2
    assert refused(second.post(request(3), session), id=3) == 2
    assert refused(first.post(request(4), session), id=4) == 2
    instances.wait(2)
    first.post(request(5), session)
    assert refused(second.post(request(6), session), id=6) == 2
    assert calls_of(first) == 2
    assert all(talk.status == 200 for talk in talks)


@pytest.mark.parametrize("wait", [0.0, 3.2])
def test_a_request_waits_for_the_answer_of_the_store(wait: float) -> None:
    harness, session = slow()
    talk = harness.post(request(1), session)
    (effect,) = harness.takes
    assert (effect.count, effect.limit) == (1, LIMIT)
    harness.wait(0.9)
    assert (calls_of(harness), talk.status) == (0, None)
    harness.answer(wait)
    assert calls_of(harness) == (0 if wait else 1)
    if wait:
        assert refused(talk, id=1) == 4
    harness.wait(5)
    assert calls_of(harness) == (0 if wait else 1)


def test_what_the_instance_refuses_is_no_question_to_the_store() -> None:
    harness, session = slow()
    for id in (1, 2):
        harness.post(request(id), session)
    refused(harness.post(request(3), session), id=3)
    harness.post(notification("x"), session)
    assert len(harness.takes) == 2


@pytest.mark.parametrize("settings", [{"shared_store": False}, {"rate_limit": None}])
def test_without_others_or_a_limit_the_store_is_not_asked(settings: Any) -> None:
    harness = Taking(**settings)
    assert harness.post(initialize(LATEST, {})).status == 200
    assert harness.takes == []


def test_a_store_that_fails_refuses_nobody() -> None:
    harness, session = slow()
    harness.post(request(1), session)
    harness.fail()
    assert calls_of(harness) == 1
    assert StoreFailed("disk full", lost=False) in harness.events


def test_a_store_that_is_down_is_not_asked() -> None:
    harness = Taking(rate_limit=RateLimit(1, 100))
    for id in range(5):
        harness.ask(modern(id))
    for _ in range(5):
        harness.fail()
    harness.ask(modern(5))
    assert (calls_of(harness), harness.takes) == (6, [])
    harness.wait(1)
    harness.ask(modern(6))
    assert (calls_of(harness), len(harness.takes)) == (6, 1)  # it is tried again


def test_2026() -> None:
    harness = ModernServerHarness(modern_app(), rate_limit=LIMIT, shared_store=True)
    other = ModernServerHarness(
        modern_app(), rate_limit=LIMIT, shared_store=True, store=harness.store
    )
    for id, each in enumerate((harness, other, harness)):
        assert each.ask(modern(id, "server/discover")).status == 200
    for each in (harness, other):
        assert refused(each.ask(modern(9, "server/discover")), id=9) == 2


def _returned(result: object, *arguments: object, now: float) -> object:
    return result


def test_a_result_that_is_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ServerHarness(shared_store=True, rate_limit=LIMIT)
    for result in (None, -1.0, float("inf"), float("nan"), "1"):
        monkeypatch.setattr(MemoryStore, "take", staticmethod(partial(_returned, result)))
        harness.events.clear()
        harness.post(initialize(LATEST, {}))
        (failure,) = [each for each in harness.events if isinstance(each, StoreFailed)]
        assert "MemoryStore.take() must return a finite number from 0 on, got" in failure.reason
        harness.wait(2)


def test_a_store_that_does_not_answer_is_not_waited_for() -> None:
    harness, session = slow()
    first, second = (harness.post(request(id), session) for id in (1, 2))
    harness.wait(0.9)
    assert calls_of(harness) == 0
    harness.wait(0.1)
    assert calls_of(harness) == 2
    harness.wait(2)
    harness.post(request(3), session)  # handled at once: an answer is overdue
    assert calls_of(harness) == 3
    assert len(harness.takes) == 2
    harness.answer(5.0)  # too late
    harness.answer(0.0)
    assert (first.status, second.status, calls_of(harness)) == (200, 200, 3)
    harness.wait(2)
    harness.post(request(4), session)
    assert len(harness.takes) == 1
    assert calls_of(harness) == 3


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_MAX_WAITING", 1)
    harness, session = slow()
    for id in (1, 2):
        harness.post(request(id), session)
    assert len(harness.takes) == 1
    assert calls_of(harness) == 1


def test_a_client_that_has_gone_is_not_served() -> None:
    harness, session = slow()
    harness.post(request(1), session).lose_connection()
    harness.answer(0.0)
    harness.wait(5)
    assert calls_of(harness) == 0


def test_a_server_that_drains_or_stops_meanwhile() -> None:
    harness, session = slow()
    first, second = (harness.post(request(id), session) for id in (1, 2))
    harness.run_action(harness.server.drain)
    harness.answer(0.0)
    expect(first, 503, "shutting_down", id=1)
    harness.run_action(harness.server.shut_down)
    expect(second, 503, "shutting_down", id=2)
    harness.answer(0.0)
    assert calls_of(harness) == 0


def test_a_server_that_stops_after_the_client_or_the_time_has_gone() -> None:
    harness, session = slow()
    first = harness.post(request(1), session)
    harness.wait(1)
    assert calls_of(harness) == 1
    harness.run_action(harness.last_call().respond, {})
    assert first.status == 200
    harness.answer(0.0)
    harness.post(request(2), session).lose_connection()
    harness.run_action(harness.server.shut_down)
    assert calls_of(harness) == 0


def test_a_batch_is_one_question() -> None:
    harness, session = slow("2025-03-26")
    harness.post([request(1), notification("x"), request(2)], session)
    (effect,) = harness.takes
    assert effect.count == 2
    harness.answer(0.0)
    assert calls_of(harness) == 2


def test_a_session_that_ends_meanwhile() -> None:
    harness, session = slow()
    talk = harness.post(request(1), session)
    harness.send("DELETE", {"mcp-session-id": session})
    harness.answer(0.0)
    assert talk.status == 404
    assert calls_of(harness) == 0


@pytest.mark.parametrize("is_open", [True, False])
def test_http_sse(is_open: bool) -> None:
    harness = Taking(http_sse="/sse")
    client = SseClient(harness)
    client.post(initialize("2024-11-05", {}))
    harness.answer(0.0)
    talk = client.post(request(1))
    assert talk.status is None
    if not is_open:
        client.stream.lose_connection()
    harness.answer(0.0)
    assert talk.status == (202 if is_open else 404)
    assert calls_of(harness) == is_open
    if is_open:
        refused_later = client.post(request(2))
        harness.answer(1.0)
        assert refused(refused_later, id=2) == 1
