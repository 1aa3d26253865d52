"""What is neither a synchronous nor an asynchronous store is refused where a server is made."""

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
from sansmcp import MemoryStore


class AsyncDrop(MemoryStore):
    """One asynchronous method makes no asynchronous store."""

    async def drop(self, principal: str, session: str) -> None:  # type: ignore[override]  # pyright: ignore
        return None


class NoDrop:
    """Has not all methods."""

    def append(self) -> None:
        """Does nothing."""

    read = append


class Page:
    """Is something else."""


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


STORES: dict[type[Any], str] = {
    AsyncDrop: "AsyncDrop.append is plain, and drop is async",
    NoDrop: r"NoDrop has no drop\(\)",
    Page: r"Page has no append\(\)",
}


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("kind", STORES)
def test_every_adapter_refuses_what_is_no_store(adapter: str, kind: type[Any]) -> None:
    """An async store is accepted, never awaited, and counts as stored."""
    with pytest.raises(TypeError, match=STORES[kind]):
        ADAPTERS[adapter](APP, store=kind())
