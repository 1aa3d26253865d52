"""The validators of the handshake revisions, which depend on sessions.

They run after those of ``..validation``, and work like them.

Source: 2025-03-26, 2025-06-18, 2025-11-25 basic/transports: Streamable HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import attrs

from ...codecs import headers
from ...codecs.event_id import EventId
from ...codecs.jsonrpc import Batch
from ...errors import RemoteProtocolError
from ...messages import ErrorResponse, Message, Request, RequestId, Response
from ...meta_keys import PROTOCOL_VERSION
from ...revisions import ASSUMED_VERSION, REVISIONS, Revision
from .. import refusals
from ..era_choice import LAST_EVENT_ID, SESSION_ID
from ..validation import RequestContext
from .sessions import LegacySession, SessionTable


@attrs.define
class SessionRequestContext(RequestContext):
    """An HTTP request for the validators, with the session it belongs to."""

    table: SessionTable
    version: str | None = attrs.field(init=False)
    """The protocol version in the header of the request, if there is one."""
    session_id: str | None = attrs.field(init=False)
    """The session id in the header of the request, if there is one."""

    def __attrs_post_init__(self) -> None:
        self.version = headers.single(self.head.values(PROTOCOL_VERSION))
        self.session_id = headers.single(self.head.values(SESSION_ID))

    @property
    def session(self) -> LegacySession | None:
        """The open session of this id and principal, or None."""
        return self.table.find(self.head.principal, self.session_id)

    def unknown_session(self, request_id: RequestId | None = None) -> RemoteProtocolError:
        """Return the refusal of a request whose session is not open.

        The status is 404, but 503 after the server has stopped: with 404 clients would give up
        calls whose last responses may be on their way, and open a new session.
        """
        if self.table.has_stopped and not self.table.is_shared:
            return refusals.SHUTTING_DOWN(request_id)
        return refusals.session_not_found(is_shared=self.table.is_shared, request_id=request_id)

    @property
    def revision(self) -> Revision:
        """The revision that applies to the request.

        It is the revision of the session; without one, that of the header, else the assumed one. A
        revision without sessions in the header takes precedence over a session.
        """
        named, session = REVISIONS.get(self.version or ""), self.session
        if named is not None and (session is None or not named.sessions):
            return named
        if session is not None:
            return session.revision
        served = self.endpoint.handshake_versions
        return REVISIONS[ASSUMED_VERSION if ASSUMED_VERSION in served else served[-1]]

    @property
    def needs_session(self) -> bool:
        """True if requests after ``initialize`` belong to a session."""
        return self.endpoint.options.sessions and self.revision.sessions


SessionValidator: TypeAlias = Callable[[SessionRequestContext], None]


def validate_version(context: SessionRequestContext, request_id: RequestId | None = None) -> None:
    """Refuse a header that is not a known version.

    Source: 2025-06-18 basic/transports: Protocol Version Header.
    """
    if context.version is not None and context.version not in REVISIONS:
        served = context.endpoint.options.versions
        raise refusals.unsupported_version(context.version, served, request_id)


def validate_get_supported(context: SessionRequestContext) -> None:
    """Refuse a GET without a session if its revision has no streams for GET.

    Source: 2026-07-28 basic/transports: POST only.
    """
    revision = context.revision
    if context.session is None and not (revision.standalone_stream or revision.resumption):
        raise refusals.method_not_allowed(b"POST", "This protocol revision uses POST only")


def validate_delete_supported(context: SessionRequestContext) -> None:
    """Refuse a DELETE if the header names a revision without sessions.

    Source: 2026-07-28 basic/transports: POST only.
    """
    if not context.revision.sessions:
        raise refusals.method_not_allowed(b"POST", "This protocol revision has no sessions to end")


def validate_stream_accept(context: SessionRequestContext) -> None:
    """Refuse a GET whose Accept header excludes event streams.

    The specification wants the header to list the media type, but plain tools send ``*/*`` or no
    header. A browser that opens the URL gets no endless stream, because it sends no session id.
    """
    if not headers.accepts(context.head.values(b"accept"), headers.EVENT_STREAM):
        raise refusals.stream_not_acceptable()


def validate_session_exists(context: SessionRequestContext) -> None:
    """Refuse an unknown session with 404, after which a client opens a new one.

    Source: 2025-03-26 basic/transports: Session Management.
    """
    has_sessions = context.endpoint.options.sessions
    if has_sessions and context.session_id is not None and context.session is None:
        raise context.unknown_session()


def validate_session_given(
    context: SessionRequestContext, request_id: RequestId | None = None
) -> None:
    """Refuse a request without a session id, with 400.

    Source: 2025-03-26 basic/transports: Session Management.
    """
    if context.needs_session and context.session_id is None:
        sse_path = context.endpoint.sse_path
        raise refusals.session_required(
            standalone_streams=context.head.method == b"GET",
            http_sse_url=None if sse_path is None else context.head.address_of(sse_path or b"/"),
            request_id=request_id,
        )


def validate_stream_offered(context: SessionRequestContext) -> None:
    """Refuse a GET with 405 if the stream it needs is not offered.

    Source: 2025-03-26 basic/transports: Listening for Messages from the Server.
    """
    revision = context.revision if context.session is None else context.session.revision
    if context.head.values(LAST_EVENT_ID):
        offered = revision.resumption
    else:
        options = context.endpoint.options
        has_session = options.sessions and revision.sessions
        offered = has_session and options.standalone_streams and revision.standalone_stream
    if not offered:
        raise refusals.method_not_allowed(b"POST", "No standalone event stream is offered here")


def validate_deletion_allowed(context: SessionRequestContext) -> None:
    """Refuse a DELETE if the server has no sessions."""
    if not context.endpoint.options.sessions:
        raise refusals.method_not_allowed(b"POST", "There are no sessions here to end")


VALIDATORS: Mapping[bytes, tuple[SessionValidator, ...]] = MappingProxyType(
    {
        b"GET": (
            validate_stream_accept,
            validate_version,
            validate_session_exists,
            validate_get_supported,
            validate_session_given,
            validate_stream_offered,
        ),
        b"DELETE": (
            validate_delete_supported,
            validate_deletion_allowed,
            validate_version,
            validate_session_given,
            validate_session_exists,
        ),
        b"POST": (),
    }
)
"""The validators by HTTP method; those of a POST need its message, see ``check_message()``."""


def check_head(context: SessionRequestContext) -> None:
    """Run the validators that need no body. Raises RemoteProtocolError for a refusal."""
    for validate in VALIDATORS[context.head.method]:
        validate(context)


def parse_last_event_id(context: SessionRequestContext) -> EventId | None:
    """Return the cursor in ``Last-Event-ID``, or None without that header.

    Raises RemoteProtocolError if it is not an event id of this server.
    """
    text = headers.single(context.head.values(LAST_EVENT_ID))
    if text is None:
        return None
    cursor = EventId.decode(text)
    if cursor is None:
        raise refusals.UNKNOWN_EVENT_ID()
    return cursor


def check_message(context: SessionRequestContext, message: Message | Batch) -> None:
    """Check a POST with its message. Raises RemoteProtocolError for a refusal."""
    if isinstance(message, Batch) and not is_continuation(context, message):
        check_batch(context.revision, message)
    request_id = message.id if isinstance(message, Request) else None
    if isinstance(message, Request) and message.method == "initialize":
        # A newer client may name a version here that is not served, and negotiate an older one.
        if context.endpoint.options.sessions and context.session_id is not None:
            raise refusals.INITIALIZE_IN_SESSION(message.id)
        return
    _check_version(context, request_id)
    if context.session is None and context.needs_session:
        validate_session_given(context, request_id)
        raise context.unknown_session(request_id)


def _check_version(context: SessionRequestContext, request_id: RequestId | None) -> None:
    validate_version(context, request_id)
    if context.version is not None and context.version not in context.endpoint.handshake_versions:
        served = context.endpoint.options.versions
        raise refusals.version_not_served(context.version, served, request_id)


def is_continuation(context: SessionRequestContext, batch: Batch) -> bool:
    """Return True if an array is the input responses of a turn.

    Also True for an unknown session, so that the refusal is about the session. Source: SEP-1858.
    """
    has_cursor = bool(context.head.values(LAST_EVENT_ID))
    may_be = context.session is None or context.session.multi_turn
    has_sessions = context.endpoint.options.sessions
    return has_cursor and has_sessions and may_be and bool(batch.items) and _are_responses(batch)


def _are_responses(batch: Batch) -> bool:
    return all(isinstance(item, Response | ErrorResponse) for item in batch.items)


def check_batch(revision: Revision, batch: Batch) -> None:
    """Check the elements of a batch. Raises RemoteProtocolError for a refusal.

    Source: 2025-03-26 basic: Batching, and basic/transports.
    """
    if not revision.batching:
        raise refusals.BATCH_NOT_ALLOWED()
    if not batch.items:
        raise refusals.BAD_BATCH(rule="it is empty")
    responses = [isinstance(item, Response | ErrorResponse) for item in batch.items]
    if any(responses) and not all(responses):
        raise refusals.BAD_BATCH(rule="responses must not be mixed with requests and notifications")
    if any(isinstance(item, Request) and item.method == "initialize" for item in batch.items):
        raise refusals.BAD_BATCH(rule="initialize must stand alone")
