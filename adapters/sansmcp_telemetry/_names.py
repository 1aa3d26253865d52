"""The attributes of spans and metrics, by the semantic conventions for MCP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sansmcp

METHOD = "mcp.method.name"
ERROR = "error.type"

_TOOL = "gen_ai.tool.name"

_NAMED = {
    "tools/call": ("name", _TOOL),
    "prompts/get": ("name", "gen_ai.prompt.name"),
    "resources/read": ("uri", "mcp.resource.uri"),
    "resources/subscribe": ("uri", "mcp.resource.uri"),
    "resources/unsubscribe": ("uri", "mcp.resource.uri"),
}
"""By method, the parameter that names what is called, and the attribute for it."""

_LOW_CARDINALITY = ("tools/call", "prompts/get")
"""The methods whose target is part of the name of the span: there are few tools and prompts."""

_OTHER = "_OTHER"
"""The value for all values beyond these bounds, as in other conventions of OpenTelemetry."""

_MOST = 1000
"""Values of an attribute that have series of their own, if their calls succeed."""

_MOST_FAILED = 100
"""And if they fail, as calls of names that peers make up do."""

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


class Series:
    """The attributes of metrics, with a bounded number of values.

    Each value makes a series, which is kept for ever, and peers make up names, methods and codes.
    """

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}

    def attributes(
        self, attributes: Mapping[str, str], error: str | None, *, is_known: bool | None = None
    ) -> dict[str, str]:
        """Return those attributes that can have few values, and the kind of error.

        Args:
            attributes: those of the span.
            error: the kind of error of a call that has failed.
            is_known: True if the application knows the tool that is called, False if it does not,
                None if it does not say.
        """
        most = _MOST if error is None else _MOST_FAILED
        kept = {
            name: value if is_known and name == _TOOL else self._bounded(name, value, most)
            for name, value in attributes.items()
            if not name.endswith("uri")
        }
        if is_known is False:
            kept[_TOOL] = _OTHER
        return kept if error is None else {**kept, ERROR: self._bounded(ERROR, error, most)}

    def _bounded(self, name: str, value: str, most: int) -> str:
        known = self._known.setdefault(name, set())
        if value not in known and len(known) >= most:
            return _OTHER
        known.add(value)
        return value


def is_known_tool(
    input_schema: Callable[[str], object] | None, attributes: Mapping[str, str]
) -> bool | None:
    """Return whether an application has the tool of a span; None if it does not say.

    Args:
        input_schema: that of the application, which returns None for tools that it does not have.
        attributes: those of the span.
    """
    if input_schema is None or _TOOL not in attributes:
        return None
    return input_schema(attributes[_TOOL]) is not None


def error_type(error: BaseException) -> str:
    """Return the kind of an error: the code of a JSON-RPC error, or the name of the exception."""
    return str(error.code) if isinstance(error, sansmcp.JsonRpcError) else type(error).__name__
