"""Messages are stored before they are sent, and a store that is slow or fails is survived."""

from __future__ import annotations

import warnings
from typing import Any

import attrs
import pytest

from sansmcp import Entry, Limits, LocalProtocolError, MemoryStore, StreamKey
from sansmcp.drivers.store_checks import check_synchronous
from sansmcp.effects import StoreAppend, StoreDrop, StoreEffect, StoreRead
from sansmcp.events import ResponseUndelivered, StoreFailed

from .bench import Bench, methods, request, say
from .instances import Instances

requirement = pytest.mark.requirement

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
    assert not call.is_above_high_water
    say(bench, call, "a", "b")
    assert not call.is_above_high_water
    say(bench, call, "c")
    assert call.is_above_high_water
    bench.use_store_once()
    assert not call.is_above_high_water
    bench.do(call.respond, {})
    assert not call.is_above_high_water


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
    bench.perform_store_effect(page)
    bench.settle()
    assert second.head is None
    bench.use_store_once()
    assert methods(second) == ["a"]
    second.gone()
    bench.perform_store_effect(page)  # reported twice, for nobody
    third = bench.get(session, talk.events[0].id)
    third.gone()
    bench.use_store_once()
    assert third.head is None


# A store that fails


@requirement("POLL-S-004")
def test_when_the_store_fails_the_reader_still_gets_the_message() -> None:
    bench = Bench(store_works=False)
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "a", "b")
    bench.fail_store_once()
    assert methods(talk) == ["a", "b"]
    ids = [event.id for event in talk.events]
    assert ids == [talk.events[0].id, "", None, None]
    assert talk.last_id == ""  # the client shall not come back: a GET finds nothing
    assert bench.do(call.disconnect) is False
    bench.do(call.respond, {})
    assert methods(talk) == ["a", "b", "answer"]
    assert talk.ended
    assert bench.events == [StoreFailed("disk full", lost=False)]


def test_what_was_told_without_the_store_is_not_told_again() -> None:
    """A failed append may have been done: its client must not ask another instance for it."""
    first, second = instances = Instances()
    session = instances.open_session()
    talk, call = first.call(session)
    say(first, call, "a")
    id = talk.last_id
    first.store_works = False
    say(first, call, "b")
    (append,) = first.waiting
    assert isinstance(append, StoreAppend)
    first.store.append(append.stream, append.entries, now=first.now)
    first.fail_store_once()
    assert (methods(talk), talk.last_id) == (["a", "b"], "")
    assert methods(second.get(session, id)) == ["b"]


def test_a_client_that_has_no_id_is_told_to_forget_none() -> None:
    bench = Bench(shared_store=True)
    session = bench.open_session()
    bench.store_works = False
    talk = bench.post(request(1), session)
    bench.use_store_once()  # the session is looked for
    say(bench, bench.last_call(), "a")
    bench.fail_store_once()
    assert [event.id for event in talk.events] == [None]


def test_when_the_store_fails_without_a_reader_that_is_said() -> None:
    bench = Bench(store_works=False)
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "a")
    talk.gone()
    bench.fail_store_once()
    assert bench.events == [StoreFailed("disk full", lost=True)]
    assert bench.do(call.respond, {}) is False
    assert isinstance(bench.events[-1], ResponseUndelivered)
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
    bench.server.append_completed(append, now=bench.now)
    bench.server.read_completed(read, None, now=bench.now)


class BrokenStore(MemoryStore):
    """Raises at every use."""

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> bool:
        raise OSError("disk full")

    def drop(self, principal: str, session: str) -> None:
        raise OSError("disk gone")


def test_a_session_that_ends_leaves_no_stream_whose_last_message_is_then_not_stored() -> None:
    """Seed 4122227748042 of the simulator: such streams stayed in memory for ever."""
    bench = Bench(store_works=False)
    talk, call = bench.call(bench.open_session())
    say(bench, call, "a")
    bench.use_store_once()
    talk.gone()
    bench.do(call.respond, {})
    (session,) = bench.server.sessions
    bench.do(bench.server.end_session, session, "")
    bench.fail_store_once()
    legacy = bench.server._legacy  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
    assert legacy is not None
    assert legacy.streams._streams == {}  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001


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


# A store that would have to be awaited

KEY = StreamKey("", "session", "stream")


class AsyncStore:
    """Plain to see."""

    async def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> bool:
        return True

    async def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> None:
        return None

    async def drop(self, principal: str, session: str) -> None:
        return None


@attrs.define
class HiddenAsyncStore:
    """Plain functions that give what has to be awaited."""

    inner: AsyncStore = attrs.field(factory=AsyncStore)

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> Any:
        return self.inner.append(key, entries, now=now)

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Any:
        return self.inner.read(key, after, limit=limit, max_bytes=max_bytes)

    def drop(self, principal: str, session: str) -> Any:
        return self.inner.drop(principal, session)


def test_an_async_store_is_refused() -> None:
    """Row A10 of the review: it was accepted, never awaited, and counted as stored."""
    with pytest.raises(
        LocalProtocolError, match=r"synchronous, and AsyncStore\.append is an async"
    ):
        check_synchronous(AsyncStore())
    check_synchronous(MemoryStore())


EFFECTS = [
    (StoreAppend(stream=KEY, entries=(Entry(1, b""),)), "append() must return a bool"),
    (StoreRead(stream=KEY, after=0, limit=1, max_bytes=1), "read() must return a Page or None"),
    (StoreDrop(principal="", session="session"), "drop() must return None"),
]


@pytest.mark.parametrize(("effect", "text"), EFFECTS)
def test_a_coroutine_is_a_failure_of_the_store(effect: StoreEffect, text: str) -> None:
    """Row A10 of the review: and no warning about a coroutine that was never awaited is left."""
    bench = Bench()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bench.server.perform_store_effect(effect, HiddenAsyncStore(), now=0)
    bench.settle()
    (event,) = bench.events
    assert isinstance(event, StoreFailed)
    assert event.reason == f"HiddenAsyncStore.{text}, got coroutine; a store must be synchronous"


@pytest.mark.parametrize("result", [None, 1, "stored"])
def test_what_is_no_bool_stores_nothing(result: object) -> None:
    """Row A10 of the review: only True counts as stored; the reader gets its message without an id.

    The store works again afterwards, but the log of the stream has ended.
    """

    class Wrong(MemoryStore):
        def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> Any:
            return result

    bench = Bench(store=Wrong())
    talk, call = bench.call(bench.open_session())
    say(bench, call, "a")
    assert methods(talk) == ["a"]
    assert not talk.last_id.endswith("1")
    assert [type(event) for event in bench.events] == [StoreFailed]


def test_failures_after_the_first_say_so() -> None:
    """Until the store has done something of the kind: an operator needs one warning only."""

    class Sick(MemoryStore):
        is_sick = True

        def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> bool:
            if self.is_sick:
                raise OSError("disk full")
            return super().append(key, entries, now=now)

    store = Sick()
    bench = Bench(store=store)
    session = bench.open_session()

    def talk() -> None:
        _, call = bench.call(session)
        say(bench, call, "a")
        bench.do(call.respond, {})

    for is_sick in (True, True, False, True):
        store.is_sick = is_sick
        talk()
    again = [event.again for event in bench.events if isinstance(event, StoreFailed)]
    assert again == [False, True, False]
