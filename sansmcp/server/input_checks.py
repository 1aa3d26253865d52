"""What may be asked by InputRequired, and of whom; and the refusals where it cannot be.

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
"""Methods that may be answered by InputRequired."""


def check_asking(request: Request, required: InputRequired) -> None:
    """Raise LocalProtocolError if InputRequired is not allowed, or names an unknown request."""
    if request.method not in ASKING:
        raise LocalProtocolError(f"{request.method} cannot be answered by InputRequired")
    for input_request in required.requests.values():
        if input_request.method not in CLIENT_CAPABILITIES:
            raise LocalProtocolError(f"A client cannot be asked {input_request.method!r}")


def missing_capabilities(
    required: InputRequired, client_capabilities: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the capabilities that the questions need and the client has not declared."""
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
    """The request needs a client that can be asked. Source: SEP-2575.

    The older revisions have no ``code`` of their own for that.
    """
    return RemoteProtocolError(
        f"This needs a client with the capability {' and '.join(missing)}",
        reason="missing_capability",
        jsonrpc_code=code,
        request_id=request_id,
        data={"requiredCapabilities": dict(missing)},
    )


def no_input(seconds: float, request_id: RequestId) -> RemoteProtocolError:
    """The client did not give the answers that the request needs."""
    return RemoteProtocolError(
        f"The answers that this needs did not come within {seconds:g} s",
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
    """Clients that know one kind of elicitation only need not name it."""
    return mode is None or mode in declared or (mode == "form" and "url" not in declared)
