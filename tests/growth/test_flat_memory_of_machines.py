"""A server and a client hold what is under way, within the limits, and give it back at the end."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import BodyData, Limits, ServerCall, Session, encode_event
from sansmcp.events import CallCompleted, ServerNotified
from tests.client.harness import Asked
from tests.client.harness import ClientHarness as ClientHarness
from tests.server.harness import RawExchange, notification, request
from tests.server.harness import ServerHarness as ServerHarness

from .decoders import NOTIFICATION
from .work import NOISE, held, tracing

KIB = 1024
SMALL = Limits(
    max_unsent_bytes=16 * KIB,
    max_pending_entries=64,
    max_queued_events=32,
    max_pending_calls=64,
    replay_page_entries=8,
    max_stored_bytes=64 * KIB,
    max_stored_entries=200,
)
MESSAGE = 200
"""Bytes that a notification takes on the wire, at most."""


# Idle sessions


def opened(harness: ServerHarness, count: int) -> int:
    """The memory that so many more sessions take."""
    before = held()
    for _ in range(count):
        harness.open_session()
    return held() - before


def expire_all(harness: ServerHarness) -> None:
    harness.wait(harness.server.limits.session_idle_timeout + 1)
    harness.events.clear()
    assert harness.server.sessions == ()


def test_an_idle_session_takes_less_than_three_kibibytes() -> None:
    with tracing():
        harness = ServerHarness()
        opened(harness, 50)
        first, second = opened(harness, 200), opened(harness, 400)
    assert second < 2.2 * first
    assert second < 400 * 3 * KIB


def test_sessions_that_expire_give_everything_back() -> None:
    with tracing():
        harness = ServerHarness()
        taken = opened(harness, 400)
        expire_all(harness)
        empty = held()
        assert opened(harness, 400) < taken
        expire_all(harness)
        assert held() < empty + NOISE


def test_sessions_that_were_used_give_everything_back() -> None:
    def use(harness: ServerHarness, sessions: int) -> None:
        for _ in range(sessions):
            session = harness.open_session()
            listener = harness.get(session)
            _, call = harness.call(session, token=1)
            harness.run_action(call.progress, 1)
            harness.run_action(call.respond, {})
            listener.lose_connection()
        expire_all(harness)

    with tracing():
        harness = ServerHarness()
        use(harness, 200)
        before = held()
        use(harness, 200)
        assert held() < before + NOISE


@pytest.mark.parametrize("store_works", [True, False])
def test_a_session_that_ends_leaves_nothing_in_the_store(store_works: bool) -> None:
    harness = ServerHarness(store_works=store_works)
    _, call = harness.call(harness.open_session())
    for number in range(5):
        harness.run_action(call.notify, f"n/{number}")
    (session,) = harness.server.sessions
    harness.run_action(harness.server.end_session, session, "test")
    while harness.waiting:
        harness.use_store_once()
    assert harness.store.count == 0


# A slow reader


def slow_call(harness: ServerHarness) -> tuple[RawExchange, ServerCall]:
    """A call whose client takes nothing of the answer."""
    talk, call = harness.call(harness.open_session(), token=1)
    talk.reads = False
    return talk, call


def report_while_there_is_room(harness: ServerHarness, call: ServerCall) -> int:
    """What a handler does that waits when it is told to; how often it could report."""
    for count in range(10_000):
        if call.is_above_high_water:
            return count
        harness.run_action(call.progress, count)
    raise AssertionError("the handler was never told to wait")


def test_a_slow_reader_of_a_stored_stream_holds_up_nobody_and_costs_no_memory() -> None:
    with tracing():
        harness = ServerHarness(limits=SMALL)
        talk, call = slow_call(harness)
        for number in range(1000):
            harness.run_action(call.progress, number)
        before = held()
        for number in range(1000, 4000):
            harness.run_action(call.progress, number)
        assert held() < before + NOISE
    assert not call.is_above_high_water
    assert talk.exchange.unsent < SMALL.max_unsent_bytes + SMALL.replay_page_entries * MESSAGE
    assert harness.store.count <= SMALL.max_stored_entries


def test_without_a_store_the_handler_waits_for_a_slow_reader() -> None:
    harness = ServerHarness(limits=SMALL, resumable=False)
    talk, call = slow_call(harness)
    report_while_there_is_room(harness, call)
    assert talk.exchange.unsent < SMALL.max_unsent_bytes + MESSAGE
    talk.reads = True
    talk.pull()
    assert not call.is_above_high_water


def test_a_handler_waits_for_a_slow_store() -> None:
    harness = ServerHarness(limits=SMALL, store_works=False)
    _, call = slow_call(harness)
    assert report_while_there_is_room(harness, call) <= SMALL.max_pending_entries + 1
    while harness.waiting:
        harness.use_store_once()
    assert not call.is_above_high_water


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="slow reader"),
        pytest.param({"resumable": False}, id="slow reader, no store"),
        pytest.param({"store_works": False}, id="slow store"),
    ],
)
def test_notifications_of_a_session_are_bounded(settings: dict[str, Any]) -> None:
    def notify(session: Session, count: int) -> None:
        for number in range(count):
            harness.run_action(session.notify, "n", {"number": number})

    with tracing():
        harness = ServerHarness(limits=SMALL, **settings)
        id = harness.open_session()
        harness.get(id).reads = False
        (session,) = harness.server.sessions
        notify(session, 500)
        before = held()
        notify(session, 2000)
        assert held() < before + NOISE


# A slow application


def test_a_server_whose_application_takes_nothing_reads_no_further_requests() -> None:
    harness = ServerHarness(limits=SMALL)
    session = harness.open_session()
    harness.takes_events = False
    talk = RawExchange(harness)
    while not talk.paused:
        harness.post(notification("n"), session)
        talk.pull()
    harness.takes_events = True
    harness.run_pending()
    assert not talk.paused
    assert len(harness.events) == SMALL.max_queued_events


def streaming(**settings: Any) -> tuple[ClientHarness, Asked]:
    """A client with a call whose stream has begun."""
    harness = ClientHarness(limits=SMALL, **settings).connect()
    _, asked = harness.call()
    asked.open_stream()
    return harness, asked


def test_a_client_whose_application_takes_nothing_pauses() -> None:
    harness, asked = streaming()
    harness.takes_events = False
    count = 0
    while not harness.is_paused:
        asked.event(NOTIFICATION)
        count += 1
    assert count == SMALL.max_queued_events


def test_a_paused_client_decodes_nothing_of_what_it_has_read() -> None:
    chunk = encode_event(NOTIFICATION) * 5000
    with tracing():
        harness, asked = streaming()
        harness.takes_events = False
        before = held()
        asked.feed(BodyData(chunk))
        assert harness.is_paused
        assert held() - before < 1.3 * len(chunk)
        harness.takes_events = True
        harness.run_pending()
        assert len([event for event in harness.events if isinstance(event, ServerNotified)]) == 5000
        harness.events.clear()
        asked.event(NOTIFICATION)  # lets go of the chunk
        assert held() - before < NOISE


# What a client does for its server


@pytest.mark.parametrize(
    ("method", "capabilities"),
    [
        pytest.param("ping", {}, id="pings"),
        pytest.param("roots/list", {}, id="questions it cannot answer"),
        pytest.param("roots/list", {"roots": {}}, id="questions for the application"),
    ],
)
def test_a_server_that_asks_without_end_is_not_read_without_end(
    method: str, capabilities: dict[str, Any]
) -> None:
    harness, asked = streaming(capabilities=capabilities)
    for id in range(500):
        asked.event(request(id, method))
        if harness.is_paused:
            break
    assert (
        len(harness.requests) + len(harness.events) <= SMALL.max_pending_calls + 1
    )  # and the reason


def test_the_event_ids_that_a_client_remembers_are_bounded_in_bytes() -> None:
    with tracing():
        harness, asked = streaming()
        before = held()
        for number in range(50):
            asked.event(NOTIFICATION, id=f"{number}-" + "x" * 100 * KIB)
            harness.events.clear()
        assert held() - before < 1024 * KIB


# Finished calls


class Forgetful(ClientHarness):
    """Remembers nothing of what was done."""

    def call_and_finish(self, **options: Any) -> None:
        _, asked = self.call(**options)
        asked.result()
        assert isinstance(self.events.pop(), CallCompleted)
        self._asked.clear()


def test_thousands_of_finished_calls_leave_nothing_with_the_client() -> None:
    with tracing():
        harness = Forgetful()
        harness.connect()
        for _ in range(500):
            harness.call_and_finish()
        before = held()
        for _ in range(2500):
            harness.call_and_finish()
        assert held() < before + NOISE


def test_a_finished_call_lets_go_of_its_parameters_at_once() -> None:
    with tracing():
        harness = Forgetful()
        harness.connect()
        harness.call()  # goes on
        before = held()
        for _ in range(20):
            harness.call_and_finish(params={"text": "x" * 100 * KIB})
            assert harness.client.next_deadline() is not None
        assert held() < before + 200 * KIB


def test_thousands_of_finished_calls_leave_nothing_with_the_server() -> None:
    def use(count: int) -> None:
        for _ in range(count):
            _, call = harness.call(session, token=1)
            harness.run_action(call.progress, 1)
            harness.run_action(call.respond, {})

    with tracing():
        harness = ServerHarness(limits=SMALL)
        session = harness.open_session()
        use(500)
        before = held()
        use(1000)
        assert held() < before + NOISE
