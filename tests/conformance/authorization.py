"""How our client is authorized in the scenarios of OAuth: the fixture plays the browser."""

from __future__ import annotations

import base64
import http.client
import json
import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from sansmcp.auth.clients import OAuthClient
from sansmcp.auth.options import (
    Authorization,
    ClientCredentials,
    IdentityAssertion,
    JwtAssertion,
)
from sansmcp_auth import JoseSigner

METADATA_URL = "https://conformance-test.local/client-metadata.json"

REFUSED = {
    "auth/resource-mismatch",
    "auth/scope-retry-limit",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
}
"""The scenarios in which a client must not get through."""


def browse(url: str) -> str:
    """Log in, and return where the browser would be sent."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}")
        return connection.getresponse().headers["Location"]
    finally:
        connection.close()


def _given(context: Mapping[str, Any], **more: Any) -> OAuthClient:
    secret = context.get("client_secret")
    return OAuthClient(client_id=context["client_id"], client_secret=secret, **more)


def _with_key(context: Mapping[str, Any]) -> dict[str, Any]:
    key, algorithm = context["private_key_pem"], context["signing_algorithm"]
    client = _given(context, private_key=key, algorithm=algorithm)
    return {"client": client, "grant": ClientCredentials()}


def _enterprise(context: Mapping[str, Any]) -> dict[str, Any]:
    grant = IdentityAssertion(
        token_endpoint=context["idp_token_endpoint"],
        client=OAuthClient(client_id=context["idp_client_id"]),
        subject_token=context["idp_id_token"],
    )
    return {"client": _given(context), "grant": grant}


def _audience_of(jwt: str) -> str:
    """The issuer for which the platform made an assertion; the suite names it nowhere else."""
    payload = jwt.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return str(claims["aud"])


_SETTINGS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "auth/pre-registration": lambda context: {"client": _given(context)},
    "auth/client-credentials-basic": lambda context: {
        "client": _given(context),
        "grant": ClientCredentials(),
    },
    "auth/client-credentials-jwt": _with_key,
    "auth/enterprise-managed-authorization": _enterprise,
    "auth/wif-jwt-bearer": lambda context: {
        "client": OAuthClient(client_id=context["client_id"]),
        "grant": JwtAssertion(context["valid_jwt"], _audience_of(context["valid_jwt"])),
    },
}


def authorization_for(scenario: str) -> Authorization:
    """The setting ``authorization`` for a scenario."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    settings = _SETTINGS[scenario](context) if scenario in _SETTINGS else {}
    return Authorization(
        login=browse,
        client_metadata_url=METADATA_URL,
        redirect_uri="http://localhost:3000/callback",
        signer=JoseSigner(),
        **settings,
    )
