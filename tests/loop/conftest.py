"""The event loops. Async tests of this folder use anyio, and run on asyncio, uvloop and trio."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import pytest
import trio

import sansmcp_asyncio
import sansmcp_trio
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp_local import Client

from .. import tool_app
from ..asgi.loops import PATIENCE, RUNS, Run
from ..leak_check import freeze_what_is_there, no_leaks

Serving: TypeAlias = sansmcp_asyncio.RunningServer | sansmcp_trio.RunningServer

LOOPS: dict[str, dict[str, Any]] = {
    "asyncio": {"backend": "asyncio"},
    "uvloop": {"backend": "asyncio", "backend_options": {"use_uvloop": True}},
    "trio": {"backend": "trio"},
}


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs an async function in one of the event loops."""
    function: Run = request.param
    return function


@pytest.hookimpl(tryfirst=True)  # before all that is async is taken for trio
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_here = Path(__file__).parent in item.path.parents
        if is_here and isinstance(item, pytest.Function) and iscoroutinefunction(item.obj):
            item.obj = _on_a_loop(item.obj, item.funcargs)


def _on_a_loop(test: Callable[..., Awaitable[None]], fixtures: dict[str, Any]) -> Any:
    @functools.wraps(test)
    def run_test(**arguments: Any) -> None:
        async def limited() -> None:
            with anyio.fail_after(PATIENCE):
                await test(**arguments)

        with no_leaks():
            anyio.run(limited, **LOOPS[fixtures["loop"]])

    return run_test


@pytest.fixture(scope="module")
def freeze_garbage() -> None:
    """Leave out what earlier tests have left, and what a library opens once."""
    for kind in LOOPS.values():
        anyio.run(anyio.lowlevel.checkpoint, **kind)
    freeze_what_is_there()


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest, freeze_garbage: None) -> str:
    """The kind of the loop that an async test runs on."""
    kind: str = request.param
    return kind


class ToolApp(tool_app.ToolApp):
    """The same, with a server and clients of the loop's adapter."""

    def __init__(self, is_on_trio: bool) -> None:
        super().__init__()
        self._is_on_trio = is_on_trio

    @asynccontextmanager
    async def serve(self, **settings: Any) -> AsyncGenerator[Serving, None]:
        """Serve it; if the test does not say otherwise, with the revisions that have sessions."""
        options: dict[str, Any] = {
            "http": ("127.0.0.1", 0),
            "versions": HANDSHAKE_VERSIONS,
            **settings,
        }
        if not self._is_on_trio:
            async with sansmcp_asyncio.serve(self.app, **options) as serving:
                yield serving
            return
        async with trio.open_nursery() as nursery:
            serve = functools.partial(sansmcp_trio.serve, self.app, **options)
            on_trio: sansmcp_trio.RunningServer = await nursery.start(serve)
            yield on_trio
            on_trio.stop()

    def connect(self, url: str, **settings: Any) -> AbstractAsyncContextManager[Client]:
        """Connect a client."""
        if self._is_on_trio:
            return sansmcp_trio.connect(url, **settings)
        return sansmcp_asyncio.connect(url, **settings)

    @asynccontextmanager
    async def client(self, **settings: Any) -> AsyncGenerator[Client, None]:
        """Serve the application, and connect a client to it."""
        async with self.serve() as serving, self.connect(serving.url, **settings) as client:
            yield client


@pytest.fixture
def world(loop: str) -> ToolApp:
    return ToolApp(loop == "trio")
