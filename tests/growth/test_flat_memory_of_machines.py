"""A server and a client hold what is under way, within the limits, and give it back at the end."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import BodyData, Limits, ServerCall, Session, encode_event
from sansmcp.events import CallCompleted, ServerNotified
from tests.client.bench import Asked
from tests.client.bench import Bench as ClientBench
from tests.server.bench import Bench as ServerBench
from tests.server.bench import Talk, notification, request

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


def opened(bench: ServerBench, count: int) -> int:
    """The memory that so many more sessions take."""
    before = held()
    for _ in range(count):
        bench.open_session()
    return held() - before


def expire_all(bench: ServerBench) -> None:
    bench.wait(bench.server.limits.session_idle_timeout + 1)
    bench.events.clear()
    assert bench.server.sessions == ()


def test_an_idle_session_takes_less_than_three_kibibytes() -> None:
    with tracing():
        bench = ServerBench()
        opened(bench, 50)
        first, second = opened(bench, 200), opened(bench, 400)
    assert second < 2.2 * first
    assert second < 400 * 3 * KIB


def test_sessions_that_expire_give_everything_back() -> None:
    with tracing():
        bench = ServerBench()
        taken = opened(bench, 400)
        expire_all(bench)
        empty = held()
        assert opened(bench, 400) < taken
        expire_all(bench)
        assert held() < empty + NOISE


def test_sessions_that_were_used_give_everything_back() -> None:
    def use(bench: ServerBench, sessions: int) -> None:
        for _ in range(sessions):
            session = bench.open_session()
            listener = bench.get(session)
            _, call = bench.call(session, token=1)
            bench.do(call.progress, 1)
            bench.do(call.respond, {})
            listener.gone()
        expire_all(bench)

    with tracing():
        bench = ServerBench()
        use(bench, 200)
        before = held()
        use(bench, 200)
        assert held() < before + NOISE


@pytest.mark.parametrize("store_works", [True, False])
def test_a_session_that_ends_leaves_nothing_in_the_store(store_works: bool) -> None:
    bench = ServerBench(store_works=store_works)
    _, call = bench.call(bench.open_session())
    for number in range(5):
        bench.do(call.notify, f"n/{number}")
    (session,) = bench.server.sessions
    bench.do(bench.server.end_session, session, "test")
    while bench.waiting:
        bench.use_store_once()
    assert bench.store.count == 0


# A slow reader


def slow_call(bench: ServerBench) -> tuple[Talk, ServerCall]:
    """A call whose client takes nothing of the answer."""
    talk, call = bench.call(bench.open_session(), token=1)
    talk.reads = False
    return talk, call


def report_while_there_is_room(bench: ServerBench, call: ServerCall) -> int:
    """What a handler does that waits when it is told to; how often it could report."""
    for count in range(10_000):
        if call.is_above_high_water:
            return count
        bench.do(call.progress, count)
    raise AssertionError("the handler was never told to wait")


def test_a_slow_reader_of_a_stored_stream_holds_up_nobody_and_costs_no_memory() -> None:
    with tracing():
        bench = ServerBench(limits=SMALL)
        talk, call = slow_call(bench)
        for number in range(1000):
            bench.do(call.progress, number)
        before = held()
        for number in range(1000, 4000):
            bench.do(call.progress, number)
        assert held() < before + NOISE
    assert not call.is_above_high_water
    assert talk.exchange.unsent < SMALL.max_unsent_bytes + SMALL.replay_page_entries * MESSAGE
    assert bench.store.count <= SMALL.max_stored_entries


def test_without_a_store_the_handler_waits_for_a_slow_reader() -> None:
    bench = ServerBench(limits=SMALL, resumable=False)
    talk, call = slow_call(bench)
    report_while_there_is_room(bench, call)
    assert talk.exchange.unsent < SMALL.max_unsent_bytes + MESSAGE
    talk.reads = True
    talk.pull()
    assert not call.is_above_high_water


def test_a_handler_waits_for_a_slow_store() -> None:
    bench = ServerBench(limits=SMALL, store_works=False)
    _, call = slow_call(bench)
    assert report_while_there_is_room(bench, call) <= SMALL.max_pending_entries + 1
    while bench.waiting:
        bench.use_store_once()
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
            bench.do(session.notify, "n", {"number": number})

    with tracing():
        bench = ServerBench(limits=SMALL, **settings)
        id = bench.open_session()
        bench.get(id).reads = False
        (session,) = bench.server.sessions
        notify(session, 500)
        before = held()
        notify(session, 2000)
        assert held() < before + NOISE


# A slow application


def test_a_server_whose_application_takes_nothing_reads_no_further_requests() -> None:
    bench = ServerBench(limits=SMALL)
    session = bench.open_session()
    bench.takes_events = False
    talk = Talk(bench)
    while not talk.paused:
        bench.post(notification("n"), session)
        talk.pull()
    bench.takes_events = True
    bench.settle()
    assert not talk.paused
    assert len(bench.events) == SMALL.max_queued_events


def streaming(**settings: Any) -> tuple[ClientBench, Asked]:
    """A client with a call whose stream has begun."""
    bench = ClientBench(limits=SMALL, **settings).connect()
    _, asked = bench.call()
    asked.open_stream()
    return bench, asked


def test_a_client_whose_application_takes_nothing_pauses() -> None:
    bench, asked = streaming()
    bench.takes_events = False
    count = 0
    while not bench.is_paused:
        asked.event(NOTIFICATION)
        count += 1
    assert count == SMALL.max_queued_events


def test_a_paused_client_decodes_nothing_of_what_it_has_read() -> None:
    chunk = encode_event(NOTIFICATION) * 5000
    with tracing():
        bench, asked = streaming()
        bench.takes_events = False
        before = held()
        asked.feed(BodyData(chunk))
        assert bench.is_paused
        assert held() - before < 1.3 * len(chunk)
        bench.takes_events = True
        bench.settle()
        assert len([event for event in bench.events if isinstance(event, ServerNotified)]) == 5000
        bench.events.clear()
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
    bench, asked = streaming(capabilities=capabilities)
    for id in range(500):
        asked.event(request(id, method))
        if bench.is_paused:
            break
    assert len(bench.requests) + len(bench.events) <= SMALL.max_pending_calls + 1  # and the reason


def test_the_event_ids_that_a_client_remembers_are_bounded_in_bytes() -> None:
    with tracing():
        bench, asked = streaming()
        before = held()
        for number in range(50):
            asked.event(NOTIFICATION, id=f"{number}-" + "x" * 100 * KIB)
            bench.events.clear()
        assert held() - before < 1024 * KIB


# Finished calls


class Forgetful(ClientBench):
    """Remembers nothing of what was done."""

    def call_and_finish(self, **options: Any) -> None:
        _, asked = self.call(**options)
        asked.result()
        assert isinstance(self.events.pop(), CallCompleted)
        self._asked.clear()


def test_thousands_of_finished_calls_leave_nothing_with_the_client() -> None:
    with tracing():
        bench = Forgetful()
        bench.connect()
        for _ in range(500):
            bench.call_and_finish()
        before = held()
        for _ in range(2500):
            bench.call_and_finish()
        assert held() < before + NOISE


def test_a_finished_call_lets_go_of_its_parameters_at_once() -> None:
    with tracing():
        bench = Forgetful()
        bench.connect()
        bench.call()  # goes on
        before = held()
        for _ in range(20):
            bench.call_and_finish(params={"text": "x" * 100 * KIB})
            assert bench.client.next_deadline() is not None
        assert held() < before + 200 * KIB


def test_thousands_of_finished_calls_leave_nothing_with_the_server() -> None:
    def use(count: int) -> None:
        for _ in range(count):
            _, call = bench.call(session, token=1)
            bench.do(call.progress, 1)
            bench.do(call.respond, {})

    with tracing():
        bench = ServerBench(limits=SMALL)
        session = bench.open_session()
        use(500)
        before = held()
        use(1000)
        assert held() < before + NOISE
