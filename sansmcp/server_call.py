"""The interfaces of a call and of its client, as events hand them to the application.

They are implemented in ``sansmcp.server.calls`` and ``sansmcp.server.legacy.sessions``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from .http import RequestHeaders
from .input_required import HandlerInput, InputRequired
from .messages import Params, Request
from .revisions import Revision
from .states import CallState, SessionState
from .types import Secret


class Peer(ABC):
    """The client that sent a request: its principal, revision, name and capabilities.

    Attributes:
        principal: the authenticated user; empty without authentication.
        revision: the protocol revision of the request.
        client_info: name and version of the client; empty if the client sent none.
        client_capabilities: the capabilities that the client declared.
    """

    __slots__ = ()

    principal: str
    revision: Revision
    client_info: Mapping[str, Any]
    client_capabilities: Mapping[str, Any]

    @abstractmethod
    def notify(self, method: str, params: Params | None = None, *, now: float) -> bool:
        """Send a notification that belongs to no call, on the session's standalone stream.

        If several instances share the session, it goes to a stream that was opened at this one.

        Args:
            method: the method of the notification.
            params: its parameters, a JSON object; None sends none.
            now: the current time in seconds, on the machine's clock.

        Returns:
            False if the notification is lost: the client has no session, or no open stream and no
            store that keeps it, or the store or the client is too far behind.

        Raises:
            LocalProtocolError: the parameters are not JSON.

        Pull the server's effects afterwards.
        """


class Session(Peer):
    """The session of a client of a handshake revision, from ``initialize`` to its end.

    On Streamable HTTP a session is identified by ``id``. With ``sessions=False`` a session has no
    id and lasts for one request. On stdio and HTTP+SSE it lasts as long as the channel.

    Attributes:
        id: the value of ``Mcp-Session-Id``; None where this header is not used.
        state: ``OPENING`` until ``notifications/initialized`` arrives, then ``READY``; ``ENDED``
            at the end.
        subscriptions: the URIs of the resources that the client subscribed to, at this instance.

    Source: 2025-03-26 to 2025-11-25, basic/transports, Session Management.
    """

    __slots__ = ()

    id: Secret | None
    state: SessionState
    subscriptions: set[str]


class ListenRequest(ABC):
    """A ``subscriptions/listen`` that waits for its acknowledgement.

    Attributes:
        uris: the resources that the client names.

    Source: 2026-07-28 basic/utilities/subscriptions.
    """

    __slots__ = ()

    uris: tuple[str, ...]

    @abstractmethod
    def acknowledge(self, uris: Collection[str], *, now: float) -> bool:
        """Begin the subscription.

        Args:
            uris: those of the resources of whose changes the client will be told.
            now: the current time in seconds, on the machine's clock.

        Returns:
            False if it had begun before, or the client has left.

        Pull the server's effects afterwards.
        """


class ServerCall(ABC):
    """A request of a client that a handler works on.

    A call ends once: with a response, an error, or a cancellation. Methods called after the end
    return False, except for ``ask()``, which raises LocalProtocolError.

    Every method that takes ``now`` changes the machine. Pull the server's effects afterwards.

    Attributes:
        request: the request, unchanged.
        handler_input: the input responses and the saved state that the handler gets. They are empty
            when a handler is first called; after InputRequired they hold what the client sent.
        rounds: how many rounds of input requests there were so far. At 2026-07-28 each round is
            a call of its own, and this stays 0.
        state: ``RUNNING``, ``ANSWERED`` or ``CANCELLED``.
        driver: any object of the driver, to find its own data when an event names this call.
    """

    __slots__ = ()

    request: Request
    handler_input: HandlerInput
    rounds: int
    state: CallState
    driver: Any

    @property
    @abstractmethod
    def peer(self) -> Peer:
        """The client that sent the request."""

    @property
    @abstractmethod
    def headers(self) -> RequestHeaders:
        """The headers of the HTTP request that carried this call; empty on stdio.

        On HTTP+SSE these are the headers of the GET that opened the event stream, but those of its
        own POST if the call has a key (``sansmcp/reclaim``).
        """

    @property
    @abstractmethod
    def scopes(self) -> frozenset[str]:
        """The scopes of the credentials of that HTTP request; none on stdio."""

    @property
    @abstractmethod
    def client(self) -> str:
        """A name for the client of that HTTP request: its principal, or its address without one.

        It is empty if neither is known, and on stdio and HTTP+SSE.
        """

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """True until the call was answered or cancelled."""

    @property
    @abstractmethod
    def is_above_high_water(self) -> bool:
        """True if the store or the client is behind: wait until it is False, then send more."""

    @property
    @abstractmethod
    def is_connected(self) -> bool:
        """True if the call is running and there is a connection for messages to the client.

        Without one they wait until the client resumes the stream, or are lost.
        """

    @property
    @abstractmethod
    def is_task(self) -> bool:
        """True if the call is a task, and its client has the handle: no connection is needed."""

    @abstractmethod
    def become_task(self, *, now: float) -> bool:
        """Make the call a task, if that is possible.

        The client gets the handle when the store has the task; ``is_above_high_water`` is True
        until then. If the store fails, the call goes on as before.

        Args:
            now: the current time in seconds, on the machine's clock.

        Returns:
            False, with nothing changed, if the call has ended or cannot become a task: its client
            cannot follow tasks, its handler was registered with ``task="never"``, or there is no
            store.

        Source: the extension io.modelcontextprotocol/tasks at 2026-07-28.
        """

    @abstractmethod
    def save_progress(self, state: Any, *, now: float) -> bool:
        """Save the state with which another instance calls the handler again if this one dies.

        ``handler_input.state`` has it then. ``is_above_high_water`` is True until the store has it.

        Args:
            state: any JSON value.
            now: the current time in seconds, on the machine's clock.

        Returns:
            False if the call is no task; should it become one, the state is saved then.

        Raises:
            LocalProtocolError: the handler was registered without ``restartable=True``, or
                ``state`` is not JSON. Nothing has changed.
        """

    @abstractmethod
    def respond(self, result: Any | InputRequired, *, now: float) -> bool:
        """Send the result, or ask the client for input with InputRequired.

        If the client lacks a capability that the input requests need, it gets an error instead.

        Args:
            result: a JSON object; the handshake revisions allow any JSON value. After InputRequired
                CallReceived reports the request again when the input responses are there, with this
                ServerCall or a new one.
            now: the current time in seconds, on the machine's clock.

        Returns:
            False if the call had ended before, or the response can no longer reach the client.

        Raises:
            LocalProtocolError: the result is not JSON, or not allowed at this revision; or
                InputRequired is not possible for this request, exceeds ``Limits.max_rounds``, or
                has more input requests than ``Limits.max_batch_messages``.
        """

    @abstractmethod
    def respond_error(self, code: int, message: str, data: Any = None, *, now: float) -> bool:
        """Send a JSON-RPC error.

        Args:
            code: the error code. One that the revision has retired is replaced by its successor.
            message: a short text for the client.
            data: any JSON value; None sends none.
            now: the current time in seconds, on the machine's clock.

        Returns:
            False as ``respond()`` does.

        Raises:
            LocalProtocolError: ``data`` is not JSON. Nothing has changed.
        """

    @abstractmethod
    def refuse_busy(self, *, now: float) -> bool:
        """Refuse the call, because too much runs already; say so only if nothing was run for it.

        The HTTP response, if it has not begun, has status 503 and ``Retry-After``: clients may
        repeat the call then.

        Args:
            now: the current time in seconds, on the machine's clock.

        Returns:
            False as ``respond()`` does.
        """

    @abstractmethod
    def respond_exception(self, error: Exception, *, now: float) -> bool:
        """Send the JSON-RPC error for an exception that a handler raised.

        Args:
            error: the exception; ``sansmcp.errors.error_response()`` chooses code and text.
            now: the current time in seconds, on the machine's clock.

        Returns:
            False as ``respond()`` does.

        Raises:
            LocalProtocolError: as ``respond_error()`` does.
        """

    @abstractmethod
    def notify(self, method: str, params: Params | None = None, *, now: float) -> bool:
        """Send a notification that belongs to this call, before its response.

        Args:
            method: the method of the notification.
            params: its parameters, a JSON object; None sends none.
            now: the current time in seconds, on the machine's clock.

        Returns:
            False if it is lost, if the call has ended, or, for a log message at 2026-07-28, if the
            client did not ask for messages of this level.

        Raises:
            LocalProtocolError: the parameters are not JSON. Nothing has changed.
        """

    @abstractmethod
    def progress(
        self,
        progress: float,
        total: float | None = None,
        message: str | None = None,
        *,
        now: float,
    ) -> bool:
        """Report progress, if the client sent a progress token.

        Args:
            progress: how far the work is; must increase with every report.
            total: the value of ``progress`` at the end; None if it is unknown.
            message: a text for the user; None sends none.
            now: the current time in seconds, on the machine's clock.

        Returns:
            False if the client sent no token, the report is lost, or the call has ended.

        Raises:
            LocalProtocolError: ``progress`` does not increase, or an argument is not JSON.

        Source: 2024-11-05 to 2026-07-28, basic/utilities/progress.
        """

    @abstractmethod
    def ask(self, method: str, params: Params | None = None, *, timeout: float, now: float) -> int:
        """Send a server request on this call's stream.

        ClientResponseReceived reports the response, or the error that ended the wait, after
        ``timeout`` seconds at the latest.

        Args:
            method: the method of the server request, such as ``sampling/createMessage``.
            params: its parameters, a JSON object; None sends none.
            timeout: seconds to wait for the response; ``math.inf`` for no limit.
            now: the current time in seconds, on the machine's clock.

        Returns:
            The JSON-RPC id of the server request.

        Raises:
            RequestCancelled: the call is cancelled, or another instance has taken it over.
            LocalProtocolError: the call is answered; the client has disconnected, has not declared
                the capability, or takes no server requests (at 2026-07-28, and without a session);
                or an argument is not valid. Nothing has changed.
        """

    @abstractmethod
    def withdraw(self, id: int, reason: str, *, now: float) -> bool:
        """Withdraw a server request: the client gets its cancellation, and a response is ignored.

        ClientResponseReceived does not report it.

        Args:
            id: what :meth:`ask` returned.
            reason: a text for the client's log.
            now: the current time in seconds, on the machine's clock.

        Returns:
            False, with nothing changed, if the server request has ended.

        Source: 2024-11-05 to 2025-11-25, basic/utilities/cancellation.
        """

    @abstractmethod
    def disconnect(self, *, retry: float | None = None, now: float) -> bool:
        """Close this call's connection and let the client poll for the rest.

        The handler keeps running. Messages it sends meanwhile are stored, and replayed when the
        client reconnects with ``Last-Event-ID``.

        Args:
            retry: seconds the client should wait before it reconnects, sent as the SSE ``retry``
                field. None leaves the wait to the client.
            now: the current time in seconds, on the machine's clock.

        Returns:
            False, with nothing changed, if the client could not resume: the call has ended, there
            is no store, the revision is not 2025-11-25, or the transport has one stream for all
            messages.

        Raises:
            LocalProtocolError: ``retry`` is negative, infinite or NaN. Nothing has changed.

        Source: SEP-1699; 2025-11-25, basic/transports, Sending Messages to the Server.
        """
