"""Stores that would have to be awaited: refused where that can be seen, and when they are used."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

import sansmcp
import sansmcp_asgi
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_trio
import sansmcp_wsgi
from sansmcp import Entry, LocalProtocolError, MemoryStore, StreamKey

KEY = StreamKey("", "session", "stream")


class AsyncStore:
    """Plain to see."""

    async def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> bool:
        return True

    async def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> None:
        return None

    async def drop(self, principal: str, session: str) -> None:
        return None


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
