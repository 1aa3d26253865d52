"""Advice for the user about errors of the protocol, in terms of this command."""

from __future__ import annotations

import re
import shlex

import sansmcp
from sansmcp.auth.challenges import find_challenge

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,19}")
_DENIED = (401, 403)
_TOKENS = ("bearer", "dpop")
"""The schemes for which a client can get tokens."""

_WRONG_HOST = "host_not_allowed"
"""The reason of servers of this library that do not serve the name in the URL."""

_MISSING_CAPABILITY = -32021

_REGISTER = "Register a client there, and log in with: sansmcp login --client-id ID URL"
_MAX_SCOPES = 20
"""The scopes that a command to log in shows; servers name few."""

_FAILED = {
    "no_client": _REGISTER,
    "registration_refused": _REGISTER,
    "pkce_unsupported": "If you know that it supports PKCE with S256, log in with: "
    "sansmcp login --assume-pkce URL",
    "no_issuer": "If it is its own authorization server, log in with: "
    "sansmcp login --client-id ID --issuer ISSUER URL",
    "invalid_target": "If the authorization server takes no resource, log in with: "
    "sansmcp login --no-resource URL",
    "unknown_address": "If you trust the network between, allow the host with --allow-host HOST",
    "private_address": "If you trust that host, allow it with --allow-host HOST",
}
"""What to do about a failed authorization, by its reason."""


def advice(error: Exception) -> tuple[str, ...]:
    """Return sentences that say what to do next; none if the error's text suffices."""
    if isinstance(error, sansmcp.AuthorizationFailed):
        if error.scopes:
            return (f"Log in for more with: {login_command(error.url, error.scopes)}",)
        sentence = _FAILED.get(error.reason)
        return () if sentence is None else (sentence,)
    denial = next((refusal for refusal in _refusals(error) if _is_denial(refusal)), None)
    if denial is not None and denial.reason == _WRONG_HOST:
        return (
            "Use a name that it serves, or have this one added to its allowed_hosts (sansmcp serve "
            "--allow-host NAME)",
        )
    if denial is not None:
        found = _SCHEME.match(denial.challenges[0]) if denial.challenges else None
        scheme = "Bearer" if found is None else found[0]
        header = f"--header 'Authorization: {scheme} ...'"
        if "key" in scheme.lower():
            return (
                f"Send a key with {header}, or in the header that its documentation names, such as "
                "--header 'X-API-Key: ...'",
            )
        if scheme.lower() not in _TOKENS:
            return (f"Send credentials with {header}",)
        challenge = find_challenge(text.encode("latin-1") for text in denial.challenges)
        scopes = () if challenge is None else challenge.scopes
        command = login_command(denial.url, scopes if denial.status == 403 else ())
        return (f"Log in with: {command}", f"Or send credentials with {header}")
    if isinstance(error, sansmcp.JsonRpcError) and error.code == _MISSING_CAPABILITY:
        if "elicitation" in str(error):
            return (
                "The server asks a person; run this at a terminal, on asyncio, or answer the "
                "fields of its form by --answer NAME=VALUE",
            )
        return ("This command has no model for servers; directories it tells by --root DIR",)
    if isinstance(error, sansmcp.ProcessEnded) and (error.output or error.status == 0):
        return (
            "The command must start an MCP server that reads messages from its standard input "
            "and writes nothing else to its standard output",
        )
    return ()


def login_command(url: str, scopes: tuple[str, ...]) -> str:
    """Return the command that logs in to a server for some scopes."""
    options = [f"--scope {shlex.quote(scope)}" for scope in scopes[:_MAX_SCOPES]]
    shown = "URL" if "?" in url else shlex.quote(url)  # a query may contain credentials
    return " ".join(["sansmcp login", *options, shown])


def was_refused(error: Exception) -> bool:
    """True if the server refused the HTTP requests."""
    return bool(_refusals(error))


def is_denied(error: Exception) -> bool:
    """True if the server requires credentials."""
    if isinstance(error, sansmcp.AuthorizationFailed):
        return True
    return any(map(_is_denial, _refusals(error)))


def is_no_endpoint(error: Exception) -> bool:
    """True if a server responds at the URL that may not be an MCP endpoint."""
    refusals = _refusals(error)
    return not is_denied(error) and any(refusal.status < 429 for refusal in refusals)


def _is_denial(refusal: sansmcp.RequestRefused) -> bool:
    return refusal.status in _DENIED or bool(refusal.challenges)


def _refusals(error: Exception) -> list[sansmcp.RequestRefused]:
    errors = (error, *error.attempts) if isinstance(error, sansmcp.NegotiationFailed) else (error,)
    return [each for each in errors if isinstance(each, sansmcp.RequestRefused)]
