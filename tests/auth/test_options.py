"""The settings are checked when they are made."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp.auth.clients import OAuthClient
from sansmcp.auth.options import Authorization, ClientCredentials, IdentityAssertion, JwtAssertion
from sansmcp.errors import LocalProtocolError

CLIENT = OAuthClient(client_id="c")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"scopes": "a\tb"}, "scopes must be"),
        ({"scopes": ("a", "ä")}, "scopes must be"),
        ({"allowed_hosts": "h"}, "allowed_hosts takes a set"),
        ({"login_timeout": 0}, "above zero"),
        ({"account": None}, "account must be str"),
        ({"client_metadata_url": "https://h.example/"}, "client_metadata_url must be https"),
        ({"grant": ClientCredentials()}, "ClientCredentials needs client"),
        (
            {
                "client": CLIENT,
                "grant": IdentityAssertion(
                    token_endpoint="http://h/x", client=CLIENT, subject_token="hush"
                ),
            },
            "token_endpoint must be an https URL",
        ),
    ],
)
def test_wrong_settings(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(LocalProtocolError, match=text):
        Authorization(**settings)


@pytest.mark.requirement("AUTH-B-001")
@pytest.mark.parametrize(
    "uri",
    [
        "https://app.example/cb",
        "http://127.0.0.1:7/cb",
        "http://localhost/cb",
        "com.example.app:/cb",
    ],
)
def test_redirect_uris(uri: str) -> None:
    assert Authorization(redirect_uri=uri).redirect_uri == uri


@pytest.mark.requirement("AUTH-B-001")
@pytest.mark.parametrize(
    "uri",
    [
        "",
        "javascript:1",
        "http://app.example/cb",
        "https://",
        "data:x",
        "com.exämple:/cb",
        "app.example/cb",
    ],
)
def test_wrong_redirect_uris(uri: str) -> None:
    with pytest.raises(LocalProtocolError, match="redirect_uri must be"):
        Authorization(redirect_uri=uri)


@pytest.mark.parametrize(
    ("method", "needed"),
    [("private_key_jwt", "private_key"), ("client_secret_post", "client_secret")],
)
def test_a_client_has_what_its_method_needs(method: str, needed: str) -> None:
    with pytest.raises(LocalProtocolError, match=f"needs {needed}"):
        OAuthClient(client_id="c", auth_method=method)


def test_an_assertion_and_its_client_have_one_issuer() -> None:
    client = OAuthClient(client_id="c", issuer="https://a.example")
    assert (
        Authorization(client=client, grant=JwtAssertion("x", "https://a.example")).grant is not None
    )
    with pytest.raises(LocalProtocolError, match="issuer"):
        Authorization(client=client, grant=JwtAssertion("x", "https://b.example"))


def test_settings() -> None:
    options = Authorization(scopes=("a", "b"), allowed_hosts=["IDP"])
    assert (options.scopes, options.allowed_hosts) == (("a", "b"), frozenset({"idp"}))
    assert Authorization(scopes="a b").scopes == ("a", "b")
    assert Authorization().needs_person
    assert not Authorization(grant=JwtAssertion("x", "https://as.example")).needs_person


def test_no_secret_is_in_a_repr() -> None:
    identity = IdentityAssertion(
        token_endpoint="https://h.example/x", client=CLIENT, subject_token="hush"
    )
    assert "hush" not in repr((identity, JwtAssertion("hush", "https://as.example")))
