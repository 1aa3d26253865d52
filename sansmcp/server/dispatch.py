"""What a request is, or why it is refused: the ladder.

The rows are tried from top to bottom and the first that applies decides, so their order *is* the
behaviour. Each row is one small function that raises the refusal it stands for; its number is the
row of the dispatch table that it implements. Rows that need only the head are tried as soon as the
head has arrived, before a body is read.

Source: 2025-03-26, 2025-06-18, 2025-11-25 basic/transports: Streamable HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import attrs

from ..codecs import headers, jsonrpc
from ..codecs.buffer import too_large
from ..codecs.event_id import EventId
from ..codecs.jsonrpc import Batch
from ..errors import LocalProtocolError
from ..http import RequestHead, request_host
from ..limits import Limits
from ..messages import ErrorResponse, Message, Request, RequestId, Response
from ..meta import PROTOCOL_VERSION
from ..revisions import ASSUMED_VERSION, REVISIONS, Revision, of_era
from ..security import SecurityPolicy
from ..types import Era
from . import refusals
from .sessions import Session, SessionTable

SESSION_ID = b"mcp-session-id"
LAST_EVENT_ID = b"last-event-id"


@attrs.frozen(kw_only=True)
class Endpoint:
    """What a server offers at which path, as far as the ladder has to know."""

    path: bytes
    versions: tuple[str, ...]
    """Those that are served, oldest first."""
    sessions: bool
    """Clients get a session; without, every request stands alone."""
    listening: bool
    """GET gives a standalone stream."""
    policy: SecurityPolicy
    limits: Limits
    sse_path: bytes | None = None
    """Where the stream of HTTP+SSE is opened; None: that transport is not served."""

    def __attrs_post_init__(self) -> None:
        if self.sse_path is not None and not self.handshake_versions:
            raise LocalProtocolError("HTTP+SSE needs a version that opens with initialize")
        if self.shares_path and not self.sessions:
            raise LocalProtocolError(
                "Without sessions, HTTP+SSE needs a path of its own: on the MCP path, a GET may be "
                "from a client of either transport"
            )

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
class Asked:
    """One request on its way down the ladder."""

    endpoint: Endpoint
    table: SessionTable
    head: RequestHead

    @property
    def session_id(self) -> str | None:
        """The session id that the request carries."""
        return headers.single(self.head.headers, SESSION_ID)

    @property
    def version(self) -> str | None:
        """The protocol version that the request carries in its header."""
        return headers.single(self.head.headers, PROTOCOL_VERSION)

    @property
    def session(self) -> Session | None:
        """The session that the request belongs to, if it lives and is this principal's."""
        return self.table.find(self.head.principal, self.session_id)

    @property
    def revision(self) -> Revision:
        """The revision in force: the session's, else the header's, else the one that is assumed.

        A stateless one in the header comes before any session.
        """
        named, session = REVISIONS.get(self.version or ""), self.session
        if named is not None and (session is None or named.era is Era.MODERN):
            return named
        if session is not None:
            return session.revision
        served = self.endpoint.handshake_versions or self.endpoint.versions
        return REVISIONS[ASSUMED_VERSION if ASSUMED_VERSION in served else served[-1]]


Row: TypeAlias = tuple[str, Callable[[Asked], None]]


def path(asked: Asked) -> None:
    """Two spellings are one path: a redirect for the slash costs clients their headers."""
    if asked.head.path.rstrip(b"/") != asked.endpoint.path.rstrip(b"/"):
        raise refusals.not_found()


def host_and_origin(asked: Asked) -> None:
    """Source: 2025-11-25 basic/transports: Security Warning."""
    if not asked.endpoint.policy.allows_host(request_host(asked.head)):
        raise refusals.bad_host()
    if not asked.endpoint.policy.allows_origin(headers.single(asked.head.headers, b"origin")):
        raise refusals.bad_origin()


def announced_size(asked: Asked) -> None:
    """A body that says it is too large is not even read."""
    length = headers.get(asked.head.headers, b"content-length") or b"0"
    limit = asked.endpoint.limits.max_message_bytes
    if not length.isdigit() or len(length) > 18 or int(length) > limit:
        raise too_large(limit)


def http_method(asked: Asked) -> None:
    """Source: 2025-03-26 basic/transports: POST and GET on one endpoint, DELETE ends sessions."""
    if asked.head.method not in LADDERS:
        raise refusals.method_not_allowed(b"POST, GET, DELETE", "MCP uses POST, GET and DELETE")


def known_version(asked: Asked, request_id: RequestId | None = None) -> None:
    """A header that names no version at all.

    Source: 2025-06-18 basic/transports: Protocol Version Header.
    """
    if asked.version is not None and asked.version not in REVISIONS:
        raise refusals.unsupported_version(asked.version, asked.endpoint.versions, request_id)


def sessions_exist(asked: Asked) -> None:
    """GET and DELETE belong to the handshake revisions.

    Source: 2026-07-28 basic/transports: POST only.
    """
    if not asked.endpoint.handshake_versions:
        raise refusals.method_not_allowed(b"POST", "The protocol revision served here is POST only")


def has_get(asked: Asked) -> None:
    """In a session there are streams, whatever the header says."""
    if asked.session is None:
        has_delete(asked)


def has_delete(asked: Asked) -> None:
    """Source: 2026-07-28 basic/transports: POST only."""
    if asked.revision.era is Era.MODERN:
        raise refusals.method_not_allowed(b"POST", "This protocol revision uses POST only")


def wants_stream(asked: Asked) -> None:
    """A wildcard is not enough: a browser or a health check would get an endless stream."""
    if not headers.accepts(asked.head.headers, headers.EVENT_STREAM, any_type=False):
        raise refusals.stream_not_acceptable()


def session_lives(asked: Asked) -> None:
    """404 tells the client to start again.

    Source: 2025-03-26 basic/transports: Session Management.
    """
    if asked.endpoint.sessions and asked.session_id is not None and asked.session is None:
        raise refusals.session_not_found()


def session_given(asked: Asked, request_id: RequestId | None = None) -> None:
    """Source: 2025-03-26 basic/transports: Session Management: 400 without the header."""
    if asked.endpoint.sessions and asked.session_id is None:
        sse_path = asked.endpoint.sse_path
        raise refusals.session_required(
            listening=asked.head.method == b"GET",
            http_sse_url=None if sse_path is None else asked.head.address_of(sse_path or b"/"),
            request_id=request_id,
        )


def stream_offered(asked: Asked) -> None:
    """405 where no stream is offered.

    Source: 2025-03-26 basic/transports: Listening for Messages from the Server.
    """
    resumes = headers.get(asked.head.headers, LAST_EVENT_ID) is not None
    offered = asked.endpoint.listening and asked.endpoint.sessions
    if not resumes and not offered:
        raise refusals.method_not_allowed(b"POST", "No standalone event stream is offered here")


def deletion_allowed(asked: Asked) -> None:
    """Where there are no sessions there is nothing to end."""
    if not asked.endpoint.sessions:
        raise refusals.method_not_allowed(b"POST", "There are no sessions here to end")


def answer_forms(asked: Asked) -> None:
    """The client lists both media types; wildcards count, as everywhere in HTTP.

    Source: 2025-03-26 basic/transports: Sending Messages to the Server.
    """
    forms = (headers.JSON, headers.EVENT_STREAM)
    missing = [f.decode() for f in forms if not headers.accepts(asked.head.headers, f)]
    if missing:
        raise refusals.answer_not_acceptable(missing)


def body_form(asked: Asked) -> None:
    """Parameters such as ``charset=utf-8`` are fine."""
    if headers.media_type(asked.head.headers) != headers.JSON:
        raise refusals.not_json()


COMMON: tuple[Row, ...] = (
    ("0.2", host_and_origin),
    ("0.3", announced_size),
)
"""The rows that every path and transport has."""

MCP_PATH: tuple[Row, ...] = (("0.1", path), *COMMON, ("0.5", http_method))
LADDERS: Mapping[bytes, tuple[Row, ...]] = MappingProxyType(
    {
        b"GET": (
            ("2", sessions_exist),
            ("2.1", wants_stream),
            ("4.10", known_version),
            ("2.2", session_lives),
            ("2.5", has_get),
            ("2.8", session_given),
            ("2.4", stream_offered),
        ),
        b"DELETE": (
            ("3", sessions_exist),
            ("3.1", has_delete),
            ("3.1", deletion_allowed),
            ("4.10", known_version),
            ("3.2", session_given),
            ("3.2", session_lives),
        ),
        b"POST": (
            ("4.2", answer_forms),
            ("4.3", body_form),
        ),
    }
)
"""The rows of the MCP path by HTTP method, tried after those."""


def check_common(asked: Asked) -> None:
    """Go down the rows that any request has. Raises RemoteProtocolError: the refusal."""
    for _, row in COMMON:
        row(asked)


def check_head(asked: Asked) -> None:
    """Go down the rows of the MCP path that need no body. Raises as :func:`check_common`."""
    for _, row in MCP_PATH:
        row(asked)
    for _, row in LADDERS[asked.head.method]:
        row(asked)


def resumption_point(asked: Asked) -> EventId | None:
    """The cursor of a GET, or None if it opens a new stream. Row 2.3.

    Raises for what is no cursor of ours.
    """
    text = headers.single(asked.head.headers, LAST_EVENT_ID)
    if text is None:
        return None
    cursor = EventId.decode(text)
    if cursor is None:
        raise refusals.unknown_event_id()
    return cursor


def decode_body(asked: Asked, body: bytes) -> Message | Batch:
    """What is in the body of a POST. Raises RemoteProtocolError: the refusal."""
    decoded = jsonrpc.decode(body, asked.endpoint.limits)  # rows 4.4 and 4.9
    if isinstance(decoded, Batch):
        check_batch(asked.revision, decoded)  # rows 4.6 to 4.8
    return decoded


def check_message(asked: Asked, message: Message | Batch) -> None:
    """Go down the rows of a POST that need its message, of the handshake revisions.

    Raises RemoteProtocolError: the refusal.
    """
    request_id = message.id if isinstance(message, Request) else None
    if isinstance(message, Request) and message.method == "initialize":
        # What a newer client puts into the version header must not keep it from negotiating.
        if asked.endpoint.sessions and asked.session_id is not None:  # row 6.1
            raise refusals.initialize_in_session(message.id)
        return
    _check_version(asked, request_id)  # rows 4.10 and 6.2
    if asked.endpoint.sessions:  # row 6.3
        session_given(asked, request_id)
        if asked.session is None:
            raise refusals.session_not_found(request_id)


def _check_version(asked: Asked, request_id: RequestId | None) -> None:
    known_version(asked, request_id)
    if asked.version is not None and asked.version not in asked.endpoint.handshake_versions:
        raise refusals.version_not_served(asked.version, asked.endpoint.versions, request_id)


def check_batch(revision: Revision, batch: Batch) -> None:
    """Rows 4.6 to 4.8. Raises RemoteProtocolError.

    Source: 2025-03-26 basic: Batching, and basic/transports.
    """
    if not revision.batching:
        raise refusals.batch_not_allowed()
    if not batch.items:
        raise refusals.bad_batch("it is empty")
    answers = [isinstance(item, Response | ErrorResponse) for item in batch.items]
    if any(answers) and not all(answers):
        raise refusals.bad_batch("answers must not be mixed with requests and notifications")
    if any(isinstance(item, Request) and item.method == "initialize" for item in batch.items):
        raise refusals.bad_batch("initialize must stand alone")
