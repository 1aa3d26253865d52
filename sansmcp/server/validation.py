"""The validators of an HTTP request that are the same for every revision.

A validator is a function that raises the refusal for one broken rule. They run in the order of
their table, and the first that raises decides, so the order matters to clients. They need only the
head, and run as soon as it has arrived, before the body is read. The validators of an era follow:
``legacy.session_validation`` and ``modern.era``.

Source: 2025-03-26 to 2026-07-28 basic/transports: Streamable HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from ..codecs import headers
from ..codecs.delimited_buffer import message_too_large
from ..http import RequestHead, request_host
from ..revisions import of_era
from ..types import Era
from . import refusals
from .options import ServerOptions

_MAX_HOST_CHARS = 255
"""Characters of a refused host that are repeated. Source: RFC 1035 section 2.3.4."""


@attrs.frozen
class Endpoint:
    """The settings of a server, with its paths as requests have them."""

    options: ServerOptions
    path: bytes
    sse_path: bytes | None = None
    """The path of the event stream of HTTP+SSE; None if that transport is not served."""
    health_path: bytes | None = None
    """The path of the health answer; None if it is not served."""

    @property
    def handshake_versions(self) -> tuple[str, ...]:
        """The versions that open with ``initialize``, oldest first."""
        return of_era(self.options.versions, Era.LEGACY)

    @property
    def shares_path(self) -> bool:
        """True if HTTP+SSE is served on the MCP path itself."""
        return self.sse_path == self.path.rstrip(b"/")

    @property
    def messages_path(self) -> bytes:
        """The path for the messages of HTTP+SSE: beside its stream, or the MCP path."""
        assert self.sse_path is not None
        return self.path if self.shares_path else self.sse_path.rpartition(b"/")[0] + b"/messages"


@attrs.define
class RequestContext:
    """An HTTP request for the validators."""

    endpoint: Endpoint
    head: RequestHead


Validator: TypeAlias = Callable[[RequestContext], None]


def validate_path(context: RequestContext) -> None:
    """Refuse other paths. A slash at the end is ignored: clients drop headers after a redirect."""
    if context.head.path.rstrip(b"/") != context.endpoint.path.rstrip(b"/"):
        raise refusals.NOT_FOUND(url=context.head.address_of(context.endpoint.path))


def validate_host_and_origin(context: RequestContext) -> None:
    """Refuse a ``Host`` or ``Origin`` that the policy does not allow.

    Source: 2025-11-25 basic/transports: Security Warning.
    """
    host = request_host(context.head)
    if not context.endpoint.options.policy.allows_host(host):
        shown = None if host is None else host.decode("latin-1")[:_MAX_HOST_CHARS]
        raise refusals.BAD_HOST(data={"host": shown})
    origin = headers.single(context.head.values(b"origin"))
    if not context.endpoint.options.policy.allows_origin(origin):
        raise refusals.BAD_ORIGIN(data={"origin": (origin or "")[:_MAX_HOST_CHARS]})


def validate_content_length(context: RequestContext) -> None:
    """Refuse a body whose announced length is over the limit, before any of it is read."""
    check_content_length(context.head, context.endpoint.options.limits.request_bytes)


def check_content_length(head: RequestHead, limit: int) -> int | None:
    """Return the announced length of a body; None if none is announced.

    Raises RemoteProtocolError if it is over the limit.
    """
    lengths = head.values(b"content-length")
    if not lengths:
        return None
    if not lengths[0].isdigit() or len(lengths[0]) > 18 or int(lengths[0]) > limit:
        raise message_too_large(limit)
    return int(lengths[0])


def validate_http_method(context: RequestContext) -> None:
    """Refuse HTTP methods that MCP does not use at the revisions that are served.

    Source: 2025-03-26 basic/transports: POST and GET on one endpoint, DELETE ends sessions;
    2026-07-28 basic/transports: POST only.
    """
    if context.head.method not in (b"POST", b"GET", b"DELETE"):
        raise refusals.method_not_allowed(b"POST, GET, DELETE", "MCP uses POST, GET and DELETE")
    if context.head.method != b"POST" and not context.endpoint.handshake_versions:
        raise refusals.method_not_allowed(b"POST", "The protocol revision served here is POST only")


def validate_accept(context: RequestContext) -> None:
    """Refuse a POST whose ``Accept`` excludes JSON or event streams. Wildcards include both.

    Source: 2025-03-26 basic/transports: Sending Messages to the Server.
    """
    media_types = (headers.JSON, headers.EVENT_STREAM)
    accept = context.head.values(b"accept")
    missing = [each.decode() for each in media_types if not headers.accepts(accept, each)]
    if missing:
        raise refusals.response_not_acceptable(missing)


def validate_content_type(context: RequestContext) -> None:
    """Refuse a body that is not declared as JSON. Parameters of the type are ignored."""
    if headers.media_type(context.head.values(b"content-type")) != headers.JSON:
        raise refusals.NOT_JSON()


def marks_of_post(head: RequestHead) -> tuple[object, ...]:
    """Return everything in the head of a POST on which its path and these validators depend.

    The announced length is not included.
    """
    values = head.values
    origin, types = values(b"origin"), values(b"content-type")
    return head.target, head.root, values(b"host"), origin, values(b"accept"), types


COMMON: tuple[Validator, ...] = (validate_host_and_origin, validate_content_length)
"""The validators of every path and transport."""

MCP_PATH: tuple[Validator, ...] = (validate_path, *COMMON, validate_http_method)
POST: tuple[Validator, ...] = (validate_accept, validate_content_type)


def check_common(context: RequestContext) -> None:
    """Run the validators of every HTTP request. Raises RemoteProtocolError for a refusal."""
    for validate in COMMON:
        validate(context)


def check_mcp_path(context: RequestContext) -> None:
    """Run the validators of the MCP path. Those that need a session come later.

    Raises RemoteProtocolError for a refusal.
    """
    for validate in MCP_PATH:
        validate(context)
    if context.head.method == b"POST":
        for validate in POST:
            validate(context)
