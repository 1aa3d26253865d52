"""What a request must be to be read at all: the rows that are the same for every revision.

The rows are tried from top to bottom and the first that applies decides, so their order *is* the
behaviour. Each row is one small function that raises the refusal it stands for. They need only the
head, and are tried as soon as it has arrived, before a body is read. What comes after them belongs
to an era: :mod:`.legacy.session_validation`, :mod:`.modern.era`.

Source: 2025-03-26 to 2026-07-28 basic/transports: Streamable HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from ..codecs import headers
from ..codecs.delimited_buffer import message_too_large
from ..http import RequestHead, request_host
from ..limits import Limits
from ..revisions import of_era
from ..security import SecurityPolicy
from ..types import Era
from . import refusals


@attrs.frozen(kw_only=True)
class Endpoint:
    """What a server offers at which path, as far as the ladder has to know."""

    path: bytes
    versions: tuple[str, ...]
    """Those that are served, oldest first."""
    sessions: bool
    """Clients get a session; without, every request stands alone."""
    standalone_streams: bool
    """GET gives a standalone stream."""
    policy: SecurityPolicy
    limits: Limits
    sse_path: bytes | None = None
    """Where the stream of HTTP+SSE is opened; None: that transport is not served."""

    @property
    def handshake_versions(self) -> tuple[str, ...]:
        """Those of the versions that open with ``initialize``."""
        return of_era(self.versions, Era.LEGACY)

    @property
    def shares_path(self) -> bool:
        """Whether HTTP+SSE is served on the MCP path itself."""
        return self.sse_path == self.path.rstrip(b"/")

    @property
    def messages_path(self) -> bytes:
        """Where HTTP+SSE takes messages: beside its stream, or on the MCP path."""
        assert self.sse_path is not None
        return self.path if self.shares_path else self.sse_path.rpartition(b"/")[0] + b"/messages"


@attrs.define
class RequestContext:
    """One request on its way down the ladder."""

    endpoint: Endpoint
    head: RequestHead


Validator: TypeAlias = Callable[[RequestContext], None]


def validate_path(asked: RequestContext) -> None:
    """Two spellings are one path: a redirect for the slash costs clients their headers."""
    if asked.head.path.rstrip(b"/") != asked.endpoint.path.rstrip(b"/"):
        raise refusals.NOT_FOUND(url=asked.head.address_of(asked.endpoint.path))


def validate_host_and_origin(asked: RequestContext) -> None:
    """Source: 2025-11-25 basic/transports: Security Warning."""
    if not asked.endpoint.policy.allows_host(request_host(asked.head)):
        raise refusals.BAD_HOST()
    if not asked.endpoint.policy.allows_origin(headers.single(asked.head.values(b"origin"))):
        raise refusals.BAD_ORIGIN()


def validate_content_length(asked: RequestContext) -> None:
    """A body that says it is too large is not even read."""
    length = (asked.head.values(b"content-length") or (b"0",))[0]
    limit = asked.endpoint.limits.request_bytes
    if not length.isdigit() or len(length) > 18 or int(length) > limit:
        raise message_too_large(limit)


def validate_http_method(asked: RequestContext) -> None:
    """Source: 2025-03-26 basic/transports: POST and GET on one endpoint, DELETE ends sessions.

    GET and DELETE belong to the handshake revisions: 2026-07-28 basic/transports: POST only.
    """
    if asked.head.method not in (b"POST", b"GET", b"DELETE"):
        raise refusals.method_not_allowed(b"POST, GET, DELETE", "MCP uses POST, GET and DELETE")
    if asked.head.method != b"POST" and not asked.endpoint.handshake_versions:
        raise refusals.method_not_allowed(b"POST", "The protocol revision served here is POST only")


def validate_accept(asked: RequestContext) -> None:
    """The client lists both media types; wildcards count, as everywhere in HTTP.

    Source: 2025-03-26 basic/transports: Sending Messages to the Server.
    """
    forms = (headers.JSON, headers.EVENT_STREAM)
    accept = asked.head.values(b"accept")
    missing = [form.decode() for form in forms if not headers.accepts(accept, form)]
    if missing:
        raise refusals.response_not_acceptable(missing)


def validate_content_type(asked: RequestContext) -> None:
    """Parameters such as ``charset=utf-8`` are fine."""
    if headers.media_type(asked.head.values(b"content-type")) != headers.JSON:
        raise refusals.NOT_JSON()


COMMON: tuple[Validator, ...] = (validate_host_and_origin, validate_content_length)
"""The rows that every path and transport has."""

MCP_PATH: tuple[Validator, ...] = (validate_path, *COMMON, validate_http_method)
POST: tuple[Validator, ...] = (validate_accept, validate_content_type)


def check_common(asked: RequestContext) -> None:
    """Go down the rows that any request has. Raises RemoteProtocolError: the refusal."""
    for row in COMMON:
        row(asked)


def check_mcp_path(asked: RequestContext) -> None:
    """Go down the rows of the MCP path, which say nothing of GET and DELETE yet.

    Raises as :func:`check_common`.
    """
    for row in MCP_PATH:
        row(asked)
    if asked.head.method == b"POST":
        for row in POST:
            row(asked)
