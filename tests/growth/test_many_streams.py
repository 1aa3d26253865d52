"""What happens on one stream costs the same among thousands as among a hundred."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sansmcp import Entry, Limits, MemoryStore, Store, StreamKey
from sansmcp.events import SessionOpened
from sansmcp.meta_keys import LISTEN
from tests.appending import append
from tests.client.harness import ClientHarness as ClientHarness
from tests.server.harness import RawExchange, initialize, notification
from tests.server.modern.harness import ModernServerHarness, meta, modern, modern_app
from tests.stores.waiting import open_sqlite

from .test_many_timers import cost
from .work import seconds

FEW, MANY = 100, 2_000
MOST = 1.3
"""How many times as much something may cost among many."""

LIMITS = Limits(
    max_sessions=2 * MANY,
    max_subscriptions=2 * MANY,
    max_pending_calls=2 * MANY,
    max_stored_entries=100 * MANY,
)


def assert_flat(few: tuple[int, int], many: tuple[int, int]) -> None:
    """Steps of Python and bytes; those of a few hundred bytes differ by chance."""
    assert many[0] <= MOST * few[0]
    assert many[1] <= MOST * few[1] + 512


# A server


class Streams(ModernServerHarness):
    """A server with open streams, on each of which something was said."""

    talk: RawExchange
    """The last stream that was opened."""

    def __init__(self, streams: int) -> None:
        super().__init__(modern_app(), limits=LIMITS)
        for number in range(streams):
            self.now += 0.001
            self.open_one(number)
            self.events.clear()

    def open_one(self, number: int) -> None:
        raise NotImplementedError

    def say_something(self) -> None:
        raise NotImplementedError

    def keep_one_alive(self) -> None:
        deadline = self.server.next_deadline()
        assert deadline is not None
        self.now = deadline
        self.server.handle_timeout(now=deadline)
        self.run_pending()

    def time_out_early(self) -> None:
        self.run_action(self.server.handle_timeout)

    def replace_one(self) -> None:
        self.talk.lose_connection()
        self.open_one(-1)
        self.say_something()
        self.events.clear()


class Sessions(Streams):
    """Clients that listen to their sessions (GET)."""

    def open_one(self, number: int) -> None:
        opened = self.post(initialize())
        (event,) = self.events
        assert isinstance(event, SessionOpened)
        self.session = event.session
        id = opened.header("mcp-session-id")
        self.post(notification("notifications/initialized"), id)
        self.talk = self.get(id)
        self.say_something()

    def say_something(self) -> None:
        assert self.run_action(self.session.notify, "notifications/message")


class Calls(Streams):
    """Calls that are answered by event streams."""

    def open_one(self, number: int) -> None:
        asked = modern(number, about={**meta(), "progressToken": number})
        self.talk, self.running = self.start(asked)
        self.done = 0
        self.say_something()

    def say_something(self) -> None:
        self.done += 1
        assert self.run_action(self.running.progress, self.done)


class Subscribers(Streams):
    """Clients that want to know of one resource each."""

    def open_one(self, number: int) -> None:
        self.uri = f"test://{number}"
        self.talk = self.ask(
            modern(number, LISTEN, notifications={"resourceSubscriptions": [self.uri]})
        )

    def say_something(self) -> None:
        before = len(self.talk.body)
        self.run_action(self.server.publish, "notifications/resources/updated", {"uri": self.uri})
        assert len(self.talk.body) > before


KINDS: dict[str, type[Streams]] = {
    "sessions": Sessions,
    "calls": Calls,
    "subscribers": Subscribers,
}


@functools.cache
def server_with(kind: str, streams: int) -> Streams:
    return KINDS[kind](streams)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "action",
    ["say_something", "keep_one_alive", "time_out_early", "replace_one"],
)
def test_an_event_of_a_server_costs_the_same_among_many(kind: str, action: str) -> None:
    few, many = (getattr(server_with(kind, streams), action) for streams in (FEW, MANY))
    assert_flat(cost(few), cost(many))


# A client


class Busy(ClientHarness):
    """A client with calls that are answered by event streams, each of which has said something."""

    def __init__(self, calls: int) -> None:
        super().__init__(limits=LIMITS)
        self.connect()
        self.heard = 0
        for number in range(calls):
            self.now += 0.001
            self.handle, self.asked = self.call(timeout=1000 + number, total_timeout=10**6)
            self.asked.open_stream()
            self.token = self.asked.json["params"]["_meta"]["progressToken"]
            self.hear_something()

    def hear_something(self) -> None:
        self.heard += 1
        progress = {"progressToken": self.token, "progress": self.heard}
        self.asked.event(notification("notifications/progress", **progress), id=str(self.heard))
        assert self.take_events()

    def call_and_finish(self) -> None:
        _, asked = self.call()
        asked.result()
        assert self.take_events()

    def call_and_cancel(self) -> None:
        handle, _ = self.call()
        assert self.run_command(self.client.cancel, handle)
        self.requests.clear()
        self.events.clear()

    def let_one_time_out(self) -> None:
        deadline = self.client.next_deadline()
        assert deadline is not None
        self.client.handle_timeout(now=deadline)
        self.run_pending()
        assert self.take_events()
        self.requests.clear()

    def time_out_early(self) -> None:
        self.run_command(self.client.handle_timeout)


@functools.cache
def client_with(calls: int) -> Busy:
    return Busy(calls)


@pytest.mark.parametrize(
    "action",
    [
        Busy.hear_something,
        Busy.call_and_finish,
        Busy.call_and_cancel,
        Busy.let_one_time_out,
        Busy.time_out_early,
    ],
)
def test_an_event_of_a_client_costs_the_same_among_many(action: Callable[[Busy], Any]) -> None:
    few, many = (client_with(calls) for calls in (FEW, MANY))
    assert_flat(cost(lambda: action(few)), cost(lambda: action(many)))


# Replay


KEY = StreamKey("", "session", "stream")
PAGE = 64
FAR = 50
"""How many times as much is stored: enough for no busy machine to blur the answer."""


def filled(store: Store, entries: int) -> Store:
    """The store with a log, as long as another one."""
    for key in (KEY, StreamKey("", "session", "other")):
        for first in range(1, entries, 1000):
            numbers = range(first, first + 1000)
            append(store, key, tuple(Entry(number, b"{}") for number in numbers), now=0.0)
    return store


def time_to_read(store: Store, entries: int) -> float:
    """Seconds for a page in the middle, at best."""

    def read() -> Iterator[None]:
        for _ in range(20):
            page = store.read(KEY, entries // 2, limit=PAGE, max_bytes=10**6)
            assert page is not None
            assert len(page.entries) == PAGE
            yield

    return min(seconds(read()) for _ in range(10))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_replay_costs_what_is_replayed_and_not_what_is_stored(kind: str, tmp_path: Path) -> None:
    def time(entries: int) -> float:
        if kind == "memory":
            return time_to_read(filled(MemoryStore(LIMITS), entries), entries)
        with closing(open_sqlite(tmp_path / str(entries), LIMITS)) as store:
            return time_to_read(filled(store, entries), entries)

    assert time(1000 * FAR) < 3 * time(1000)
