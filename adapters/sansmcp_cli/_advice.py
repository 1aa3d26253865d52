"""Advice for the user about errors of the protocol, in terms of this command."""

from __future__ import annotations

import re

import sansmcp

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,19}")
_DENIED = (401, 403)
_TOKENS = ("bearer", "dpop")
"""The schemes for which a client can get tokens."""

_MISSING_CAPABILITY = -32021

_FAILED = {
    "no_client": "Register a client there, and log in with: sansmcp login --client-id ID URL",
    "private_address": "If you trust that host, allow it with --allow-host HOST",
    "insufficient_scope": "Log in for more with: sansmcp login --scope SCOPE URL",
}
"""What to do about a failed authorization, by its reason."""


def advice(error: Exception) -> tuple[str, ...]:
    """Return sentences that say what to do next; none if the error's text suffices."""
    if isinstance(error, sansmcp.AuthorizationFailed):
        sentence = _FAILED.get(error.reason)
        return () if sentence is None else (sentence,)
    denial = next((refusal for refusal in _refusals(error) if refusal.status in _DENIED), None)
    if denial is not None:
        found = _SCHEME.match(denial.challenges[0]) if denial.challenges else None
        scheme = "Bearer" if found is None else found[0]
        header = f"--header 'Authorization: {scheme} ...'"
        if denial.status == 403:
            return (f"Send other credentials with {header}",)
        if scheme.lower() not in _TOKENS:
            return (f"Send credentials with {header}",)
        url = "URL" if "?" in denial.url else denial.url  # a query may contain credentials
        return (f"Log in with: sansmcp login {url}", f"Or send credentials with {header}")
    if isinstance(error, sansmcp.JsonRpcError) and error.code == _MISSING_CAPABILITY:
        if "elicitation" in str(error):
            return ("The server asks a person; run this at a terminal, on asyncio",)
        return ("This command has no model for servers; directories it tells by --root DIR",)
    if isinstance(error, sansmcp.ProcessEnded) and (error.output or error.status == 0):
        return (
            "The command must start an MCP server that reads messages from its standard input "
            "and writes nothing else to its standard output",
        )
    return ()


def is_denied(error: Exception) -> bool:
    """True if the server requires credentials."""
    if isinstance(error, sansmcp.AuthorizationFailed):
        return True
    return any(refusal.status in _DENIED for refusal in _refusals(error))


def is_no_endpoint(error: Exception) -> bool:
    """True if a server responds at the URL that may not be an MCP endpoint."""
    refusals = _refusals(error)
    return not is_denied(error) and any(refusal.status < 429 for refusal in refusals)


def _refusals(error: Exception) -> list[sansmcp.RequestRefused]:
    errors = (error, *error.attempts) if isinstance(error, sansmcp.NegotiationFailed) else (error,)
    return [each for each in errors if isinstance(each, sansmcp.RequestRefused)]
