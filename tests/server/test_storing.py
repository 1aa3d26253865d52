"""Messages are stored before they are sent, and a store that is slow or fails is survived."""

from __future__ import annotations

import warnings
from typing import Any

import attrs
import pytest

from sansmcp import AppendResult, Entry, Limits, MemoryStore, StreamKey
from sansmcp.drivers.store_checks import is_async_store
from sansmcp.effects import StoreAppend, StoreDrop, StoreEffect, StoreRead
from sansmcp.events import ResponseUndelivered, StoreFailed

from .harness import ServerHarness, methods, report_progress_all, request
from .instances import Instances

requirement = pytest.mark.requirement

# Stored before sent


def test_nothing_is_sent_before_it_is_stored() -> None:
    harness = ServerHarness(store_works=False)
    talk, call = harness.call(harness.open_session())
    report_progress_all(harness, call, "a")
    assert methods(talk) == []
    assert len(talk.events) == 1
    harness.use_store_once()
    assert methods(talk) == ["a"]
    harness.run_action(call.respond, {})
    assert not talk.ended
    harness.use_store_once()
    assert methods(talk) == ["a", "answer"]
    assert talk.ended


def test_while_the_store_works_messages_are_collected() -> None:
    harness = ServerHarness(store_works=False)
    talk, call = harness.call(harness.open_session())
    report_progress_all(harness, call, "a", "b", "c")
    assert len(harness.waiting) == 1
    harness.use_store_once()
    (effect,) = harness.waiting
    assert isinstance(effect, StoreAppend)
    assert [entry.seq for entry in effect.entries] == [2, 3]
    harness.use_store_once()
    assert methods(talk) == ["a", "b", "c"]


def test_a_slow_store_makes_handlers_wait() -> None:
    harness = ServerHarness(store_works=False, limits=Limits(max_pending_entries=2))
    _, call = harness.call(harness.open_session())
    assert not call.is_above_high_water
    report_progress_all(harness, call, "a", "b")
    assert not call.is_above_high_water
    report_progress_all(harness, call, "c")
    assert call.is_above_high_water
    harness.use_store_once()
    assert not call.is_above_high_water
    harness.run_action(call.respond, {})
    assert not call.is_above_high_water


def test_a_resumption_races_with_an_append() -> None:
    """Whatever the order in which store and reader act, each message comes once."""
    harness = ServerHarness(store_works=False)
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a")
    harness.use_store_once()
    talk.lose_connection()
    report_progress_all(harness, call, "b")  # the append is under way
    resumed = harness.get(session, talk.events[0].id)  # reads after 0: a page is asked for
    report_progress_all(harness, call, "c")
    kinds = [type(effect) for effect in harness.waiting]
    assert kinds == [StoreAppend, StoreRead]
    harness.waiting.reverse()  # the page comes before the append is reported
    harness.use_store_once()
    assert methods(resumed) == ["a"]
    while harness.waiting:
        harness.use_store_once()
    assert methods(resumed) == ["a", "b", "c"]


def test_a_page_that_comes_too_late_is_ignored() -> None:
    harness = ServerHarness(store_works=False)
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a")
    harness.use_store_once()
    first = harness.get(session, talk.events[0].id)
    page = harness.waiting.pop()
    second = harness.get(session, talk.events[0].id)
    assert (first.status, first.events, first.ended) == (200, [], True)
    harness.perform_store_effect(page)
    harness.run_pending()
    assert second.head is None
    harness.use_store_once()
    assert methods(second) == ["a"]
    second.lose_connection()
    harness.perform_store_effect(page)  # reported twice, for nobody
    third = harness.get(session, talk.events[0].id)
    third.lose_connection()
    harness.use_store_once()
    assert third.head is None


# A store that fails


@requirement("POLL-S-004")
def test_when_the_store_fails_the_reader_still_gets_the_message() -> None:
    harness = ServerHarness(store_works=False)
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a", "b")
    harness.fail_store_once()
    assert methods(talk) == []  # it is asked again
    harness.wait(1)
    harness.fail_store_for_good()
    assert methods(talk) == ["a", "b"]
    ids = [event.id for event in talk.events]
    assert ids == [talk.events[0].id, "", None, None]
    assert talk.last_id == ""  # the client shall not come back: a GET finds nothing
    assert harness.run_action(call.disconnect) is False
    harness.run_action(call.respond, {})
    assert methods(talk) == ["a", "b", "answer"]
    assert talk.ended
    assert harness.events[0] == StoreFailed("disk full", lost=False)
    assert set(harness.events[1:]) == {StoreFailed("disk full", lost=False, again=True)}


def test_what_was_told_without_the_store_is_not_told_again() -> None:
    """A failed append may have been done: its client must not ask another instance for it."""
    first, second = instances = Instances()
    session = instances.open_session()
    talk, call = first.call(session)
    report_progress_all(first, call, "a")
    id = talk.last_id
    first.store_works = False
    report_progress_all(first, call, "b")
    (append,) = first.waiting
    assert isinstance(append, StoreAppend)
    first.store.append(append.stream, append.entries, token=append.token, now=first.now)
    first.fail_store_for_good()
    assert (methods(talk), talk.last_id) == (["a", "b"], "")
    assert methods(second.get(session, id)) == ["b"]


def test_a_client_that_has_no_id_is_told_to_forget_none() -> None:
    harness = ServerHarness(shared_store=True)
    session = harness.open_session()
    harness.store_works = False
    talk = harness.post(request(1), session)
    harness.use_store_once()  # the session is looked for
    report_progress_all(harness, harness.last_call(), "a")
    harness.fail_store_for_good()
    assert [event.id for event in talk.events] == [None]


def test_when_the_store_fails_without_a_reader_that_is_said() -> None:
    harness = ServerHarness(store_works=False)
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a")
    talk.lose_connection()
    harness.fail_store_for_good()
    assert harness.events[0] == StoreFailed("disk full", lost=False)
    assert harness.events[-1] == StoreFailed("disk full", lost=True)
    assert harness.run_action(call.respond, {}) is False
    assert isinstance(harness.events[-1], ResponseUndelivered)
    assert harness.get(session, talk.events[0].id).status == 400


def test_when_the_store_fails_a_reader_that_is_behind_is_cut() -> None:
    harness = ServerHarness(store_works=False)
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a")
    harness.use_store_once()
    report_progress_all(harness, call, "b")
    resumed = harness.get(session, talk.events[0].id)
    assert [type(effect) for effect in harness.waiting] == [StoreAppend, StoreRead]
    harness.fail_store_for_good()
    assert resumed.status == 400
    assert harness.events[-1] == StoreFailed("disk full", lost=True)
    harness.use_store_once()
    assert resumed.ended


def test_when_the_store_cannot_be_read_the_reader_is_told() -> None:
    harness = ServerHarness(store_works=False)
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a")
    harness.use_store_once()
    resumed = harness.get(session, talk.events[0].id)
    harness.fail_store_once()
    assert (resumed.status, resumed.error["data"]["reason"]) == (503, "store_failed")
    assert resumed.header("retry-after") == "1"
    left = harness.get(session, talk.events[0].id)
    left.lose_connection()
    harness.fail_store_once()  # of no interest any more
    again = harness.get(session, talk.events[0].id)
    harness.use_store_once()
    assert methods(again) == ["a"]
    append = StoreAppend(stream=StreamKey("", "", ""), entries=(), token="")
    drop = StoreDrop(principal="", session="")
    read = StoreRead(stream=StreamKey("", "", ""), after=0, limit=1, max_bytes=1)
    harness.server.store_failed(append, "never asked", now=harness.now)
    harness.server.append_completed(append, AppendResult.STORED, now=harness.now)
    harness.server.read_completed(read, None, now=harness.now)
    harness.server.drop_completed(drop, now=harness.now)


class BrokenStore(MemoryStore):
    """Raises at every use."""

    def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        raise OSError("disk full")

    def drop(self, principal: str, session: str) -> None:
        raise OSError("disk gone")


def test_a_session_that_ends_leaves_no_stream_whose_last_message_is_then_not_stored() -> None:
    """Seed 4122227748042 of the simulator: such streams stayed in memory for ever."""
    harness = ServerHarness(store_works=False)
    talk, call = harness.call(harness.open_session())
    report_progress_all(harness, call, "a")
    harness.use_store_once()
    talk.lose_connection()
    harness.run_action(call.respond, {})
    (session,) = harness.server.sessions
    harness.run_action(harness.server.end_session, session, "")
    harness.fail_store_for_good()
    legacy = harness.server._legacy  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
    assert legacy is not None
    assert legacy.streams._streams == {}  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001


def test_what_a_store_raises_is_a_failure_of_the_store() -> None:
    harness = ServerHarness(store=BrokenStore())
    session = harness.open_session()
    talk, call = harness.call(session)
    talk2, call2 = harness.call(session)
    harness.wait(1)
    talk2.lose_connection()
    report_progress_all(harness, call, "a")
    report_progress_all(harness, call2, "b")
    assert methods(talk) == []
    harness.wait(31)
    assert methods(talk) == ["a"]
    assert set(harness.events) == {
        StoreFailed("OSError: disk full", lost=False),
        StoreFailed("OSError: disk full", lost=False, again=True),
        StoreFailed("OSError: disk full", lost=True),
    }
    assert harness.send("DELETE", {"mcp-session-id": session}).status == 200


# A store that would have to be awaited

KEY = StreamKey("", "session", "stream")


class AsyncStore:
    """Plain to see."""

    async def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        return AppendResult.STORED

    async def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> None:
        return None

    async def drop(self, principal: str, session: str) -> None:
        return None


@attrs.define
class HiddenAsyncStore:
    """Plain functions that give what has to be awaited."""

    inner: AsyncStore = attrs.field(factory=AsyncStore)

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float) -> Any:
        return self.inner.append(key, entries, token=token, now=now)

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Any:
        return self.inner.read(key, after, limit=limit, max_bytes=max_bytes)

    def drop(self, principal: str, session: str) -> Any:
        return self.inner.drop(principal, session)


def test_an_async_store_is_told_from_a_synchronous_one() -> None:
    """One was accepted, never awaited, and counted as stored."""
    assert is_async_store(AsyncStore())
    assert not is_async_store(MemoryStore())


class HalfAsync(AsyncStore):
    """Plain and async methods."""

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Any:
        return None


@pytest.mark.parametrize(
    ("store", "text"),
    [
        ("file.db", "must have the methods of .*, and str has no append"),
        (AsyncStore, "must be an object, and AsyncStore is a class"),
        (HalfAsync(), r"HalfAsync\.read is plain, and append is async"),
    ],
)
def test_what_is_no_store_is_refused(store: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        is_async_store(store)


EFFECTS = [
    (
        StoreAppend(stream=KEY, entries=(Entry(1, b""),), token="t"),
        "append() must return an AppendResult",
    ),
    (StoreRead(stream=KEY, after=0, limit=1, max_bytes=1), "read() must return a Page or None"),
    (StoreDrop(principal="", session="session"), "drop() must return None"),
]


@pytest.mark.parametrize(("effect", "text"), EFFECTS)
def test_a_coroutine_is_a_failure_of_the_store(effect: StoreEffect, text: str) -> None:
    """And no warning about a coroutine that was never awaited is left."""
    harness = ServerHarness()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        harness.server.perform_store_effect(effect, HiddenAsyncStore(), now=0)
    harness.run_pending()
    (event,) = harness.events
    assert isinstance(event, StoreFailed)
    assert event.reason == f"HiddenAsyncStore.{text}, got coroutine"


@pytest.mark.parametrize("result", [None, True, "stored"])
def test_what_is_no_result_stores_nothing(result: object) -> None:
    """Only STORED counts; the reader gets its message without an id.

    The store works again afterwards, but the log of the stream has ended.
    """

    class Wrong(MemoryStore):
        def append(
            self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
        ) -> Any:
            return result

    harness = ServerHarness(store=Wrong())
    talk, call = harness.call(harness.open_session())
    report_progress_all(harness, call, "a")
    assert methods(talk) == []
    harness.wait(31)
    assert methods(talk) == ["a"]
    assert not talk.last_id.endswith("1")
    assert {type(event) for event in harness.events} == {StoreFailed}


def test_failures_after_the_first_say_so() -> None:
    """Until the store has done something of the kind: an operator needs one warning only."""

    class Sick(MemoryStore):
        is_sick = True

        def append(
            self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
        ) -> AppendResult:
            if self.is_sick:
                raise OSError("disk full")
            return super().append(key, entries, token=token, now=now)

    store = Sick()
    harness = ServerHarness(store=store, limits=Limits(store_retry_timeout=0.01))
    session = harness.open_session()

    def talk() -> None:
        _, call = harness.call(session)
        report_progress_all(harness, call, "a")
        harness.run_action(call.respond, {})

    for is_sick in (True, True, False, True):
        store.is_sick = is_sick
        talk()
    again = [event.again for event in harness.events if isinstance(event, StoreFailed)]
    assert again == [False, True, False]
