"""The ASGI adapter does what the published checks want of one, under several servers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import pytest

import sansmcp
from sansmcp.types import Unpack
from sansmcp_asgi import asgi_app
from sansmcp_local import current_loop
from sansmcp_pytest import (
    Check,
    Feature,
    ServerUnderTest,
    SubjectSettings,
    server_checks,
)

from .conftest import Host


class AsgiRunning:
    def __init__(self, host: Host, app: Any) -> None:
        self._stack = ExitStack()
        self._url = self._stack.enter_context(host.serve(app))

    @property
    def url(self) -> str:
        return f"{self._url}/mcp"

    def stop(self) -> None:
        self._stack.close()


class AsgiServers:
    lacks: Mapping[Feature, str] = {
        Feature.STDIO: "it is for HTTP",
        Feature.UNIX: "sockets are up to the server",
        Feature.OWN_HTTP: "HTTP/1.1 is up to the server",
        Feature.GRACE: "servers end all requests before they say that they stop",
    }
    is_async = True

    def __init__(self, host: Host) -> None:
        self._host = host

    def sleep(self, call: Any, seconds: float) -> Any:
        loop = current_loop()
        return loop.within(seconds, loop.event().wait)

    def serve(
        self,
        app: sansmcp.App,
        *,
        graceful_timeout: float,
        unix: str | None = None,
        **settings: Unpack[SubjectSettings],
    ) -> AsgiRunning:
        return AsgiRunning(self._host, asgi_app(app, graceful_timeout=graceful_timeout, **settings))

    def stdio_command(self, stdio: Any = True) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("kind", ["uvicorn", "hypercorn-trio"])
@pytest.mark.parametrize("check", server_checks(), ids=str)
def test_server(kind: str, check: Check[ServerUnderTest]) -> None:
    check(AsgiServers(Host(kind)))
