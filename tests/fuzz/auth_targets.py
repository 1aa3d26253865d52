"""Fuzz what a client and a server read of authorization, all of which others write.

A document is used or refused with an error that can be shown; nothing else is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import attrs

from sansmcp import AuthorizationFailed, LocalProtocolError, RemoteProtocolError, RequestHead
from sansmcp.auth.challenges import Challenge, find_challenge, parse_challenges
from sansmcp.auth.clients import OAuthClient, read_registration
from sansmcp.auth.http import AuthRequest, AuthResponse
from sansmcp.auth.metadata import (
    is_issuer,
    is_same_issuer,
    issuer_named_by_old_server,
    read_old_server,
    read_resource,
    read_server,
)
from sansmcp.auth.saved import Saved
from sansmcp.auth.tokens import Tokens, read_id_jag, read_tokens
from sansmcp.auth.urls import covers, is_safe, origin_of, resource_metadata_urls
from sansmcp.codecs import json
from sansmcp.tokens.claims import TokenRejected, TokenRules
from sansmcp.tokens.dpop import ProofRejected, SignedProof, read_proof
from sansmcp.tokens.jwt import JwtForm, JwtHeader
from sansmcp.types import escape_controls

from .inputs import in_parts, seeded

ENDPOINT = "https://h/mcp"
ISSUER = "https://as/t"
SECRET = "hush-hush"
"""What was sent, and may be repeated; the inputs contain it."""

_MOST_SHOWN = 3000
_Read = TypeVar("_Read")


def _response(data: bytes, status: int = 200) -> AuthResponse:
    request = AuthRequest(step="a step", url="https://as/x?secret", secrets=(SECRET,))
    return AuthResponse(request, status, (), data)


def _read(function: Callable[[], _Read]) -> _Read | None:
    """Return what a function reads; None if it refuses, with an error that can be shown."""
    try:
        return function()
    except AuthorizationFailed as error:
        text = str(error)
        assert len(text) < _MOST_SHOWN
        assert escape_controls(text) == text
        assert SECRET not in text + error.reason
        assert len(error.reason) < _MOST_SHOWN
        return None


def _written(challenge: Challenge) -> str:
    """Write a challenge with all values in quotes."""
    escaped = {
        name: value.replace("\\", "\\\\").replace('"', '\\"')
        for name, value in challenge.parameters.items()
    }
    pairs = [f'{name}="{value}"' for name, value in escaped.items()]
    return f"{challenge.scheme} {', '.join(pairs)}"


def challenges(data: bytes) -> None:
    """Challenges are read the same from one line and several, and again when written anew."""
    _, text = seeded(data)
    values = text.split(b"\n")
    found = parse_challenges(values)
    assert parse_challenges([b", ".join(values)]) == found
    written = ", ".join(map(_written, found)).encode("latin-1")
    assert parse_challenges([written]) == found
    chosen = find_challenge(values)
    if chosen is not None:
        assert chosen.scheme in ("bearer", "dpop")
        assert all(scope.isascii() and scope.isprintable() for scope in chosen.scopes)
        for url in resource_metadata_urls(ENDPOINT, chosen.resource_metadata):
            assert is_safe(url)


def metadata(data: bytes) -> None:
    """Metadata that is used is about what was asked for, and its URLs are safe."""
    seed, text = seeded(data)
    response = _response(text, (200, 201, 302, 404, 503)[seed % 5])
    resource = _read(lambda: read_resource(response, ENDPOINT))
    if resource is not None:
        assert resource.resource is not None
        assert covers(resource.resource, ENDPOINT)
        assert resource.servers != ()
        assert all(map(is_issuer, resource.servers))
    for_code = bool(seed & 8)
    named = _read(lambda: issuer_named_by_old_server(response))
    assert named is None or is_issuer(named)
    server = _read(lambda: read_server(response, ISSUER, for_code=for_code))
    old = _read(lambda: read_old_server(response, ISSUER, for_code=for_code))
    for each in (server, old):
        if each is None:
            continue
        assert is_same_issuer(each.issuer, ISSUER)
        endpoints = (
            each.token_endpoint,
            each.authorization_endpoint,
            each.registration_endpoint,
            each.revocation_endpoint,
        )
        assert all(url is None or is_safe(url) for url in endpoints)
        assert each.authorization_endpoint is not None or not for_code
    if old is not None:
        used = (old.token_endpoint, old.authorization_endpoint, old.registration_endpoint)
        assert len({origin_of(url) for url in used if url is not None}) == 1


def token_responses(data: bytes) -> None:
    """Tokens and clients that are read can be sent, and are stored without a change."""
    seed, text = seeded(data)
    response = _response(text, (200, 201, 400, 401, 500)[seed % 5])
    found = _read(lambda: read_tokens(response))
    if found is not None:
        assert found.access_token.isascii()
        assert found.access_token.isprintable()
        assert " " not in found.access_token
        assert found.lifetime >= 1
    jag = _read(lambda: read_id_jag(response))
    assert jag is None or jag.isascii()
    client = _read(lambda: read_registration(response, ISSUER, ("http://127.0.0.1/cb",)))
    if client is not None:
        assert client.client_id != ""
        assert OAuthClient.from_json(ISSUER, client.to_json()) == client
        assert client.method_for(("private_key_jwt",)) in (client.auth_method, "none")
    saved = Saved.parse(text.decode("latin-1"))
    if saved.may_overwrite:
        assert attrs.asdict(Saved.parse(saved.encode())) == attrs.asdict(saved)
    stored = Tokens.from_json(_decoded(text))
    assert stored is None or Tokens.from_json(stored.to_json()) == stored


def _decoded(data: bytes) -> object:
    try:
        return json.decode(data, 64, 10_000)
    except RemoteProtocolError:
        return None


RULES = TokenRules("https://as", ENDPOINT)
FORM = JwtForm(("RS256", "ES256"))
SIGNED = SignedProof("", JwtHeader("ES256", None), {}, "thumbprint")


def access_tokens(data: bytes) -> None:
    """A token is valid or rejected, and its principal is one of its issuer; so is a DPoP proof."""
    _, (token, *claims) = in_parts(data)
    try:
        proof = read_proof(RequestHead(method=b"POST", target=b"/", headers=((b"dpop", token),)))
    except ProofRejected as error:
        assert error.refusal.message.isascii()
    else:
        assert not {"d", "p", "q", "k"} & set(proof.key)
        assert len(proof.thumbprint) == 43
    try:
        header = FORM.read_header(token.decode("latin-1"))
    except TokenRejected:
        pass
    else:
        assert header.algorithm in FORM.algorithms
    for each in claims:
        document = json.as_object(_decoded(each))
        if document is None:
            continue
        try:
            told = SIGNED.check_claims(document, "token", 1000.0)
        except ProofRejected:
            pass
        else:
            assert told.id
            assert told.thumbprint == SIGNED.thumbprint
        for check, principals in (
            (RULES.check, ("https://as ",)),
            (RULES.check_introspected, ("https://as ", "client https://as ")),
        ):
            try:
                valid = check(document, 1000.0)
            except TokenRejected:
                continue
            assert valid.principal.startswith(principals)
            try:
                access = valid.access(1000.0)
            except LocalProtocolError:
                raise AssertionError(f"{document!r} gives no access") from None
            assert access.expires_in is not None
