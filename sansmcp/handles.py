"""What applications hold in their hands: the methods of a client, and of a call in a handler.

Every adapter offers the same methods; only the way of waiting differs. So they are written once,
without waiting: each says what it wants and returns what the adapter's own method returns, an
awaitable in an asynchronous adapter, the value in a blocking one. ``Result`` is how an adapter
gives a JSON result, ``Done`` how it gives nothing.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import attrs

from .codecs import json
from .errors import LocalProtocolError
from .events import Connected, ProgressReceived
from .http import RequestHeaders
from .messages import Params, RequestId
from .revisions import REVISIONS, Revision
from .types import Era, elide

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .client.options import CallOptions
    from .server.calls import Call, Caller

Result = TypeVar("Result")
Done = TypeVar("Done")

OnProgress: TypeAlias = Callable[[ProgressReceived], Done | None]
"""Called with each progress report of a call, in order.

In an asynchronous adapter it may be an async function: the method that has made the call awaits it,
and returns when all reports are dealt with. A plain function runs in the event loop and must not
block. What it raises ends the call, and is raised by the method that has made the call.
"""


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


class Promise:
    """A result that comes later. Delivered once; later deliveries change nothing.

    How to wait for it is up to the adapter.
    """

    def __init__(self) -> None:
        self.is_delivered = False
        self._value: Any = None
        self._error: Exception | None = None

    def deliver(self, value: Any = None, error: Exception | None = None) -> None:
        """Give the value, or an exception instead."""
        if not self.is_delivered:
            self.is_delivered, self._value, self._error = True, value, error

    def get(self) -> Any:
        """Return the value or raise the exception; it has been delivered."""
        if self._error is not None:
            raise self._error
        return self._value


class ClientHandle(abc.ABC, Generic[Result, Done]):
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
        """Send a notification; the event NotDelivered tells if it did not arrive.

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


class SessionHandle(Generic[Done]):
    """The client of a call, for its handler. Equal for all calls of one session.

    What a handler tells it may be told after the call has ended, too.
    """

    def __init__(self, call: CallHandle[Any, Done], caller: Caller) -> None:
        self._call = call
        self._caller = caller

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SessionHandle) and other._caller is self._caller

    def __hash__(self) -> int:
        return hash(self._caller)

    def __repr__(self) -> str:
        return repr(self._caller)

    @property
    def principal(self) -> str:
        """The authenticated user; empty without authentication."""
        return self._caller.principal

    @property
    def revision(self) -> Revision:
        """The protocol revision of its requests."""
        return self._caller.revision

    @property
    def client_info(self) -> Mapping[str, Any]:
        """Name and version of the client; empty if it has not told."""
        return self._caller.client_info

    @property
    def client_capabilities(self) -> Mapping[str, Any]:
        """What the client has declared that it can do."""
        return self._caller.client_capabilities

    def notify(self, method: str, params: Params | None = None) -> Done:
        """Send a notification that belongs to no call, on the session's standalone stream.

        It is kept for a client that is not listening just now, where there is a store. Clients of
        2026-07-28 have no session, and are told by ``publish()`` only. Raises LocalProtocolError if
        the parameters are not JSON.
        """
        return self._call.notify_session(method, params)


class CallHandle(abc.ABC, Generic[Result, Done]):
    """What a handler gets: the request, and the ways to talk to the client while working on it.

    A handler returns the result, or InputRequired, or raises JsonRpcError. When the client cancels,
    the handler is cancelled in the manner of its adapter.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def method(self) -> str:
        """The method that is asked for."""
        return self._call.request.method

    @property
    def params(self) -> Params:
        """The parameters; empty if there are none."""
        return self._call.request.params or {}

    @property
    def request_id(self) -> RequestId:
        """The client's id of the request."""
        return self._call.request.id

    @property
    def session(self) -> SessionHandle[Done]:
        """The client that makes the request: principal, revision, client info, capabilities."""
        return SessionHandle(self, self._call.session)

    @property
    def headers(self) -> RequestHeaders:
        """The headers of the HTTP request, by their names in lower case; none on stdio.

        On HTTP+SSE they are those of the request that opened the event stream.
        """
        return self._call.headers

    @property
    def answers(self) -> Mapping[str, Any]:
        """What the client answered to the questions of an InputRequired, by their names."""
        return self._call.turn.answers

    @property
    def saved_state(self) -> Any:
        """The state of that InputRequired; None the first time."""
        return self._call.turn.state

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> Done:
        """Report progress, if the client asked for it.

        Raises LocalProtocolError if ``progress`` does not grow.
        """
        self._call.progress(progress, total, message, now=self.now())
        return self.settle()

    def notify(self, method: str, params: Params | None = None) -> Done:
        """Send a notification that has to do with this request.

        Raises LocalProtocolError if the parameters are not JSON.
        """
        self._call.notify(method, params, now=self.now())
        return self.settle()

    def notify_session(self, method: str, params: Params | None = None) -> Done:
        """Send a notification that belongs to no call; ``call.session.notify()`` does it."""
        self._call.session.notify(method, params, now=self.now())
        return self.settle()

    def disconnect(self, *, retry: float | None = None) -> Done:
        """Let the client go, and come back after ``retry`` seconds for the rest (SEP-1699).

        Nothing happens where the client could not come back: without a store, at any revision but
        2025-11-25, and on stdio and HTTP+SSE. Raises LocalProtocolError for a time that is none.
        """
        self._call.disconnect(retry=retry, now=self.now())
        return self.settle()

    def ask(self, method: str, params: Params | None = None, *, timeout: float = 300.0) -> Result:
        """Ask the client something, such as ``elicitation/create``; returns its result.

        Raises LocalProtocolError if the client cannot be asked this (:meth:`sansmcp.Call.ask` says
        why), JsonRpcError for its error, RequestTimeout if it does not answer in ``timeout``
        seconds, and RequestCancelled if the call ends meanwhile.
        """
        return self.wait_for_answer(self._call.ask(method, params, timeout=timeout, now=self.now()))

    @abc.abstractmethod
    def wait_for_answer(self, id: int) -> Result:
        """Wait for the client's answer to a question, and give or raise what it brings."""

    @abc.abstractmethod
    def now(self) -> float:
        """The adapter's clock."""

    @abc.abstractmethod
    def settle(self) -> Done:
        """Perform the effects, and wait until there is room for more."""


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
