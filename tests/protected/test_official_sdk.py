"""The clients of the official SDKs at our protected server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx2
import mcp
import mcp_types
import pytest
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl

import sansmcp
import sansmcp_asyncio
import sansmcp_auth

from ..node import NODE
from ..ports import free_port
from .authorization_server import REDIRECT, AuthorizationServer, log_in
from .conftest import who_app

pytestmark = pytest.mark.node
requirement = pytest.mark.requirement


class Storage:
    """Keeps what the client has got."""

    def __init__(self) -> None:
        self.tokens: Any = None
        self.client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


class Person:
    """Logs in where the client says, and notes how often."""

    def __init__(self) -> None:
        self.scopes: list[str] = []
        self._arrived: dict[str, list[str]] = {}

    async def redirect(self, url: str) -> None:
        self.scopes.append(parse_qs(url)["scope"][0])
        goal = await asyncio.to_thread(log_in, url)
        self._arrived = parse_qs(goal.query.decode())

    async def callback(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(**{name: value[0] for name, value in self._arrived.items()})


def protected(issuer: AuthorizationServer, url: str) -> Any:
    """Our server, at the URL that it is known by."""
    address = ("127.0.0.1", httpx2.URL(url).port or 0)
    return sansmcp_asyncio.serve(
        who_app(),
        http=address,
        authenticate=sansmcp_auth.JwtVerifier(issuer=issuer.issuer, audience=url),
        protected_resource=sansmcp.ProtectedResource(
            resource=url, authorization_servers=(issuer.issuer,), required_scopes=("use", "read")
        ),
    )


async def say(client: mcp.Client, tool: str) -> str:
    (content,) = (await client.call_tool(tool, {})).content
    assert isinstance(content, mcp_types.TextContent)
    return content.text


@requirement("AUTH-S-007", "AUTH-S-008", "AUTH-S-009", "AUTH-S-010", "AUTH-S-011")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_person_logs_in_and_is_asked_for_more(issuer: AuthorizationServer, mode: Any) -> None:
    """The client finds everything out from the first 401, and more from a 403."""
    url = f"http://127.0.0.1:{free_port()}/mcp"
    person, storage = Person(), Storage()
    # One that is known already: it registers new ones for the scopes of the first challenge alone,
    # and then this authorization server refuses others.
    storage.client = OAuthClientInformationFull(
        client_id="desktop",
        redirect_uris=[AnyUrl(REDIRECT)],
        token_endpoint_auth_method="none",
        issuer=issuer.issuer,
    )
    metadata = OAuthClientMetadata(
        redirect_uris=[AnyUrl(REDIRECT)], token_endpoint_auth_method="none"
    )
    provider = OAuthClientProvider(url, metadata, storage, person.redirect, person.callback)

    async def use() -> None:
        async with (
            protected(issuer, url),
            httpx2.AsyncClient(auth=provider) as http,
            mcp.Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            assert await say(client, "who") == f"{issuer.issuer} ada: read use"
            assert await say(client, "wipe") == f"{issuer.issuer} ada: read use write"

    asyncio.run(use())
    assert [set(scope.split()) for scope in person.scopes] == [
        {"use", "read", "offline_access"},
        {"use", "read", "write", "offline_access"},
    ]


def test_a_program_gets_a_token(issuer: AuthorizationServer) -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"
    provider = ClientCredentialsOAuthProvider(
        url, Storage(), "robot", "robot-secret", issuer=issuer.issuer
    )

    async def use() -> None:
        async with (
            protected(issuer, url),
            httpx2.AsyncClient(auth=provider) as http,
            mcp.Client(streamable_http_client(url, http_client=http)) as client,
        ):
            assert await say(client, "who") == f"{issuer.issuer} robot: read use"

    asyncio.run(use())


def test_a_program_in_typescript_gets_a_token_and_a_further_scope(
    issuer: AuthorizationServer,
) -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"
    script = Path(__file__).with_name("node") / "client.mjs"

    async def use() -> str:
        async with protected(issuer, url):
            process = await asyncio.create_subprocess_exec(
                NODE, str(script), url, issuer.issuer, stdout=asyncio.subprocess.PIPE
            )
            said, _ = await process.communicate()
            assert process.returncode == 0
            return said.decode()

    assert asyncio.run(use()).splitlines() == [
        f"{issuer.issuer} robot: read use",
        f"{issuer.issuer} robot: read use write",
    ]
