"""The outcomes of the parts of a client: values that ``Client`` matches on.

A part takes an input and returns an outcome: what has happened, or what the client must do next. An
outcome never names the part that must do it. Messages are outcomes themselves, without a wrapper.

They have no ``__eq__`` and no ``__repr__``, which take two thirds of the time in which classes are
created, some 10 ms of each import of a client.
"""

from __future__ import annotations

import enum
from typing import Any, TypeAlias

import attrs

from ..codecs.sse import SseEvent
from ..effects import ProcessEffect
from ..errors import AuthorizationFailed, CallError, ProcessEnded, RemoteProtocolError
from ..events import Connected, Reconnecting
from ..http import Unsent
from ..messages import ErrorResponse, Message, Params, Request, RequestId, Response
from ..revisions import Revision
from ..types import Era, Secret
from .http_heads import Refusal

# Outcomes of an HTTP response, and of the output of a process


@attrs.frozen(eq=False, repr=False)
class OtherEvent:
    """An event of the event stream that carries no message."""

    event: SseEvent


@attrs.frozen(eq=False, repr=False)
class Invalid:
    """Data that is not a message. ``is_fatal``: the data after it cannot be read."""

    error: RemoteProtocolError
    is_fatal: bool = False
    line: bytes = b""
    """The data on stdio, the beginning of that of an event; empty if there is none."""


@attrs.frozen(eq=False, repr=False)
class Refused:
    """The response is not a success."""

    refusal: Refusal


@attrs.frozen(eq=False, repr=False)
class Ended:
    """The response is complete, or broke off for a ``reason``.

    ``unsent``: why no byte of the request was sent; None if some may have been.
    """

    reason: str | None
    unsent: Unsent | None = None


ReaderOutcome: TypeAlias = Message | OtherEvent | Invalid | Refused | Ended
LineOutcome: TypeAlias = Message | Invalid


# Outcomes of a stream, which spans any number of exchanges


@attrs.frozen(eq=False, repr=False)
class Retry:
    """Reconnect after ``delay`` seconds; ``attempt`` is 0 if the last connection did not fail."""

    delay: float
    attempt: int
    reason: str

    def as_event(self, call: int | None) -> Reconnecting:
        """Return the event that reports it; ``call``: the handle of its call, None without one."""
        return Reconnecting(call=call, delay=self.delay, attempt=self.attempt, reason=self.reason)


@attrs.frozen(eq=False, repr=False)
class Lost:
    """The rest of the stream cannot arrive. ``was_complete``: the response ended properly.

    ``unsent``: as in :class:`Ended`.
    """

    reason: str
    was_complete: bool = False
    unsent: Unsent | None = None


@attrs.frozen(eq=False, repr=False)
class Resume:
    """Resume with a GET after this event id; "" opens a standalone stream."""

    last_event_id: str


@attrs.frozen(eq=False, repr=False)
class Restart:
    """Send the request again, from the beginning."""


@attrs.frozen(eq=False, repr=False)
class Continue:
    """POST all responses of a turn, for the first time or again."""

    body: bytes
    last_event_id: str


StreamOutcome: TypeAlias = Retry | Lost
NextAttempt: TypeAlias = Resume | Restart | Continue


# Outcomes of the response to a request


@attrs.frozen(eq=False, repr=False)
class Finished:
    """The call has its result or its error."""

    result: Any
    """The exception if it is a CallError, else the result."""


@attrs.frozen(eq=False, repr=False)
class NeedsInput:
    """The result contains input requests (2026-07-28)."""

    members: dict[str, Any]


@attrs.frozen(eq=False, repr=False)
class BecameTask:
    """The result is the handle of a task, which the client has to follow (2026-07-28)."""

    members: dict[str, Any]


@attrs.frozen(eq=False, repr=False)
class TaskOver:
    """The task of a call has ended, and the call has not: it is sent again."""


RequestOutcome: TypeAlias = Finished | NeedsInput | BecameTask


# Outcomes of a request about a task


@attrs.frozen(eq=False, repr=False)
class TaskReported:
    """The task has not ended. Make the next request about it after ``wait`` seconds."""

    wait: float
    input_requests: dict[str, Any] | None = None
    """Those without a response, by key; None if the message does not tell."""


TaskOutcome: TypeAlias = TaskReported | Retry | Finished


# Requests of the client's own


class Kind(enum.Enum):
    """The purpose of a request."""

    CALL = enum.auto()
    """A call of the application."""
    DISCOVER = enum.auto()
    INITIALIZE = enum.auto()
    TOOLS = enum.auto()
    """A list of tools, to look up the headers of a tool for a call."""
    TASK = enum.auto()
    """A request about the task of a call."""
    LISTENER = enum.auto()
    """A subscription to the changes of the task of a call."""
    PING = enum.auto()
    """A ``ping`` that shows whether the event stream of HTTP+SSE is dead."""
    RENEWAL = enum.auto()
    """A subscription that takes the place of one whose connection may be dead."""


OwnAnswer: TypeAlias = (
    Response | ErrorResponse | Lost | Refusal | RemoteProtocolError | AuthorizationFailed
)
"""How a request of the client's own has ended. RemoteProtocolError: its response is invalid."""


@attrs.frozen(eq=False, repr=False)
class Ask:
    """Make a request of the client's own."""

    kind: Kind
    """TOOLS or TASK."""
    method: str
    params: Params


# Steps of the procedure of a call, beside what has come for it


@attrs.frozen(eq=False, repr=False)
class Send:
    """Send the request of the call."""


@attrs.frozen(eq=False, repr=False)
class NeedsTools:
    """The server refused the headers. The list of tools is fetched, and the request repeated."""


@attrs.frozen(eq=False, repr=False)
class ToolsListed:
    """Record the headers of the tools in a result."""

    result: Any


@attrs.frozen(eq=False, repr=False)
class NeedsVersion:
    """The server no longer supports the negotiated version. Negotiate again."""


@attrs.frozen(eq=False, repr=False)
class SessionOver:
    """The server has discarded the session. Open a new one."""

    refusal: Refusal
    not_run: int | None = None
    """The call that it has refused, and run nothing of; None if it was another message."""


@attrs.frozen(eq=False, repr=False)
class Sleep:
    """Wait for ``delay`` seconds."""

    delay: float


Step: TypeAlias = (
    Send
    | Ask
    | Retry
    | Sleep
    | TaskReported
    | NeedsInput
    | NeedsTools
    | ToolsListed
    | NeedsVersion
    | SessionOver
    | BecameTask
    | TaskOver
)


# Outcomes of the opening


BEFORE_AGREEMENT = Revision(name="", era=Era.LEGACY, resumption=True, server_requests=True)
"""The features that apply until the response to ``initialize`` negotiates a revision."""


@attrs.frozen(eq=False, repr=False)
class Agreed:
    """The negotiated revision and session; the default applies before the negotiation."""

    revision: Revision = BEFORE_AGREEMENT
    session_id: Secret | None = None
    has_turns: bool = False
    """True if SEP-1858 is in use."""

    is_modern: bool = attrs.field(
        default=attrs.Factory(
            lambda self: self.revision.era is Era.MODERN,
            takes_self=True,
        ),
        init=False,
    )
    """True if the revision needs no handshake."""


@attrs.frozen(eq=False, repr=False)
class OpenEventStream:
    """Open the event stream of HTTP+SSE."""


@attrs.frozen(eq=False, repr=False)
class Probe:
    """Send ``server/discover`` at this version."""

    version: str


@attrs.frozen(eq=False, repr=False)
class Initialize:
    """Send ``initialize`` with this version."""

    version: str


@attrs.frozen(eq=False, repr=False)
class Confirm:
    """Send ``notifications/initialized``: the server has accepted ``initialize``."""

    agreed: Agreed


@attrs.frozen(eq=False, repr=False)
class Ready:
    """The opening has ended. Send the waiting calls."""

    agreed: Agreed
    event: Connected


@attrs.frozen(eq=False, repr=False)
class Failed:
    """The opening has failed. Close the client."""

    error: CallError


OpeningOutcome: TypeAlias = OpenEventStream | Probe | Initialize | Confirm | Ready | Retry | Failed


# Outcomes of server requests and input requests


@attrs.frozen(eq=False, repr=False)
class InputRequested:
    """Report a server request; ``stopped``: the calls whose timeouts it pauses."""

    request: Request
    stopped: tuple[int, ...]


@attrs.frozen(eq=False, repr=False)
class Reply:
    """Send this response to the server."""

    message: Response | ErrorResponse


@attrs.frozen(eq=False, repr=False)
class LimitExceeded:
    """The server sent more than a limit of a call or turn allows.

    ``what``: what it sent, as text for an error.
    """

    what: str


@attrs.frozen(eq=False, repr=False)
class Flooded:
    """The server sends requests faster than it accepts the responses.

    It is reported once, until a request has been accepted again. ``what``: what it sent, as text
    for an event.
    """

    what: str


@attrs.frozen(eq=False, repr=False)
class RoundStarted:
    """Report the input requests of a result."""

    requests: tuple[Request, ...]


@attrs.frozen(eq=False, repr=False)
class RoundDone:
    """Send the request again with these further parameters."""

    number: int
    params: dict[str, Any]


@attrs.frozen(eq=False, repr=False)
class RoundFailed:
    """The call ends with ``error``."""

    number: int
    error: CallError


@attrs.frozen(eq=False, repr=False)
class TaskInput:
    """The input requests of a task have changed."""

    withdrawn: tuple[RequestId, ...]
    """The server requests that the task has withdrawn."""
    requests: tuple[Request, ...]
    """The new ones, to be reported."""
    declined: dict[str, Any]
    """Input responses by key, to new ones that the client refuses by itself."""
    unanswered: tuple[str, ...]
    """The methods of those that are left to another client."""


@attrs.frozen(eq=False, repr=False)
class TaskInputDone:
    """Send this input response to the task of a call."""

    number: int
    key: str
    response: Any


@attrs.frozen(eq=False, repr=False)
class ResponseBuffered:
    """The response waits for the others of its round or turn."""


@attrs.frozen(eq=False, repr=False)
class TurnDone:
    """All responses of a turn are complete. POST them in one body."""

    number: int
    body: bytes


# Outcomes of notifications and responses


@attrs.frozen(eq=False, repr=False)
class Delivered:
    """The server accepted the message."""

    message: Message


@attrs.frozen(eq=False, repr=False)
class Undelivered:
    """The server did not accept the message, and it is not sent again."""

    message: Message
    reason: str


@attrs.frozen(eq=False, repr=False)
class PostDelayed:
    """The message is sent again after ``delay`` seconds."""

    message: Message
    delay: float
    reason: str


PostOutcome: TypeAlias = Delivered | Undelivered | PostDelayed


# Outcomes of the event stream of HTTP+SSE


@attrs.frozen(eq=False, repr=False)
class EndpointFound:
    """The server has named the URL for messages. Open the session."""


@attrs.frozen(eq=False, repr=False)
class EndpointOnPost:
    """A POST has opened an event stream of HTTP+SSE: the server is one of that transport."""


@attrs.frozen(eq=False, repr=False)
class NoEndpoint:
    """The stream does not name the URL for messages.

    ``what``: what it did instead, as text for an error. ``was_read``: False if it cannot be
    decoded.
    """

    what: str
    was_read: bool = True


@attrs.frozen(eq=False, repr=False)
class EventStreamLost:
    """The stream has ended, and with it the session."""

    reason: str


EventStreamOutcome: TypeAlias = (
    Message | OtherEvent | Invalid | Ended | Refused | EndpointFound | NoEndpoint | EventStreamLost
)


@attrs.frozen(eq=False, repr=False)
class SendPing:
    """Send a ``ping``, whose response shows that the stream is not dead."""


@attrs.frozen(eq=False, repr=False)
class PingFailed:
    """The ``ping`` was not taken. Send another one after the next silence."""


EventStreamSilence: TypeAlias = SendPing | PingFailed | EventStreamLost


@attrs.frozen(eq=False, repr=False)
class Redirected:
    """The server has sent the client to another URL, which all errors name from now on."""

    server: str


@attrs.frozen(eq=False, repr=False)
class SessionEnded:
    """The server has answered the request that ends the session, in whatever way."""


# Outcomes of the server process


@attrs.frozen(eq=False, repr=False)
class ProcessStep:
    """Perform ``effect``, if it is not None, and wait at most ``wait`` seconds."""

    effect: ProcessEffect | None
    wait: float


@attrs.frozen(eq=False, repr=False)
class ProcessUseless:
    """The process closed its output, but has not ended within its time."""

    error: ProcessEnded
    wait: float


@attrs.frozen(eq=False, repr=False)
class ProcessFinished:
    """The process has ended, and its output was read. Kill the rest of its process group."""

    log: list[str]
    """The lines of its standard error that were not reported yet."""


@attrs.frozen(eq=False, repr=False)
class ProcessLogged:
    """The process has written lines to its standard error."""

    log: list[str]


@attrs.frozen(eq=False, repr=False)
class ProcessClosed:
    """The process has ended, or could not be killed. Its output is no longer read."""

    error: ProcessEnded


ProcessOutcome: TypeAlias = ProcessStep | ProcessUseless | ProcessFinished | ProcessClosed
