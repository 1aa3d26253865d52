"""Headers that repeat parts of a request, among them parameters of tools.

A server marks in its list of tools which parameters the client must repeat in headers, so that
proxies can route requests without reading their bodies.

Source: 2026-07-28 basic/transports: Custom Headers; SEP-2243.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from ..codecs import json, mirrored
from ..codecs.headers import Headers
from ..errors import LocalProtocolError
from ..events import ToolRejected
from ..messages import Params
from ..meta_keys import NAMED

_MAX_TOOLS = 1000
"""The number of tools whose headers are stored. If the headers of another tool are needed, the list
of tools is fetched again.
"""


@attrs.define(eq=False, repr=False)
class ToolHeaders:
    """The tool parameters that headers repeat, from the lists of tools received."""

    _known: dict[str, dict[str, tuple[str, ...]]] = attrs.field(
        factory=dict[str, dict[str, tuple[str, ...]]], init=False
    )

    def headers_for(self, method: str, params: Params) -> Headers:
        """Return the headers that repeat parts of a message."""
        found = [(b"mcp-method", mirrored.encode_header_value(method))]
        name = params.get(NAMED.get(method, ""))
        if isinstance(name, str):
            found.append((b"mcp-name", mirrored.encode_header_value(name)))
        for header, value in self._mirrored_params(method, params):
            text = mirrored.header_text(value)
            if text is not None:
                encoded = mirrored.encode_header_value(text)
                found.append((b"mcp-param-" + header.lower().encode(), encoded))
        return tuple(found)

    def validate_mirrored_params(self, method: str, params: Params | None) -> None:
        """Raise LocalProtocolError for an argument that its header cannot repeat exactly."""
        for header, value in self._mirrored_params(method, params or {}):
            if mirrored.is_too_large(value):
                raise LocalProtocolError(
                    f"{value} is too large for the header Mcp-Param-{header} that must repeat it; "
                    "pass an integer between -(2**53 - 1) and 2**53 - 1"
                )

    def record(self, result: Any) -> tuple[Any, list[ToolRejected]]:
        """Record the headers of the tools in a list.

        Returns the list without the tools whose definitions are invalid, and these tools with the
        reasons.
        """
        listed = json.as_object(result)
        tools = listed.get("tools") if listed is not None else None
        if listed is None or not json.is_array(tools):
            return result, []
        good: list[Any] = []
        rejected: list[ToolRejected] = []
        for each in tools:
            tool = json.as_object(each) or {}
            name, schema = str(tool.get("name")), json.as_object(tool.get("inputSchema"))
            self._known.pop(name, None)
            try:
                headers = mirrored.parameters(schema or {})
            except ValueError as error:
                rejected.append(ToolRejected(name, str(error)))
                continue
            good.append(each)
            if headers:
                self._remember(name, headers)
        return {**listed, "tools": good}, rejected

    def _mirrored_params(self, method: str, params: Params) -> Iterator[tuple[str, Any]]:
        """Yield the arguments of a tool that headers repeat, by header."""
        name = params.get("name")
        if method == "tools/call" and isinstance(name, str) and name in self._known:
            arguments = json.as_object(params.get("arguments")) or {}
            for header, path in self._known[name].items():
                yield header, mirrored.argument_at(arguments, path)

    def _remember(self, name: str, headers: dict[str, tuple[str, ...]]) -> None:
        self._known[name] = headers
        if len(self._known) > _MAX_TOOLS:
            del self._known[next(iter(self._known))]
