"""The choice between 2026-07-28 and the handshake revisions, made once for each message.

A request of 2026-07-28 names its version in ``_meta``. The handshake revisions have no such member,
so a message without it is theirs, unless none of them is served, or the version header names a
newer one.

Source: 2026-07-28 basic: version and capabilities; basic/versioning.
"""

from __future__ import annotations

from typing import TypeGuard
from urllib.parse import parse_qs

from ..codecs import headers
from ..codecs.jsonrpc import Batch
from ..http import RequestHead
from ..messages import Message, Request
from ..meta_keys import PROTOCOL_VERSION, VERSION, meta_of
from ..revisions import REVISIONS
from . import refusals
from .core import ServerCore
from .validation import Endpoint

SESSION_ID = b"mcp-session-id"
LAST_EVENT_ID = b"last-event-id"

TOKEN = "session_id"
"""The name in the query. The official SDKs use the same, and some proxies know it."""

_SHORT_BODY = 64 * 1024
"""A body of up to this many bytes is read even if its session is unknown: then the refusal names
the request, and the connection can be reused.
"""


def is_http_sse(endpoint: Endpoint, head: RequestHead) -> bool:
    """True for a request of the transport of 2024-11-05, on its own paths or on the MCP path.

    There it is a POST with a token, or a GET that names neither session nor version nor event.
    Source: 2025-03-26 basic/transports: Backwards Compatibility.
    """
    if endpoint.sse_path is None:
        return False
    path = head.path.rstrip(b"/")
    if path not in (endpoint.sse_path, endpoint.messages_path.rstrip(b"/")):
        return False
    if path != endpoint.path.rstrip(b"/"):
        return True
    if head.method == b"POST":
        return message_token(head) is not None
    if head.method != b"GET" or not endpoint.shares_path:
        return False
    marks = (SESSION_ID, PROTOCOL_VERSION, LAST_EVENT_ID)
    return not any(head.values(mark) for mark in marks)


def message_token(head: RequestHead) -> str | None:
    """Return the token that ties a POST of HTTP+SSE to its event stream; None if it has none."""
    _, _, query = head.target.partition(b"?")
    values = parse_qs(query.decode("latin-1")).get(TOKEN)
    return values[0] if values and len(values) == 1 else None


def names_session_early(head: RequestHead, length: int | None) -> bool:
    """Return True if the session of a request to the MCP path is checked before its body arrives.

    It is not checked early if the POST has a short body, or its header names a revision without
    sessions. ``length``: that of the body; None if the head does not announce it.
    """
    if head.method != b"POST":
        return True
    if length is not None and length <= _SHORT_BODY:
        return False
    named = REVISIONS.get(headers.single(head.values(PROTOCOL_VERSION)) or "")
    return named is None or named.sessions


def is_modern(
    message: Message | Batch, core: ServerCore, header: str | None = None
) -> TypeGuard[Message]:
    """True for a message of 2026-07-28; False for one of the handshake revisions.

    ``header``: the version that the HTTP request names; None where there is none. A header alone
    does not make ``initialize`` modern: clients of several makes send the newest version there that
    they know, with the request that negotiates it.

    Raises RemoteProtocolError for a message of the handshake revisions where none is served.
    """
    if isinstance(message, Batch):
        if core.handshake_versions:
            return False
        raise refusals.BATCH_NOT_ALLOWED()
    if VERSION in meta_of(message):
        return True
    is_initialize = isinstance(message, Request) and message.method == "initialize"
    if header in core.modern_versions and not is_initialize:
        return True
    if core.handshake_versions:
        return False
    if isinstance(message, Request) and is_initialize:
        raise refusals.no_handshake(message, core.options.versions)
    if header is not None:
        id = message.id if isinstance(message, Request) else None
        raise refusals.unsupported_version(header, core.options.versions, id)
    return True
