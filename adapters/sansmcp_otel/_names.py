"""The attributes of spans and metrics, by the semantic conventions for MCP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sansmcp

METHOD = "mcp.method.name"
ERROR = "error.type"

_NAMED = {
    "tools/call": ("name", "gen_ai.tool.name"),
    "prompts/get": ("name", "gen_ai.prompt.name"),
    "resources/read": ("uri", "mcp.resource.uri"),
    "resources/subscribe": ("uri", "mcp.resource.uri"),
    "resources/unsubscribe": ("uri", "mcp.resource.uri"),
}
"""By method, the parameter that names what is called, and the attribute for it."""

_LOW_CARDINALITY = ("tools/call", "prompts/get")
"""The methods whose target is part of the name of the span: there are few tools and prompts."""

_LONGEST = 200
"""Characters of a name that come from a peer."""


def span_of(method: str, params: Mapping[str, Any] | None) -> tuple[str, dict[str, str]]:
    """Return the name and the attributes of the span for a request."""
    attributes = {METHOD: method[:_LONGEST]}
    parameter, attribute = _NAMED.get(method, ("", ""))
    target = (params or {}).get(parameter)
    name = method[:_LONGEST]
    if isinstance(target, str):
        attributes[attribute] = target[:_LONGEST]
        if method in _LOW_CARDINALITY:
            name = f"{name} {target[:_LONGEST]}"
    return name, attributes


def metric_attributes(attributes: Mapping[str, str], error: str | None) -> dict[str, str]:
    """Return those attributes that have few values, and the kind of error."""
    kept = {name: attributes[name] for name in attributes if not name.endswith("uri")}
    return kept if error is None else {**kept, ERROR: error}


def error_type(error: BaseException) -> str:
    """Return the kind of an error: the code of a JSON-RPC error, or the name of the exception."""
    return str(error.code) if isinstance(error, sansmcp.JsonRpcError) else type(error).__name__
