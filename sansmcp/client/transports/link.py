"""A link carries the messages of a client to its server, and those of the server to the client.

There are two: HTTP, with a stream for each request or one for all, and the pipes of a process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeAlias

from ...errors import AuthorizationFailed, RemoteProtocolError
from ...messages import ErrorResponse, Message, Notification, Request, Response
from ..call_keys import Cut
from ..http_heads import Refusal
from ..outcomes import (
    Ended,
    EndpointFound,
    EndpointOnPost,
    EventStreamLost,
    Failed,
    Invalid,
    Lost,
    NoEndpoint,
    PostOutcome,
    Redirected,
    Refused,
    Restart,
    SessionEnded,
    SessionOver,
)
from ..request import PendingRequest
from .http import FlowEnded, Held, Released

RequestAnswer: TypeAlias = (
    Lost | Refusal | RemoteProtocolError | AuthorizationFailed | Cut | Restart
)
"""What can come for a request beside messages: there is no response, or it is to be sent again."""

SessionOutcome: TypeAlias = (
    SessionOver
    | SessionEnded
    | Redirected
    | EndpointFound
    | EndpointOnPost
    | NoEndpoint
    | EventStreamLost
    | Ended
    | Refused
    | Failed
    | FlowEnded
)
"""What concerns the session. Ended and Refused are of an event stream that was not opened."""

DeliveryOutcome: TypeAlias = (
    Message | Invalid | PostOutcome | Held | Released | RequestAnswer | SessionOutcome
)

Delivery: TypeAlias = tuple[PendingRequest | None, DeliveryOutcome]
"""What has come, and the request for which, or on whose stream; None if it belongs to none."""

Deliveries: TypeAlias = Iterable[Delivery]
"""Deliveries that may each depend on what was done about the one before: consume them at once, and
act on each before the next.
"""


class Link(Protocol):
    """Carries messages both ways."""

    @property
    def is_shared(self) -> bool:
        """True if all messages of the server arrive on one stream."""
        ...

    @property
    def is_http_sse(self) -> bool:
        """True in a session of HTTP+SSE."""
        ...

    @property
    def is_full(self) -> bool:
        """True if no further message can be sent by itself."""
        ...

    def send(self, request: PendingRequest, now: float) -> None:
        """Send a request, under the id that it has."""
        ...

    def post(
        self, message: Request | Notification | Response | ErrorResponse, now: float
    ) -> Delivery | None:
        """Send a message by itself; return what has come of it, if that is known at once."""
        ...

    def leave(self, request: PendingRequest, now: float, *, complete: bool) -> None:
        """Let go of what carries a request; ``complete``: its response has arrived."""
        ...

    def holds(self, request: PendingRequest) -> bool:
        """Return True if a request waits for authorization, and its message was not sent."""
        ...

    def break_off(self, request: PendingRequest) -> None:
        """Read no further for a request, whose response is invalid."""
        ...
