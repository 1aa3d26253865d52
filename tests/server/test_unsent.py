"""What waits for readers is bounded for all of them together: row B17 of the review."""

from __future__ import annotations

from typing import Any

from sansmcp import Limits, ServerCall
from sansmcp.events import CallCancelled, SessionClosed

from .bench import Bench, Talk, methods, say
from .modern.bench import ModernBench, modern
from .sse_bench import SseClient

LIMITS = Limits(max_unsent_bytes=20_000, max_total_unsent_bytes=100_000)
TEXT = "x" * 900


def stopped(talk: Talk) -> Talk:
    """A peer that has got the head, and takes nothing more."""
    talk.reads = False
    return talk


def in_a_session(bench: Bench, session: str) -> tuple[Talk, ServerCall]:
    talk, call = bench.call(session)
    bench.do(call.notify, "begun")
    return talk, call


def fill(bench: Bench, call: ServerCall, most: int = 10**9) -> int:
    """Say things as long as the handler need not wait; how often it did."""
    count = 0
    while count < most and not call.is_above_high_water:
        bench.do(call.notify, "x", {"text": TEXT})
        count += 1
    return count


def unsent(*talks: Talk) -> int:
    return sum(talk.exchange.unsent for talk in talks)


def test_readers_that_stop_share_one_bound() -> None:
    """Each cost 276 to 307 KiB, however many they were. A reader that reads goes on."""
    bench = Bench(resumable=False, limits=LIMITS)
    sessions = [bench.open_session() for _ in range(40)]
    neighbour = in_a_session(bench, bench.open_session())
    talks: list[Talk] = []
    counts: list[int] = []
    for session in sessions:
        talk, call = in_a_session(bench, session)
        talks.append(stopped(talk))
        counts.append(fill(bench, call))
    assert max(counts) > 20  # as long as there is room, each may have max_unsent_bytes
    assert min(counts) == counts[-1] == 1  # and then a message
    assert unsent(*talks) <= LIMITS.max_total_unsent_bytes
    assert not any(talk.exchange.is_given_up for talk in talks)
    assert fill(bench, neighbour[1], 100) == 100
    assert methods(neighbour[0]) == ["begun", *100 * ["x"]]
    for talk in talks[:8]:
        talk.gone()
    assert unsent(*talks) < LIMITS.max_total_unsent_bytes / 2
    talk, call = in_a_session(bench, sessions[0])
    stopped(talk)
    assert fill(bench, call) > 1


def test_handlers_that_do_not_wait_cost_the_response_that_has_most() -> None:
    bench = Bench(resumable=False, limits=LIMITS)
    session = bench.open_session()
    small, call = in_a_session(bench, session)
    stopped(small)
    bench.do(call.notify, "small")
    large, call = in_a_session(bench, session)
    stopped(large)
    for _ in range(99):
        bench.do(call.notify, "x", {"text": TEXT})
    assert not large.exchange.is_given_up
    for _ in range(99):
        bench.do(call.notify, "x", {"text": TEXT})
    assert large.exchange.is_given_up
    assert unsent(large) == 0
    bench.do(call.respond, {})
    for talk in (small, large):
        talk.reads = True
        talk.pull()
    assert methods(small) == ["begun", "small"]
    assert (large.aborted, large.ended) == (True, False)
    large.gone()


def test_what_is_stored_is_resumed() -> None:
    """Nothing is lost by it."""
    bench = Bench(limits=LIMITS)
    session = bench.open_session()
    pairs = [in_a_session(bench, session) for _ in range(3)]
    for talk, call in pairs:
        stopped(talk)
        bench.do(call.notify, "large", {"text": 45 * TEXT})
        say(bench, call, "b")
        bench.do(call.respond, {})
    assert unsent(*(talk for talk, _ in pairs)) <= LIMITS.max_total_unsent_bytes
    (broken,) = [talk for talk, _ in pairs if talk.exchange.is_given_up]
    for talk, _ in pairs:
        talk.reads = True
        talk.pull()
    assert (broken.aborted, methods(broken)) == (True, ["begun"])
    resumed = bench.get(session, broken.last_id)
    assert methods(resumed) == ["large", "b", "answer"]
    assert resumed.ended


def test_plain_answers_count_as_well() -> None:
    bench = Bench(resumable=False, limits=LIMITS)
    session = bench.open_session()
    answers: list[Talk] = []
    for _ in range(3):
        talk, call = bench.call(session)
        answers.append(stopped(talk))
        bench.do(call.respond, {"text": 45 * TEXT})
    assert unsent(*answers) <= LIMITS.max_total_unsent_bytes
    given_up = [talk for talk in answers if talk.exchange.is_given_up]
    (broken,) = given_up
    for talk in answers:
        if talk is broken:
            talk.reads = True
            talk.pull()
            assert (talk.head, talk.aborted) == (None, True)
        talk.gone()  # also of a response that was complete
    assert unsent(*answers) == 0
    talk, call = in_a_session(bench, session)
    stopped(talk)
    assert fill(bench, call) > 10


def test_a_call_that_stands_alone_is_cancelled() -> None:
    """Nobody can come back to it, so that is the same as a peer that has gone."""
    bench = ModernBench(limits=LIMITS)
    talk = bench.ask(modern(1))
    call = bench.last_call()
    bench.do(call.notify, "begun")
    stopped(talk)
    for _ in range(200):
        bench.do(call.notify, "x", {"text": TEXT})
    talk.reads = True
    talk.pull()
    bench.settle()
    assert talk.aborted
    assert [type(event) for event in bench.events] == [CallCancelled]
    talk.gone()


def test_the_stream_of_http_sse_takes_its_session_along() -> None:
    bench = Bench(http_sse="/sse", limits=LIMITS)
    client = SseClient(bench).open()
    call = client.call()
    stopped(client.stream)
    for _ in range(200):
        bench.do(call.notify, "x", {"text": TEXT})
    client.stream.reads = True
    client.stream.pull()
    bench.settle()
    client.stream.gone()
    assert client.stream.aborted
    kinds: list[Any] = [type(event) for event in bench.events]
    assert SessionClosed in kinds
    assert bench.server.sessions == ()
