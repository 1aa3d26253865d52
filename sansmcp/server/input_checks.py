"""The checks of InputRequired: where it is allowed, and which capabilities the client needs.

Source: 2026-07-28 basic/utilities: multi round-trip requests; 2025-11-25 and later
client/elicitation, client/sampling, client/roots: Capabilities.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..codecs import json
from ..codecs.jsonrpc import MISSING_CAPABILITY
from ..errors import LocalProtocolError, RemoteProtocolError
from ..input_required import InputRequest, InputRequired
from ..messages import Request, RequestId
from ..meta_keys import CLIENT_CAPABILITIES

ASKING = frozenset(("tools/call", "prompts/get", "resources/read"))
"""The methods whose handlers may return InputRequired."""


def check_asking(request: Request, required: InputRequired) -> None:
    """Raise LocalProtocolError if InputRequired is not allowed, or names an unknown request."""
    if request.method not in ASKING:
        raise LocalProtocolError(
            f"The handler of {request.method!r} cannot return InputRequired; only those of "
            f"{', '.join(sorted(ASKING))} can"
        )
    for input_request in required.requests.values():
        if input_request.method not in CLIENT_CAPABILITIES:
            raise LocalProtocolError(
                f"Clients do not take the request {input_request.method!r}; InputRequired takes "
                f"{', '.join(sorted(CLIENT_CAPABILITIES))}"
            )


def missing_capabilities(
    required: InputRequired, client_capabilities: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the capabilities that input requests need and the client has not declared."""
    missing: dict[str, dict[str, Any]] = {}
    for input_request in required.requests.values():
        capability, mode = CLIENT_CAPABILITIES[input_request.method], _mode(input_request)
        declared = json.as_object(client_capabilities.get(capability))
        if declared is None or not _declares(declared, mode):
            missing.setdefault(capability, {}).update({} if mode is None else {mode: {}})
    return missing


def missing_capability(
    missing: Mapping[str, object], request_id: RequestId, code: int = MISSING_CAPABILITY
) -> RemoteProtocolError:
    """Return the error for a client that lacks capabilities. Source: SEP-2575.

    The handshake revisions do not define MISSING_CAPABILITY, so they pass another ``code``.
    """
    return RemoteProtocolError(
        f"This needs a client with the capability {' and '.join(missing)}",
        reason="missing_capability",
        jsonrpc_code=code,
        request_id=request_id,
        data={"requiredCapabilities": dict(missing)},
    )


def no_input(seconds: float, request_id: RequestId) -> RemoteProtocolError:
    """Return the error for a call whose input responses did not arrive in time."""
    return RemoteProtocolError(
        f"The input that this request needs did not arrive within {seconds:g} s",
        reason="no_input",
        request_id=request_id,
    )


def _mode(input_request: InputRequest) -> str | None:
    """Return the member of its capability that an input request needs, or None."""
    if input_request.method == "elicitation/create":
        return str(input_request.params.get("mode", "form"))
    if input_request.method == "sampling/createMessage" and "tools" in input_request.params:
        return "tools"
    return None


def _declares(declared: Mapping[str, Any], mode: str | None) -> bool:
    """Return True if a capability includes a mode. Elicitation without modes has the form mode."""
    return mode is None or mode in declared or (mode == "form" and "url" not in declared)
