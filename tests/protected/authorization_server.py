"""A certified authorization server, and what people and machines do there to get a token."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import attrs
import httpx

from ..node import NODE, install_or_skip
from ..ports import free_port
from ..tls import PUBLIC
from .proofs import proof

_FOLDER = Path(__file__).parent
REDIRECT = "http://127.0.0.1:1/callback"
"""Where the browser is sent in the end; nothing listens there."""


def log_in(url: str, login: str = "ada") -> httpx.URL:
    """Play the browser of a person who logs in and consents; return the URL it ends at."""
    with httpx.Client(verify=PUBLIC) as browser:
        response = browser.get(url)
        while True:
            if response.is_redirect:
                assert response.next_request is not None
                goal = response.next_request.url
                if goal.port != urlsplit(url).port:
                    return goal
                response = browser.send(response.next_request)
                continue
            response.raise_for_status()
            (action,) = re.findall(r'action="([^"]+)"', response.text)
            (prompt,) = re.findall(r'name="prompt" value="(\w+)"', response.text)
            form = {"prompt": prompt, "login": login, "password": "any"}
            response = browser.post(response.url.join(action), data=form)


def open_browser(url: str) -> bool:
    """Log in as :func:`log_in` does, in a thread, and follow the last redirect as well."""
    Thread(target=lambda: httpx.get(log_in(url), verify=PUBLIC), daemon=True).start()
    return True


@attrs.frozen
class AuthorizationServer:
    """One that runs."""

    issuer: str

    def client_token(self, resource: str, scope: str = "use read") -> str:
        """The token of a program that acts for itself."""
        form = {"grant_type": "client_credentials", "resource": resource, "scope": scope}
        return self._token(form, auth=("robot", "robot-secret"))

    def bound_token(self, resource: str, scope: str = "use read") -> str:
        """The token of the program, bound to :data:`~.proofs.KEY`."""
        form = {"grant_type": "client_credentials", "resource": resource, "scope": scope}
        made = proof("", htu=f"{self.issuer}/token", ath=None)
        return self._token(form, auth=("robot", "robot-secret"), headers={"dpop": made})

    def user_token(self, resource: str, scope: str = "use read") -> str:
        """The token of a client that acts for ada."""
        registration = {
            "redirect_uris": [REDIRECT],
            "application_type": "native",
            "token_endpoint_auth_method": "none",
        }
        client = _post(f"{self.issuer}/reg", json=registration).json()
        verifier = secrets.token_urlsafe(32)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
        query = {
            "response_type": "code",
            "client_id": client["client_id"],
            "redirect_uri": REDIRECT,
            "code_challenge": challenge.rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "state": "any",
            "scope": scope,
            "resource": resource,
        }
        answer = parse_qs(log_in(f"{self.issuer}/auth?{urlencode(query)}").query.decode())
        form = {
            "grant_type": "authorization_code",
            "code": answer["code"][0],
            "redirect_uri": REDIRECT,
            "code_verifier": verifier,
            "resource": resource,
            "client_id": client["client_id"],
        }
        return self._token(form)

    def revoke(self, token: str) -> None:
        """Revoke the token of the program."""
        url, auth = f"{self.issuer}/token/revocation", ("robot", "robot-secret")
        _post(url, data={"token": token}, auth=auth)

    def _token(self, form: dict[str, str], **options: Any) -> str:
        token: str = _post(f"{self.issuer}/token", data=form, **options).json()["access_token"]
        return token


def _post(url: str, **options: Any) -> httpx.Response:
    return httpx.post(url, verify=PUBLIC, **options).raise_for_status()


@contextmanager
def authorization_server() -> Generator[AuthorizationServer, None, None]:
    """Run it; skip the test if its packages cannot be installed."""
    install_or_skip(_FOLDER / "node")
    port = free_port()
    program = _FOLDER / "node" / "authorization_server.mjs"
    with subprocess.Popen(
        [NODE, str(program), str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("listening at")
            yield AuthorizationServer(f"http://127.0.0.1:{port}")
        finally:
            process.kill()
