"""The parameters of ``initialize``, and what its response negotiates.

Source: 2024-11-05 to 2025-11-25, basic/lifecycle: Initialization; 2025-03-26 basic/transports:
Session Management.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...codecs import headers, json
from ...codecs.headers import Headers
from ...errors import CallError, InvalidResponse, NegotiationFailed
from ...meta_keys import names_multi_turn, with_multi_turn
from ...revisions import REVISIONS
from ...types import STREAMABLE_HTTP, Secret
from ..options import ClientOptions
from ..outcomes import Agreed


def initialize_params(options: ClientOptions, version: str, transport: str) -> dict[str, Any]:
    """Return the parameters of ``initialize`` for a version and a transport."""
    capabilities: Mapping[str, Any] = options.capabilities
    if _may_have_turns(options, transport):
        capabilities = with_multi_turn(capabilities)
    return {"protocolVersion": version, "capabilities": capabilities, "clientInfo": options.info}


def agreement(
    result: dict[str, Any],
    response_headers: Headers,
    options: ClientOptions,
    transport: str,
    request_id: int | None,
) -> Agreed | CallError:
    """Return what the result of ``initialize`` negotiates, or the error of the call.

    Args:
        result: the result.
        response_headers: the headers of the HTTP response that carried it; empty if there is none.
        options: the settings of the client.
        transport: the name of the transport in use.
        request_id: the id of the request, for the error.
    """

    def error(kind: type[CallError], text: str) -> CallError:
        return kind(text, method="initialize", request_id=request_id)

    version = result.get("protocolVersion")
    if not isinstance(version, str):
        return error(InvalidResponse, "The response to initialize has no protocolVersion")
    if version not in options.handshake_versions:
        ours = ", ".join(options.handshake_versions)
        text = f"The server speaks protocol version {version[:40]!r}, and not {ours}"
        return error(NegotiationFailed, text)
    session_id = headers.single(headers.get_all(response_headers, b"mcp-session-id"))
    if session_id is not None and not headers.is_session_id(session_id):
        return error(
            InvalidResponse, "The server's Mcp-Session-Id has characters that are not allowed"
        )
    revision = REVISIONS[version]
    named = names_multi_turn(json.as_object(result.get("capabilities")) or {})
    agreed = named or options.assume_multi_turn
    return Agreed(
        revision,
        Secret(session_id) if session_id is not None and revision.sessions else None,
        has_turns=_may_have_turns(options, transport) and revision.multi_turn and agreed,
    )


def _may_have_turns(options: ClientOptions, transport: str) -> bool:
    return options.offers_multi_turn and transport == STREAMABLE_HTTP
