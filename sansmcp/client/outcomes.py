"""What the parts of a client conclude: values that ``Client`` matches on.

A part takes an input and returns one of these. It says what has happened or what has to follow,
never which other part has to do it. Messages are outcomes themselves, without a wrapper.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs

from ..codecs.sse import SseEvent
from ..effects import ProcessEffect
from ..errors import CallError, ProcessEnded, RemoteProtocolError
from ..events import Connected
from ..messages import ErrorResponse, Message, Request, Response
from ..revisions import Revision
from ..types import Era, Secret
from .http_heads import Refusal

# Of the reader of an HTTP response, and of the lines of a process


@attrs.frozen
class OtherEvent:
    """A block of the event stream that carries no message."""

    event: SseEvent


@attrs.frozen
class Invalid:
    """Something that is no message. ``is_fatal``: nothing after it can be read."""

    error: RemoteProtocolError
    is_fatal: bool = False
    line: bytes = b""
    """What it was, on stdio."""


@attrs.frozen
class Refused:
    """The response is no success."""

    refusal: Refusal


@attrs.frozen
class Ended:
    """The response is complete, or broke off for a ``reason``."""

    reason: str | None


ReaderOutcome: TypeAlias = Message | OtherEvent | Invalid | Refused | Ended
LineOutcome: TypeAlias = Message | Invalid


# Of a stream, which lives over any number of exchanges


@attrs.frozen
class Retry:
    """Connect again after ``delay`` seconds; ``attempt`` is 0 where nothing has failed."""

    delay: float
    attempt: int
    reason: str


@attrs.frozen
class Lost:
    """Nothing can bring the rest of the stream. ``was_complete``: no response broke off."""

    reason: str
    was_complete: bool = False


@attrs.frozen
class Resume:
    """Ask with GET for what follows an event id; "" begins a standalone stream."""

    last_event_id: str


@attrs.frozen
class Restart:
    """Make the request again, from the beginning."""


@attrs.frozen
class Continue:
    """POST all answers of a turn, for the first time or again."""

    body: bytes
    last_event_id: str


StreamOutcome: TypeAlias = Retry | Lost
NextAttempt: TypeAlias = Resume | Restart | Continue


# Of a request that was answered


@attrs.frozen
class Finished:
    """The call has its result or its error."""

    result: Any
    """A CallError is an error, anything else the result."""


@attrs.frozen
class NeedsInput:
    """The server asks for input by the result of this request (2026-07-28)."""

    members: dict[str, Any]


@attrs.frozen
class NeedsTools:
    """The server refuses the headers: the list of tools must be fetched again."""


@attrs.frozen
class NeedsVersion:
    """The server does not speak the version in force any more."""


RequestOutcome: TypeAlias = Finished | NeedsInput | NeedsTools | NeedsVersion


# Of the opening


BEFORE_AGREEMENT = Revision(name="", era=Era.LEGACY, resumption=True, server_requests=True)
"""What may happen while no revision is in force, until ``initialize`` is answered."""


@attrs.frozen
class Agreed:
    """What client and server have agreed upon; the default is what holds before."""

    revision: Revision = BEFORE_AGREEMENT
    session_id: Secret | None = None
    has_turns: bool = False
    """Both sides have named SEP-1858."""

    is_modern: bool = attrs.field(
        default=attrs.Factory(
            lambda self: self.revision.era is Era.MODERN,
            takes_self=True,
        ),
        init=False,
    )
    """True if the revision in force does without a handshake."""


@attrs.frozen
class OpenEventStream:
    """Open the event stream of HTTP+SSE."""


@attrs.frozen
class Probe:
    """Ask with ``server/discover`` whether the server speaks this version."""

    version: str


@attrs.frozen
class Initialize:
    """Send ``initialize``, and offer this version."""

    version: str


@attrs.frozen
class Confirm:
    """Send ``notifications/initialized``: the server has answered ``initialize``."""

    agreed: Agreed


@attrs.frozen
class Ready:
    """Calls go out from now on."""

    agreed: Agreed
    event: Connected


@attrs.frozen
class Failed:
    """There is no way to talk to the server."""

    error: CallError


OpeningOutcome: TypeAlias = OpenEventStream | Probe | Initialize | Confirm | Ready | Retry | Failed


# Of what the server asks


@attrs.frozen
class InputRequested:
    """Put a request to the application; ``stopped``: the calls whose clocks it stops."""

    request: Request
    stopped: tuple[int, ...]


@attrs.frozen
class Reply:
    """Send this at once: the application has no part in it."""

    message: Response | ErrorResponse


@attrs.frozen
class LimitExceeded:
    """The server asks more than one call or turn allows. ``what``: for an error."""

    what: str


@attrs.frozen
class Flooded:
    """The server asks more than it takes answers to. ``what``: for an event, which is told once."""

    what: str


@attrs.frozen
class RoundStarted:
    """Put these requests, which came in a result, to the application."""

    requests: tuple[Request, ...]


@attrs.frozen
class RoundDone:
    """Make the request again with these further parameters."""

    number: int
    params: dict[str, Any]


@attrs.frozen
class RoundFailed:
    """The call cannot go on."""

    number: int
    error: CallError


@attrs.frozen
class ResponseBuffered:
    """The answer waits for others of its round or turn."""


@attrs.frozen
class TurnDone:
    """All answers of a turn are there: POST them at once."""

    number: int
    body: bytes


# Of messages that want no answer


@attrs.frozen
class Delivered:
    """The server has taken a message."""

    message: Message


@attrs.frozen
class Undelivered:
    """The server has not taken a message, and it is not sent again."""

    message: Message
    reason: str


@attrs.frozen
class PostDelayed:
    """The message is sent again after ``delay`` seconds."""

    message: Message
    delay: float
    reason: str


PostOutcome: TypeAlias = Delivered | Undelivered | PostDelayed


# Of the server process


@attrs.frozen
class ProcessStep:
    """Do something to the process, if anything, and give it ``wait`` seconds."""

    effect: ProcessEffect | None
    wait: float


@attrs.frozen
class ProcessUseless:
    """The process lives, but says nothing more."""

    error: ProcessEnded
    wait: float


@attrs.frozen
class ProcessFinished:
    """The process has ended, and its output was read: kill what it has left behind."""


@attrs.frozen
class ProcessClosed:
    """The process has ended, or is left to the operating system. Nothing more comes from it."""

    error: ProcessEnded


ProcessOutcome: TypeAlias = ProcessStep | ProcessUseless | ProcessFinished | ProcessClosed
