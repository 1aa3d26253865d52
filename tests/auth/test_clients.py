"""Clients: how they are registered, and how they authenticate."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sansmcp.auth.clients import OAuthClient, number_in, read_registration, registration_request
from sansmcp.auth.http import AuthRequest
from sansmcp.errors import AuthorizationFailed, LocalProtocolError

from .responses import response

SECRET = OAuthClient(client_id="c", client_secret="s")
KEY = OAuthClient(client_id="c", client_secret="s", private_key="pem")
PLAIN = OAuthClient(client_id="c")


def registration(**given: Any) -> AuthRequest:
    settings: dict[str, Any] = {
        "name": "n",
        "redirect_uris": ("http://127.0.0.1:1/cb",),
        "supported": ("none",),
        "scopes": (),
    }
    return registration_request("https://as.example/register", **{**settings, **given})


def test_a_registration() -> None:
    request = registration()
    assert (request.method, request.url) == (b"POST", "https://as.example/register")
    assert json.loads(request.body) == {
        "client_name": "n",
        "redirect_uris": ["http://127.0.0.1:1/cb"],
        "application_type": "native",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    assert json.loads(registration(scopes=("a", "b")).body)["scope"] == "a b"


@pytest.mark.parametrize(
    ("uris", "kind"),
    [
        (("http://127.0.0.1/cb",), "native"),
        (("http://localhost:3/cb", "com.example.app:/cb"), "native"),
        (("https://app.example/cb",), "web"),
        (("http://localhost:3/cb", "https://app.example/cb"), "web"),
    ],
)
def test_the_application_type_follows_from_the_redirect_uris(
    uris: tuple[str, ...], kind: str
) -> None:
    assert json.loads(registration(redirect_uris=uris).body)["application_type"] == kind


@pytest.mark.parametrize(
    ("supported", "method"),
    [
        (("client_secret_basic", "none"), "none"),
        (("client_secret_post", "client_secret_basic"), "client_secret_basic"),
        (("client_secret_post",), "client_secret_post"),
        (("tls_client_auth",), "none"),
    ],
)
def test_the_method_that_is_registered(supported: tuple[str, ...], method: str) -> None:
    document = json.loads(registration(supported=supported).body)
    assert document["token_endpoint_auth_method"] == method


def test_a_registered_client() -> None:
    document = {
        "client_id": "c",
        "client_secret": "s",
        "token_endpoint_auth_method": "client_secret_post",
        "client_secret_expires_at": 50,
    }
    client = read_registration(response(document, 201), "https://as.example", ("u",))
    assert client == OAuthClient(
        client_id="c",
        client_secret="s",
        issuer="https://as.example",
        auth_method="client_secret_post",
        redirect_uris=("u",),
        secret_expires_at=50,
    )
    assert [client.is_expired(when) for when in (49, 50)] == [False, True]
    assert not SECRET.is_expired(1e12)
    bare = read_registration(
        response({"client_id": "c", "token_endpoint_auth_method": "new"}), "https://as.example", ()
    )
    assert bare.auth_method is None


@pytest.mark.parametrize(
    ("status", "document", "reason"),
    [
        (400, {"error": "invalid_redirect_uri"}, "registration_refused"),
        (403, b"<html>", "registration_refused"),
        (200, {"error": "access_denied"}, "registration_refused"),
        (200, {}, "invalid_registration"),
        (200, {"client_id": 7}, "invalid_registration"),
        (200, b"<html>", "invalid_registration"),
    ],
)
def test_failed_registrations(status: int, document: Any, reason: str) -> None:
    with pytest.raises(AuthorizationFailed) as caught:
        read_registration(response(document, status), "https://as.example", ())
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("client", "supported", "method"),
    [
        (PLAIN, ("client_secret_basic",), "none"),
        (PLAIN, (), "none"),
        (PLAIN, ("client_secret_basic", "none"), "none"),
        (SECRET, ("none",), "none"),
        (SECRET, ("none", "client_secret_post", "client_secret_basic"), "client_secret_basic"),
        (SECRET, ("none", "client_secret_post"), "client_secret_post"),
        (SECRET, ("private_key_jwt",), None),
        (KEY, ("client_secret_basic", "private_key_jwt"), "private_key_jwt"),
        (
            OAuthClient(client_id="c", client_secret="s", auth_method="client_secret_post"),
            ("none",),
            "client_secret_post",
        ),
    ],
)
def test_the_choice_of_a_method(
    client: OAuthClient, supported: tuple[str, ...], method: str | None
) -> None:
    assert client.method_for(supported) == method


def test_clients_are_stored() -> None:
    client = OAuthClient(
        client_id="c",
        client_secret="s",
        issuer="https://as.example",
        auth_method="none",
        redirect_uris=("u",),
        secret_expires_at=5,
    )
    assert OAuthClient.from_json("https://as.example", client.to_json()) == client


@pytest.mark.parametrize("value", [None, [], {}, {"client_id": 7}])
def test_a_malformed_stored_client_is_ignored(value: Any) -> None:
    assert OAuthClient.from_json("https://as.example", value) is None


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="auth_method must be one of"):
        OAuthClient(client_id="c", auth_method="tls")


def test_no_secret_is_in_a_repr() -> None:
    client = OAuthClient(client_id="c", client_secret="hush", private_key="hush")
    assert "hush" not in repr(client)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3600, 3600.0),
        (0.5, 0.5),
        ("3600", 3600.0),
        (0, 0.0),
        (-1, None),
        ("-1", None),
        ("1.5", None),
        ("9" * 16, None),
        ("\u0663", None),
        (1e300, None),
        (True, None),
        (None, None),
        ([], None),
    ],
)
def test_numbers(value: Any, number: float | None) -> None:
    assert number_in({"n": value}, "n") == number
