"""A server that is started again on the file that it had goes on where it was."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trio

import sansmcp
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_trio
from sansmcp import AppendResult, Entry, MemoryStore, StreamKey
from sansmcp_local import new_server
from sansmcp_stores import SqliteStore

app = sansmcp.App("phoenix", "1")
HTTP = ("127.0.0.1", 0)

AnyStore: TypeAlias = sansmcp.Store | sansmcp.AsyncStore


@app.handler("tools/list")
def list_tools(call: Any) -> dict[str, Any]:
    return {"tools": []}


def post(url: str, method: str, session: str = "", **params: Any) -> tuple[int, str]:
    """The status of the answer, and the session."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    request = urllib.request.Request(url, json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    request.add_header("accept", "application/json, text/event-stream")
    if session:
        request.add_header("mcp-session-id", session)
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, response.headers["mcp-session-id"] or session
    except urllib.error.HTTPError as error:
        with error:
            return error.code, session


def open_session(url: str) -> str:
    about: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
    status, session = post(url, "initialize", **about)
    assert status == 200
    return session


def list_in(session: str, url: str) -> int:
    return post(url, "tools/list", session)[0]


def on_blocking(store: AnyStore, talk: Callable[[str], Any], **settings: Any) -> Any:
    with sansmcp_blocking.serve(
        app, http=HTTP, store=store, graceful_timeout=0.1, **settings
    ) as serving:
        return talk(serving.url)


def on_asyncio(store: AnyStore, talk: Callable[[str], Any], **settings: Any) -> Any:
    async def main() -> Any:
        async with sansmcp_asyncio.serve(
            app, http=HTTP, store=store, graceful_timeout=0.1
        ) as serving:
            return await asyncio.to_thread(talk, serving.url)

    return asyncio.run(main())


def on_trio(store: AnyStore, talk: Callable[[str], Any], **settings: Any) -> Any:
    async def main() -> Any:
        async with trio.open_nursery() as nursery:
            start = partial(sansmcp_trio.serve, app, http=HTTP, store=store, graceful_timeout=0.1)
            serving = await nursery.start(start)
            result = await trio.to_thread.run_sync(talk, serving.url)
            nursery.cancel_scope.cancel()
        return result

    return trio.run(main)


@pytest.mark.parametrize("serve", [on_asyncio, on_blocking, on_trio])
def test_sessions_outlive_the_process(tmp_path: Path, serve: Callable[..., Any]) -> None:
    """Without shared_store=True all sessions were gone, silently."""
    store = SqliteStore(tmp_path / "a.db")
    session = serve(store, open_session)
    store.close()
    store = SqliteStore(tmp_path / "a.db")
    assert serve(store, partial(list_in, session)) == 200
    store.close()


def test_who_does_not_want_that_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    session = on_blocking(store, open_session, shared_store=False)
    assert on_blocking(store, partial(list_in, session), shared_store=False) == 404
    store.close()


class Plain:
    """A store of somebody's own that says nothing of itself."""

    def __init__(self) -> None:
        self._inner = MemoryStore()

    def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        return self._inner.append(key, entries, token=token, now=now)

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Any:
        return self._inner.read(key, after, limit=limit, max_bytes=max_bytes)

    def drop(self, principal: str, session: str) -> None:
        self._inner.drop(principal, session)


class Durable(Plain):
    """One that says that it lasts, and has no key."""

    is_durable = True


def test_only_durable_stores_are_shared_by_default(tmp_path: Path) -> None:
    """resumable=False keeps nothing, in no store."""
    sqlite = SqliteStore(tmp_path / "a.db")
    cases: list[tuple[sansmcp.Store, bool]] = [
        (Plain(), False),
        (MemoryStore(), False),
        (Durable(), True),
    ]
    for store, expected in cases:
        assert new_server(app, store, resumable=True).shared_store is expected
    assert new_server(app, None, resumable=True).shared_store is False
    assert new_server(app, sqlite, resumable=True).shared_store is True
    assert new_server(app, sqlite, resumable=False).shared_store is False
    assert new_server(app, sqlite, resumable=True, shared_store=False).shared_store is False
    assert new_server(app, sqlite, resumable=True, shared_store=True).shared_store is True
    with pytest.raises(sansmcp.LocalProtocolError, match="set store and state_signer"):
        new_server(app, Durable(), resumable=True, shared_store=True)
    sqlite.close()
