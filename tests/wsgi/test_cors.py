"""Pages of other origins: the headers for browsers, each once."""

from __future__ import annotations

import flask
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from sansmcp import SecurityPolicy
from sansmcp_wsgi import WsgiApp

from ..blocking.conftest import ToolApp
from .conftest import Host
from .test_wsgi import exchange

ORIGIN = b"https://app.example.com"


def for_all_pages(response: flask.Response) -> flask.Response:
    response.headers["access-control-allow-origin"] = "*"
    return response


def test_a_page_uses_the_server(host: Host, world: ToolApp) -> None:
    """What Flask adds to its own responses does not matter: it does not see these requests."""
    web = flask.Flask("tests")
    web.after_request(for_all_pages)
    policy = SecurityPolicy(allowed_origins=(ORIGIN.decode(),), cors=True)
    mounted = DispatcherMiddleware(web.wsgi_app, {"/tools": WsgiApp(world.app, policy=policy)})
    with host.serve(mounted) as url:
        for request, status in (
            (b"OPTIONS /tools/mcp HTTP/1.1\r\naccess-control-request-method: POST\r\n", b"200"),
            (b"GET /tools/mcp HTTP/1.1\r\naccept: text/event-stream\r\n", b"400"),
            (b"GET /tools/elsewhere HTTP/1.1\r\n", b"404"),
        ):
            more = b"host: localhost\r\nconnection: close\r\norigin: " + ORIGIN + b"\r\n\r\n"
            head, _, _ = exchange(url, request + more).partition(b"\r\n\r\n")
            first, *lines = head.split(b"\r\n")
            assert first.split(b" ")[1] == status
            pairs = [line.lower().split(b": ", 1) for line in lines]
            names = [name for name, _ in pairs]
            assert [value for name, value in pairs if name.endswith(b"allow-origin")] == [ORIGIN]
            for name in (b"vary", b"access-control-expose-headers"):
                assert names.count(name) == 1
