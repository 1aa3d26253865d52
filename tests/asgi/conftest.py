"""ASGI servers of other people, each in a thread of its own, and applications for them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import pytest
import trio
import uvicorn
from hypercorn.config import Config

from ..tool_app import ToolApp
from .loops import RUNS, Run


@pytest.fixture
def world() -> ToolApp:
    return ToolApp()


Start = Callable[[Any, socket.socket, ExitStack], None]


def _uvicorn(app: Any, listener: socket.socket, stack: ExitStack) -> None:
    config = uvicorn.Config(
        app,
        ws="none",
        log_level="critical",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=KEEP_ALIVE,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()

    def stop() -> None:
        server.should_exit = True
        thread.join()

    stack.callback(stop)


KEEP_ALIVE = 60
"""Seconds without a request after which a connection is closed.

By default five, which a busy machine may take between two requests: the second one is lost.
"""


def _config(listener: socket.socket) -> Config:
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.loglevel = "CRITICAL"
    config.graceful_timeout = 0.5
    config.keep_alive_timeout = KEEP_ALIVE
    return config


def _hypercorn_asyncio(app: Any, listener: socket.socket, stack: ExitStack) -> None:
    running = threading.Event()
    stopping: list[Callable[[], object]] = []

    async def main() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        serve = import_module("hypercorn.asyncio").serve
        serving = asyncio.ensure_future(
            serve(app, _config(listener), shutdown_trigger=stopped.wait)
        )

        def stop() -> None:
            stopped.set()
            loop.call_later(1.0, serving.cancel)  # on Python 3.12 it waits for clients for ever

        stopping.append(lambda: loop.call_soon_threadsafe(stop))
        running.set()
        await asyncio.wait([serving])

    _in_thread(lambda: asyncio.run(main()), running, stopping, stack)


def _hypercorn_trio(app: Any, listener: socket.socket, stack: ExitStack) -> None:
    running = threading.Event()
    stopping: list[Callable[[], object]] = []

    async def main() -> None:
        stopped = trio.Event()
        token = trio.lowlevel.current_trio_token()
        stopping.append(lambda: token.run_sync_soon(stopped.set))
        running.set()
        await import_module("hypercorn.trio").serve(
            app, _config(listener), shutdown_trigger=stopped.wait
        )

    _in_thread(lambda: trio.run(main), running, stopping, stack)


def _in_thread(
    main: Callable[[], None],
    running: threading.Event,
    stopping: list[Callable[[], object]],
    stack: ExitStack,
) -> None:
    thread = threading.Thread(target=main)
    thread.start()
    running.wait()

    def stop() -> None:
        stopping[0]()
        thread.join()

    stack.callback(stop)


HOSTS: dict[str, Start] = {
    "uvicorn": _uvicorn,
    "hypercorn-asyncio": _hypercorn_asyncio,
    "hypercorn-trio": _hypercorn_trio,
}


class Host:
    """Runs ASGI applications on free ports, under one server."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.stop: Callable[[], None]
        """Stop what is running, and wait until it has."""

    @contextmanager
    def serve(self, app: Any) -> Generator[str, None, None]:
        """Run an application for a while; gives the URL of the server, without a path."""
        with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:
            port = listener.getsockname()[1]
            HOSTS[self._kind](app, listener, stack)
            self.stop = stack.close
            yield f"http://127.0.0.1:{port}"


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs an async function in one of the event loops."""
    function: Run = request.param
    return function


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest) -> Host:
    return Host(request.param)
