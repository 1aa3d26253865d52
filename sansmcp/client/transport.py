"""What the client's parts want of a transport, whichever it is."""

from __future__ import annotations

from typing import Protocol

from ..codecs.headers import Headers
from ..errors import CallError, RemoteProtocolError
from ..messages import ErrorResponse, Message, Notification, Request, Response
from .exchange import Refusal


class RequestOwner(Protocol):
    """Who has made a JSON-RPC request, and is told what comes of it.

    ``lost``, ``refused`` and ``garbled`` come at the end, one of them at most.
    """

    @property
    def restarts(self) -> bool:
        """Whether the owner can begin again when nothing can be resumed."""
        ...

    def restart(self) -> None:
        """Begin again."""

    def message(self, message: Message) -> None:
        """A message has come."""

    def violated(self, error: RemoteProtocolError) -> None:
        """Something has come that is no message; more may follow."""

    def lost(self, reason: str, *, complete: bool = False) -> None:
        """Nothing can bring the answer any more.

        ``complete``: there was a response, and the answer was not in it.
        """

    def refused(self, refusal: Refusal) -> None:
        """The server refused the request, or no longer knows the session."""

    def garbled(self, error: RemoteProtocolError) -> None:
        """What the server sends cannot be read."""


class Carrier(Protocol):
    """Carries one JSON-RPC request to the server, and what belongs to it back."""

    def post(self, request: Request) -> None:
        """Send the request, or another one in its place."""

    def close(self, *, complete: bool = False) -> None:
        """Nothing more is wanted. ``complete``: and nothing more will come."""

    @property
    def response_headers(self) -> Headers:
        """The headers of the HTTP response; empty where there is none."""
        ...


class Transport(Protocol):
    """One way to talk to a server."""

    name: str
    """For people."""
    speaks_modern: bool
    """The stateless revisions exist on it."""
    is_one_stream: bool
    """All messages of the server come on one stream, so nobody can tell which call they are about.
    """

    @property
    def printed(self) -> tuple[str, ...]:
        """What the server has printed for people, if it is a process."""
        ...

    def connect(self) -> None:
        """Get ready; ``conversation.reachable()`` or ``conversation.unreachable()`` follows."""

    def carrier(self, owner: RequestOwner, call: int | None) -> Carrier:
        """Something to carry a request; ``call`` is its handle, for events."""
        ...

    def post(self, message: Notification | Response | ErrorResponse) -> None:
        """Send what wants no answer."""

    def listen(self) -> None:
        """Hear what the server says when nobody has asked, if that takes anything."""

    def leave(self) -> None:
        """The session is over: give up whatever is under way."""

    def farewell(self, error: CallError | None) -> bool:
        """The client closes, because it was told to or because of an error.

        Returns True if that takes time: then ``conversation.closed()`` follows.
        """
        ...
