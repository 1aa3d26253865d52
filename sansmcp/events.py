"""The events of the machines: what happened, for the application. Names are nouns or past tense.

``ClientEvent`` and ``ServerEvent`` are closed unions. If a driver ends a ``match`` over them with
``assert_never``, a type checker reports every event that it does not handle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from .errors import CallError, JsonRpcError, RemoteProtocolError
from .messages import ErrorResponse, Message, Notification, Request, RequestId, Response
from .server_call import ListenRequest, Peer, ServerCall, Session
from .types import Value, elide, hide_secrets, redact


def _start(line: bytes) -> bytes:
    return line[:200]


# On the server


@attrs.frozen(eq=False, repr=False)
class SessionOpened(Value):
    """A client sent ``initialize``, and the server opened ``session`` for it."""

    session: Session


@attrs.frozen(eq=False, repr=False)
class SessionClosed(Value):
    """A session ended: the client deleted it, it was idle for too long, or the server stopped."""

    session: Session
    reason: str


@attrs.frozen(eq=False, repr=False)
class ListenersChanged(Value):
    """A client of 2026-07-28 began or ended to listen for changes of resources.

    ``Server.listened_resources`` has the resources for which such clients listen now.
    """


@attrs.frozen(eq=False, repr=False)
class ListenReceived(Value):
    """A client of 2026-07-28 asks to be told of changes of resources.

    Reported only if the App has ``confirms_listeners``. Call ``acknowledge()`` of ``request``.
    """

    request: ListenRequest


@attrs.frozen(eq=False, repr=False)
class CallReceived(Value):
    """A client sent a request. Respond to it once.

    Use ``respond()``, ``respond_error()`` or ``respond_exception()`` of ``call``.
    """

    call: ServerCall


@attrs.frozen(eq=False, repr=False)
class CallCancelled(Value):
    """The client cancelled ``call`` or disconnected for good, or the server is stopping.

    Stop the handler. A response sent now is discarded, without an error.

    Attributes:
        call: the call; its ``driver`` is the object that runs the handler.
        reason: text for a log. It may come from the peer, so escape it before display.
    """

    call: ServerCall
    reason: str


@attrs.frozen(eq=False, repr=False)
class ClientNotified(Value):
    """A client sent a notification that the library does not handle itself."""

    peer: Peer
    notification: Notification = attrs.field(repr=elide)


@attrs.frozen(eq=False, repr=False)
class ClientResponseReceived(Value):
    """The server request ``request_id`` of a handler ended.

    Attributes:
        call: the call whose handler made the request.
        request_id: what ``ServerCall.ask()`` returned.
        answer: the client's response, its error response, or the CallError that ended the wait.
    """

    call: ServerCall
    request_id: int
    answer: Response | ErrorResponse | CallError = attrs.field(repr=elide)

    def result(self) -> Any:
        """Return the result that the client sent.

        Raises:
            JsonRpcError: the client sent an error response.
            CallError: no response arrived; the subclass says why.
        """
        match self.answer:
            case Response(_, result):
                return result
            case ErrorResponse(_, code, message, data):
                raise JsonRpcError(code, message, data, request_id=self.request_id)
            case error:
                raise error


@attrs.frozen(eq=False, repr=False)
class ResponseUndelivered(Value):
    """The client disconnected before the response to ``call``, and no store keeps it."""

    call: ServerCall
    reason: str


@attrs.frozen(eq=False, repr=False)
class StoreFailed(Value):
    """A store effect failed.

    Attributes:
        reason: text for a log.
        lost: True if messages are lost; False if a connected reader gets them, but they cannot be
            replayed.
        again: True if an effect of this type failed with the same ``lost`` before, and none has
            succeeded since.
    """

    reason: str
    lost: bool
    again: bool = attrs.field(default=False, eq=False)


@attrs.frozen(eq=False, repr=False)
class ClocksDiffer(Value):
    """The clock of another instance on the same store differs by more than a few seconds.

    Task times and other times in the store are those of the instance that wrote them. An instance
    reports this once.

    Attributes:
        seconds: by how much the other clock is ahead at least; below zero if it is behind.
    """

    seconds: float


@attrs.frozen(eq=False, repr=False)
class AccessExpired(Value):
    """The credentials with which ``principal`` had opened an event stream expired.

    The server ended the stream, and the client needs new credentials to open another one. A stream
    that the client could not resume goes on until the response of its call.
    """

    principal: str


@attrs.frozen(eq=False, repr=False)
class RefusalSent(Value):
    """The server refused a request; the peer got the same ``error``."""

    error: RemoteProtocolError


@attrs.frozen(eq=False, repr=False)
class InvalidLine(Value):
    """A line of stdio was not a message: a program printed there, or the encoding is broken.

    The session continues.

    Attributes:
        line: its first 200 bytes; empty if the line was too long to be read.
        error: what is wrong with it.
    """

    line: bytes = attrs.field(converter=_start)
    error: RemoteProtocolError


ServerEvent: TypeAlias = (
    SessionOpened
    | SessionClosed
    | ListenersChanged
    | ListenReceived
    | CallReceived
    | CallCancelled
    | ClientNotified
    | ClientResponseReceived
    | ResponseUndelivered
    | StoreFailed
    | ClocksDiffer
    | AccessExpired
    | RefusalSent
    | InvalidLine
)


# On the client


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Connected(Value):
    """The client opened the session, or found a server that needs none; calls are sent from now on.

    Attributes:
        transport: ``"streamable-http"``, ``"http+sse"``, ``"stdio"`` or ``"stdio-v2"``.
        version: the negotiated protocol version, such as ``"2025-11-25"``.
        server_info: name and version of the server, as it sent them.
        capabilities: the capabilities that the server declared.
        instructions: the server's hint to the language model; None if it sent none.
    """

    transport: str
    version: str
    server_info: Mapping[str, Any]
    capabilities: Mapping[str, Any] = attrs.field(repr=elide)
    instructions: str | None = attrs.field(default=None, repr=elide)


@attrs.frozen(eq=False, repr=False)
class Closed(Value):
    """The client closed. ``error`` is the reason, or None after ``close()``. The last event."""

    error: CallError | None


@attrs.frozen(eq=False, repr=False)
class CallCompleted(Value):
    """The server sent the result of a call."""

    call: int
    """What ``Client.call`` returned."""
    result: Any = attrs.field(repr=elide)


@attrs.frozen(eq=False, repr=False)
class CallFailed(Value):
    """A call ended without a result. Raise ``error`` in the code that waits for it."""

    call: int
    error: CallError


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ProgressReceived(Value):
    """The server reported progress of a call.

    ``progress`` increases with every report. It starts again if the client repeats the request.
    """

    call: int
    progress: float
    total: float | None = None
    message: str | None = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TaskUpdated(Value):
    """The server runs a call as a task, which has a new status, message or input request.

    Store ``task_id`` if the call must survive the end of this program: another client can attach to
    the task.

    Attributes:
        call: what ``Client.call`` or ``Client.attach`` returned.
        task_id: the id of the task. It can be all that is needed to read the result, so keep it
            out of logs.
        status: ``"working"`` or ``"input_required"``, or one that a later version of the extension
            has added.
        message: the server's explanation of the status, cut after 1000 characters; None if there
            is none.
        unanswered: the methods of input requests that this client leaves to another one, because
            it has not declared the capability for them.
    """

    call: int
    task_id: str = attrs.field(repr=redact)
    status: str
    message: str | None
    unanswered: tuple[str, ...] = ()


@attrs.frozen(eq=False, repr=False)
class ServerNotified(Value):
    """The server sent a notification, on the stream of ``call`` or, if that is None, on another."""

    call: int | None
    notification: Notification = attrs.field(repr=elide)


@attrs.frozen(eq=False, repr=False)
class ServerRequestReceived(Value):
    """The server sent a request.

    Respond to it once with ``Client.respond()``, ``respond_exception()`` or
    ``refuse_unsupported()``.

    Attributes:
        call: the call on whose stream it came; None if it came on another stream.
        request: the request.
    """

    call: int | None
    request: Request = attrs.field(repr=elide)


@attrs.frozen(eq=False, repr=False)
class ServerRequestCancelled(Value):
    """The server cancelled its request, or the call or session to which it belongs has ended.

    Do not respond to it: a restarted server might use the same id for another request.
    """

    request_id: RequestId
    reason: str


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Reconnecting(Value):
    """A connection or a stream ended, and the client reconnects after ``delay`` seconds.

    A stream broke, the server closed it so that the client polls, the opening failed and is
    repeated, the server was too busy to run a call, which is then sent again, or it could not be
    asked for the state of a task.
    """

    call: int | None
    """The call whose stream it is; None for the standalone stream, and for the opening."""
    delay: float
    attempt: int
    """How many attempts have failed in a row, from 1. 0 if the client polls, or the connection was
    silent for so long that the client replaces it.
    """
    reason: str


@attrs.frozen(eq=False, repr=False)
class AuthorizationNeeded(Value):
    """A person must log in: open ``url`` in a browser.

    When the browser is sent to the redirect URI, pass that URL to ``client.redirected()``. If the
    person does not log in, call ``client.login_failed()``. The requests of the client wait, for
    ``login_timeout`` seconds at most. No second event follows before that.
    """

    url: str = attrs.field(repr=lambda url: repr(hide_secrets(url)))


@attrs.frozen(eq=False, repr=False)
class StandaloneStreamClosed(Value):
    """The server offers no standalone stream, or it ended. The session and its calls continue."""

    reason: str


@attrs.frozen(eq=False, repr=False)
class SessionExpired(Value):
    """The server discarded the session or changed its versions; the client opens a new session.

    ``failed``: the calls that this ended. The client repeats the others.
    """

    failed: tuple[int, ...]


@attrs.frozen(eq=False, repr=False)
class MessageUndelivered(Value):
    """A notification or response, or ``tasks/cancel``, did not reach the server."""

    message: Message = attrs.field(repr=elide)
    reason: str


@attrs.frozen(eq=False, repr=False)
class ToolRejected(Value):
    """The client left a tool out of a list: its ``x-mcp-header`` definitions are invalid."""

    name: str
    reason: str


@attrs.frozen(eq=False, repr=False)
class StderrLine(Value):
    """The server process wrote a line to its standard error."""

    line: str = attrs.field(repr=elide)


@attrs.frozen(eq=False, repr=False)
class ProtocolViolation(Value):
    """The server broke the protocol; no call ended because of it."""

    error: RemoteProtocolError


ClientEvent: TypeAlias = (
    Connected
    | Closed
    | CallCompleted
    | CallFailed
    | ProgressReceived
    | TaskUpdated
    | ServerNotified
    | ServerRequestReceived
    | ServerRequestCancelled
    | Reconnecting
    | AuthorizationNeeded
    | StandaloneStreamClosed
    | SessionExpired
    | MessageUndelivered
    | ProtocolViolation
    | InvalidLine
    | StderrLine
    | ToolRejected
)
