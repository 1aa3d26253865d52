"""The methods of a call in a handler, the same in every adapter.

They are written once, without waiting, in the way of :mod:`.base_client`. The two modules are
separate so that a program that only connects does not import the server, and the other way round.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, Generic

from .base_client import Done, Result
from .http import RequestHeaders
from .messages import Params, RequestId
from .revisions import Revision
from .server_call import Peer, ServerCall


class PeerHandle(Generic[Done]):
    """The client of a call, for its handler. Equal for all calls of one session.

    What a handler tells it may be told after the call has ended, too.
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
        return self._call.notify_peer(method, params)


class BaseCall(abc.ABC, Generic[Result, Done]):
    """What a handler gets: the request, and the ways to talk to the client while working on it.

    A handler returns the result, or InputRequired, or raises JsonRpcError. When the client cancels,
    the handler is cancelled in the manner of its adapter.
    """

    def __init__(self, call: ServerCall) -> None:
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
    def peer(self) -> PeerHandle[Done]:
        """The client that makes the request: principal, revision, client info, capabilities."""
        return PeerHandle(self, self._call.peer)

    @property
    def headers(self) -> RequestHeaders:
        """The headers of the HTTP request, by their names in lower case; none on stdio.

        On HTTP+SSE they are those of the request that opened the event stream.
        """
        return self._call.headers

    @property
    def input_responses(self) -> Mapping[str, Any]:
        """What the client answered to the questions of an InputRequired, by their names."""
        return self._call.handler_input.input_responses

    @property
    def saved_state(self) -> Any:
        """The state of that InputRequired; None the first time."""
        return self._call.handler_input.state

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> Done:
        """Report progress, if the client asked for it.

        Raises LocalProtocolError if ``progress`` does not grow.
        """
        self._call.progress(progress, total, message, now=self.now())
        return self.run_pending()

    def notify(self, method: str, params: Params | None = None) -> Done:
        """Send a notification that has to do with this request.

        Raises LocalProtocolError if the parameters are not JSON.
        """
        self._call.notify(method, params, now=self.now())
        return self.run_pending()

    def notify_peer(self, method: str, params: Params | None = None) -> Done:
        """Send a notification that belongs to no call; ``call.peer.notify()`` does it."""
        self._call.peer.notify(method, params, now=self.now())
        return self.run_pending()

    def disconnect(self, *, retry: float | None = None) -> Done:
        """Let the client go, and come back after ``retry`` seconds for the rest (SEP-1699).

        Nothing happens where the client could not come back: without a store, at any revision but
        2025-11-25, and on stdio and HTTP+SSE. Raises LocalProtocolError for a time that is none.
        """
        self._call.disconnect(retry=retry, now=self.now())
        return self.run_pending()

    def ask(self, method: str, params: Params | None = None, *, timeout: float = 300.0) -> Result:
        """Ask the client something, such as ``elicitation/create``; returns its result.

        Raises LocalProtocolError if the client cannot be asked this (:meth:`sansmcp.ServerCall.ask`
        says why), JsonRpcError for its error, RequestTimeout if it does not answer in ``timeout``
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
    def run_pending(self) -> Done:
        """Perform the effects, and wait until there is room for more."""
