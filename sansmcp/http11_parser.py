"""What a connection asks of an HTTP/1.1 parser, so that another one can take its place: heads.

Where heads end, how large they may be, how long they may take, bodies, and all that is written are
the business of :mod:`sansmcp.http11`.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import attrs

from .errors import RemoteProtocolError
from .http import RequestHead, ResponseHead

_Head_co = TypeVar("_Head_co", bound=RequestHead | ResponseHead, covariant=True)


class HeadParser(Protocol[_Head_co]):
    """What reads the heads of requests, or of responses."""

    def __call__(self, data: bytes) -> tuple[_Head_co, bool]:
        """A head, from the bytes up to its blank line; and whether it says HTTP/1.1, not 1.0.

        Its ``content-length``, if it has one, is a number; a request of HTTP/1.1 has one ``host``,
        others at most one. Raises RemoteProtocolError (``malformed_http``) for what is no HTTP/1.1.
        """
        ...


@attrs.frozen
class Http11Parser:
    """A parser of HTTP/1.1, as far as connections need one."""

    read_request_head: HeadParser[RequestHead]
    read_response_head: HeadParser[ResponseHead]


def malformed(what: object, status: int = 400) -> RemoteProtocolError:
    """The error for bytes that are no HTTP/1.1."""
    return RemoteProtocolError(f"Not HTTP/1.1: {what}", reason="malformed_http", http_status=status)
