"""What one session or one call costs does not depend on how many others there are."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from sansmcp import Limits, Server
from sansmcp.server.calls import CallOwner
from sansmcp.timers import Timer, TimerTable
from tests.client.harness import Asked
from tests.client.harness import ClientHarness as ClientHarness
from tests.server.harness import ServerHarness as ServerHarness
from tests.server.harness import notification, request

from .decoders import NOTIFICATION
from .work import allocated, steps, tracing

FEW, MANY = 50, 1000


def once(action: Callable[[], object]) -> Iterator[None]:
    """One piece of work."""
    action()
    yield


def cost(action: Callable[[], object]) -> tuple[int, int]:
    """Steps and bytes that something takes, if nothing has to be tidied up just then."""
    action()
    lines = min(steps(once(action)) for _ in range(3))
    return lines, min(allocated(once(action)) for _ in range(3))


def assert_same(few: tuple[int, int], many: tuple[int, int]) -> None:
    """Not more than half as much again; what grows with the number costs twenty times as much."""
    assert many[0] < 1.5 * few[0] + 20
    assert many[1] < 1.5 * few[1] + 1024


# A server with many sessions


class Crowd(ServerHarness):
    """A server with idle sessions, of which one is used; each was opened a second later."""

    def __init__(self, sessions: int) -> None:
        super().__init__()
        for _ in range(sessions):
            self.now = self.now + 1.0
            self.session = self.open_session()

    def ping(self) -> None:
        assert self.post(request(1, "ping"), self.session).status == 200

    def run_a_call(self) -> None:
        talk, call = self.call(self.session, token=1)
        self.run_action(call.progress, 1)
        self.run_action(call.respond, {})
        assert talk.ended
        self.server.next_deadline()

    def notify(self) -> None:
        assert self.post(notification("n"), self.session).status == 202

    def be_refused(self) -> None:
        assert self.post(request(1, "ping"), "unknown").status == 404

    def open_and_delete(self) -> None:
        session = self.open_session()
        assert self.send("DELETE", {"mcp-session-id": session}).status == 200

    def listen_and_leave(self) -> None:
        self.get(self.session).lose_connection()

    def ask_for_the_deadline(self) -> None:
        assert self.server.next_deadline() is not None

    def time_out_early(self) -> None:
        self.server.handle_timeout(now=self.now)

    def let_one_expire(self) -> None:
        deadline = self.server.next_deadline()
        assert deadline is not None
        self.server.handle_timeout(now=deadline)
        self.run_pending()


@pytest.mark.parametrize(
    "action",
    [
        Crowd.ping,
        Crowd.run_a_call,
        Crowd.notify,
        Crowd.be_refused,
        Crowd.open_and_delete,
        Crowd.listen_and_leave,
        Crowd.ask_for_the_deadline,
        Crowd.time_out_early,
        Crowd.let_one_expire,
    ],
)
def test_one_request_costs_the_same_among_many_sessions(action: Callable[[Crowd], None]) -> None:
    few, many = (Crowd(sessions) for sessions in (FEW, MANY))
    assert_same(cost(lambda: action(few)), cost(lambda: action(many)))


def test_one_timer_that_is_due_ends_one_session() -> None:
    crowd = Crowd(FEW)
    crowd.let_one_expire()
    assert len(crowd.server.sessions) == FEW - 1


def test_ending_one_session_costs_the_same_among_many() -> None:
    def ended(sessions: int) -> tuple[int, int]:
        crowd = Crowd(sessions)
        ending = list(crowd.server.sessions[:7])
        return cost(lambda: crowd.run_action(crowd.server.end_session, ending.pop(), "test"))

    assert_same(ended(FEW), ended(MANY))


# A client with many calls


class Busy(ClientHarness):
    """A client with many calls, of which the streams are open."""

    def __init__(self, calls: int) -> None:
        super().__init__(limits=Limits(max_pending_calls=2000, max_queued_events=20))
        self.connect()
        self.asked: list[Asked] = []
        for _ in range(calls):
            self.now += 0.001
            _, asked = self.call(timeout=1000, total_timeout=2000)
            asked.open_stream()
            self.asked.append(asked)

    def call_and_finish(self) -> None:
        _, asked = self.call()
        asked.result()
        self.client.next_deadline()
        self.events.clear()

    def call_and_cancel(self) -> None:
        handle, _ = self.call()
        assert self.run_command(self.client.cancel, handle)
        self.requests.clear()
        self.events.clear()

    def get_a_notification(self) -> None:
        self.asked[-1].event(NOTIFICATION)
        self.events.clear()

    def get_progress(self) -> None:
        token = self.asked[-1].json["params"]["_meta"]["progressToken"]
        self.asked[-1].event(
            notification("notifications/progress", progressToken=token, progress=1)
        )
        self.events.clear()

    def let_one_time_out(self) -> None:
        deadline = self.client.next_deadline()
        assert deadline is not None
        self.client.handle_timeout(now=deadline)
        self.run_pending()
        self.requests.clear()
        self.events.clear()

    def take_an_event_of_a_full_queue(self) -> None:
        if not self.is_paused:
            self.takes_events = False
            while not self.is_paused:
                self.asked[0].event(NOTIFICATION)
            for _ in range(5):
                self.asked[0].event(NOTIFICATION)
        self.client.next_event()


@pytest.mark.parametrize(
    "action",
    [
        Busy.call_and_finish,
        Busy.call_and_cancel,
        Busy.get_a_notification,
        Busy.get_progress,
        Busy.let_one_time_out,
        Busy.take_an_event_of_a_full_queue,
    ],
)
def test_one_call_costs_the_same_among_many(action: Callable[[Busy], None]) -> None:
    few, many = (Busy(calls) for calls in (FEW, MANY))
    assert_same(cost(lambda: action(few)), cost(lambda: action(many)))


# The table


def test_timers_that_are_moved_and_stopped_leave_nothing() -> None:
    with tracing():
        table = TimerTable()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(20_000):
            table.set(Timer.KEEP_ALIVE, number % 10, number + 15.0)
            table.set(Timer.REQUEST, number, number + 60.0)
            table.stop(Timer.REQUEST, number)
        assert len(table) == 10
        assert tracemalloc.get_traced_memory()[0] - before < 64 * 1024


def test_a_table_of_timers_is_as_fast_with_many() -> None:
    def table_of(count: int) -> TimerTable:
        table = TimerTable()
        for number in range(count):
            table.set(Timer.SESSION_IDLE, number, number + 1800.0)
        return table

    def use(table: TimerTable) -> None:
        table.set(Timer.REQUEST, "one", 1.0)
        table.set(Timer.REQUEST, "one", 2.0)
        assert table.next_deadline() == 2.0
        assert list(table.due(2.0)) == [(Timer.REQUEST, "one")]
        table.stop(Timer.REQUEST, "one")

    few, many = table_of(FEW), table_of(20 * MANY)
    assert_same(cost(lambda: use(few)), cost(lambda: use(many)))


# The measure sees what it is for


def test_a_scan_of_all_sessions_would_be_seen() -> None:
    def scan(server: Server) -> int:
        return sum(
            bool(session.calls) for session in server.sessions if isinstance(session, CallOwner)
        )

    few, many = (Crowd(sessions).server for sessions in (FEW, MANY))
    with pytest.raises(AssertionError):
        assert_same(cost(lambda: scan(few)), cost(lambda: scan(many)))


def test_a_copy_of_the_list_of_sessions_would_be_seen() -> None:
    few, many = (Crowd(sessions).server for sessions in (FEW, MANY))
    with pytest.raises(AssertionError):
        assert_same(cost(lambda: few.sessions), cost(lambda: many.sessions))
