"""The application: who we are, and which handler answers which method.

An :class:`App` is a table. It maps JSON-RPC methods to handlers and says what ``initialize`` tells
the client. It has no idea of transports, and the core never calls a handler: adapters do, each in
the manner of its world. Tools, schemas and decorators for them are the business of frameworks on
top.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import iscoroutinefunction
from types import NoneType
from typing import Any, TypeAlias, TypeVar, cast

import attrs

from .errors import LocalProtocolError, check_delay, check_type

Handler: TypeAlias = Callable[..., Any]
"""Takes the adapter's call object and returns the result.

An async function runs in the event loop of the adapter, a plain one in a thread; see
:meth:`App.handler`.

A result is JSON, of which any part may be a pydantic model; or :class:`~sansmcp.InputRequired`,
where the client has to be asked first. Raising :class:`~sansmcp.errors.JsonRpcError` answers with
that error; any other exception becomes "Internal error", code -32603, and is reported on the
server's side only.
"""

_H = TypeVar("_H", bound=Handler)

CORE_METHODS = frozenset(("initialize", "ping", "server/discover", "subscriptions/listen"))
"""Answered by the library; an application cannot take them."""

_KNOWN_METHODS = (
    "completion/complete",
    "logging/setLevel",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "tasks/cancel",
    "tasks/get",
    "tasks/list",
    "tasks/result",
    "tasks/update",
    "tools/call",
    "tools/list",
)
"""What clients ask an application for, at any revision and in the extensions of MCP."""

_ALIKE = 0.8
"""From this ratio of :mod:`difflib` on, a method that is not known is taken for a typing error."""

_CAPABILITIES: Mapping[str, str] = {
    "tools/": "tools",
    "resources/": "resources",
    "prompts/": "prompts",
    "completion/": "completions",
    "logging/": "logging",
}


@attrs.frozen(kw_only=True)
class HandlerOptions:
    """How a handler is run; the options of :meth:`App.handler`."""

    inline: bool = False
    """Run the handler in the event loop, and not in a thread; true for every async function."""
    stream_after: float | None = None
    """The server's setting of that name for the calls of this handler; None: as the server has it.
    """


@attrs.define(eq=False)
class App:
    """An MCP server's application.

    Args:
        name, version: what the client is told about us (``serverInfo``).
        instructions: a hint to the language model on how to use this server, or None.
        capabilities: capabilities beside those that follow from the handlers, e.g. ``{"tools":
            {"listChanged": True}}``. A method's capability is declared by registering its handler;
            with ``resources/read`` comes ``subscribe``, since the library answers subscriptions.
            Say ``{"resources": {"subscribe": False}}`` if updates are never published.
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
    options: dict[str, HandlerOptions] = attrs.field(
        factory=dict[str, HandlerOptions], init=False, repr=False
    )
    _fallback: Handler | None = attrs.field(default=None, init=False, repr=False)
    _fallback_options: HandlerOptions = attrs.field(factory=HandlerOptions, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        check_type(str, name=self.name, version=self.version)
        check_type((str, NoneType), instructions=self.instructions)
        check_type(Mapping, capabilities=self.capabilities)

    def handler(
        self, method: str, *, inline: bool = False, stream_after: float | None = None
    ) -> Callable[[_H], _H]:
        """Decorate the handler of a JSON-RPC method, such as ``"tools/call"``.

        Args:
            method: a method of MCP, or one of your own, such as ``"com.example/reindex"``.
            inline: run a plain function in the event loop, which saves the way to a thread and
                back. It must not block: as long as it runs, the server does nothing else. It makes
                no difference to async functions, and none where there is no event loop.
            stream_after: seconds after which a call that is not answered gets an event stream; None
                as the server's setting of that name has it, which :class:`sansmcp.ServerOptions`
                explains.

        Raises LocalProtocolError for methods that the library answers, for a second handler of one
        method, for what looks like a misspelt method of MCP, for what is no method or no function,
        and for a negative ``stream_after``.
        """
        if not isinstance(cast(object, method), str):  # the decorator was not called
            raise LocalProtocolError("Name the method: @app.handler('tools/call')")
        if is_reserved(method):
            raise LocalProtocolError(f"{method} is answered by the library and takes no handler")
        if method in self.handlers:
            raise LocalProtocolError(f"{method} has a handler already")
        _check_spelling(method)
        check_delay(stream_after=stream_after)

        def register(handler: _H) -> _H:
            if not callable(handler):
                raise LocalProtocolError(f"The handler of {method} cannot be called: {handler!r}")
            self.handlers[method] = handler
            self.options[method] = HandlerOptions(
                inline=inline or is_async(handler), stream_after=stream_after
            )
            return handler

        return register

    def fallback(self, handler: _H, *, inline: bool = False) -> _H:
        """Decorate the handler of all requests whose method has no handler of its own.

        ``call.method`` tells which it is. Gateways pass such requests on. No capability follows
        from a fallback, so declare those that it serves as ``capabilities``.

        Raises LocalProtocolError for a second one, and for what is no function.
        """
        if not callable(handler):
            raise LocalProtocolError(f"The fallback cannot be called: {handler!r}")
        if self._fallback is not None:
            raise LocalProtocolError("There is a fallback already")
        self._fallback = handler
        self._fallback_options = HandlerOptions(inline=inline or is_async(handler))
        return handler

    def handler_of(self, method: str) -> Handler | None:
        """Return the function that answers a method; None if nothing does."""
        if method in self.handlers:
            return self.handlers[method]
        return None if is_reserved(method) else self._fallback

    def options_of(self, method: str) -> HandlerOptions:
        """Return how the handler of a method is run."""
        return self.options.get(method, self._fallback_options)

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
        if not self.handlers.keys().isdisjoint(("resources/read", "resources/subscribe")):
            declared["resources"] = {"subscribe": True}
        for capability, told in self.capabilities.items():
            known = declared.get(capability)
            declared[capability] = (
                {**known, **told} if known and isinstance(told, Mapping) else told
            )
        return declared

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


def is_reserved(method: str) -> bool:
    """Whether the library answers a method itself, so that no application can."""
    return method in CORE_METHODS or method.startswith("rpc.")


def is_async(handler: Handler) -> bool:
    """Whether a handler is an async function, or an object that is called like one."""
    while isinstance(handler, partial):
        handler = handler.func
    return iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__)


def _check_spelling(method: str) -> None:
    if method in _KNOWN_METHODS or method.endswith(tuple(f"/{known}" for known in _KNOWN_METHODS)):
        return
    from difflib import get_close_matches  # few need it, and it takes a while to import

    alike = get_close_matches(method, (*_KNOWN_METHODS, *CORE_METHODS), n=1, cutoff=_ALIKE)
    if alike:
        raise LocalProtocolError(
            f"{method!r} is no method of MCP: did you mean {alike[0]!r}? A method of your own "
            "needs a name that cannot be mistaken, such as 'com.example/...'"
        )
