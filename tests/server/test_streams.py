"""Streams and their readers: let go, slow, or quiet for long, and nothing is left behind."""

from __future__ import annotations

import pytest

from sansmcp import Limits, LocalProtocolError
from sansmcp.codecs.sse import KEEP_ALIVE

from .harness import LATEST, ServerHarness, methods, report_progress_all

requirement = pytest.mark.requirement


# Polling


@requirement("POLL-S-003", "POLL-S-005", "POLL-S-007", "RESUME-C-002")
def test_the_server_lets_the_client_go_and_come_back(harness: ServerHarness) -> None:
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a")
    assert harness.run_action(call.disconnect, retry=1.5) is True
    assert (talk.ended, talk.aborted) == (True, False)
    last = talk.events[-1]
    assert (last.data, last.retry, last.id) == ("", 1500, talk.events[-2].id)
    assert call.is_running
    report_progress_all(harness, call, "b")
    back = harness.get(session, last.id)
    assert methods(back) == ["b"]
    assert harness.run_action(call.disconnect) is True
    assert [event.retry for event in back.events] == [None, None, None]
    harness.run_action(call.respond, {})
    assert methods(harness.get(session, back.last_id)) == ["answer"]


@requirement("POLL-S-004")
def test_a_client_is_let_go_only_with_an_id(harness: ServerHarness) -> None:
    talk, call = harness.call(harness.open_session())
    assert harness.run_action(call.disconnect, retry=0) is True
    assert [(event.data, event.retry) for event in talk.events] == [("", None), ("", 0)]
    assert harness.run_action(call.disconnect) is True  # nobody is there


@requirement("POLL-S-004")
def test_without_a_store_nobody_is_let_go() -> None:
    harness = ServerHarness(resumable=False)
    key = harness.open_session()
    listener = harness.get(key)
    assert harness.server.disconnect_streams(now=harness.now) == 0
    talk, call = harness.call(key)
    report_progress_all(harness, call, "a")
    assert harness.run_action(call.disconnect, retry=1) is False
    assert (listener.ended, talk.ended) == (False, False)


@pytest.mark.parametrize("retry", [-0.1, float("inf"), float("nan")])
def test_nobody_comes_back_at_no_time(harness: ServerHarness, retry: float) -> None:
    talk, call = harness.call(harness.open_session())
    with pytest.raises(LocalProtocolError, match="retry must"):
        harness.run_action(call.disconnect, retry=retry)
    assert talk.head is None


@requirement("POLL-S-008", "SHTTP-S-014")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
def test_older_clients_are_never_let_go(harness: ServerHarness, version: str) -> None:
    talk, call = harness.call(harness.open_session(version), version=None)
    report_progress_all(harness, call, "a")
    assert harness.run_action(call.disconnect, retry=1) is False
    assert not talk.ended
    assert methods(talk) == ["a"]


# Slow readers


def test_a_slow_reader_falls_behind_and_catches_up() -> None:
    harness = ServerHarness(limits=Limits(max_unsent_bytes=500))
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "first")
    talk.reads = False
    names = [f"n{number}" for number in range(100)]
    for name in names:
        harness.run_action(call.notify, name)
        assert talk.exchange.unsent < 700
    assert methods(talk) == ["first"]
    talk.reads = True
    talk.pull()
    harness.wait(0.001)  # the last ones wait for others
    assert methods(talk) == ["first", *names]


def test_a_slow_reader_whose_messages_are_gone_is_cut() -> None:
    harness = ServerHarness(limits=Limits(max_unsent_bytes=200, max_stored_entries=5))
    talk, call = harness.call(harness.open_session())
    report_progress_all(harness, call, "first")
    talk.reads = False
    report_progress_all(harness, call, *[f"n{number}" for number in range(100)])
    talk.reads = True
    talk.pull()
    harness.run_pending()
    assert talk.aborted
    assert not talk.ended


def test_without_a_store_a_slow_reader_makes_handlers_wait() -> None:
    harness = ServerHarness(resumable=False, limits=Limits(max_unsent_bytes=300))
    talk, call = harness.call(harness.open_session())
    report_progress_all(harness, call, "a")
    talk.reads = False
    while not call.is_above_high_water:
        report_progress_all(harness, call, "b")
    talk.reads = True
    talk.pull()
    assert not call.is_above_high_water
    talk.reads = False
    report_progress_all(harness, call, *"cccccccccc")
    assert call.is_above_high_water
    assert call.is_connected
    talk.lose_connection()
    assert not call.is_above_high_water
    assert not call.is_connected


@pytest.mark.parametrize("seconds", [0.0, 1.0])
@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", LATEST])
def test_a_call_is_connected_while_its_client_reads(version: str, seconds: float) -> None:
    harness = ServerHarness()
    session = harness.open_session(version)
    talk, call = harness.call(session, version=version)
    harness.wait(seconds)
    assert call.is_connected
    talk.lose_connection()
    assert (call.is_running, call.is_connected) == (True, False)


def test_a_call_is_connected_again_when_its_client_resumes(harness: ServerHarness) -> None:
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a")
    talk.lose_connection()
    again = harness.get(session, talk.last_id)
    assert call.is_connected
    harness.run_action(call.respond, {})
    assert (again.ended, call.is_connected) == (True, False)


# Keep-alive


@requirement("SSE-S-006", "LIFECYCLE-B-016")
def test_a_quiet_stream_is_kept_alive(harness: ServerHarness) -> None:
    talk, call = harness.call(harness.open_session())
    report_progress_all(harness, call, "a")
    size = len(talk.body)
    harness.wait(14)
    assert len(talk.body) == size
    report_progress_all(harness, call, "b")
    size = len(talk.body)
    harness.wait(14)
    assert len(talk.body) == size
    harness.wait(31)
    assert talk.body[size:] == KEEP_ALIVE * 3
    harness.run_action(call.respond, {})
    harness.wait(100)
    assert talk.messages[-1]["result"] == {}


def test_a_reader_that_takes_nothing_gets_no_pile_of_comments(harness: ServerHarness) -> None:
    talk, call = harness.call(harness.open_session())
    report_progress_all(harness, call, "a")
    talk.reads = False
    harness.wait(1000)
    assert talk.exchange.unsent == len(KEEP_ALIVE)


# Nothing is left behind


def test_nothing_is_added_to_a_stream_after_its_end() -> None:
    """A slow reader has not taken the end when the next comment would be due."""
    harness = ServerHarness(stream_after=0)
    talk, call = harness.call(harness.open_session())
    talk.reads = False
    harness.run_action(call.respond, {})
    unsent = talk.exchange.unsent
    harness.wait(harness.server.limits.stream_comment_interval)
    assert talk.exchange.unsent == unsent


def test_finished_streams_leave_nothing_in_the_machine(harness: ServerHarness) -> None:
    session = harness.open_session()
    for _ in range(50):
        talk, call = harness.call(session, version=LATEST)
        report_progress_all(harness, call, "a")
        harness.run_action(call.respond, {})
        assert talk.ended
    assert harness.server.next_deadline() == harness.now + 1800  # only the session's own timer
    assert not harness.server.is_busy
