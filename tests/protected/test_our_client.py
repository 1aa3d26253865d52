"""Our clients at our protected server, with a certified authorization server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import trio

import sansmcp
import sansmcp_asyncio
import sansmcp_auth
import sansmcp_blocking
import sansmcp_httpx
import sansmcp_trio

from ..ports import free_port
from .authorization_server import REDIRECT, AuthorizationServer, log_in, open_browser
from .conftest import who_app

pytestmark = pytest.mark.node


class Person:
    """Logs in without a browser, and notes the scopes of each login."""

    def __init__(self) -> None:
        self.scopes: list[set[str]] = []

    def __call__(self, url: str) -> str:
        (scope,) = parse_qs(urlsplit(url).query)["scope"]
        self.scopes.append(set(scope.split()))
        return str(log_in(url))


@pytest.fixture
def url(issuer: AuthorizationServer) -> Generator[str, None, None]:
    """The URL of our protected server."""
    with protected_server(issuer) as endpoint:
        yield endpoint


@contextmanager
def protected_server(issuer: AuthorizationServer, **published: Any) -> Generator[str, None, None]:
    """Run our server; yield its URL."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}/mcp"
    with sansmcp_blocking.serve(
        who_app(),
        http=("127.0.0.1", port),
        graceful_timeout=0.0,
        authenticate=sansmcp_auth.JwtVerifier(issuer=issuer.issuer, audience=endpoint),
        protected_resource=sansmcp.ProtectedResource(
            resource=endpoint,
            authorization_servers=(issuer.issuer,),
            required_scopes=("use", "read"),
            **published,
        ),
    ):
        yield endpoint


def text_of(result: Any) -> str:
    text: str = result["content"][0]["text"]
    return text


def on_asyncio(url: str, **settings: Any) -> list[str]:
    async def talk() -> list[str]:
        async with sansmcp_asyncio.connect(url, **settings) as client:
            return [text_of(await client.call_tool(tool)) for tool in ("who", "wipe")]

    return asyncio.run(talk())


def on_trio(url: str, **settings: Any) -> list[str]:
    async def talk() -> list[str]:
        async with sansmcp_trio.connect(url, **settings) as client:
            return [text_of(await client.call_tool(tool)) for tool in ("who", "wipe")]

    return trio.run(talk)


def on_blocking(url: str, **settings: Any) -> list[str]:
    with sansmcp_blocking.connect(url, **settings) as client:
        return [text_of(client.call_tool(tool)) for tool in ("who", "wipe")]


def on_httpx(url: str, **settings: Any) -> list[str]:
    async def talk() -> list[str]:
        async with (
            httpx.AsyncClient() as http,
            sansmcp_httpx.connect(url, http, **settings) as client,
        ):
            return [text_of(await client.call_tool(tool)) for tool in ("who", "wipe")]

    return asyncio.run(talk())


Talk = Callable[..., list[str]]
ALL = [on_asyncio, on_trio, on_blocking, on_httpx]
VERSIONS = ["2025-03-26", "2025-11-25", "2026-07-28"]


def desktop(issuer: AuthorizationServer, person: Person) -> sansmcp.Authorization:
    """The settings of a client that is registered already."""
    client = sansmcp.OAuthClient(client_id="desktop", issuer=issuer.issuer)
    return sansmcp.Authorization(client=client, login=person, redirect_uri=REDIRECT)


def robot(issuer: AuthorizationServer) -> sansmcp.Authorization:
    """The settings of a program that acts for itself."""
    client = sansmcp.OAuthClient(
        client_id="robot", client_secret="robot-secret", issuer=issuer.issuer
    )
    return sansmcp.Authorization(client=client, grant=sansmcp.ClientCredentials())


@pytest.mark.parametrize("path", ["/sse", "/mcp"])
def test_a_resource_that_contains_both_endpoints(issuer: AuthorizationServer, path: str) -> None:
    """That of ``/mcp`` is not that of ``/sse``, and clients refuse it there (RFC 9728, 3.3)."""
    port, person = free_port(), Person()
    origin = f"http://127.0.0.1:{port}"
    with sansmcp_blocking.serve(
        who_app(),
        http=("127.0.0.1", port),
        http_sse="/sse",
        graceful_timeout=0.0,
        authenticate=sansmcp_auth.JwtVerifier(issuer=issuer.issuer, audience=origin),
        protected_resource=sansmcp.ProtectedResource(
            resource=origin, authorization_servers=(issuer.issuer,), required_scopes=("use",)
        ),
    ):
        authorization = desktop(issuer, person)
        with sansmcp_blocking.connect(origin + path, authorization=authorization) as client:
            assert text_of(client.call_tool("who")) == f"{issuer.issuer} ada: use"
    assert len(person.scopes) == 1


@pytest.mark.parametrize("talk", ALL)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_person_logs_in_and_is_asked_for_more(
    issuer: AuthorizationServer, url: str, talk: Talk, version: str
) -> None:
    """The first login is for the first request, the second one for the tool that needs more."""
    person = Person()
    assert talk(url, authorization=desktop(issuer, person), versions=(version,)) == [
        f"{issuer.issuer} ada: read use",
        f"{issuer.issuer} ada: read use write",
    ]
    assert person.scopes == [
        {"use", "read", "offline_access"},
        {"use", "read", "write", "offline_access"},
    ]


@pytest.mark.parametrize("talk", ALL)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_program_gets_a_token_and_a_further_scope(
    issuer: AuthorizationServer, url: str, talk: Talk, version: str
) -> None:
    assert talk(url, authorization=robot(issuer), versions=(version,)) == [
        f"{issuer.issuer} robot: read use",
        f"{issuer.issuer} robot: read use write",
    ]


def test_a_client_that_nobody_knows_registers_itself(issuer: AuthorizationServer, url: str) -> None:
    with sansmcp_auth.LoopbackLogin(open_browser=open_browser) as login:
        authorization = sansmcp.Authorization(login=login, scopes="use read write")
        assert on_blocking(url, authorization=authorization)[0].endswith("ada: read use write")


@pytest.mark.parametrize("published", [("use", "read"), ("use", "read", "write")])
def test_a_client_that_has_registered_itself_gets_a_further_scope(
    issuer: AuthorizationServer, published: tuple[str, ...]
) -> None:
    """It is registered again only if the server has not published that scope."""
    credentials = sansmcp.MemoryCredentials()
    person = Person()
    authorization = sansmcp.Authorization(
        login=person, redirect_uri=REDIRECT, credentials=credentials
    )
    with protected_server(issuer, scopes_supported=published) as url:
        assert on_blocking(url, authorization=authorization)[1].endswith("ada: read use write")
    assert len(person.scopes) == (2 if "write" in published else 3)


def test_a_person_who_has_logged_in_does_so_once(issuer: AuthorizationServer, url: str) -> None:
    person = Person()
    authorization = desktop(issuer, person)
    for _ in range(2):
        on_blocking(url, authorization=authorization)
    assert len(person.scopes) == 2


def test_a_wrong_secret(issuer: AuthorizationServer, url: str) -> None:
    client = sansmcp.OAuthClient(client_id="robot", client_secret="guess", issuer=issuer.issuer)
    authorization = sansmcp.Authorization(client=client, grant=sansmcp.ClientCredentials())
    with pytest.raises(sansmcp.AuthorizationFailed, match="invalid_client"):
        on_blocking(url, authorization=authorization)
