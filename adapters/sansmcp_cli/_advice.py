"""Advice for the user about errors of the protocol, in terms of this command."""

from __future__ import annotations

import re

import sansmcp

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,19}")
_DENIED = (401, 403)


def advice(error: Exception) -> tuple[str, ...]:
    """Return sentences that say what to do next; none if the error's text suffices."""
    denial = next((refusal for refusal in _refusals(error) if refusal.status in _DENIED), None)
    if denial is not None:
        found = _SCHEME.match(denial.challenges[0]) if denial.challenges else None
        scheme = "Bearer" if found is None else found[0]
        which = "credentials" if denial.status == 401 else "other credentials"
        return (f"Send {which} with --header 'Authorization: {scheme} ...'",)
    if isinstance(error, sansmcp.ProcessEnded) and (error.output or error.status == 0):
        return (
            "The command must start an MCP server that reads messages from its standard input "
            "and writes nothing else to its standard output",
        )
    return ()


def is_denied(error: Exception) -> bool:
    """True if the server requires credentials."""
    return any(refusal.status in _DENIED for refusal in _refusals(error))


def is_no_endpoint(error: Exception) -> bool:
    """True if a server responds at the URL that may not be an MCP endpoint."""
    refusals = _refusals(error)
    return not is_denied(error) and any(refusal.status < 429 for refusal in refusals)


def _refusals(error: Exception) -> list[sansmcp.RequestRefused]:
    errors = (error, *error.attempts) if isinstance(error, sansmcp.NegotiationFailed) else (error,)
    return [each for each in errors if isinstance(each, sansmcp.RequestRefused)]
