"""Pages of other origins: the headers for browsers, each once."""

from __future__ import annotations

from typing import Any

import flask
import flask_cors
import pytest
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from sansmcp import SecurityPolicy
from sansmcp_wsgi import WsgiApp

from ..blocking.conftest import ToolApp
from ..django_site import ORIGIN, PAGE, wsgi_site
from .conftest import Host
from .test_wsgi import exchange


def flask_site() -> Any:
    """A site of Flask with the usual extension for pages of other origins."""
    web = flask.Flask("tests")
    web.add_url_rule(PAGE, view_func=lambda: "a page of Flask")
    flask_cors.CORS(web, origins=[ORIGIN])
    return web.wsgi_app


def headers_of(url: str, request: bytes, status: bytes) -> list[tuple[bytes, bytes]]:
    """The headers of a response to a page of the origin."""
    more = f"host: localhost\r\nconnection: close\r\norigin: {ORIGIN}\r\n\r\n".encode()
    head, _, _ = exchange(url, request + more).partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    assert first.split(b" ")[1] == status
    pairs = (line.lower().split(b": ", 1) for line in lines)
    return [(name, value) for name, value in pairs]


@pytest.mark.parametrize("cors", [True, False])
@pytest.mark.parametrize("site", [flask_site, wsgi_site], ids=["flask", "django"])
def test_a_page_uses_the_server(host: Host, world: ToolApp, site: Any, cors: bool) -> None:
    """The extension of Flask and the middleware of Django see the requests of the site only."""
    policy = SecurityPolicy(allowed_origins=(ORIGIN,), cors=cors)
    mounted = DispatcherMiddleware(site(), {"/tools": WsgiApp(world.app, policy=policy)})
    with host.serve(mounted) as url:
        of_the_site = headers_of(url, f"GET {PAGE} HTTP/1.1\r\n".encode(), b"200")
        assert of_the_site.count((b"access-control-allow-origin", ORIGIN.encode())) == 1
        for request, status in (
            (
                b"OPTIONS /tools/mcp HTTP/1.1\r\naccess-control-request-method: POST\r\n",
                b"200" if cors else b"405",
            ),
            (b"GET /tools/mcp HTTP/1.1\r\naccept: text/event-stream\r\n", b"400"),
            (b"GET /tools/elsewhere HTTP/1.1\r\n", b"404"),
        ):
            pairs = headers_of(url, request, status)
            names = [name for name, _ in pairs]
            assert pairs.count((b"access-control-allow-origin", ORIGIN.encode())) == cors
            for name in (b"access-control-allow-origin", b"access-control-expose-headers"):
                assert names.count(name) == cors
            assert names.count(b"vary") <= 1
