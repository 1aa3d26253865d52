"""What a connection asks of an HTTP/1.1 parser, so that another one can take its place.

Of a client it reads the heads of responses. A server's *wire* is one end of one connection: bytes
to message parts, for one message at a time. It knows no clock and no limit but those on what it
keeps itself: how long a head may be, and how long it may take, is the business of
:mod:`sansmcp.http11`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs

from .errors import RemoteProtocolError
from .http import BodyData, BodyEnd, RequestHead, ResponseHead
from .limits import Limits


class ServerWire(Protocol):
    """The server's end: requests in. Responses are written by :mod:`sansmcp.http11`."""

    @property
    def is_http_1_1(self) -> bool:
        """Whether the request says so; until it has come, too."""
        ...

    def receive(self, data: bytes) -> None:
        """Bytes have come."""
        ...

    def next_part(self) -> RequestHead | BodyData | BodyEnd | None:
        """The next part of the request; None where it needs more bytes, or is complete.

        Raises RemoteProtocolError (``malformed_http``) for what is no HTTP/1.1.
        """
        ...

    def next_request(self) -> bytes:
        """Begin the next request. Returns those of its bytes that have come already."""
        ...


class ResponseHeadReader(Protocol):
    """What reads the head of a response. Where it ends, and bodies, is all the same to it."""

    def __call__(self, data: bytes) -> tuple[ResponseHead, bool]:
        """A head, from the bytes up to its blank line; and whether it says HTTP/1.1.

        Its ``content-length``, if it has one, is a number. Raises RemoteProtocolError
        (``malformed_http``) for what is no HTTP/1.1.
        """
        ...


@attrs.frozen
class Http11:
    """An implementation of HTTP/1.1."""

    server: Callable[[Limits], ServerWire]
    read_response_head: ResponseHeadReader


def malformed(what: object, status: int = 400) -> RemoteProtocolError:
    """The error for bytes that are no HTTP/1.1."""
    return RemoteProtocolError(f"Not HTTP/1.1: {what}", reason="malformed_http", http_status=status)
