"""The metadata of a server that is mounted in a larger application."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client

import sansmcp
from sansmcp_asgi import asgi_app
from sansmcp_wsgi import WsgiApp

from .conftest import who_app

WELL_KNOWN = "/.well-known/oauth-protected-resource"
SETTINGS: dict[str, Any] = {
    "authenticate": sansmcp.StaticTokens({"token": "ada"}),
    "protected_resource": sansmcp.ProtectedResource(
        resource="https://example.com/api/mcp",
        authorization_servers=("https://login.example.com",),
    ),
}


@pytest.mark.parametrize("path", [WELL_KNOWN, f"{WELL_KNOWN}/api/mcp"])
def test_under_asgi(path: str) -> None:
    mcp = asgi_app(who_app(), **SETTINGS)
    web = Starlette(routes=[Mount("/api", mcp), Mount(WELL_KNOWN, mcp)])
    with TestClient(web, base_url="http://localhost") as client:
        assert client.get(path).json()["resource"] == "https://example.com/api/mcp"
        refused = client.post("/api/mcp")
        assert refused.status_code == 401
        told = refused.headers["www-authenticate"]
        assert f"https://example.com{WELL_KNOWN}/api/mcp" in told
        assert client.get("/api" + WELL_KNOWN).status_code == 401


@pytest.mark.parametrize("path", [WELL_KNOWN, f"{WELL_KNOWN}/api/mcp"])
def test_under_wsgi(path: str) -> None:
    mcp = WsgiApp(who_app(), **SETTINGS)
    try:
        web = DispatcherMiddleware(mcp, {"/api": mcp, WELL_KNOWN: mcp})
        response = Client(web).get(path)
        assert response.json is not None
        assert response.json["resource"] == "https://example.com/api/mcp"
        assert Client(web).post("/api/mcp").status_code == 401
    finally:
        mcp.shut_down()
