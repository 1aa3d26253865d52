"""The page on authorization: its server and its clients, with a certified authorization server."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route

import sansmcp
import sansmcp_asgi
import sansmcp_auth
import sansmcp_blocking

from ..messages import initialize
from ..ports import free_port
from ..protected.authorization_server import AuthorizationServer, authorization_server, open_browser
from .documents import DOCS, blocks
from .test_web_frameworks import RESOURCE, check_metadata, refuse

PAGE = DOCS / "authorization.md"
SERVER, MOUNTED, SCOPES, *FURTHER, LOGIN, ROBOT = blocks(PAGE, "python")
HEADERS = {"accept": "application/json, text/event-stream"}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """All that the page defines."""
    monkeypatch.setenv("MCP_URL", "https://mcp.example.com/mcp")
    monkeypatch.setenv("MCP_ISSUER", "https://login.example.com")
    made: Any = ModuleType("notes")
    exec(compile("\n".join([SERVER, SCOPES, *FURTHER]), PAGE, "exec"), made.__dict__)
    return made


@pytest.fixture(scope="module")
def issuer() -> Generator[AuthorizationServer, None, None]:
    with authorization_server() as server:
        yield server


@contextmanager
def notes(issuer: AuthorizationServer, folder: Path) -> Generator[str, None, None]:
    """Run the server of the page; yield its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    script = folder / "notes.py"
    script.write_text(SERVER, encoding="utf-8")
    environment = {"MCP_URL": url, "MCP_ISSUER": issuer.issuer, "PORT": str(port)}
    with subprocess.Popen(
        [sys.executable, script],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stderr is not None
        try:
            assert url in server.stderr.readline()
            yield url
        finally:
            server.kill()


@pytest.mark.node
def test_the_server_of_the_page(issuer: AuthorizationServer, tmp_path: Path) -> None:
    with notes(issuer, tmp_path) as url:
        refused = httpx.post(url, json=initialize("2025-11-25", {}), headers=HEADERS)
        assert refused.status_code == 401
        told = refused.headers["www-authenticate"]
        assert 'scope="notes:read"' in told
        document = url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        assert f'resource_metadata="{document}"' in told
        assert httpx.get(document).json()["authorization_servers"] == [issuer.issuer]
        token = issuer.user_token(url, "notes:read notes:write")
        with sansmcp_blocking.connect(url, headers={"authorization": f"Bearer {token}"}) as client:
            said = client.call_tool("any")["content"][0]["text"]
    assert said == f"Hello {issuer.issuer} ada"


@pytest.mark.node
def test_the_clients_of_the_page(
    issuer: AuthorizationServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A person logs in at the first run only; a program has a secret."""
    opened: list[str] = []

    def browse(url: str) -> bool:
        opened.append(url)
        return open_browser(url)

    login = functools.partial(sansmcp_auth.LoopbackLogin, open_browser=browse)
    monkeypatch.setattr(sansmcp_auth, "LoopbackLogin", login)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("APPDATA", str(tmp_path / "config"))
    monkeypatch.setenv("MCP_ISSUER", issuer.issuer)
    monkeypatch.setenv("MCP_SECRET", "robot-secret")
    with notes(issuer, tmp_path) as url:
        monkeypatch.setenv("MCP_URL", url)
        for program in (LOGIN, LOGIN, ROBOT):
            exec(compile(program, PAGE, "exec"), {})
    said = capsys.readouterr().out
    assert said.count(f"Hello {issuer.issuer} ada") == 2
    assert f"Hello {issuer.issuer} robot" in said
    assert len(opened) == 1


def test_a_server_below_a_path() -> None:
    app = sansmcp.App("notes", "1.0")
    mcp = sansmcp_asgi.asgi_app(app, authenticate=refuse, protected_resource=RESOURCE)
    names: dict[str, Any] = {"mcp": mcp, "Starlette": Starlette, "Mount": Mount, "Route": Route}
    exec(compile(MOUNTED, PAGE, "exec"), names)
    asyncio.run(check_metadata(names["web"]))


def test_scopes_of_the_page(module: Any) -> None:
    request = sansmcp.Request(1, "prompts/get", {"name": "delete_note"})
    assert module.app.scopes_of(request) == ("notes:delete",)
    assert module.resource.expand({"notes:admin"}) >= {"notes:read", "notes:delete"}


def returning(found: sansmcp.Access | sansmcp.Refusal) -> sansmcp.Authenticator:
    """A verifier that finds this of every request."""

    def verify(
        head: sansmcp.RequestHead, connection: sansmcp.ConnectionInfo
    ) -> sansmcp.Access | sansmcp.Refusal:
        return found

    return verify


def test_verifiers_of_the_page(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    value = b"Bearer made-with-secrets.token_urlsafe"
    head = sansmcp.RequestHead(method=b"POST", target=b"/", headers=((b"authorization", value),))
    connection = sansmcp.ConnectionInfo()
    assert module.tokens(head, connection).principal == "ada"
    for principal, kind in (("i ada", sansmcp.Access), ("i eve", sansmcp.Refusal)):
        access = sansmcp.Access(principal)
        monkeypatch.setattr(module, "verify", returning(access))
        assert isinstance(module.only_some(head, connection), kind)
    monkeypatch.setattr(module, "verify", returning(sansmcp.Refusal()))
    assert module.only_some(head, connection).status == 401
