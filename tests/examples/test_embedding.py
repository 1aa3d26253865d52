"""The examples of embedding do what a server has to do, by the published checks."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiohttp import web

import sansmcp
from sansmcp_check import Check, Feature, Running, ServerSubject, server_checks

from ..ports import free_port
from .test_examples import output_of, start, wait_for

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    """Import an example."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


embed_aiohttp = load("embed_aiohttp")
embed_selectors = load("embed_selectors")
ON_SOCKETS = "the example has only sockets"


class OnSelectors:
    """The example on bare sockets, in a thread."""

    lacks: Mapping[Feature, str] = {
        Feature.STDIO: ON_SOCKETS,
        Feature.THREADS: "all that the example runs is in its loop",
    }
    is_async = True

    def sleep(self, call: Any, seconds: float) -> Any:
        return call.sleep(seconds)

    def serve(self, app: sansmcp.App, **settings: Any) -> Running:
        return _Selecting(embed_selectors.Host(app, ("127.0.0.1", 0), **settings))

    def stdio_command(self) -> list[str]:
        raise NotImplementedError


class _Selecting:
    def __init__(self, host: Any) -> None:
        self.url: str = host.url
        self._host = host
        self._thread = threading.Thread(target=host.run)
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._host.stop()
        self._thread.join()


class InAiohttp(OnSelectors):
    """The example inside aiohttp, in a thread."""

    lacks: Mapping[Feature, str] = {
        Feature.STDIO: ON_SOCKETS,
        Feature.OWN_HTTP: "the HTTP below is aiohttp's",
    }

    def sleep(self, call: Any, seconds: float) -> Any:
        return asyncio.sleep(seconds)

    def serve(self, app: sansmcp.App, **settings: Any) -> Running:
        return _Aiohttp(embed_aiohttp.web_app(app, **settings))


class _Aiohttp:
    _loop: asyncio.AbstractEventLoop
    _stopping: asyncio.Event

    def __init__(self, web_app: web.Application) -> None:
        self._web_app = web_app
        self._url: Future[str] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self._thread.start()

    @property
    def url(self) -> str:
        return self._url.result()

    async def _main(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        runner = web.AppRunner(self._web_app, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self._url.set_result(f"http://127.0.0.1:{runner.addresses[0][1]}/mcp")
        await self._stopping.wait()
        await runner.cleanup()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()


@pytest.mark.parametrize("subject", [OnSelectors(), InAiohttp()], ids=["selectors", "aiohttp"])
@pytest.mark.parametrize("check", server_checks(), ids=str)
def test_they_do_what_a_server_has_to_do(
    check: Check[ServerSubject], subject: ServerSubject
) -> None:
    check(subject)


@pytest.mark.parametrize(
    ("example", "tool", "arguments", "said"),
    [
        ("embed_selectors.py", "nap", '{"seconds": 0.1}', "slept for 0.1 s"),
        ("embed_aiohttp.py", "add", '{"a": 1, "b": 2}', "3"),
    ],
)
def test_they_run_as_they_are_shown(example: str, tool: str, arguments: str, said: str) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with start(EXAMPLES / example, str(port)) as server:
        wait_for(port)
        lines = output_of(EXAMPLES / "client.py", url, tool, arguments).splitlines()
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=20)
    assert lines[1:] == ["1 of 2", said]
    assert (server.returncode, out, err) == (0, f"{url}\n", "")
