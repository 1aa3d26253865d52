"""The claims of an access token: who it is from, for whom, and how long it is valid.

Source: RFC 9068 section 4; RFC 7519 section 4.1; RFC 7662 section 2.2; RFC 9449, 6; 2025-06-18 to
2026-07-28, basic/authorization: Token Handling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ..authentication import Access, DpopProof, Refusal
from ..codecs import json
from ..errors import check_delay, check_type
from ..protected_resource import check_identifier
from ..scopes import parse_scope

INVALID_TOKEN = Refusal(
    message="The access token is not valid here: get another one", reason="invalid_token"
)
"""The refusal of every invalid token. What is wrong with it is for the operator alone."""

UNDECIDED = Refusal(
    503,
    "The server cannot verify access tokens at present: try again later",
    reason="verifier_unavailable",
    retry_after=5,
)
"""The refusal while the authorization server does not answer. Status 401 would make every user log
in.
"""

_LEEWAY = 30.0
"""Seconds by which the clocks of this machine and of the authorization server may differ."""


class TokenRejected(ValueError):
    """An access token is not valid; the text says why, for the log of the operator."""


class Undecided(Exception):
    """It cannot be found out at present if an access token is valid; the text says why."""


@attrs.frozen
class VerifiedToken:
    """What a valid access token says.

    Attributes:
        principal: the issuer, a space, and the subject: one issuer gives no subject twice. For a
            program without a user, ``client``, the issuer, and the id of the client.
        scopes: the scopes.
        expires_at: when it is valid no more, in seconds since 1970.
        thumbprint: the thumbprint of the key to which it is bound; None for a Bearer token.
    """

    principal: str
    scopes: tuple[str, ...]
    expires_at: float
    thumbprint: str | None = None

    def access(self, now: float, proof: DpopProof | None = None) -> Access:
        """Return the Access that the token gives at ``now``, in seconds since 1970."""
        rest = max(0.0, self.expires_at - now)
        return Access(self.principal, self.scopes, expires_in=rest, proof=proof)


@attrs.frozen
class TokenRules:
    """What makes an access token valid here.

    Attributes:
        issuer: the authorization server, exactly as its metadata has it.
        audience: the URL of this server, exactly as ``ProtectedResource.resource``.
        leeway: seconds by which the clocks may differ.

    Raises:
        LocalProtocolError: ``issuer`` is not an https URL or one of this machine, ``audience`` is
            no str, or ``leeway`` is negative.
    """

    issuer: str
    audience: str
    leeway: float = _LEEWAY

    def __attrs_post_init__(self) -> None:
        check_identifier("issuer", self.issuer)
        check_type(str, audience=self.audience)
        check_delay(leeway=self.leeway)

    def check(self, claims: Mapping[str, Any], now: float) -> VerifiedToken:
        """Return what a token says whose signature is valid.

        Args:
            claims: its claims.
            now: the wall-clock time, in seconds since 1970.

        Raises:
            TokenRejected: it is from another issuer or for another server, expired or not valid
                yet, bound to a key in a way that is unknown here, or lacks a claim.
        """
        if claims.get("iss") != self.issuer:
            raise TokenRejected(f"its issuer (iss) is not {self.issuer}")
        return self._check_rest(claims, now, self._user(claims))

    def check_introspected(self, response: Mapping[str, Any], now: float) -> VerifiedToken:
        """Return what the authorization server says of a token. Raises as :meth:`check` does.

        The server need not name itself, nor a subject if there is no user. The principal of such a
        token begins with ``client``: a user may be called as a program is.
        """
        if response.get("active") is not True:
            raise TokenRejected("its authorization server says that it is not active")
        if response.get("iss", self.issuer) != self.issuer:
            raise TokenRejected(f"its issuer (iss) is not {self.issuer}")
        program = response.get("client_id")
        if response.get("sub") is None and isinstance(program, str) and program:
            return self._check_rest(response, now, f"client {self.issuer} {program}")
        return self._check_rest(response, now, self._user(response))

    def _user(self, claims: Mapping[str, Any]) -> str:
        subject = claims.get("sub")
        if not isinstance(subject, str) or not subject:
            raise TokenRejected("it has no subject (sub)")
        return f"{self.issuer} {subject}"

    def _check_rest(self, claims: Mapping[str, Any], now: float, principal: str) -> VerifiedToken:
        audience = claims.get("aud")
        audiences = audience if json.is_array(audience) else [audience]
        if self.audience not in audiences:
            raise TokenRejected(f"its audience (aud) is not {self.audience}")
        thumbprint = _thumbprint(claims)
        expires_at = time_in(claims, "exp") + self.leeway
        if now >= expires_at:
            raise TokenRejected("it has expired (exp)")
        for name in ("nbf", "iat"):
            if name in claims and now < time_in(claims, name) - self.leeway:
                raise TokenRejected(f"it is not valid yet ({name})")
        return VerifiedToken(principal, _scopes(claims), expires_at, thumbprint)


def _thumbprint(claims: Mapping[str, Any]) -> str | None:
    """Return the thumbprint of the key to which a token is bound; None if it is not bound.

    A token that is bound in another way (mutual TLS, RFC 8705) must not count as one that is not:
    others could use it who have seen it.
    """
    if "cnf" not in claims:
        kind = claims.get("token_type")
        if isinstance(kind, str) and kind.lower() == "dpop":
            raise TokenRejected("its type is DPoP, and it names no key (cnf)")
        return None
    bound = json.as_object(claims["cnf"])
    thumbprint = None if bound is None or len(bound) != 1 else bound.get("jkt")
    if not isinstance(thumbprint, str):
        raise TokenRejected("it is bound (cnf), and not to a key of DPoP (jkt) alone")
    return thumbprint


def time_in(claims: Mapping[str, Any], name: str) -> float:
    """Return a time, in seconds since 1970. Raises TokenRejected if it is missing or no number."""
    value = claims.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TokenRejected(f"it has no time {name}")
    try:
        return float(value)
    except OverflowError:
        raise TokenRejected(f"its time {name} is beyond all numbers") from None


def _scopes(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the scopes: of ``scope``, or of ``scp``, which some servers have instead."""
    value = claims.get("scope", claims.get("scp"))
    if json.is_array(value):
        value = " ".join(each for each in value if isinstance(each, str))
    return parse_scope(value)
