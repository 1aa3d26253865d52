"""A request that a server works on, and the client it is from, as applications hold them.

Events name them. What the machine does with them is in :mod:`sansmcp.server.calls`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from .http import RequestHeaders
from .input_required import HandlerInput, InputRequired
from .messages import Params, Request
from .revisions import Revision
from .states import CallState, SessionState
from .types import Secret


class Peer(ABC):
    """The client that sent a request, as far as the request tells.

    Attributes:
        principal: the authenticated user; empty without authentication.
        revision: the protocol revision of the request.
        client_info: name and version of the client; empty if it has not told.
        client_capabilities: what the client has declared that it can do.
    """

    __slots__ = ()

    principal: str
    revision: Revision
    client_info: Mapping[str, Any]
    client_capabilities: Mapping[str, Any]

    @abstractmethod
    def notify(self, method: str, params: Params | None = None, *, now: float) -> bool:
        """Send a notification that belongs to no call, on the session's standalone stream.

        Where instances share sessions, that is a stream which was opened at this one: others have
        others. Returns False if it is lost: the client has no session, nobody listens and there is
        no store to keep it, or too much waits for the store or the client already. Raises
        LocalProtocolError if the parameters are not JSON.
        """


class Session(Peer):
    """A client that has sent ``initialize``, from then until it ends its session.

    On Streamable HTTP a session is known by its ``id``. Without sessions ``id`` is None, and a
    session lasts for one request. On other transports it lasts as long as the channel.

    Attributes:
        id: what ``Mcp-Session-Id`` names; None where there is no such header.
        state: whether ``notifications/initialized`` has come, and whether the session has ended.
        subscriptions: the URIs of the resources whose updates the client wants to be told of, at
            this instance.
    """

    __slots__ = ()

    id: Secret | None
    state: SessionState
    subscriptions: set[str]


class ServerCall(ABC):
    """A request that a client wants answered.

    Its methods may be called until it has ended, and do no harm after. All methods that take
    ``now`` (seconds, the clock of the machine) change the machine: pull its effects afterwards.

    Attributes:
        request: the request as it came.
        turn: with what a handler that has asked the client for input is entered again:
            CallReceived names the same call once more.
        rounds: how often its handler has asked for input.
        state: whether it runs, was answered, or was cancelled.
        host: for the adapter, to find its own things when an event names this call.
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
        """The client whose request it is."""

    @property
    @abstractmethod
    def headers(self) -> RequestHeaders:
        """The headers of the HTTP request that it came in; none on stdio.

        On HTTP+SSE they are those of the request that opened the event stream.
        """

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether somebody still waits for the answer."""

    @property
    @abstractmethod
    def is_above_high_water(self) -> bool:
        """Whether to wait before saying more: the store, or the client, does not keep up."""

    @abstractmethod
    def respond(self, result: Any | InputRequired, *, now: float) -> bool:
        """Answer with a result, or with InputRequired: any JSON value, though MCP wants an object.

        Returns False if nobody can get it any more. Raises LocalProtocolError, and changes nothing,
        if the result is not JSON, or the client cannot be asked for input.
        """

    @abstractmethod
    def respond_error(self, code: int, message: str, data: Any = None, *, now: float) -> bool:
        """Answer with a JSON-RPC error. Returns and raises as :meth:`respond` does.

        A code that the revision has retired is replaced by the one that took its place.
        """

    @abstractmethod
    def respond_exception(self, error: Exception, *, now: float) -> bool:
        """Answer with what a handler raised; see :func:`~sansmcp.errors.error_response`.

        Returns and raises as :meth:`respond` does.
        """

    @abstractmethod
    def notify(self, method: str, params: Params | None = None, *, now: float) -> bool:
        """Send a notification that has to do with this request.

        Returns False if it is lost or the call has ended. Raises LocalProtocolError, and changes
        nothing, if the parameters are not JSON.
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
        """Report progress, if the client asked for it (else nothing is sent and False returned).

        Raises LocalProtocolError if ``progress`` does not grow, or something is not JSON. Source:
        basic/utilities/progress.
        """

    @abstractmethod
    def ask(self, method: str, params: Params | None = None, *, timeout: float, now: float) -> int:
        """Make a request to the client, on this call's stream. Returns its id.

        ClientResponseReceived tells what became of it, after ``timeout`` seconds at the latest.
        Raises LocalProtocolError, and changes nothing, if the call has ended, the client has left
        or has not declared the capability that it needs, where servers make no requests (at
        2026-07-28, and without a session), and for arguments that cannot be sent.
        """

    @abstractmethod
    def disconnect(self, *, retry: float | None = None, now: float) -> bool:
        """Let the client go, and come back after ``retry`` seconds for the rest (SEP-1699).

        Whatever is said while it is away is waiting for it. Returns False, and changes nothing,
        where that is not possible: without a store, at any revision but 2025-11-25, or on a
        transport that is one stream for all. Raises LocalProtocolError for a time that is none.
        """
