"""Make the requests of a flow to token endpoints, authenticated as each server accepts it.

Source: OAuth 2.1, 2.4 and 3.2; RFC 7523; RFC 9449, 5 and 8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import attrs

from .clients import OAuthClient
from .http import AuthResponse
from .options import IdentityAssertion
from .reach import Reach
from .signatures import Signer
from .steps import Steps
from .stored_credentials import StoredCredentials
from .tokens import TokenResponse, read_tokens, token_request

_NOT_AUTHENTICATED = ("invalid_client", "invalid_request")
"""The errors of a token endpoint that does not accept how a client authenticates."""


@attrs.frozen(eq=False)
class TokenEndpoint:
    """An endpoint that takes token requests, and how the client authenticates there."""

    url: str
    issuer: str
    client: OAuthClient | None
    """None for a grant that needs no client."""
    method: str
    key: dict[str, Any] | None = attrs.field(default=None, repr=False)
    """The key of DPoP proofs; None without DPoP."""
    algorithms: tuple[str, ...] = ()
    """Those in which it accepts client assertions; empty if it does not say."""


@attrs.frozen(eq=False, repr=False)
class TokenRequests:
    """Makes token requests."""

    _stored: StoredCredentials
    _reach: Reach
    _signer: Signer

    def send(
        self, endpoint: TokenEndpoint, form: dict[str, str], step: str = "the token request"
    ) -> Steps[AuthResponse]:
        """Make a token request, or one that revokes a token; return the response, also an error.

        ``step`` names the request in errors.
        """

        def send(repeats_id: bool) -> Steps[AuthResponse]:
            return self._send(endpoint, form, step, repeats_id)

        return (yield from self._with_or_without_id(endpoint.issuer, endpoint.method, send))

    def send_identity(
        self, identity: IdentityAssertion, form: dict[str, str]
    ) -> Steps[AuthResponse]:
        """Make a token request to the identity provider of the settings."""
        client, url = identity.client, identity.token_endpoint
        method = client.method_for(("client_secret_basic", "client_secret_post", "none")) or "none"

        def send(repeats_id: bool) -> Steps[AuthResponse]:
            request = token_request(
                url, client, method, form, step="the identity provider", repeats_id=repeats_id
            )
            return self._reach.fetch(request, is_trusted=True)

        return (yield from self._with_or_without_id(url, method, send))

    def _with_or_without_id(
        self, issuer: str, method: str, send: Callable[[bool], Steps[AuthResponse]]
    ) -> Steps[AuthResponse]:
        """Make a token request in the way that ``issuer`` accepts, and record which it is.

        The official Python SDK's servers want the id of the client in the form, also beside Basic;
        others refuse that.
        """
        repeats_id = issuer in self._stored.saved.repeating
        response = yield from send(repeats_id)
        if method == "client_secret_basic" and response.error in _NOT_AUTHENTICATED:
            other = yield from send(not repeats_id)
            if other.error not in _NOT_AUTHENTICATED:
                self._stored.saved.set_repeats_id(issuer, not repeats_id)
                return other
        return response

    def _send(
        self, endpoint: TokenEndpoint, form: dict[str, str], step: str, repeats_id: bool
    ) -> Steps[AuthResponse]:
        """Send a token request, once more if the server sends a DPoP nonce."""
        url, client = endpoint.url, endpoint.client
        is_repeated = False
        while True:
            assertion = proof = None
            if client is not None and endpoint.method == "private_key_jwt":
                assertion = yield from self._signer.sign_assertion(
                    client, endpoint.issuer, endpoint.algorithms
                )
            if endpoint.key is not None:
                proof = cast("str", (yield self._signer.proof(endpoint.key, b"POST", url)))
            request = token_request(
                url,
                client,
                endpoint.method,
                form,
                step=step,
                repeats_id=repeats_id,
                assertion=assertion,
                proof=proof,
            )
            response = yield from self._reach.fetch(request)
            needs_nonce = response.error == "use_dpop_nonce" and response.nonce is not None
            if proof is None or not needs_nonce or is_repeated:
                return response
            is_repeated = True


def read_requested(endpoint: TokenEndpoint, response: AuthResponse) -> TokenResponse:
    """Return the token in a response; it is bound to the key of the request, if there is one."""
    found = read_tokens(response)
    if found.is_dpop != (endpoint.key is not None):
        what = "sent a token that is " + ("bound to a key" if found.is_dpop else "not bound")
        raise response.failed(f"{what}, unlike what was requested", "dpop_mismatch")
    return found
