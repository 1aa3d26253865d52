"""Metadata is used only if it is about what was asked for, and complete."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp.auth.metadata import (
    AuthorizationServer,
    default_server,
    issuer_named_by_old_server,
    metadata_request,
    read_old_server,
    read_resource,
    read_server,
)
from sansmcp.errors import AuthorizationFailed

from .responses import response

ENDPOINT = "https://h.example/mcp"
ISSUER = "https://as.example"
RESOURCE: dict[str, Any] = {"resource": ENDPOINT, "authorization_servers": [ISSUER]}
SERVER: dict[str, Any] = {
    "issuer": ISSUER,
    "authorization_endpoint": "https://as.example/authorize",
    "token_endpoint": "https://as.example/token",
    "response_types_supported": ["code"],
    "code_challenge_methods_supported": ["S256"],
}


def without(document: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != name}


def server(document: Any, issuer: str = ISSUER, *, for_code: bool = True) -> AuthorizationServer:
    found = read_server(response(document), issuer, for_code=for_code)
    assert found is not None
    return found


@pytest.mark.requirement("AUTH-C-025")
def test_requests() -> None:
    plain = metadata_request("x", "https://h.example/x")
    assert (plain.method, plain.headers) == (b"GET", ((b"accept", b"application/json"),))
    old = metadata_request("x", "https://h.example/x", version="2025-03-26")
    assert old.headers[1:] == ((b"mcp-protocol-version", b"2025-03-26"),)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"<html>"),
        (401, b"{}"),
        (302, b""),
        (304, b""),
        (500, b"<html>"),
        (503, b'{"resource": "https://h.example/mcp", "issuer": "https://as.example"}'),
        (200, b"<html>"),
        (200, b"[1]"),
        (200, b'{"error": "not_found"}'),
        (200, b'{"resource": 7, "issuer": 7}'),
        (200, b'{"resource": "", "issuer": null}'),
    ],
)
def test_the_next_url_is_tried(status: int, body: bytes) -> None:
    assert read_resource(response(body, status), ENDPOINT) is None
    assert read_server(response(body, status), ISSUER, for_code=True) is None


def test_a_resource_is_kept_as_published() -> None:
    document = {
        **RESOURCE,
        "resource": "HTTPS://H.EXAMPLE:443",
        "authorization_servers": [
            "https://as.example/",
            "http://evil",
            "https://b.example?q",
            "https://c.example",
        ],
    }
    found = read_resource(response(document), ENDPOINT)
    assert found is not None
    assert found.resource == "HTTPS://H.EXAMPLE:443"
    assert found.servers == ("https://as.example/", "https://c.example")
    assert (found.scopes, found.requires_dpop) == ((), False)
    more = {**RESOURCE, "scopes_supported": ["a"], "dpop_bound_access_tokens_required": True}
    found = read_resource(response(more), ENDPOINT)
    assert found is not None
    assert (found.scopes, found.requires_dpop) == (("a",), True)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({**RESOURCE, "resource": "https://evil.example/mcp"}, "resource_mismatch"),
        ({**RESOURCE, "resource": "https://h.example/other"}, "resource_mismatch"),
        (without(RESOURCE, "authorization_servers"), "no_server"),
        ({**RESOURCE, "authorization_servers": []}, "no_server"),
        ({**RESOURCE, "authorization_servers": ["file:///etc"]}, "no_server"),
        ({**RESOURCE, "authorization_servers": "https://as.example"}, "no_server"),
    ],
)
def test_resources_that_are_refused(document: dict[str, Any], reason: str) -> None:
    with pytest.raises(AuthorizationFailed) as caught:
        read_resource(response(document), ENDPOINT)
    assert caught.value.reason == reason


def test_a_server_with_defaults() -> None:
    found = server(SERVER)
    assert found == AuthorizationServer(
        issuer=ISSUER,
        token_endpoint="https://as.example/token",
        authorization_endpoint="https://as.example/authorize",
    )


def test_a_server_with_everything() -> None:
    found = server(
        {
            **SERVER,
            "registration_endpoint": "https://other.example/register",
            "revocation_endpoint": "http://localhost/revoke",
            "token_endpoint_auth_methods_supported": ["none"],
            "token_endpoint_auth_signing_alg_values_supported": ["ES256"],
            "dpop_signing_alg_values_supported": ["ES256"],
            "scopes_supported": ["a"],
            "client_id_metadata_document_supported": True,
            "authorization_response_iss_parameter_supported": True,
        }
    )
    assert found.registration_endpoint == "https://other.example/register"
    assert found.revocation_endpoint == "http://localhost/revoke"
    assert found.auth_methods == ("none",)
    assert (found.signing_algorithms, found.dpop_algorithms) == (("ES256",), ("ES256",))
    assert (found.scopes, found.takes_metadata_urls, found.sends_issuer) == (("a",), True, True)


@pytest.mark.requirement("AUTH-C-012")
@pytest.mark.parametrize(
    ("named", "asked", "same"),
    [
        ("https://as.example", "https://as.example", True),
        ("https://as.example/", "https://as.example", True),
        ("https://as.example", "https://as.example/", True),
        ("https://as.example//", "https://as.example", False),
        ("https://as.example/t/", "https://as.example/t", True),
        ("https://as.example/t", "https://as.example/t/", True),
        ("https://as.example/t//", "https://as.example/t/", False),
        ("https://AS", "https://as.example", False),
        ("https://as.example:443", "https://as.example", False),
        ("https://evil.example", "https://as.example", False),
    ],
)
def test_issuers(named: str, asked: str, same: bool) -> None:
    document = {**SERVER, "issuer": named}
    if same:
        assert server(document, asked).issuer == named
        return
    with pytest.raises(AuthorizationFailed) as caught:
        server(document, asked)
    assert caught.value.reason == "issuer_mismatch"


@pytest.mark.requirement("AUTH-C-022")
@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (without(SERVER, "token_endpoint"), "no_token_endpoint"),
        (without(SERVER, "authorization_endpoint"), "no_authorization_endpoint"),
        (without(SERVER, "response_types_supported"), "code_unsupported"),
        ({**SERVER, "response_types_supported": ["token"]}, "code_unsupported"),
        (without(SERVER, "code_challenge_methods_supported"), "pkce_unsupported"),
        ({**SERVER, "code_challenge_methods_supported": ["plain"]}, "pkce_unsupported"),
        ({**SERVER, "token_endpoint": "http://as/token"}, "unsafe_url"),
        ({**SERVER, "authorization_endpoint": "javascript:alert(1)"}, "unsafe_url"),
        ({**SERVER, "registration_endpoint": "https://u:p@as/r"}, "unsafe_url"),
    ],
)
def test_servers_that_are_refused(document: dict[str, Any], reason: str) -> None:
    with pytest.raises(AuthorizationFailed) as caught:
        server(document)
    assert caught.value.reason == reason


def test_without_a_code_flow_less_is_needed() -> None:
    document = {"issuer": ISSUER, "token_endpoint": "https://as.example/token"}
    assert server(document, for_code=False).authorization_endpoint is None


def old(document: Any) -> AuthorizationServer | None:
    return read_old_server(response(document), ISSUER, for_code=True)


def test_metadata_of_2025_03_26_need_not_list_pkce() -> None:
    found = old(without(SERVER, "code_challenge_methods_supported"))
    assert found is not None
    assert found.issuer == ISSUER
    assert old(b"<html>") is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"code_challenge_methods_supported": ["plain"]}, "pkce_unsupported"),
        ({"issuer": "https://other.example"}, "issuer_mismatch"),
        ({"token_endpoint": "https://other.example/token"}, "issuer_mismatch"),
        ({"registration_endpoint": "https://as.example:8/register"}, "issuer_mismatch"),
    ],
)
def test_metadata_of_2025_03_26_that_are_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(AuthorizationFailed) as caught:
        old({**SERVER, **change})
    assert caught.value.reason == reason


@pytest.mark.parametrize("document", [b"<html>", {}, {"issuer": None}])
def test_what_names_no_issuer(document: Any) -> None:
    assert issuer_named_by_old_server(response(document)) is None


def test_what_an_old_server_names() -> None:
    assert issuer_named_by_old_server(response(SERVER)) == ISSUER
    with pytest.raises(AuthorizationFailed, match="no issuer"):
        issuer_named_by_old_server(response({"issuer": "http://as"}))


@pytest.mark.requirement("AUTH-C-011")
def test_the_default_server_of_2025_03_26() -> None:
    found = default_server("https://h.example/mcp")
    assert found.issuer == "https://h.example"
    assert found.authorization_endpoint == "https://h.example/authorize"
    assert found.token_endpoint == "https://h.example/token"
    assert found.registration_endpoint == "https://h.example/register"
