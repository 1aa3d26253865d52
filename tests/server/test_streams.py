"""Streams and their readers: let go, slow, or quiet for long, and nothing is left behind."""

from __future__ import annotations

import pytest

from sansmcp import Limits, LocalProtocolError
from sansmcp.codecs.sse import KEEP_ALIVE

from .bench import LATEST, Bench, methods, say

requirement = pytest.mark.requirement


# Polling


@requirement("POLL-S-003", "POLL-S-005", "POLL-S-007", "RESUME-C-002")
def test_the_server_lets_the_client_go_and_come_back(bench: Bench) -> None:
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "a")
    assert bench.do(call.disconnect, retry=1.5) is True
    assert (talk.ended, talk.aborted) == (True, False)
    last = talk.events[-1]
    assert (last.data, last.retry, last.id) == ("", 1500, talk.events[-2].id)
    assert call.is_running
    say(bench, call, "b")
    back = bench.get(session, last.id)
    assert methods(back) == ["b"]
    assert bench.do(call.disconnect) is True
    assert [event.retry for event in back.events] == [None, None, None]
    bench.do(call.respond, {})
    assert methods(bench.get(session, back.last_id)) == ["answer"]


@requirement("POLL-S-004")
def test_a_client_is_let_go_only_with_an_id(bench: Bench) -> None:
    talk, call = bench.call(bench.open_session())
    assert bench.do(call.disconnect, retry=0) is True
    assert [(event.data, event.retry) for event in talk.events] == [("", None), ("", 0)]
    assert bench.do(call.disconnect) is True  # nobody is there


@requirement("POLL-S-004")
def test_without_a_store_nobody_is_let_go() -> None:
    bench = Bench(resumable=False)
    key = bench.open_session()
    listener = bench.get(key)
    assert bench.server.disconnect_streams(now=bench.now) == 0
    talk, call = bench.call(key)
    say(bench, call, "a")
    assert bench.do(call.disconnect, retry=1) is False
    assert (listener.ended, talk.ended) == (False, False)


@pytest.mark.parametrize("retry", [-0.1, float("inf"), float("nan")])
def test_nobody_comes_back_at_no_time(bench: Bench, retry: float) -> None:
    talk, call = bench.call(bench.open_session())
    with pytest.raises(LocalProtocolError, match="retry must"):
        bench.do(call.disconnect, retry=retry)
    assert talk.head is None


@requirement("POLL-S-008", "SHTTP-S-014")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
def test_older_clients_are_never_let_go(bench: Bench, version: str) -> None:
    talk, call = bench.call(bench.open_session(version), version=None)
    say(bench, call, "a")
    assert bench.do(call.disconnect, retry=1) is False
    assert not talk.ended
    assert methods(talk) == ["a"]


# Slow readers


def test_a_slow_reader_falls_behind_and_catches_up() -> None:
    bench = Bench(limits=Limits(max_unsent_bytes=500))
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "first")
    talk.reads = False
    names = [f"n{number}" for number in range(100)]
    for name in names:
        bench.do(call.notify, name)
        assert talk.exchange.unsent < 700
    assert methods(talk) == ["first"]
    talk.reads = True
    talk.pull()
    bench.settle()
    assert methods(talk) == ["first", *names]


def test_a_slow_reader_whose_messages_are_gone_is_cut() -> None:
    bench = Bench(limits=Limits(max_unsent_bytes=200, max_stored_entries=5))
    talk, call = bench.call(bench.open_session())
    say(bench, call, "first")
    talk.reads = False
    say(bench, call, *[f"n{number}" for number in range(100)])
    talk.reads = True
    talk.pull()
    bench.settle()
    assert talk.aborted
    assert not talk.ended


def test_without_a_store_a_slow_reader_makes_handlers_wait() -> None:
    bench = Bench(resumable=False, limits=Limits(max_unsent_bytes=300))
    talk, call = bench.call(bench.open_session())
    say(bench, call, "a")
    talk.reads = False
    while not call.is_above_high_water:
        say(bench, call, "b")
    talk.reads = True
    talk.pull()
    assert not call.is_above_high_water
    talk.reads = False
    say(bench, call, *"cccccccccc")
    assert call.is_above_high_water
    talk.gone()
    assert not call.is_above_high_water


# Keep-alive


@requirement("SSE-S-006", "LIFECYCLE-B-016")
def test_a_quiet_stream_is_kept_alive(bench: Bench) -> None:
    talk, call = bench.call(bench.open_session())
    say(bench, call, "a")
    size = len(talk.body)
    bench.wait(14)
    assert len(talk.body) == size
    say(bench, call, "b")
    size = len(talk.body)
    bench.wait(14)
    assert len(talk.body) == size
    bench.wait(31)
    assert talk.body[size:] == KEEP_ALIVE * 3
    bench.do(call.respond, {})
    bench.wait(100)
    assert talk.messages[-1]["result"] == {}


def test_a_reader_that_takes_nothing_gets_no_pile_of_comments(bench: Bench) -> None:
    talk, call = bench.call(bench.open_session())
    say(bench, call, "a")
    talk.reads = False
    bench.wait(1000)
    assert talk.exchange.unsent == len(KEEP_ALIVE)


# Nothing is left behind


def test_nothing_is_added_to_a_stream_after_its_end() -> None:
    """A slow reader has not taken the end when the next comment would be due."""
    bench = Bench(stream_after=0)
    talk, call = bench.call(bench.open_session())
    talk.reads = False
    bench.do(call.respond, {})
    unsent = talk.exchange.unsent
    bench.wait(bench.server.limits.stream_comment_interval)
    assert talk.exchange.unsent == unsent


def test_finished_streams_leave_nothing_in_the_machine(bench: Bench) -> None:
    session = bench.open_session()
    for _ in range(50):
        talk, call = bench.call(session, version=LATEST)
        say(bench, call, "a")
        bench.do(call.respond, {})
        assert talk.ended
    assert bench.server.next_deadline() == bench.now + 1800  # only the session's own timer
    assert not bench.server.is_busy
