"""Our clients at protected servers that are made with the official SDKs."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import httpx
import pytest
import uvicorn
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl

import sansmcp
import sansmcp_blocking

from ..node import NODE, install_or_skip
from ..ports import free_port
from .authorization_server import REDIRECT, AuthorizationServer
from .test_our_client import ALL, Person, Talk, text_of

pytestmark = pytest.mark.node

_NODE = Path(__file__).parents[1] / "interop" / "node"
_EXAMPLE = "node_modules/@modelcontextprotocol/sdk/dist/esm/examples/server/simpleStreamableHttp.js"


# In Python


class Verifier(TokenVerifier):
    """Verifies tokens by the keys of their issuer."""

    def __init__(self, issuer: str) -> None:
        self._keys = KeySet.import_key_set(httpx.get(f"{issuer}/jwks").json())

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            claims = jwt.decode(token, self._keys, algorithms=["RS256"]).claims
        except JoseError:
            return None
        return AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims["scope"].split(),
            expires_at=claims["exp"],
            resource=claims["aud"],
            subject=claims["sub"],
        )


@contextmanager
def python_server(issuer: str) -> Generator[str, None, None]:
    """Run a protected server with two tools; yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        official = MCPServer(
            "official",
            token_verifier=Verifier(issuer),
            auth=AuthSettings(
                issuer_url=AnyHttpUrl(issuer),
                resource_server_url=AnyHttpUrl(url),
                required_scopes=["use", "read"],
                validate_token_resource=True,
            ),
        )

        @official.tool()
        async def who() -> str:
            access = get_access_token()
            assert access is not None
            return f"{access.subject}: {' '.join(sorted(access.scopes))}"

        official.tool(name="wipe")(who)
        server = uvicorn.Server(
            uvicorn.Config(official.streamable_http_app(), log_level="warning", ws="none")
        )
        thread = Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield url
        finally:
            server.should_exit = True
            thread.join()


@pytest.mark.parametrize("talk", ALL)
def test_a_person_logs_in_at_a_server_in_python(issuer: AuthorizationServer, talk: Talk) -> None:
    person = Person()
    authorization = sansmcp.Authorization(login=person, redirect_uri=REDIRECT)
    with python_server(issuer.issuer) as url:
        assert talk(url, authorization=authorization) == ["ada: read use"] * 2
    assert person.scopes == [{"use", "read", "offline_access"}]


def test_a_program_gets_a_token_for_a_server_in_python(issuer: AuthorizationServer) -> None:
    robot = sansmcp.OAuthClient(
        client_id="robot", client_secret="robot-secret", issuer=issuer.issuer
    )
    authorization = sansmcp.Authorization(client=robot, grant=sansmcp.ClientCredentials())
    with (
        python_server(issuer.issuer) as url,
        sansmcp_blocking.connect(url, authorization=authorization) as client,
    ):
        assert text_of(client.call_tool("who")) == "robot: read use"


# In TypeScript


@contextmanager
def typescript_server() -> Generator[str, None, None]:
    """Run the example of the SDK, with an authorization server of its own; yield its URL."""
    install_or_skip(_NODE)
    port = free_port()
    ports = {"MCP_PORT": str(port), "MCP_AUTH_PORT": str(free_port())}
    with subprocess.Popen(
        [NODE, str(_NODE / _EXAMPLE), "--oauth", "--oauth-strict"],
        env={**os.environ, **ports},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            for _ in range(2):
                while "listening on port" not in (line := process.stdout.readline()):
                    assert line, "the example has ended"
            Thread(target=process.stdout.read, daemon=True).start()  # it prints each request
            yield f"http://localhost:{port}/mcp"
        finally:
            process.kill()


def consent(url: str) -> str:
    """Play the browser of a person who agrees: the example asks nothing."""
    location: str = httpx.get(url).headers["location"]
    return location


def test_a_person_logs_in_at_a_server_in_typescript() -> None:
    opened: list[str] = []

    def login(url: str) -> str:
        opened.append(url)
        return consent(url)

    authorization = sansmcp.Authorization(login=login, redirect_uri=REDIRECT)
    with typescript_server() as url:
        for _ in range(2):
            with sansmcp_blocking.connect(url, authorization=authorization) as client:
                assert text_of(client.call_tool("greet", {"name": "ada"})) == "Hello, ada!"
    assert len(opened) == 1
