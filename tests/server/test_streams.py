"""Streams: stored before sent, resumed from anywhere, nothing lost and nothing twice."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import Entry, EventId, Limits, MemoryStore, StreamKey
from sansmcp.codecs.sse import KEEP_ALIVE
from sansmcp.effects import StoreAppend, StoreRead
from sansmcp.events import BadRequest, MessageLost, StoreFailed

from .bench import LATEST, Bench, Talk

requirement = pytest.mark.requirement


@pytest.fixture
def bench() -> Bench:
    return Bench()


def methods(talk: Talk) -> list[str]:
    """The names of the messages on a stream; an answer is "answer"."""
    return [message.get("method", "answer") for message in talk.messages]


def say(bench: Bench, call: Any, *names: str) -> None:
    for name in names:
        bench.do(call.notify, name)


# Resumption


@requirement("RESUME-S-001", "RESUME-S-005", "RESUME-S-007", "RESUME-C-003", "SHTTP-S-023")
def test_a_stream_is_resumed_from_every_place(bench: Bench) -> None:
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "a", "b", "c")
    ids = [event.id for event in talk.events]
    assert len(set(ids)) == 4
    resumed = talk
    for index, id in enumerate(ids):
        resumed = bench.get(session, id)
        assert resumed.status == 200
        assert methods(resumed) == ["a", "b", "c"][index:]
        assert [event.id for event in resumed.events] == ids[index + 1 :]
    assert talk.ended
    bench.do(call.respond, {})
    assert methods(resumed) == ["answer"]
    assert resumed.ended
    for index, id in enumerate(ids):
        assert methods(bench.get(session, id)) == ["a", "b", "c", "answer"][index:]


@requirement("RESUME-S-007")
def test_a_newer_reader_replaces_the_older(bench: Bench) -> None:
    session = bench.open_session()
    first, call = bench.call(session)
    say(bench, call, "a")
    second = bench.get(session, first.last_id)
    assert (first.ended, first.aborted) == (True, False)
    say(bench, call, "b")
    assert (methods(first), methods(second)) == (["a"], ["b"])
    first.gone()
    say(bench, call, "c")
    assert methods(second) == ["b", "c"]


def test_what_is_said_while_nobody_reads_is_kept(bench: Bench) -> None:
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "a")
    talk.gone()
    say(bench, call, "b", "c")
    bench.do(call.respond, {})
    resumed = bench.get(session, talk.last_id)
    assert methods(resumed) == ["b", "c", "answer"]
    assert resumed.ended
    again = bench.get(session, resumed.last_id)
    assert (again.status, again.events, again.ended) == (200, [], True)


@requirement("RESUME-S-006", "RESUME-S-002")
def test_streams_and_sessions_are_apart(bench: Bench) -> None:
    session, other = bench.open_session(), bench.open_session()
    talk, call = bench.call(session, 1)
    talk2, call2 = bench.call(session, 2)
    say(bench, call, "a")
    say(bench, call2, "b")
    for stranger in (other, bench.open_session(principal="eve")):
        refused = bench.get(
            stranger, talk.events[0].id, principal="eve" if stranger != other else ""
        )
        assert (refused.status, refused.error["data"]["reason"]) == (400, "unknown_event_id")
    assert methods(bench.get(session, talk.events[0].id)) == ["a"]
    assert methods(bench.get(session, talk2.events[0].id)) == ["b"]
    assert not {event.id for event in talk.events} & {event.id for event in talk2.events}


def test_a_place_that_was_never_reached_is_unknown(bench: Bench) -> None:
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "a")
    cursor = EventId.decode(talk.last_id)
    assert cursor is not None
    beyond = EventId(cursor.stream, 2).encode()
    assert bench.get(session, beyond).status == 400
    bench.do(call.respond, {})
    assert bench.get(session, beyond).status == 200
    assert bench.get(session, EventId(cursor.stream, 3).encode()).status == 400


def test_what_is_no_longer_kept_is_said(bench: Bench) -> None:
    bench = Bench(limits=Limits(stored_entries=2))
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "a", "b", "c", "d")
    ids = [event.id for event in talk.events]
    assert bench.get(session, ids[1]).status == 400
    assert isinstance(bench.events[-1], BadRequest)
    assert methods(bench.get(session, ids[2])) == ["c", "d"]


def test_long_logs_are_replayed_in_pages() -> None:
    bench = Bench(limits=Limits(replay_page_entries=3, max_unsent_bytes=1000), store_works=False)
    session = bench.open_session()
    talk, call = bench.call(session)
    names = [f"n{number}" for number in range(10)]
    say(bench, call, *names)
    while bench.waiting:
        bench.use_store_once()
    assert methods(talk) == names
    resumed = bench.get(session, talk.events[0].id)
    pages: list[tuple[int, int]] = []
    while bench.waiting:
        effect = bench.use_store_once()
        assert isinstance(effect, StoreRead)
        pages.append((effect.after, len(methods(resumed))))
    assert pages == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert methods(resumed) == names


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
    assert [event.retry for event in back.events] == [None, None]
    bench.do(call.respond, {})
    assert methods(bench.get(session, back.last_id)) == ["answer"]


@requirement("POLL-S-004")
def test_a_client_is_let_go_only_with_an_id(bench: Bench) -> None:
    talk, call = bench.call(bench.open_session())
    assert bench.do(call.disconnect, retry=0) is True
    assert [(event.data, event.retry) for event in talk.events] == [("", None), ("", 0)]
    assert bench.do(call.disconnect) is True  # nobody is there


@requirement("POLL-S-008", "SHTTP-S-014")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
def test_older_clients_are_never_let_go(bench: Bench, version: str) -> None:
    talk, call = bench.call(bench.open_session(version), version=None)
    say(bench, call, "a")
    assert bench.do(call.disconnect, retry=1) is False
    assert not talk.ended
    assert methods(talk) == ["a"]


# Stored before sent


def test_nothing_is_sent_before_it_is_stored() -> None:
    bench = Bench(store_works=False)
    talk, call = bench.call(bench.open_session())
    say(bench, call, "a")
    assert methods(talk) == []
    assert len(talk.events) == 1
    bench.use_store_once()
    assert methods(talk) == ["a"]
    bench.do(call.respond, {})
    assert not talk.ended
    bench.use_store_once()
    assert methods(talk) == ["a", "answer"]
    assert talk.ended


def test_while_the_store_works_messages_are_collected() -> None:
    bench = Bench(store_works=False)
    talk, call = bench.call(bench.open_session())
    say(bench, call, "a", "b", "c")
    assert len(bench.waiting) == 1
    bench.use_store_once()
    (effect,) = bench.waiting
    assert isinstance(effect, StoreAppend)
    assert [entry.seq for entry in effect.entries] == [2, 3]
    bench.use_store_once()
    assert methods(talk) == ["a", "b", "c"]


def test_a_slow_store_makes_handlers_wait() -> None:
    bench = Bench(store_works=False, limits=Limits(max_pending_entries=2))
    _, call = bench.call(bench.open_session())
    assert not call.congested
    say(bench, call, "a", "b")
    assert not call.congested
    say(bench, call, "c")
    assert call.congested
    bench.use_store_once()
    assert not call.congested
    bench.do(call.respond, {})
    assert not call.congested


def test_a_resumption_races_with_an_append() -> None:
    """Whatever the order in which store and reader act, each message comes once."""
    bench = Bench(store_works=False)
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "a")
    bench.use_store_once()
    talk.gone()
    say(bench, call, "b")  # the append is under way
    resumed = bench.get(session, talk.events[0].id)  # reads after 0: a page is asked for
    say(bench, call, "c")
    kinds = [type(effect) for effect in bench.waiting]
    assert kinds == [StoreAppend, StoreRead]
    bench.waiting.reverse()  # the page comes before the append is reported
    bench.use_store_once()
    assert methods(resumed) == ["a"]
    while bench.waiting:
        bench.use_store_once()
    assert methods(resumed) == ["a", "b", "c"]


def test_a_page_that_comes_too_late_is_ignored() -> None:
    bench = Bench(store_works=False)
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "a")
    bench.use_store_once()
    first = bench.get(session, talk.events[0].id)
    page = bench.waiting.pop()
    second = bench.get(session, talk.events[0].id)
    assert (first.status, first.events, first.ended) == (200, [], True)
    bench.use_store(page)
    bench.settle()
    assert second.head is None
    bench.use_store_once()
    assert methods(second) == ["a"]
    second.gone()
    bench.use_store(page)  # reported twice, for nobody
    third = bench.get(session, talk.events[0].id)
    third.gone()
    bench.use_store_once()
    assert third.head is None


# A store that fails


def test_when_the_store_fails_the_reader_still_gets_the_message() -> None:
    bench = Bench(store_works=False)
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "a", "b")
    bench.fail_store_once()
    assert methods(talk) == ["a", "b"]
    assert [bool(event.id) for event in talk.events] == [True, False, False]
    assert bench.do(call.disconnect) is False
    bench.do(call.respond, {})
    assert methods(talk) == ["a", "b", "answer"]
    assert talk.ended
    assert bench.events == [StoreFailed("disk full", lost=False)]


def test_when_the_store_fails_without_a_reader_that_is_said() -> None:
    bench = Bench(store_works=False)
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "a")
    talk.gone()
    bench.fail_store_once()
    assert bench.events == [StoreFailed("disk full", lost=True)]
    assert bench.do(call.respond, {}) is False
    assert isinstance(bench.events[-1], MessageLost)
    assert bench.get(session, talk.events[0].id).status == 400


def test_when_the_store_fails_a_reader_that_is_behind_is_cut() -> None:
    bench = Bench(store_works=False)
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "a")
    bench.use_store_once()
    say(bench, call, "b")
    resumed = bench.get(session, talk.events[0].id)
    assert [type(effect) for effect in bench.waiting] == [StoreAppend, StoreRead]
    bench.fail_store_once()
    assert resumed.status == 400
    assert bench.events[-1] == StoreFailed("disk full", lost=True)
    bench.use_store_once()
    assert resumed.ended


def test_when_the_store_cannot_be_read_the_reader_is_told() -> None:
    bench = Bench(store_works=False)
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "a")
    bench.use_store_once()
    resumed = bench.get(session, talk.events[0].id)
    bench.fail_store_once()
    assert resumed.status == 400
    left = bench.get(session, talk.events[0].id)
    left.gone()
    bench.fail_store_once()  # of no interest any more
    again = bench.get(session, talk.events[0].id)
    bench.use_store_once()
    assert methods(again) == ["a"]
    append = StoreAppend(stream=StreamKey("", "", ""), entries=())
    read = StoreRead(stream=StreamKey("", "", ""), after=0, limit=1, max_bytes=1)
    bench.server.store_failed(append, "never asked", now=bench.now)
    bench.server.stored(append, now=bench.now)
    bench.server.replayed(read, None, now=bench.now)


class BrokenStore(MemoryStore):
    """Raises at every use."""

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> None:
        raise OSError("disk full")

    def drop(self, principal: str, session: str) -> None:
        raise OSError("disk gone")


def test_what_a_store_raises_is_a_failure_of_the_store() -> None:
    bench = Bench(store=BrokenStore())
    session = bench.open_session()
    talk, call = bench.call(session)
    talk2, call2 = bench.call(session)
    bench.wait(1)
    talk2.gone()
    say(bench, call, "a")
    say(bench, call2, "b")
    assert methods(talk) == ["a"]
    assert bench.events == [
        StoreFailed("OSError: disk full", lost=False),
        StoreFailed("OSError: disk full", lost=True),
    ]
    assert bench.send("DELETE", {"mcp-session-id": session}).status == 200


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
    bench = Bench(limits=Limits(max_unsent_bytes=200, stored_entries=5))
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
    while not call.congested:
        say(bench, call, "b")
    talk.reads = True
    talk.pull()
    assert not call.congested
    talk.reads = False
    say(bench, call, *"cccccccccc")
    assert call.congested
    talk.gone()
    assert not call.congested


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


# Standalone streams


@requirement("SHTTP-S-020", "SHTTP-S-022", "POLL-S-002")
def test_a_listener_gets_what_belongs_to_no_call(bench: Bench) -> None:
    key = bench.open_session()
    session = bench.server.sessions[0]
    listener = bench.get(key)
    assert [(event.data, bool(event.id)) for event in listener.events] == [("", True)]
    assert bench.do(session.notify, "a", {"x": 1}) is True
    assert listener.messages == [{"jsonrpc": "2.0", "method": "a", "params": {"x": 1}}]
    assert not listener.ended


def test_what_was_said_before_anybody_listened_is_kept(bench: Bench) -> None:
    key = bench.open_session()
    session = bench.server.sessions[0]
    bench.do(session.notify, "a")
    listener = bench.get(key)
    assert methods(listener) == ["a"]
    listener.gone()
    bench.do(session.notify, "b")
    assert methods(bench.get(key, listener.last_id)) == ["b"]


def test_a_listener_without_a_cursor_goes_on_where_the_last_one_was(bench: Bench) -> None:
    key = bench.open_session()
    session = bench.server.sessions[0]
    first = bench.get(key)
    bench.do(session.notify, "a")
    first.gone()
    bench.do(session.notify, "b")
    second = bench.get(key)
    assert methods(second) == ["b"]
    assert methods(bench.get(key, first.events[0].id)) == ["a", "b"]


def test_a_listener_that_comes_too_late_gets_what_is_still_kept() -> None:
    bench = Bench(limits=Limits(stored_entries=2))
    key = bench.open_session()
    session = bench.server.sessions[0]
    bench.do(session.notify, "a")
    bench.do(session.notify, "b")
    bench.do(session.notify, "c")
    assert methods(bench.get(key)) == ["b", "c"]


def test_a_listener_whose_log_has_gone_altogether() -> None:
    bench = Bench(limits=Limits(stored_entries=2))
    key = bench.open_session()
    session = bench.server.sessions[0]
    bench.do(session.notify, "a")
    _, call = bench.call(key)
    say(bench, call, "x", "y", "z")
    listener = bench.get(key)
    assert (listener.status, methods(listener)) == (200, [])
    bench.do(session.notify, "b")
    assert methods(listener) == ["b"]


@requirement("SHTTP-C-012", "SHTTP-S-025", "SHTTP-S-026")
def test_of_several_listeners_one_gets_each_message(bench: Bench) -> None:
    key = bench.open_session()
    session = bench.server.sessions[0]
    first, second = bench.get(key), bench.get(key)
    bench.do(session.notify, "a")
    assert (methods(first), methods(second)) == ([], ["a"])
    second.gone()
    bench.do(session.notify, "b")
    assert methods(first) == ["b"]
    third = bench.get(key)  # takes over from the second
    bench.do(session.notify, "c")
    assert methods(third) == ["c"]
    resumed = bench.get(key, first.last_id)
    bench.do(session.notify, "d")
    assert methods(resumed) == ["d"]
    assert first.ended


def test_listeners_are_bounded() -> None:
    bench = Bench(limits=Limits(max_streams_per_session=2))
    key = bench.open_session()
    first, _ = bench.get(key), bench.get(key)
    refused = bench.get(key)
    assert (refused.status, refused.error["data"]["reason"]) == (429, "too_many_streams")
    first.gone()
    assert bench.get(key).status == 200
    assert bench.get(bench.open_session()).status == 200


def test_without_a_store_a_listener_gets_only_what_it_hears() -> None:
    bench = Bench(resumable=False)
    key = bench.open_session()
    session = bench.server.sessions[0]
    assert bench.do(session.notify, "lost") is False
    listener = bench.get(key)
    assert listener.events == []
    assert bench.do(session.notify, "a") is True
    assert methods(listener) == ["a"]
    assert [event.id for event in listener.events] == [None]


# A log that another process has written


def stored_log(*, final: bool) -> tuple[Bench, str, str]:
    """A store that knows a stream which no machine here has written."""
    bench = Bench(store=MemoryStore())
    session = bench.open_session()
    key = StreamKey("", session, "other-process-token")
    message = b'{"jsonrpc":"2.0","method":"a"}'
    entries = (Entry(1, message), Entry(2, message, final))
    bench.store.append(key, entries, now=0)
    return bench, session, EventId(key.stream, 0).encode()


@pytest.mark.parametrize("final", [True, False])
def test_a_log_of_another_process_is_replayed_and_ends(final: bool) -> None:
    bench, session, cursor = stored_log(final=final)
    talk = bench.get(session, cursor)
    assert methods(talk) == ["a", "a"]
    assert talk.ended
    again = bench.get(session, talk.last_id)
    assert (again.status, again.events, again.ended) == (200, [], True)


# Nothing is left behind


def test_finished_streams_leave_nothing_in_the_machine(bench: Bench) -> None:
    session = bench.open_session()
    for _ in range(50):
        talk, call = bench.call(session, version=LATEST)
        say(bench, call, "a")
        bench.do(call.respond, {})
        assert talk.ended
    assert bench.server.next_deadline() == bench.now + 1800  # only the session's own timer
    assert not bench.server.is_busy
