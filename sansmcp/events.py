"""What happened, for the application. Names are nouns or past tense.

The events of a client and those of a server are closed unions: an adapter that matches them with
``assert_never`` is told by the type checker when it forgets one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from .errors import CallError, JsonRpcError, RemoteProtocolError
from .messages import ErrorResponse, Message, Notification, Request, RequestId, Response
from .server_call import Peer, ServerCall, Session
from .types import elide


def _start(line: bytes) -> bytes:
    return line[:200]


# On the server


@attrs.frozen
class SessionOpened:
    """A client has sent ``initialize`` and was given a session."""

    session: Session


@attrs.frozen
class SessionClosed:
    """A session has ended: by DELETE, by being idle for too long, or by shutdown."""

    session: Session
    reason: str


@attrs.frozen
class CallReceived:
    """A client wants a request answered: call ``respond`` or ``fail`` of the call, once."""

    call: ServerCall


@attrs.frozen
class CallCancelled:
    """Nobody waits for this call any more: stop working on it. Answering it has no effect."""

    call: ServerCall
    reason: str


@attrs.frozen
class ClientNotified:
    """A client has sent a notification that the library does not handle itself."""

    peer: Peer
    notification: Notification = attrs.field(repr=elide)


@attrs.frozen
class ClientResponseReceived:
    """A client has answered a request that a handler made; ``answer`` is what ended it.

    It is the client's response, its error, or the CallError that ended the wait.
    """

    call: ServerCall
    request_id: int
    answer: Response | ErrorResponse | CallError = attrs.field(repr=elide)

    def result(self) -> Any:
        """The result that the client gave.

        Raises CallError: JsonRpcError for its error, or what ended the wait.
        """
        match self.answer:
            case Response(_, result):
                return result
            case ErrorResponse(_, code, message, data):
                raise JsonRpcError(code, message, data, request_id=self.request_id)
            case error:
                raise error


@attrs.frozen
class ResponseUndelivered:
    """An answer could not be delivered: nobody was reading, and there is no store that keeps it."""

    call: ServerCall
    reason: str


@attrs.frozen
class StoreFailed:
    """The store could not do what it was asked.

    ``lost``: messages are lost by that; otherwise a reader got them, and only cannot come back for
    them. ``again``: it failed in the same way before, and has done nothing of the kind since.
    """

    reason: str
    lost: bool
    again: bool = attrs.field(default=False, eq=False)


@attrs.frozen
class RefusalSent:
    """A request was refused; the peer has been told the same."""

    error: RemoteProtocolError


@attrs.frozen
class InvalidLine:
    """A line of stdio is no message: somebody printed there, or the encoding is broken.

    The conversation goes on. ``line``: its first bytes; empty for a line that is too long to be
    read.
    """

    line: bytes = attrs.field(converter=_start)
    error: RemoteProtocolError


ServerEvent: TypeAlias = (
    SessionOpened
    | SessionClosed
    | CallReceived
    | CallCancelled
    | ClientNotified
    | ClientResponseReceived
    | ResponseUndelivered
    | StoreFailed
    | RefusalSent
    | InvalidLine
)


# On the client


@attrs.frozen(kw_only=True)
class Connected:
    """The server is known, and the handshake done if it wants one: calls go out from now on.

    ``transport``: by ``"streamable-http"``, ``"http+sse"`` or ``"stdio"``.
    """

    transport: str
    version: str
    server_info: Mapping[str, Any]
    capabilities: Mapping[str, Any] = attrs.field(repr=elide)
    instructions: str | None = attrs.field(default=None, repr=elide)


@attrs.frozen
class Closed:
    """The client is closed; ``error`` tells why, or is None if it was asked to. The last event."""

    error: CallError | None


@attrs.frozen
class CallCompleted:
    """A request was answered with a result."""

    call: int
    """What ``Client.call`` returned."""
    result: Any = attrs.field(repr=elide)


@attrs.frozen
class CallFailed:
    """A request ended without a result; ``error`` is ready to be raised."""

    call: int
    error: CallError


@attrs.frozen(kw_only=True)
class ProgressReceived:
    """The server reports progress of a call.

    ``progress`` grows from report to report; it begins anew where the call is made again.
    """

    call: int
    progress: float
    total: float | None = None
    message: str | None = None


@attrs.frozen
class ServerNotified:
    """The server has sent a notification. ``call``: the call on whose stream it came, or None."""

    call: int | None
    notification: Notification = attrs.field(repr=elide)


@attrs.frozen
class ServerRequestReceived:
    """The server wants a request answered: ``Client.respond``, ``fail_with`` or ``decline``.

    ``call``: the call on whose stream it came, or None.
    """

    call: int | None
    request: Request = attrs.field(repr=elide)


@attrs.frozen
class ServerRequestCancelled:
    """The server does not want the answer to its request any more.

    Do not answer it: a server that was started again may use the same id for its next request.
    """

    request_id: RequestId
    reason: str


@attrs.frozen(kw_only=True)
class Reconnecting:
    """The client connects again after ``delay`` seconds.

    A stream broke, or the server ended it for now and lets the client poll; or the conversation
    could not be opened yet.
    """

    call: int | None
    """The call whose stream it is; None for the standalone stream, and for the opening."""
    delay: float
    attempt: int
    """How many attempts have failed in a row, from 1; 0 if nothing has failed: the client polls, or
    the connection was silent and may be dead.
    """
    reason: str


@attrs.frozen
class StandaloneStreamClosed:
    """There is no standalone stream (any more). The session and its calls are not affected."""

    reason: str


@attrs.frozen
class SessionExpired:
    """The server has forgotten the session, or speaks other versions now; the client begins again.

    ``failed``: the calls that ended by this.
    """

    failed: tuple[int, ...]


@attrs.frozen
class MessageUndelivered:
    """A message of ours that wants no answer did not reach the server."""

    message: Message = attrs.field(repr=elide)
    reason: str


@attrs.frozen
class ToolRejected:
    """A tool was left out of the list, for its definition breaks the rules for headers."""

    name: str
    reason: str


@attrs.frozen
class StderrLine:
    """The server process has written a line to its standard error."""

    line: str = attrs.field(repr=elide)


@attrs.frozen
class ProtocolViolation:
    """The server broke the protocol in a way that ends no call."""

    error: RemoteProtocolError


ClientEvent: TypeAlias = (
    Connected
    | Closed
    | CallCompleted
    | CallFailed
    | ProgressReceived
    | ServerNotified
    | ServerRequestReceived
    | ServerRequestCancelled
    | Reconnecting
    | StandaloneStreamClosed
    | SessionExpired
    | MessageUndelivered
    | ProtocolViolation
    | InvalidLine
    | StderrLine
    | ToolRejected
)
