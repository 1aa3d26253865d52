"""Messages are stored before they are sent, and a store that is slow or fails is survived."""

from __future__ import annotations

from sansmcp import Entry, Limits, MemoryStore, StreamKey
from sansmcp.effects import StoreAppend, StoreRead
from sansmcp.events import MessageLost, StoreFailed

from .bench import Bench, methods, say

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

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> bool:
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
