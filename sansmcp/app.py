"""The application: who we are, and which handler answers which method.

An :class:`App` is a table. It maps JSON-RPC methods to handlers and says what ``initialize`` tells
the client. It has no idea of transports, and the core never calls a handler: adapters do, each in
the manner of its world. Tools, schemas and decorators for them are the business of frameworks on
top.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, TypeAlias, TypeVar, cast

import attrs

from .errors import LocalProtocolError, expect

Handler: TypeAlias = Callable[..., Any]
"""Takes the adapter's call object and returns the result, or an awaitable of it.

A result is JSON, of which any part may be a pydantic model; or :class:`~sansmcp.InputRequired`,
where the client has to be asked first. Raising :class:`~sansmcp.errors.JsonRpcError` answers with
that error; any other exception becomes "Internal error", code -32603, and is reported on the
server's side only.
"""

_H = TypeVar("_H", bound=Handler)

CORE_METHODS = frozenset(("initialize", "ping", "server/discover", "subscriptions/listen"))
"""Answered by the library; an application cannot take them."""

_CAPABILITIES: Mapping[str, str] = {
    "tools/": "tools",
    "resources/": "resources",
    "prompts/": "prompts",
    "completion/": "completions",
    "logging/": "logging",
}


@attrs.define(eq=False)
class App:
    """An MCP server's application.

    Args:
        name, version: what the client is told about us (``serverInfo``).
        instructions: a hint to the language model on how to use this server, or None.
        capabilities: capabilities beside those that follow from the handlers, e.g. ``{"tools":
            {"listChanged": True}}``. A method's capability is declared by registering its handler.
        input_schema: gives the input schema of a tool, or None for one that there is not; needed
            only where schemas have ``x-mcp-header``, so that those headers can be checked.
        anonymous: do not tell who we are where the protocol leaves that open (2026-07-28).

    Raises LocalProtocolError for arguments of another kind.
    """

    name: str
    version: str = "0"
    instructions: str | None = None
    capabilities: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    input_schema: Callable[[str], Mapping[str, Any] | None] | None = None
    anonymous: bool = False
    handlers: dict[str, Handler] = attrs.field(factory=dict[str, Handler], init=False)

    def __attrs_post_init__(self) -> None:
        expect(str, name=self.name, version=self.version)
        expect((str, NoneType), instructions=self.instructions)
        expect(Mapping, capabilities=self.capabilities)

    def handler(self, method: str) -> Callable[[_H], _H]:
        """Decorate the handler of a JSON-RPC method, such as ``"tools/call"``.

        Raises LocalProtocolError for methods that the library answers, for a second handler of one
        method, and for what is no method or no function.
        """
        if not isinstance(cast(object, method), str):  # the decorator was not called
            raise LocalProtocolError("Name the method: @app.handler('tools/call')")
        if method in CORE_METHODS or method.startswith("rpc."):
            raise LocalProtocolError(f"{method} is answered by the library and takes no handler")
        if method in self.handlers:
            raise LocalProtocolError(f"{method} has a handler already")

        def register(handler: _H) -> _H:
            if not callable(handler):
                raise LocalProtocolError(f"The handler of {method} cannot be called: {handler!r}")
            self.handlers[method] = handler
            return handler

        return register

    @property
    def server_info(self) -> dict[str, Any]:
        """Who we are, for the client."""
        return {"name": self.name, "version": self.version}

    def declared_capabilities(self) -> dict[str, Any]:
        """What we can do, for the client."""
        declared: dict[str, Any] = {
            capability: {}
            for prefix, capability in _CAPABILITIES.items()
            if any(method.startswith(prefix) for method in self.handlers)
        }
        if "resources/subscribe" in self.handlers:
            declared["resources"] = {"subscribe": True}
        return {**declared, **self.capabilities}

    def initialize_result(self, version: str) -> dict[str, Any]:
        """The result of ``initialize`` for a negotiated version."""
        result: dict[str, Any] = {
            "protocolVersion": version,
            "capabilities": self.declared_capabilities(),
            "serverInfo": self.server_info,
        }
        if self.instructions is not None:
            result["instructions"] = self.instructions
        return result
