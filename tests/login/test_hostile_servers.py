"""Authorization servers that attack, over real sockets, on every adapter.

``tests/auth/test_hostile.py`` has more attacks, in virtual time.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from sansmcp.auth.options import Authorization
from sansmcp.errors import AuthorizationFailed

from .protected_server import Attack, Protected, protected_server
from .test_adapters import ALL, Talk, browse_once

RESOURCE = "/.well-known/oauth-protected-resource/mcp"
ROOT = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"


@pytest.fixture
def server() -> Generator[Protected, None, None]:
    """A protected server."""
    with protected_server() as running:
        yield running


def redirecting(location: str, status: int = 302) -> Attack:
    """Send the client elsewhere."""

    def attack(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("location", location)
        handler.send_header("content-length", "0")
        handler.end_headers()

    return attack


def endless(handler: BaseHTTPRequestHandler) -> None:
    """Send a body that does not end, until the client closes the connection."""
    handler.close_connection = True
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.end_headers()
    with contextlib.suppress(ConnectionError):
        while True:
            handler.wfile.write(b" " * 8192)


def publishing(published: dict[str, Any]) -> Attack:
    """Publish a document."""

    def attack(handler: BaseHTTPRequestHandler) -> None:
        body = json.dumps(published).encode()
        handler.send_response(200)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return attack


def document(server: Protected, **change: Any) -> Attack:
    """Publish the metadata of the authorization server with a change."""
    base = server.base
    published = {
        "issuer": base,
        "authorization_endpoint": f"{base}/authorize",
        "token_endpoint": f"{base}/token",
        "registration_endpoint": f"{base}/register",
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
        **change,
    }
    return publishing(published)


def fail(talk: Talk, server: Protected, login: Any = browse_once) -> str:
    """Why the client gets no token."""
    with pytest.raises(AuthorizationFailed) as caught:
        talk(server.url, Authorization(login=login))
    return caught.value.reason


def never(url: str) -> str:
    """The login of a person whom nobody must ask."""
    raise AssertionError(url)


@pytest.mark.parametrize("talk", ALL)
@pytest.mark.parametrize("location", [RESOURCE, "/stolen"])
def test_no_redirect_of_metadata_is_followed(talk: Talk, server: Protected, location: str) -> None:
    server.attacks = {path: redirecting(location) for path in (RESOURCE, ROOT)}
    assert fail(talk, server, never) == "no_metadata"
    assert [path for path in server.seen if path not in ("/mcp", "DELETE")] == [RESOURCE, ROOT]


@pytest.mark.parametrize("talk", ALL)
@pytest.mark.parametrize("label", ["a" * 64, "a."])
def test_a_name_that_cannot_be_looked_up(talk: Talk, server: Protected, label: str) -> None:
    named = {"resource": server.url, "authorization_servers": [f"https://{label}.example"]}
    server.attacks = {RESOURCE: publishing(named)}
    assert fail(talk, server, never) == "unreachable"


@pytest.mark.parametrize("talk", ALL)
@pytest.mark.parametrize("path", ["/register", "/token"])
def test_no_redirect_of_a_post_is_followed(talk: Talk, server: Protected, path: str) -> None:
    server.attacks = {path: redirecting("/stolen", 307)}
    assert fail(talk, server) == {"/register": "registration_refused", "/token": "refused"}[path]
    assert "/stolen" not in server.seen


@pytest.mark.parametrize("talk", ALL)
@pytest.mark.parametrize("path", [RESOURCE, SERVER, "/register", "/token"])
def test_no_response_is_read_to_an_end_that_never_comes(
    talk: Talk, server: Protected, path: str
) -> None:
    server.attacks = {path: endless}
    assert fail(talk, server) == "response_too_large"


@pytest.mark.parametrize("talk", ALL)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"issuer": "https://other.example"}, "issuer_mismatch"),
        ({"code_challenge_methods_supported": ["plain"]}, "pkce_unsupported"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "unsafe_url"),
        ({"authorization_endpoint": "file:///etc/passwd"}, "unsafe_url"),
        ({"registration_endpoint": "https://169.254.169.254/register"}, "private_address"),
        ({"registration_endpoint": "https://0xa9fea9fe/register"}, "private_address"),
    ],
)
def test_nobody_is_asked_to_log_in_at(
    talk: Talk, server: Protected, change: dict[str, Any], reason: str
) -> None:
    server.attacks = {SERVER: document(server, **change), OPENID: document(server, **change)}
    assert fail(talk, server, never) == reason
    assert not {"/authorize", "/token"} & set(server.seen)
