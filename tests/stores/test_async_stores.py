"""Stores that would have to be awaited: refused where that can be seen, and when they are used."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest
import trio

import sansmcp
import sansmcp_asgi
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_trio
import sansmcp_wsgi
from sansmcp import Entry, LocalProtocolError, MemoryStore, StreamKey
from sansmcp.effects import StoreAppend, StoreDrop, StoreEffect, StoreRead
from sansmcp.events import StoreFailed

from ..server.bench import Bench, methods, say

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


class AsyncDrop(MemoryStore):
    """One method is enough."""

    async def drop(self, principal: str, session: str) -> None:  # type: ignore[override]  # pyright: ignore
        return None


APP = sansmcp.App("a", "1")


def serve_on_trio(app: sansmcp.App, store: Any) -> None:
    async def main() -> None:
        with trio.move_on_after(5):
            await sansmcp_trio.serve(app, http=("127.0.0.1", 0), store=store)

    trio.run(main)


ADAPTERS: dict[str, Callable[..., Any]] = {
    "asgi": sansmcp_asgi.asgi_app,
    "asyncio": partial(sansmcp_asyncio.serve, http=("127.0.0.1", 0)),
    "blocking": partial(sansmcp_blocking.serve, http=("127.0.0.1", 0)),
    "trio": serve_on_trio,
    "wsgi": sansmcp_wsgi.WsgiApp,
}


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("kind", [AsyncStore, AsyncDrop])
def test_every_adapter_refuses_an_async_store(adapter: str, kind: type[Any]) -> None:
    """Row A10 of the review: an async store is accepted, never awaited, and counts as stored."""
    with pytest.raises(LocalProtocolError, match=rf"synchronous, and {kind.__name__}\.\w+ is an"):
        ADAPTERS[adapter](APP, store=kind())


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
        bench.server.use_store(effect, HiddenAsyncStore(), now=0)
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
