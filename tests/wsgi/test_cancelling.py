"""Whatever fails or is left at any step of a request: nothing of it is left in the machine."""

from __future__ import annotations

import io
import json
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest

from sansmcp import RequestCancelled
from sansmcp_wsgi import Call, WsgiApp

from ..asgi.test_ending import modern
from ..blocking.conftest import PATIENCE, ToolApp
from ..leak_check import freeze_what_is_there, no_leaks, unfinished
from ..stepping import wherever
from ..trio.test_stdio_server import HELLO, call


@pytest.fixture(autouse=True, scope="module")
def freeze_garbage() -> None:
    freeze_what_is_there()


class LeaveError(Exception):
    """What a server raises in us, or notices while it sends what we say."""


class Gateway:
    """A WSGI server, in which something goes wrong at the n-th step."""

    def __init__(self, app: WsgiApp, at: int = 0) -> None:
        self.has_failed = False
        self.headers: dict[str, str] = {}
        self._app = app
        self._at = at
        self._steps = 0

    def ask(self, body: bytes, version: str, **fields: str) -> None:
        environ: dict[str, Any] = {
            "REQUEST_METHOD": "POST",
            "SCRIPT_NAME": "",
            "PATH_INFO": "/mcp",
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_HOST": "localhost",
            "HTTP_ACCEPT": "application/json, text/event-stream",
            "HTTP_MCP_PROTOCOL_VERSION": version,
            "wsgi.input": Input(body, self),
            **fields,
        }
        setup_testing_defaults(environ)
        pieces: Any = None
        try:
            pieces = self._app(environ, self._start_response)
            for _ in pieces:
                self.step()
        except LeaveError:
            pass
        finally:
            if pieces is not None:
                pieces.close()

    def step(self) -> None:
        self._steps += 1
        if self._steps == self._at:
            self.has_failed = True
            raise LeaveError

    def _start_response(self, status: str, headers: list[tuple[str, str]], info: Any = None) -> Any:
        assert status.startswith("20")
        self.headers = dict(headers)
        self.step()


class Input(io.BytesIO):
    """A body that is read in steps."""

    def __init__(self, body: bytes, gateway: Gateway) -> None:
        super().__init__(body)
        self._gateway = gateway

    def read(self, size: int | None = -1, /) -> bytes:
        self._gateway.step()
        return super().read(size)


class Conversation:
    """An application, and those who ask it."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._running = self._cancelled = 0
        world = ToolApp()
        world.tool(self.work)
        self._app = WsgiApp(world.app, versions=(version,))

    def work(self, call: Call) -> Any:
        self._running += 1
        try:
            for _ in range(3):
                call.notify("notifications/x")
            return {}
        except RequestCancelled:
            self._cancelled += 1
            raise
        finally:
            self._running -= 1

    def run(self, at: int) -> bool:
        """Ask, and let the n-th step fail; whether there was one."""
        failing = Gateway(self._app, at)
        if self._version == "2026-07-28":
            message = modern("work")
            fields = {"HTTP_MCP_METHOD": "tools/call", "HTTP_MCP_NAME": "work"}
        else:
            hello = Gateway(self._app)
            hello.ask(HELLO.splitlines()[0], self._version)
            message = json.loads(call(1, "work"))
            fields = {"HTTP_MCP_SESSION_ID": hello.headers["mcp-session-id"]}
        message["params"]["arguments"] = {"text": "x" * 200_000}
        body = json.dumps(message).encode()
        failing.ask(body, self._version, **fields)
        self._app.wait_until(lambda: not (self._running or unfinished()))
        Gateway(self._app).ask(body, self._version, **fields)
        self._app.shut_down()
        self._app.join(PATIENCE)
        assert not self._cancelled or self._version == "2026-07-28"
        return failing.has_failed


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_wherever_it_happens(version: str) -> None:
    def once(at: int) -> bool:
        with no_leaks():
            return Conversation(version).run(at)

    assert wherever(once) > 3
