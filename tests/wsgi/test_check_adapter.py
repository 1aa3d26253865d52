"""The WSGI adapter does what the published checks want of one, under several servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import pytest

import sansmcp
from sansmcp.types import Unpack
from sansmcp_pytest import (
    Check,
    Feature,
    Running,
    ServerUnderTest,
    SubjectSettings,
    server_checks,
)
from sansmcp_wsgi import Call, WsgiApp

from .conftest import Host


class _Running(Running):
    def __init__(self, host: Host, app: WsgiApp) -> None:
        self._stack = ExitStack()
        self._url = self._stack.enter_context(host.serve(app))
        self._stack.callback(app.shut_down)

    @property
    def url(self) -> str:
        return f"{self._url}/mcp"

    def stop(self) -> None:
        self._stack.close()


class WsgiServers(ServerUnderTest):
    lacks: Mapping[Feature, str] = {
        Feature.STDIO: "it is for HTTP",
        Feature.UNIX: "sockets are up to the server",
        Feature.OWN_HTTP: "HTTP/1.1 is up to the server",
        Feature.DISCONNECTS: "servers tell it when something is to be sent",
        Feature.GRACE: "servers do not tell that they are to stop",
    }
    is_async = False

    def __init__(self, host: Host) -> None:
        self._host = host

    def sleep(self, call: Call, seconds: float) -> None:
        call.sleep(seconds)

    def serve(
        self,
        app: sansmcp.App,
        *,
        graceful_timeout: float,
        unix: str | None = None,
        **settings: Unpack[SubjectSettings],
    ) -> Running:
        settings.setdefault("standalone_streams", True)
        return _Running(self._host, WsgiApp(app, **settings))

    def stdio_command(self, stdio: object = True) -> Sequence[str]:
        raise NotImplementedError


OF_THE_HOST = {
    "answers_to_head",
    "connections_are_closed",
    "connections_serve_many_requests",
}
"""What becomes of connections: that is up to the server."""

CHECKS = [check for check in server_checks() if str(check) not in OF_THE_HOST]


@pytest.mark.parametrize("check", CHECKS, ids=str)
@pytest.mark.parametrize("host", ["werkzeug", "waitress"], indirect=True)
def test_server(host: Host, check: Check[ServerUnderTest]) -> None:
    check(WsgiServers(host))


@pytest.mark.parametrize("host", ["waitress"], indirect=True)
def test_requests_after_head_are_answered(host: Host) -> None:
    """Waitress passes a body on, and the next answer cannot be found."""
    (check,) = [check for check in server_checks() if str(check) == "answers_to_head"]
    check(WsgiServers(host))
