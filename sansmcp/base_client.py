"""The methods of a connected client, the same in every adapter.

Only the way of waiting differs between adapters. So the methods are written once, without waiting:
each returns what the adapter's own method returns, an awaitable in an asynchronous adapter, the
value in a blocking one. ``Result`` is the type in which an adapter returns a JSON result, ``Done``
the type in which it returns nothing. :mod:`.base_call` does the same for calls in a handler.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar

import attrs

from .codecs import json
from .errors import LocalProtocolError
from .events import Connected, ProgressReceived
from .messages import Params, RequestId
from .revisions import REVISIONS
from .types import Era, Unpack, elide

Result = TypeVar("Result")
Done = TypeVar("Done")

OnProgress: TypeAlias = Callable[[ProgressReceived], Done | None]
"""Called with each progress report of a call, in order.

In an asynchronous adapter it may be an async function: the method that has made the call awaits it,
and returns when all reports are dealt with. A plain function runs in the event loop and must not
block. What it raises ends the call, and is raised by the method that has made the call.
"""


class CallOptions(TypedDict, total=False):
    """The options of :meth:`sansmcp.Client.call`, which explains them, for adapters."""

    timeout: float | None
    total_timeout: float | None
    reset_on_progress: bool
    idempotent: bool | None
    meta: Mapping[str, Any] | None


@attrs.frozen
class OriginatingCall:
    """A call of this client within which the server asks something."""

    handle: int
    """What :meth:`sansmcp.Client.call` returned."""
    method: str
    params: Params
    """The parameters that the application gave; empty if there were none."""


@attrs.frozen
class ServerRequest:
    """A request of the server, such as ``elicitation/create``: what a function of ``answers`` gets.

    The function returns the result, a JSON object, or raises JsonRpcError.
    """

    id: RequestId = attrs.field(repr=False)
    method: str
    params: Params = attrs.field(repr=elide)
    """The parameters; empty if there are none."""
    call: OriginatingCall | None
    """The call within which the server asks. None if the transport does not tell: on stdio and
    HTTP+SSE before 2026-07-28, and for what comes on the standalone stream.
    """

    @property
    def meta(self) -> Mapping[str, Any]:
        """``_meta`` of the parameters; empty if there is none."""
        return json.as_object(self.params.get("_meta")) or {}


class PendingResult:
    """A result that comes later. Delivered once; later deliveries change nothing.

    How to wait for it is up to the adapter.
    """

    def __init__(self) -> None:
        self.is_done = False
        self._value: Any = None
        self._error: Exception | None = None

    def set_result(self, value: Any = None) -> None:
        """Give the value."""
        self._complete(value, None)

    def set_exception(self, error: Exception) -> None:
        """Give an exception instead of a value."""
        self._complete(None, error)

    def _complete(self, value: Any, error: Exception | None) -> None:
        if not self.is_done:
            self.is_done, self._value, self._error = True, value, error

    def result(self) -> Any:
        """Return the value or raise the exception; it has been delivered."""
        if self._error is not None:
            raise self._error
        return self._value


class BaseClient(abc.ABC, Generic[Result, Done]):
    """The methods of a connected client.

    Everything that asks the server raises :class:`~sansmcp.errors.CallError` when there is no
    result: JsonRpcError for the server's own errors, RequestTimeout, Disconnected, SessionLost,
    RequestRefused and others for what else can happen; and LocalProtocolError for what cannot be
    asked (see :meth:`sansmcp.Client.call`). Results are plain JSON values.
    """

    connected: Connected
    """What the handshake brought: version, server info, capabilities, instructions."""

    @abc.abstractmethod
    def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[Done] | None = None,
        **options: Unpack[CallOptions],
    ) -> Result:
        """Make any request.

        Args:
            method, params: the JSON-RPC request.
            on_progress: a function that is called with each progress report, in order; in an
                asynchronous adapter it may be async. What it raises ends the call.
            options: ``timeout`` (seconds without an answer and without progress), ``total_timeout``
                (seconds in all), ``reset_on_progress``, ``idempotent`` (the request may be made
                again when its outcome is unknown), and ``meta`` (further members of ``_meta``); see
                :meth:`sansmcp.Client.call`.
        """

    @abc.abstractmethod
    def notify(
        self, method: str, params: Params | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> Done:
        """Send a notification; the event MessageUndelivered tells if it did not arrive.

        ``meta``: further members of ``_meta``.
        """

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[Done] | None = None,
        **options: Unpack[CallOptions],
    ) -> Result:
        """Call a tool; the options are those of :meth:`call`.

        A result with ``isError`` true is a result: the tool ran, and failed.
        """
        params = {"name": name, "arguments": _object(arguments)}
        return self.call("tools/call", params, on_progress=on_progress, **options)

    def list_tools(self, cursor: str | None = None) -> Result:
        """One page of tools; ``nextCursor`` of the result, if there is one, gets the next."""
        return self.call("tools/list", _page(cursor))

    def list_resources(self, cursor: str | None = None) -> Result:
        """One page of resources."""
        return self.call("resources/list", _page(cursor))

    def list_resource_templates(self, cursor: str | None = None) -> Result:
        """One page of resource templates."""
        return self.call("resources/templates/list", _page(cursor))

    def read_resource(self, uri: str) -> Result:
        """The contents of a resource."""
        return self.call("resources/read", {"uri": uri})

    def list_prompts(self, cursor: str | None = None) -> Result:
        """One page of prompts."""
        return self.call("prompts/list", _page(cursor))

    def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> Result:
        """A prompt, filled in."""
        return self.call("prompts/get", {"name": name, "arguments": _object(arguments)})

    def ping(self, **options: Unpack[CallOptions]) -> Result:
        """Ask for a sign of life; what the result says does not matter.

        The stateless revisions have no ``ping``: there the server is asked what it speaks.
        """
        is_modern = REVISIONS[self.connected.version].era is Era.MODERN
        return self.call("server/discover" if is_modern else "ping", **options)


def _object(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the arguments of a tool or prompt as a dict.

    Raises LocalProtocolError for what is no mapping.
    """
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(arguments).__name__
        raise LocalProtocolError(
            f"arguments must be a mapping from names to values, such as {{'text': 'hello'}}, got "
            f"{kind}"
        )
    return dict(arguments)


def _page(cursor: str | None) -> Params | None:
    return None if cursor is None else {"cursor": cursor}
