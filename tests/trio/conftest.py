"""Servers for the tests of the trio adapter, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import sansmcp_trio
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp_trio import RunningServer

from ..tool_app import ToolApp

Start = Callable[..., Awaitable[RunningServer]]


@pytest.fixture
def world() -> ToolApp:
    return ToolApp()


@pytest.fixture
def clock(mock_clock: MockClock) -> MockClock:
    """A clock that runs as all do, but for being put forward: what has to come first has time."""
    mock_clock.rate = 1.0
    return mock_clock


@pytest.fixture
async def start(world: ToolApp, nursery: trio.Nursery) -> AsyncIterator[Start]:
    """Start a server on a free port; it is stopped at the end of the test.

    If the test does not say otherwise, it is of the revisions that have sessions.
    """
    running: list[RunningServer] = []

    async def start(**settings: Any) -> RunningServer:
        settings.setdefault("versions", HANDSHAKE_VERSIONS)
        options = {"http": ("127.0.0.1", 0), "versions": HANDSHAKE_VERSIONS, **settings}
        serve = partial(sansmcp_trio.serve, world.app, **options)
        serving: RunningServer = await nursery.start(serve)
        running.append(serving)
        return serving

    yield start
    for serving in running:
        serving.stop()
