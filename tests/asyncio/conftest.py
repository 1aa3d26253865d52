"""Async tests of this folder run on the loop of asyncio, and again on that of uvloop."""

from __future__ import annotations

from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest

import sansmcp_asyncio
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp_asyncio._server import Serve

from .. import tool_app
from ..leak_check import freeze_what_is_there
from .loops import LOOPS, on_a_loop

LOCAL = ("127.0.0.1", 0)


@pytest.hookimpl(tryfirst=True)  # before all that is async is taken for trio
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_here = Path(__file__).parent in item.path.parents
        if is_here and isinstance(item, pytest.Function) and iscoroutinefunction(item.obj):
            item.obj = on_a_loop(item.obj, item.funcargs)


@pytest.fixture(autouse=True, scope="module")
def freeze_garbage() -> None:
    """What others have left behind is theirs."""
    for kind in LOOPS:
        LOOPS[kind]().close()
    freeze_what_is_there()


@pytest.fixture(autouse=True, params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    """The kind of the loop that an async test runs on."""
    kind: str = request.param
    return kind


class ToolApp(tool_app.ToolApp):
    """The same, with a server."""

    def serve(self, **settings: Any) -> Serve:
        """Serve it; if the test does not say otherwise, with the revisions that have sessions."""
        options: dict[str, Any] = {"http": LOCAL, "versions": HANDSHAKE_VERSIONS, **settings}
        return sansmcp_asyncio.serve(self.app, **options)


@pytest.fixture
def world() -> ToolApp:
    return ToolApp()
