"""The methods of a call in a handler, the same in every adapter.

Only the way of waiting differs between adapters. So the methods are written once, without waiting:
each returns what the adapter's own method returns, an awaitable in an asynchronous adapter, the
value in a blocking one. ``Result`` is the type in which an adapter returns a JSON result, ``Done``
the type in which it returns nothing. This is apart from :mod:`.base_client`, so that a client
program does not import the server, and a server not the client.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from .base_client import Done
from .errors import LocalProtocolError
from .http import RequestHeaders
from .messages import Params, RequestId
from .meta_keys import LEVELS, LOG_MESSAGE
from .revisions import Revision
from .server_call import Peer, ServerCall
from .types import elide, shown_call

Result = TypeVar("Result")


class PeerHandle(Generic[Done]):
    """The client that made a call, for its handler.

    The handles of all calls of one session are equal. A handle stays usable after its call has
    ended.
    """

    def __init__(self, call: BaseCall[Any, Done], caller: Peer) -> None:
        self._call = call
        self._caller = caller

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PeerHandle) and other._caller is self._caller

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
        """Name and version of the client; empty if it has not sent them."""
        return self._caller.client_info

    @property
    def client_capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the client has declared."""
        return self._caller.client_capabilities

    def notify(self, method: str, params: Params | None = None) -> Done:
        """Send a notification that belongs to no call, on the session's standalone stream.

        If there is a store, it keeps the notification for a client that is not connected to that
        stream. Clients of 2026-07-28 have no session; use ``publish()`` for them.

        Raises:
            LocalProtocolError: the parameters are not JSON.
        """
        return self._call.notify_peer(method, params)


class BaseCall(abc.ABC, Generic[Result, Done]):
    """The argument of a handler: the request, and methods to send messages to the client.

    A handler returns the result or InputRequired, or raises JsonRpcError. If the client cancels the
    call, the adapter cancels the handler.
    """

    is_blocking: ClassVar[bool] = False
    """True if the methods block, because the handler runs in a thread."""

    def __init__(self, call: ServerCall) -> None:
        self._call = call

    def __repr__(self) -> str:
        what = shown_call(self.method, self.params)
        return f"<{type(self).__name__} {what} {elide(self.request_id)}>"

    @property
    def method(self) -> str:
        """The method of the request."""
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
    def peer(self) -> PeerHandle[Done]:
        """The client that made the request: principal, revision, client info, capabilities."""
        return PeerHandle(self, self._call.peer)

    @property
    def headers(self) -> RequestHeaders:
        """The headers of the HTTP request, by their names in lower case; none on stdio.

        On HTTP+SSE they are those of the request that opened the event stream.
        """
        return self._call.headers

    @property
    def principal(self) -> str:
        """The authenticated user who made the request; empty without authentication."""
        return self._call.peer.principal

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that the request has; none without authentication, and on stdio.

        On HTTP+SSE they are those of the request that opened the event stream.
        """
        return self._call.scopes

    @property
    def input_responses(self) -> Mapping[str, Any]:
        """The input responses, by the names that InputRequired gave the requests; empty before."""
        return self._call.handler_input.input_responses

    @property
    def saved_state(self) -> Any:
        """The state of the InputRequired that the handler returned last; None before the first."""
        return self._call.handler_input.state

    @property
    def is_task(self) -> bool:
        """True if the call is a task: its client has the id, and no connection is needed."""
        return self._call.is_task

    def become_task(self) -> Done:
        """Make the call a task, and wait until the client has its id or the store has failed.

        ``is_task`` tells if it is one then. Nothing happens if the client cannot follow tasks, or
        the handler was registered with ``task="never"``, or without ``task`` and the store does not
        outlive the process.

        Source: the extension io.modelcontextprotocol/tasks at 2026-07-28.
        """
        self._call.become_task(now=self.now())
        return self.run_pending()

    def save_progress(self, state: Any) -> Done:
        """Save a state, and wait until the store has it.

        What follows may run twice: if this instance dies, another one calls the handler again with
        that state as ``saved_state``. Nothing is saved before the call is a task. In a tool of
        :mod:`sansmcp_tools` call the method of its context instead.

        Args:
            state: any JSON value.

        Raises:
            LocalProtocolError: the handler was registered without ``restartable=True``, or
                ``state`` is not JSON.
        """
        self._call.save_progress(state, now=self.now())
        return self.run_pending()

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> Done:
        """Report progress to the client if it asked for progress reports; else do nothing.

        Args:
            progress: the progress so far; it must increase with every report.
            total: the value of ``progress`` at the end; None if it is not known.
            message: a text for the user; None for none.

        Raises:
            LocalProtocolError: ``progress`` does not increase, or an argument is not JSON.
        """
        self._call.progress(progress, total, message, now=self.now())
        return self.run_pending()

    def log(self, level: str, data: Any, *, logger: str | None = None) -> Done:
        """Send a log message that belongs to this call.

        At 2026-07-28 only a client that asked for messages of this level gets it. Before, a client
        may set a level with ``logging/setLevel``; that is for the application to handle.
        ``sansmcp_telemetry.send_logs()`` does both for the ``logging`` module.

        Args:
            level: ``"debug"``, ``"info"``, ``"notice"``, ``"warning"``, ``"error"``,
                ``"critical"``, ``"alert"`` or ``"emergency"``.
            data: the message, any JSON value.
            logger: the name of its source; None for none.

        Raises:
            LocalProtocolError: ``level`` is none of these, or ``data`` is not JSON.
        """
        if level not in LEVELS:
            raise LocalProtocolError(f"level must be one of {', '.join(LEVELS)}, got {level!r}")
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        return self.notify(LOG_MESSAGE, params)

    def notify(self, method: str, params: Params | None = None) -> Done:
        """Send a notification that belongs to this call, on its stream.

        Raises:
            LocalProtocolError: the parameters are not JSON.
        """
        self._call.notify(method, params, now=self.now())
        return self.run_pending()

    def notify_peer(self, method: str, params: Params | None = None) -> Done:
        """Send a notification that belongs to no call; see :meth:`PeerHandle.notify`."""
        self._call.peer.notify(method, params, now=self.now())
        return self.run_pending()

    def disconnect(self, *, retry: float | None = None) -> Done:
        """Close this call's connection and make the client poll for the rest.

        The handler keeps running. Messages that it sends meanwhile are stored, and replayed when
        the client reconnects. Nothing happens if the client could not resume: without a store, at
        any revision except 2025-11-25, and on stdio and HTTP+SSE.

        Args:
            retry: seconds the client should wait before it reconnects; None leaves it to the
                client.

        Raises:
            LocalProtocolError: ``retry`` is not a finite number of seconds, zero or above.

        Source: SEP-1699.
        """
        self._call.disconnect(retry=retry, now=self.now())
        return self.run_pending()

    def ask(self, method: str, params: Params | None = None, *, timeout: float = 300.0) -> Result:
        """Send a server request, such as ``elicitation/create``, and return the client's result.

        Args:
            method, params: the JSON-RPC request.
            timeout: seconds to wait for the response.

        Raises:
            LocalProtocolError: the request cannot be sent; :meth:`sansmcp.ServerCall.ask` lists
                the reasons.
            JsonRpcError: the client sent an error response.
            RequestTimeout: no response arrived within ``timeout`` seconds.
            RequestCancelled: the call is cancelled, or has ended meanwhile.
        """
        return self.wait_for_answer(self._call.ask(method, params, timeout=timeout, now=self.now()))

    @abc.abstractmethod
    def wait_for_answer(self, id: int) -> Result:
        """Wait for the response to server request ``id``; return its result or raise its error."""

    @abc.abstractmethod
    def now(self) -> float:
        """Return the time of the adapter's clock, in seconds."""

    @abc.abstractmethod
    def run_pending(self) -> Done:
        """Perform the effects, and wait while the call is above its high-water mark."""
