"""Every client with every server: of one era, of the other, of both.

They meet over sockets, as processes, and in memory.

Source: 2026-07-28 basic/versioning: Compatibility Matrix.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeAlias

import pytest
import trio

import sansmcp_trio
from sansmcp import Client, KnownServers, MemoryStore, NegotiationFailed, Server
from sansmcp.events import Closed, Connected
from sansmcp.revisions import HANDSHAKE_VERSIONS, MODERN_VERSIONS, REVISIONS
from sansmcp.testing import Link, Pair, sequential_tokens

from . import programs
from .stdio_server import app

requirement = pytest.mark.requirement
LEGACY, MODERN, DUAL = HANDSHAKE_VERSIONS, MODERN_VERSIONS, tuple(REVISIONS)
NAMES = {LEGACY: "legacy", MODERN: "modern", DUAL: "dual"}
Target: TypeAlias = str | list[str]
Serve: TypeAlias = Callable[[tuple[str, ...]], AbstractAsyncContextManager[Target]]


@asynccontextmanager
async def over_http(versions: tuple[str, ...]) -> AsyncGenerator[Target, None]:
    async with trio.open_nursery() as nursery:
        serve = partial(sansmcp_trio.serve, app, http=("127.0.0.1", 0), versions=versions)
        serving: sansmcp_trio.RunningServer = await nursery.start(serve)
        yield serving.url
        serving.stop()


@asynccontextmanager
async def on_stdio(versions: tuple[str, ...]) -> AsyncGenerator[Target, None]:
    yield programs.ours(versions=versions)


understood = pytest.mark.parametrize(
    ("ours", "theirs", "spoken"),
    [
        (MODERN, MODERN, MODERN[-1]),
        (MODERN, DUAL, MODERN[-1]),
        (LEGACY, LEGACY, LEGACY[-1]),
        (LEGACY, DUAL, LEGACY[-1]),
        (DUAL, MODERN, MODERN[-1]),
        (DUAL, LEGACY, LEGACY[-1]),
        (DUAL, DUAL, MODERN[-1]),
    ],
    ids=NAMES.get,
)
refused = pytest.mark.parametrize(
    ("ours", "theirs"), [(MODERN, LEGACY), (LEGACY, MODERN)], ids=NAMES.get
)
on_both = pytest.mark.parametrize(
    "serve", [pytest.param(over_http, id="http"), pytest.param(on_stdio, id="stdio")]
)


@requirement("VERS-C-010", "VERS-S-009", "VERS-S-010", "VERS-S-011", "STDIO-C-012", "STDIO-C-013")
@on_both
@understood
async def test_they_understand_each_other(
    serve: Serve, ours: tuple[str, ...], theirs: tuple[str, ...], spoken: str
) -> None:
    async with (
        serve(theirs) as target,
        programs.connect(target, versions=ours, known_servers=KnownServers()) as client,
    ):
        assert client.connected.version == spoken
        assert client.connected.server_info == app.server_info
        result = await client.call_tool("echo", {"text": "hello"})
        assert result["text"] == "hello"


@requirement("STDIO-C-017", "VERS-S-012", "VERS-S-013")
@on_both
@refused
async def test_they_have_nothing_in_common(
    serve: Serve, ours: tuple[str, ...], theirs: tuple[str, ...]
) -> None:
    """The error names the versions of both sides."""
    async with serve(theirs) as target:
        with pytest.raises(NegotiationFailed) as failed:
            async with programs.connect(target, versions=ours, known_servers=KnownServers()):
                pass
    speaks = f"The server speaks {', '.join(reversed(theirs))}, and not {', '.join(ours)}"
    assert speaks in str(failed.value)


# In memory


def opened(ours: tuple[str, ...], theirs: tuple[str, ...]) -> Connected | Closed:
    """How a client began to talk to a server, or why it did not."""
    client = Client("http://localhost/mcp", jitter=lambda: 0.5, versions=ours)
    server = Server(app, new_token=sequential_tokens(), versions=theirs)
    pair = Pair(client, server, Link(lambda: 0.5), store=MemoryStore())
    client.start(now=0.0)
    pair.run(until=1)
    (event,) = (event for event in pair.events if isinstance(event, Connected | Closed))
    return event


@requirement("VERS-C-010", "VERS-S-009")
@understood
def test_they_understand_each_other_in_memory(
    ours: tuple[str, ...], theirs: tuple[str, ...], spoken: str
) -> None:
    event = opened(ours, theirs)
    assert isinstance(event, Connected)
    assert event.version == spoken


@refused
def test_they_have_nothing_in_common_in_memory(
    ours: tuple[str, ...], theirs: tuple[str, ...]
) -> None:
    event = opened(ours, theirs)
    assert isinstance(event, Closed)
    assert isinstance(event.error, NegotiationFailed)
    assert all(version in str(event.error) for version in DUAL)
