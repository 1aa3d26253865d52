"""Two processes with one stored login: the authorization server sees each refresh token once.

It revokes the whole login if one comes twice, so that a person would have to log in again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs
import pytest

import sansmcp
import sansmcp_auth
import sansmcp_blocking
from sansmcp.auth.saved import Saved
from sansmcp.credentials import CredentialsKey
from sansmcp_auth import FileCredentials

from ..ports import free_port
from .authorization_server import REDIRECT, AuthorizationServer, log_in
from .conftest import who_app

pytestmark = pytest.mark.node

PROGRAM = """
import sys, sansmcp, sansmcp_blocking, sansmcp_auth

class Telling(sansmcp_auth.FileCredentials):
    def try_lock(self, key):
        is_locked = super().try_lock(key)
        if not is_locked:
            print("waiting", flush=True)
        return is_locked

def nobody(url):
    raise RuntimeError("a person would have to log in")

url, issuer, directory, redirect_uri = sys.argv[1:]
authorization = sansmcp.Authorization(
    client=sansmcp.OAuthClient(client_id="desktop", issuer=issuer),
    redirect_uri=redirect_uri,
    login=nobody,
    credentials=Telling(directory),
)
with sansmcp_blocking.connect(url, authorization=authorization) as client:
    print(client.call_tool("who")["content"][0]["text"])
"""


@contextmanager
def serving(issuer: AuthorizationServer) -> Generator[str, None, None]:
    """Run our protected server; yield its URL."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}/mcp"
    with sansmcp_blocking.serve(
        who_app(),
        http=("127.0.0.1", port),
        graceful_timeout=0.0,
        authenticate=sansmcp_auth.JwtVerifier(issuer=issuer.issuer, audience=endpoint),
        protected_resource=sansmcp.ProtectedResource(
            resource=endpoint, authorization_servers=(issuer.issuer,), required_scopes=("use",)
        ),
    ):
        yield endpoint


def expire(files: FileCredentials, key: CredentialsKey) -> str:
    """Let the stored access token expire; return the refresh token."""
    saved = Saved.parse(files.load(key))
    assert saved.tokens is not None
    refresh_token = saved.tokens.refresh_token
    assert refresh_token is not None
    saved.tokens = attrs.evolve(saved.tokens, expires_at=0.0)
    files.save(key, saved.encode())
    return refresh_token


def test_two_processes_spend_one_refresh_token_once(
    issuer: AuthorizationServer, tmp_path: Path
) -> None:
    files = FileCredentials(tmp_path)
    authorization = sansmcp.Authorization(
        client=sansmcp.OAuthClient(client_id="desktop", issuer=issuer.issuer),
        redirect_uri=REDIRECT,
        login=lambda url: str(log_in(url)),
        extra={"prompt": "consent"},  # without it the server gives no refresh token
        credentials=files,
    )
    with serving(issuer) as url, ExitStack() as stack:
        key = CredentialsKey(url)
        with sansmcp_blocking.connect(url, authorization=authorization):
            pass
        first = expire(files, key)
        command = [sys.executable, "-c", PROGRAM, url, issuer.issuer, str(tmp_path), REDIRECT]

        def start() -> subprocess.Popen[str]:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stack.callback(process.kill)
            return stack.enter_context(process)

        # Both have read the expired token, and want to refresh it, before one of them can.
        assert files.try_lock(key)
        both = [start(), start()]
        for process in both:
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting\n"
        files.unlock(key)
        for process in both:
            out, _ = process.communicate(timeout=60)
            assert out.splitlines()[-1] == f"{issuer.issuer} ada: use"

        # The login goes on: its present refresh token has not been revoked.
        second = expire(files, key)
        assert second != first
        out, _ = start().communicate(timeout=60)
        assert out == f"{issuer.issuer} ada: use\n"
        assert expire(files, key) not in (first, second)
