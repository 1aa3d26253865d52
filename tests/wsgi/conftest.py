"""WSGI servers of other people, each in a thread of its own, and applications for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest
import waitress.server
import waitress.wasyncore
import werkzeug.serving

from ..blocking.conftest import ToolApp


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Threaded(ThreadingMixIn, WSGIServer):
    pass


def _wsgiref(app: Any, stack: ExitStack) -> int:
    server = make_server("127.0.0.1", 0, app, server_class=_Threaded, handler_class=_Quiet)
    return _run(server, stack)


def _werkzeug(app: Any, stack: ExitStack) -> int:
    return _run(werkzeug.serving.make_server("127.0.0.1", 0, app, threaded=True), stack)


def _run(server: Any, stack: ExitStack) -> int:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()

    def stop() -> None:
        server.shutdown()
        thread.join()
        server.server_close()

    stack.callback(stop)
    port: int = server.server_address[1]
    return port


def _waitress(app: Any, stack: ExitStack) -> int:
    sockets: dict[Any, Any] = {}
    server: Any = waitress.server.create_server(
        app, map=sockets, host="127.0.0.1", port=0, threads=60
    )
    thread = threading.Thread(target=server.run)
    thread.start()

    def stop() -> None:
        # It runs as long as there are connections. Somebody else may have woken it just now.
        with suppress(OSError):
            server.trigger.pull_trigger(lambda: waitress.wasyncore.close_all(sockets))
        thread.join()
        server.task_dispatcher.shutdown()

    stack.callback(stop)
    port: int = server.effective_port
    return port


HOSTS: dict[str, Callable[[Any, ExitStack], int]] = {
    "wsgiref": _wsgiref,
    "werkzeug": _werkzeug,
    "waitress": _waitress,
}


class Host:
    """Runs WSGI applications on free ports, under one server."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    @contextmanager
    def serve(self, app: Any) -> Generator[str]:
        """Run an application for a while; gives the URL of the server, without a path."""
        with ExitStack() as stack:
            yield f"http://127.0.0.1:{HOSTS[self._kind](app, stack)}"


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest) -> Host:
    return Host(request.param)


@pytest.fixture
def world() -> ToolApp:
    """An application whose tools the test writes, and one that is there."""
    world = ToolApp()
    world.tool(echo)
    return world


def echo(call: Any) -> dict[str, Any]:
    return {"echo": call.params["arguments"]}
