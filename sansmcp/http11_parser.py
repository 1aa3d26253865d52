"""The interface of a parser of HTTP/1.1 heads, so that one can be replaced by another.

:mod:`sansmcp.http11` does the rest: it finds the end of a head, checks its size and time limit,
parses bodies, and writes messages.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import attrs

from .errors import RemoteProtocolError
from .http import RequestHead, ResponseHead
from .types import Value

_Head_co = TypeVar("_Head_co", bound=RequestHead | ResponseHead, covariant=True)


class HeadParser(Protocol[_Head_co]):
    """A function that parses the heads of requests, or of responses."""

    def __call__(self, data: bytes) -> tuple[_Head_co, bool]:
        """Parse a head.

        Args:
            data: the bytes of the head, with the blank line that ends it.

        Returns:
            The head, and True for HTTP/1.1 or False for HTTP/1.0. A ``content-length`` of the head
            is a number. A request of HTTP/1.1 has one ``host``, a request of 1.0 at most one. The
            same bytes are always the same head, and the value of a ``content-length`` or
            ``mcp-name`` is what was sent: a head is not parsed again if only these change.

        Raises:
            RemoteProtocolError: ``malformed_http`` if the bytes are not HTTP/1.1.
        """
        ...


@attrs.frozen(eq=False, repr=False)
class Http11Parser(Value):
    """A parser of HTTP/1.1 heads: the value of the setting ``http11``."""

    read_request_head: HeadParser[RequestHead]
    read_response_head: HeadParser[ResponseHead]


def malformed(what: object, status: int = 400) -> RemoteProtocolError:
    """Return the error for bytes that are not HTTP/1.1."""
    return RemoteProtocolError(f"Not HTTP/1.1: {what}", reason="malformed_http", http_status=status)
