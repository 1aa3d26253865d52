"""The application of a server: its name, its capabilities, and the handler of each method.

An :class:`App` maps JSON-RPC methods to handlers and holds what ``initialize`` returns. It does not
depend on transports. The core never calls a handler; adapters do. ``sansmcp_tools`` makes handlers
of decorated functions, with schemas from their signatures.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial, wraps
from inspect import isawaitable, iscoroutinefunction
from types import NoneType
from typing import Any, Literal, TypeAlias, TypeVar, cast

import attrs

from .errors import (
    LocalProtocolError,
    check_delay,
    check_parameters,
    check_type,
    with_known_settings,
)
from .messages import Request
from .scopes import checked_scopes
from .types import Value, elide

Handler: TypeAlias = Callable[..., Any]
"""Takes the adapter's call object and returns the result.

An async function runs in the event loop of the adapter, a plain one in a thread; see
:meth:`App.handler`.

A result is JSON, any part of which can be a pydantic model, or :class:`~sansmcp.InputRequired` if
the handler needs input from the client first. A :class:`~sansmcp.errors.JsonRpcError` that it
raises is sent to the client. Any other exception becomes "Internal error", code -32603, and is
reported on the server only.
"""

TaskRule: TypeAlias = Literal["never", "optional", "required"] | float | None
"""When calls of a handler become tasks; see :meth:`App.handler`."""

Scopes: TypeAlias = Collection[str] | Callable[[Request], Collection[str]]
"""The scopes that a request needs, or a function of the request that returns them."""

MirroredHeaders: TypeAlias = Mapping[str, tuple[str, ...]]
"""The headers that repeat arguments of a tool, each with the path of its argument."""

NotificationHandler: TypeAlias = Callable[..., object]
"""Takes the :class:`~sansmcp.Peer` that sent a notification, and the Notification."""

_H = TypeVar("_H", bound=Handler)
_A = TypeVar("_A", bound=Callable[[Any], AbstractContextManager[Any]])
_N = TypeVar("_N", bound=NotificationHandler)

CORE_METHODS = frozenset(("initialize", "ping", "server/discover", "subscriptions/listen"))
"""The methods that the library handles; an application cannot register them."""

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
"""The methods of MCP and its extensions that an application can handle, at any revision."""

_LONGEST = 100
"""Characters of the methods in the ``repr`` of an App."""

_ALIKE = 0.8
"""From this ratio of :mod:`difflib` on, an unknown method counts as a typing error."""

_CAPABILITIES: Mapping[str, str] = {
    "tools/": "tools",
    "resources/": "resources",
    "prompts/": "prompts",
    "completion/": "completions",
    "logging/": "logging",
}


@attrs.frozen(kw_only=True, eq=False, repr=False)
class HandlerOptions(Value):
    """The options of a handler; see :meth:`App.handler`."""

    inline: bool | Callable[[Request], bool] = False
    """Run the handler where the server runs instead of a thread, or a function that returns this
    for a request; True for every async function.
    """
    stream_after: float | None = None
    """Seconds before a call of this handler gets an event stream; None: the server's setting."""
    task: TaskRule | Callable[[Any], TaskRule] = None
    """When a call of this handler becomes a task; None: the server's setting."""
    restartable: bool | Callable[[Request], bool] = False
    """True if another instance may call the handler of a task again if this one dies, or a function
    that returns this for a request. It does not raise.
    """
    scopes: tuple[str, ...] | Callable[[Request], Collection[str]] = ()
    """The scopes that a request for this handler needs, or a function that returns them."""

    def is_restartable(self, request: Request) -> bool:
        """True if another instance may call the handler again for this request."""
        rule = self.restartable
        return rule(request) if callable(rule) else rule


@attrs.define(eq=False)
class App:
    """The application of an MCP server: its name and its handlers.

    Args:
        name, version: the name and version of the server, sent to clients (``serverInfo``).
        instructions: a hint to the language model on how to use this server, or None.
        capabilities: capabilities beside those that follow from the handlers, e.g. ``{"tools":
            {"listChanged": True}}``. Registering a handler declares the capability of its method;
            ``resources/read`` also declares ``subscribe``, because the library handles
            subscriptions. Pass ``{"resources": {"subscribe": False}}`` if you never publish
            updates.
        input_schema: returns the input schema of a tool by its name, or None if there is no such
            tool. Needed only if schemas have ``x-mcp-header``, so that those headers can be
            checked.
        anonymous: omit name and version if the protocol does not require them (2026-07-28).
        title, description, icons, website_url: more for people about the server (``serverInfo``);
            None leaves them out. Icons are written as in the specification: ``{"src": ...,
            "mimeType": ..., "sizes": [...]}``. Clients get them when they connect.

    Raises:
        LocalProtocolError: an argument is of another type.
    """

    name: str
    version: str = "0"
    instructions: str | None = None
    capabilities: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    input_schema: Callable[[str], Mapping[str, Any] | None] | None = None
    anonymous: bool = False
    title: str | None = attrs.field(default=None, kw_only=True)
    description: str | None = attrs.field(default=None, kw_only=True)
    icons: Sequence[Mapping[str, Any]] | None = attrs.field(default=None, kw_only=True)
    website_url: str | None = attrs.field(default=None, kw_only=True)
    confirms_listeners: bool = attrs.field(default=False, init=False, repr=False)
    """True if the application acknowledges subscriptions to resources, on ListenReceived."""
    handlers: dict[str, Handler] = attrs.field(factory=dict[str, Handler], init=False)
    options: dict[str, HandlerOptions] = attrs.field(
        factory=dict[str, HandlerOptions], init=False, repr=False
    )
    _fallback: Handler | None = attrs.field(default=None, init=False, repr=False)
    _around: list[Callable[[Any], AbstractContextManager[Any]]] = attrs.field(
        factory=list[Callable[[Any], "AbstractContextManager[Any]"]], init=False, repr=False
    )
    """What makes the contexts of all handlers, the innermost first."""
    _fallback_options: HandlerOptions = attrs.field(factory=HandlerOptions, init=False, repr=False)
    _notified: dict[str | None, NotificationHandler] = attrs.field(
        factory=dict[str | None, NotificationHandler], init=False, repr=False
    )

    def __repr__(self) -> str:
        methods = ", ".join(self.handlers)
        if len(methods) > _LONGEST:
            methods = f"{methods[:_LONGEST]}..."
        about = f"{elide(self.name, 40)} {self.version}"
        return f"<{type(self).__name__} {about}: {methods or 'no handlers'}>"

    def __attrs_post_init__(self) -> None:
        check_type(str, name=self.name, version=self.version)
        check_type(
            (str, NoneType),
            instructions=self.instructions,
            title=self.title,
            description=self.description,
            website_url=self.website_url,
        )
        check_type((list, tuple, NoneType), icons=self.icons)
        for icon in self.icons or ():
            check_type(Mapping, icon=icon)
        check_type(Mapping, capabilities=self.capabilities)

    @with_known_settings("handler", "a handler")
    def handler(
        self,
        method: str,
        *,
        inline: bool | Callable[[Request], bool] = False,
        stream_after: float | None = None,
        task: TaskRule | Callable[[Any], TaskRule] = None,
        restartable: bool = False,
        scopes: Scopes = (),
    ) -> Callable[[_H], _H]:
        """Decorate the handler of a JSON-RPC method, such as ``"tools/call"``.

        Args:
            method: a method of MCP, or one of your own, such as ``"com.example/reindex"``.
            inline: run a plain function in the event loop, or in the thread that serves, which is
                faster than in a thread of its own. It must not block: while it runs, the server
                does nothing else. Methods of the call that wait are refused there. It has no
                effect on async functions. Or a function that returns this for a request, since one
                handler serves all tools: in an event loop it may also return an awaitable.
            stream_after: seconds after which a call without a response gets an event stream; None
                is the server's setting, see :class:`sansmcp.ServerOptions`.
            task: when a ``tools/call`` becomes a task, for clients that can follow one (2026-07-28
                with the extension): ``"never"``; ``"optional"``, after the server's setting
                ``task_after``; a number of seconds without a response, where 0 gives the client the
                id of the task at once; ``"required"``, as ``"optional"``, but a client that cannot
                follow tasks is refused, and the others always get a task. Or a function that
                returns one of these for a :class:`~sansmcp.ServerCall`, since one handler serves
                all tools. None is ``"optional"`` if the store outlives the process
                (``shared_store``), and the client asked for neither progress reports nor log
                messages, which end with the connection; else ``"never"``. A handler that is not
                ``"never"`` may also call ``become_task()``.
            restartable: what follows the last ``save_progress()`` may run twice. If the instance
                that runs a task dies, another one calls the handler again with the state that was
                saved, instead of ending the task with an error. For handlers that change nothing,
                or that notice a repetition.
            scopes: the scopes that the credentials of a request need, or a function of the request
                that returns them, e.g. ``lambda request: SCOPES[request.params["name"]]``. A
                request that lacks one is refused with status 403 before the handler is called. The
                function must not block; if it raises, the status is 500. Stdio has no credentials,
                and serves every request.

        Raises:
            LocalProtocolError: the library handles ``method`` itself, it has a handler, it looks
                like a misspelt method of MCP or is not a string, the handler is not callable,
                ``stream_after`` is negative, ``task`` is none of these, ``task`` or ``restartable``
                is given for another method than ``tools/call``, or a scope is malformed or
                ``offline_access``.

        Source: the extension io.modelcontextprotocol/tasks at 2026-07-28.
        """
        if not isinstance(cast(object, method), str):  # the decorator was not called
            raise LocalProtocolError("handler() needs a method: @app.handler('tools/call')")
        if is_reserved(method):
            raise LocalProtocolError(f"{method!r} takes no handler: sansmcp handles it itself")
        if method in self.handlers:
            raise LocalProtocolError(f"{method!r} already has a handler")
        _check_spelling(method)
        check_delay(stream_after=stream_after)
        if method != "tools/call" and (task is not None or restartable):
            raise LocalProtocolError(
                f"Only calls of 'tools/call' can become tasks; register {method!r} without task "
                "and restartable"
            )
        if not callable(task):
            check_task_rule(task)
        elif is_async(task):
            raise LocalProtocolError(f"task must not be an async function, got {task!r}; use def")
        needed = scopes if callable(scopes) else checked_scopes(scopes)

        def register(handler: _H) -> _H:
            if not callable(handler):
                raise LocalProtocolError(
                    f"The handler of {method!r} must be callable, got {handler!r}"
                )
            check_parameters(repr(method), handler, "call")
            handler_within: Handler = handler
            self.options[method] = HandlerOptions(
                inline=is_async(handler) or inline,
                stream_after=stream_after,
                task=task,
                restartable=restartable,
                scopes=needed,
            )
            for enter in self._around:
                handler_within = _within(enter, handler_within, is_mixed=callable(inline))
            self.handlers[method] = handler_within
            return handler

        return register

    def fallback(self, handler: _H, *, inline: bool = False, scopes: Scopes = ()) -> _H:
        """Decorate the handler of all requests whose method has no handler.

        ``call.method`` is the method. Gateways use it to forward requests. A fallback declares no
        capability, so pass those that it serves as ``capabilities``. ``inline`` and ``scopes`` are
        those of :meth:`handler`.

        Raises:
            LocalProtocolError: there is a fallback already, ``handler`` is not callable, or a scope
                is malformed or ``offline_access``.
        """
        if not callable(handler):
            raise LocalProtocolError(f"The fallback must be callable, got {handler!r}")
        if self._fallback is not None:
            raise LocalProtocolError("The app already has a fallback")
        check_parameters("all other methods", handler, "call")
        needed = scopes if callable(scopes) else checked_scopes(scopes)
        self._fallback = handler
        for enter in self._around:
            self._fallback = _within(enter, self._fallback)
        self._fallback_options = HandlerOptions(inline=inline or is_async(handler), scopes=needed)
        return handler

    def around(self, enter: _A) -> _A:
        """Decorate a function that makes a context manager, in which every handler runs.

        For what all handlers need, such as traces and logs; also for handlers that are registered
        later. The context that was registered last is the outermost.

        Args:
            enter: takes the call object of the handler, and returns a context manager, such as a
                function decorated with ``contextlib.contextmanager``. It is entered where the
                handler runs: in its task or thread. What it raises ends the call as if the handler
                had raised it.

        Raises:
            LocalProtocolError: ``enter`` is not callable.
        """
        if not callable(enter):
            raise LocalProtocolError(f"around() needs a function, got {enter!r}")
        for method, handler in self.handlers.items():
            is_mixed = callable(self.options[method].inline)
            self.handlers[method] = _within(enter, handler, is_mixed=is_mixed)
        if self._fallback is not None:
            self._fallback = _within(enter, self._fallback)
        self._around.append(enter)
        return enter

    def on_notification(self, method: str | None = None) -> Callable[[_N], _N]:
        """Decorate the handler of a notification of clients.

        The adapter calls it in place, while it drives the machine, so it must return soon and not
        wait. An exception that it raises is reported on the server only.

        Args:
            method: the notification, e.g. ``notifications/roots/list_changed``; None for all that
                have no handler. The library handles ``notifications/initialized``,
                ``notifications/cancelled`` and its own extensions itself.

        Raises:
            LocalProtocolError: the notification has a handler already, or the handler is not a
                plain function.
        """
        if method in self._notified:
            raise LocalProtocolError(f"The notification {method!r} already has a handler")

        def register(handler: _N) -> _N:
            if not callable(handler) or is_async(handler):
                raise LocalProtocolError(
                    f"The handler of a notification must be a plain function, got {handler!r}"
                )
            what = "all other notifications" if method is None else repr(method)
            check_parameters(what, handler, "peer", "notification")
            self._notified[method] = handler
            return handler

        return register

    def notification_handler_of(self, method: str) -> NotificationHandler | None:
        """Return the handler of a notification; None if there is none."""
        return self._notified.get(method, self._notified.get(None))

    def handler_of(self, method: str) -> Handler | None:
        """Return the handler of a method, or the fallback; None if there is none."""
        if method in self.handlers:
            return self.handlers[method]
        return None if is_reserved(method) else self._fallback

    def async_functions(self) -> list[str]:
        """Return what the handlers are for that are async functions, such as ``'tools/call'``.

        Servers without an event loop cannot run them. A subclass adds functions of its own.
        """
        found = [repr(method) for method, each in self.handlers.items() if is_async(each)]
        if self._fallback is not None and is_async(self._fallback):
            found.append("the fallback")
        return found

    def options_of(self, method: str) -> HandlerOptions:
        """Return the options of the handler of a method."""
        return self.options.get(method, self._fallback_options)

    def mirrored_headers(
        self, tool: str, search: Callable[[Mapping[str, Any]], MirroredHeaders]
    ) -> MirroredHeaders:
        """Return the headers that repeat arguments of a tool, each with the path of its argument.

        A subclass whose schemas do not change can keep them, so that no call searches again.

        Args:
            tool: the name of the tool.
            search: finds the headers in an input schema.

        Raises:
            ValueError: a definition breaks the rules; the text has the reason.
        """
        schema = None if self.input_schema is None else self.input_schema(tool)
        return {} if schema is None else search(schema)

    def scopes_of(self, request: Request) -> tuple[str, ...]:
        """Return the scopes that a request needs. Raises what the application's function raises."""
        scopes = self.options_of(request.method).scopes
        if not scopes or self.handler_of(request.method) is None:
            return ()
        return checked_scopes(scopes(request)) if callable(scopes) else scopes

    def is_inline(self, request: Request) -> bool:
        """True if a request is for the event loop. Raises what the application's function does."""
        inline = self.options_of(request.method).inline
        return inline(request) if callable(inline) else inline

    @property
    def server_info(self) -> dict[str, Any]:
        """The value of ``serverInfo`` for a client that connects."""
        more = {
            "title": self.title,
            "description": self.description,
            "icons": self.icons,
            "websiteUrl": self.website_url,
        }
        return self.identity | {name: value for name, value in more.items() if value is not None}

    @property
    def identity(self) -> dict[str, Any]:
        """Name and version: the value of ``serverInfo`` in all other results of 2026-07-28."""
        return {"name": self.name, "version": self.version}

    def declared_capabilities(self) -> dict[str, Any]:
        """Return the capabilities of the handlers, updated with those that were passed."""
        declared: dict[str, Any] = {
            capability: {}
            for prefix, capability in _CAPABILITIES.items()
            if any(method.startswith(prefix) for method in self.handlers)
        }
        if not self.handlers.keys().isdisjoint(("resources/read", "resources/subscribe")):
            declared["resources"] = {"subscribe": True}
        for capability, passed in self.capabilities.items():
            known = declared.get(capability)
            declared[capability] = (
                {**known, **passed} if known and isinstance(passed, Mapping) else passed
            )
        return declared

    def initialize_result(self, version: str) -> dict[str, Any]:
        """Return the result of ``initialize`` for a negotiated version."""
        result: dict[str, Any] = {
            "protocolVersion": version,
            "capabilities": self.declared_capabilities(),
            "serverInfo": self.server_info,
        }
        if self.instructions is not None:
            result["instructions"] = self.instructions
        return result


def check_task_rule(rule: TaskRule) -> None:
    """Raise LocalProtocolError if ``task`` is not a rule."""
    if isinstance(rule, str) and rule in ("never", "optional", "required"):
        return
    if isinstance(rule, str):
        raise LocalProtocolError(
            f"task must be 'never', 'optional', 'required' or a number of seconds, got {rule!r}"
        )
    check_delay(task=rule)


def is_reserved(method: str) -> bool:
    """True if the library handles a method itself, so that an application cannot."""
    return method in CORE_METHODS or method.startswith("rpc.")


def is_async(handler: Handler) -> bool:
    """True if a handler is an async function, or an object with an async ``__call__``."""
    while isinstance(handler, partial):
        handler = handler.func
    return iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__)


def _within(
    enter: Callable[[Any], AbstractContextManager[Any]], handler: Handler, *, is_mixed: bool = False
) -> Handler:
    """Return a handler that runs within a context; async if the handler is.

    ``is_mixed``: in an event loop, the handler returns an awaitable for some calls.
    """

    @wraps(handler)
    async def call_async(call: Any) -> Any:
        with enter(call):
            result: Any = handler(call)
            return (await result) if isawaitable(result) else result

    @wraps(handler)
    def call_plain(call: Any) -> Any:
        if is_mixed and not call.is_blocking:
            return call_async(call)
        with enter(call):
            return handler(call)

    return call_async if is_async(handler) else call_plain


def _check_spelling(method: str) -> None:
    if method in _KNOWN_METHODS or method.endswith(tuple(f"/{known}" for known in _KNOWN_METHODS)):
        return
    from difflib import get_close_matches  # rarely needed, and slow to import

    alike = get_close_matches(method, (*_KNOWN_METHODS, *CORE_METHODS), n=1, cutoff=_ALIKE)
    if alike:
        raise LocalProtocolError(
            f"{method!r} is not a method of MCP: did you mean {alike[0]!r}? Give a method of your "
            "own a name that is less similar, such as 'com.example/...'"
        )
