"""Every client with every server: of one era, of the other, of both; over sockets, with processes.

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
from sansmcp import NegotiationFailed, Verdicts
from sansmcp.revisions import HANDSHAKE_VERSIONS, MODERN_VERSIONS, REVISIONS

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
        serving: sansmcp_trio.Serving = await nursery.start(serve)
        yield serving.url
        serving.stop()


@asynccontextmanager
async def on_stdio(versions: tuple[str, ...]) -> AsyncGenerator[Target, None]:
    yield programs.ours(versions=versions)


on_both = pytest.mark.parametrize(
    "serve", [pytest.param(over_http, id="http"), pytest.param(on_stdio, id="stdio")]
)


@requirement("VERS-C-010", "VERS-S-009", "VERS-S-010", "VERS-S-011", "STDIO-C-012", "STDIO-C-013")
@on_both
@pytest.mark.parametrize(
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
async def test_they_understand_each_other(
    serve: Serve, ours: tuple[str, ...], theirs: tuple[str, ...], spoken: str
) -> None:
    async with (
        serve(theirs) as target,
        programs.connect(target, versions=ours, verdicts=Verdicts()) as client,
    ):
        assert client.connected.version == spoken
        assert client.connected.server_info == app.server_info
        result = await client.call_tool("echo", {"text": "hello"})
        assert result["text"] == "hello"


@requirement("STDIO-C-017", "VERS-S-012", "VERS-S-013")
@on_both
@pytest.mark.parametrize(("ours", "theirs"), [(MODERN, LEGACY), (LEGACY, MODERN)], ids=NAMES.get)
async def test_they_have_nothing_in_common(
    serve: Serve, ours: tuple[str, ...], theirs: tuple[str, ...]
) -> None:
    """The error names the versions of both sides."""
    async with serve(theirs) as target:
        with pytest.raises(NegotiationFailed) as failed:
            async with programs.connect(target, versions=ours, verdicts=Verdicts()):
                pass
    speaks = f"The server speaks {', '.join(reversed(theirs))}, this client {', '.join(ours)}"
    assert speaks in str(failed.value)
