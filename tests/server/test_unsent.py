"""What waits for readers is bounded for all of them together."""

from __future__ import annotations

from typing import Any

from sansmcp import Limits, ServerCall
from sansmcp.events import CallCancelled, SessionClosed

from .harness import RawExchange, ServerHarness, methods, report_progress_all
from .modern.harness import ModernServerHarness, modern
from .sse_harness import SseClient

LIMITS = Limits(max_unsent_bytes=20_000, max_total_unsent_bytes=100_000)
TEXT = "x" * 900


def stopped(talk: RawExchange) -> RawExchange:
    """A peer that has got the head, and takes nothing more."""
    talk.reads = False
    return talk


def in_a_session(harness: ServerHarness, session: str) -> tuple[RawExchange, ServerCall]:
    talk, call = harness.call(session)
    harness.run_action(call.notify, "begun")
    return talk, call


def fill(harness: ServerHarness, call: ServerCall, most: int = 10**9) -> int:
    """Say things as long as the handler need not wait; how often it did."""
    count = 0
    while count < most and not call.is_above_high_water:
        harness.run_action(call.notify, "x", {"text": TEXT})
        count += 1
    return count


def unsent(*talks: RawExchange) -> int:
    return sum(talk.exchange.unsent for talk in talks)


def test_readers_that_stop_share_one_bound() -> None:
    """Each cost 276 to 307 KiB, however many they were. A reader that reads goes on."""
    harness = ServerHarness(resumable=False, limits=LIMITS)
    sessions = [harness.open_session() for _ in range(40)]
    neighbour = in_a_session(harness, harness.open_session())
    talks: list[RawExchange] = []
    counts: list[int] = []
    for session in sessions:
        talk, call = in_a_session(harness, session)
        talks.append(stopped(talk))
        counts.append(fill(harness, call))
    assert max(counts) > 20  # as long as there is room, each may have max_unsent_bytes
    assert min(counts) == counts[-1] == 1  # and then a message
    assert unsent(*talks) <= LIMITS.max_total_unsent_bytes
    assert not any(talk.exchange.is_given_up for talk in talks)
    assert fill(harness, neighbour[1], 100) == 100
    assert methods(neighbour[0]) == ["begun", *100 * ["x"]]
    for talk in talks[:8]:
        talk.lose_connection()
    assert unsent(*talks) < LIMITS.max_total_unsent_bytes / 2
    talk, call = in_a_session(harness, sessions[0])
    stopped(talk)
    assert fill(harness, call) > 1


def test_handlers_that_do_not_wait_cost_the_response_that_has_most() -> None:
    harness = ServerHarness(resumable=False, limits=LIMITS)
    session = harness.open_session()
    small, call = in_a_session(harness, session)
    stopped(small)
    harness.run_action(call.notify, "small")
    large, call = in_a_session(harness, session)
    stopped(large)
    for _ in range(99):
        harness.run_action(call.notify, "x", {"text": TEXT})
    assert not large.exchange.is_given_up
    for _ in range(99):
        harness.run_action(call.notify, "x", {"text": TEXT})
    assert large.exchange.is_given_up
    assert unsent(large) == 0
    harness.run_action(call.respond, {})
    for talk in (small, large):
        talk.reads = True
        talk.pull()
    assert methods(small) == ["begun", "small"]
    assert (large.aborted, large.ended) == (True, False)
    large.lose_connection()


def test_what_is_stored_is_resumed() -> None:
    """Nothing is lost by it."""
    harness = ServerHarness(limits=LIMITS)
    session = harness.open_session()
    pairs = [in_a_session(harness, session) for _ in range(3)]
    for talk, call in pairs:
        stopped(talk)
        harness.run_action(call.notify, "large", {"text": 45 * TEXT})
        report_progress_all(harness, call, "b")
        harness.run_action(call.respond, {})
    assert unsent(*(talk for talk, _ in pairs)) <= LIMITS.max_total_unsent_bytes
    (broken,) = [talk for talk, _ in pairs if talk.exchange.is_given_up]
    for talk, _ in pairs:
        talk.reads = True
        talk.pull()
    assert (broken.aborted, methods(broken)) == (True, ["begun"])
    resumed = harness.get(session, broken.last_id)
    assert methods(resumed) == ["large", "b", "answer"]
    assert resumed.ended


def test_plain_answers_count_as_well() -> None:
    harness = ServerHarness(resumable=False, limits=LIMITS)
    session = harness.open_session()
    answers: list[RawExchange] = []
    for _ in range(3):
        talk, call = harness.call(session)
        answers.append(stopped(talk))
        harness.run_action(call.respond, {"text": 45 * TEXT})
    assert unsent(*answers) <= LIMITS.max_total_unsent_bytes
    given_up = [talk for talk in answers if talk.exchange.is_given_up]
    (broken,) = given_up
    for talk in answers:
        if talk is broken:
            talk.reads = True
            talk.pull()
            assert (talk.head, talk.aborted) == (None, True)
        talk.lose_connection()  # also of a response that was complete
    assert unsent(*answers) == 0
    talk, call = in_a_session(harness, session)
    stopped(talk)
    assert fill(harness, call) > 10


def test_a_call_that_stands_alone_is_cancelled() -> None:
    """Nobody can come back to it, so that is the same as a peer that has gone."""
    harness = ModernServerHarness(limits=LIMITS)
    talk = harness.ask(modern(1))
    call = harness.last_call()
    harness.run_action(call.notify, "begun")
    stopped(talk)
    for _ in range(200):
        harness.run_action(call.notify, "x", {"text": TEXT})
    talk.reads = True
    talk.pull()
    harness.run_pending()
    assert talk.aborted
    assert [type(event) for event in harness.events] == [CallCancelled]
    talk.lose_connection()


def test_the_stream_of_http_sse_takes_its_session_along() -> None:
    harness = ServerHarness(http_sse="/sse", limits=LIMITS)
    client = SseClient(harness).open()
    call = client.call()
    stopped(client.stream)
    for _ in range(200):
        harness.run_action(call.notify, "x", {"text": TEXT})
    client.stream.reads = True
    client.stream.pull()
    harness.run_pending()
    client.stream.lose_connection()
    assert client.stream.aborted
    kinds: list[Any] = [type(event) for event in harness.events]
    assert SessionClosed in kinds
    assert harness.server.sessions == ()
