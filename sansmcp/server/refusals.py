"""The refusals of a server, as a table: status, code, reason and text.

The text says what to send instead. Each mistake has a ``reason`` of its own, which programs can
match, because a bare status does not show which of several mistakes was made. Calling a template
returns a RemoteProtocolError: a validator raises it, and the exchange sends its ``reply``.

    raise refusals.TOO_MANY_CALLS(request.id, limit=32)

Those about missing input of a client are in ``input_checks`` and ``legacy.parked_calls``.

Source: 2025-03-26 to 2026-07-28 basic/transports, for status and code where they are prescribed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from ..codecs.headers import Headers
from ..codecs.jsonrpc import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
)
from ..errors import RemoteProtocolError
from ..messages import Request, RequestId
from ..rates import RateLimit
from ..reclaim import NEVER_ARRIVED, PLACE


@attrs.frozen
class RefusalTemplate:
    """One kind of refusal; calling it returns a RemoteProtocolError.

    Attributes:
        status: the HTTP status; on stdio it is not used.
        code: the JSON-RPC error code.
        reason: the word in ``error.data.reason``.
        text: the message, with the names of values in braces.
        data_fields: the names of the values that ``error.data`` contains, too.
    """

    status: int
    code: int
    reason: str
    text: str
    data_fields: tuple[str, ...] = ()

    def __call__(
        self,
        request_id: RequestId | None = None,
        /,
        *,
        data: dict[str, Any] | None = None,
        headers: Headers = (),
        **values: object,
    ) -> RemoteProtocolError:
        """Return the error.

        Args:
            request_id: the id of the refused request; None if it is unknown.
            data: further members of ``error.data``.
            headers: further headers of the HTTP response.
            values: the values for the names in the text.
        """
        return RemoteProtocolError(
            self.text.format_map(values),
            reason=self.reason,
            http_status=self.status,
            jsonrpc_code=self.code,
            request_id=request_id,
            data={**{name: values[name] for name in self.data_fields}, **(data or {})},
            headers=headers,
        )


# Path, host, origin, and authentication

NOT_FOUND = RefusalTemplate(
    404, INVALID_REQUEST, "not_found", "Nothing is served at this path: the MCP endpoint is {url}"
)
# DNS rebinding (CVE-2025-66416): the page of another site sends requests to a local server.
BAD_HOST = RefusalTemplate(
    403,
    INVALID_REQUEST,
    "host_not_allowed",
    "This Host is not served here: use the name or address that the server was set up for",
)
# Source: 2025-11-25 basic/transports.
BAD_ORIGIN = RefusalTemplate(
    403,
    INVALID_REQUEST,
    "origin_not_allowed",
    "Requests from web pages of this Origin are not allowed here",
)
AUTHENTICATION_FAILED = RefusalTemplate(
    500,
    INTERNAL_ERROR,
    "authentication_failed",
    "The server failed to authenticate this request: try again later",
)
BAD_CREDENTIALS = RefusalTemplate(
    400,
    INVALID_REQUEST,
    "bad_credentials",
    "Send one access token, in one Authorization header, and none in the URL",
)
BAD_PROOF = RefusalTemplate(
    401, INVALID_REQUEST, "invalid_dpop_proof", "The DPoP proof is not valid: {text}"
)
NONCE_REQUIRED = RefusalTemplate(
    401,
    INVALID_REQUEST,
    "use_dpop_nonce",
    "Make the DPoP proof again, with the nonce in the header DPoP-Nonce",
)
TOKEN_NOT_BOUND = RefusalTemplate(
    401,
    INVALID_REQUEST,
    "token_not_bound",
    "The access token must be bound to a key, and be sent with a DPoP proof: get another one",
)
INSUFFICIENT_SCOPE = RefusalTemplate(
    403,
    INVALID_REQUEST,
    "insufficient_scope",
    "This needs an access token with the scopes {scopes}",
)
# The application's function of the scopes has raised.
SCOPES_FAILED = RefusalTemplate(
    500, INTERNAL_ERROR, "scopes_failed", "The server cannot tell which scopes this request needs"
)
# That function needs to know what a request is about.
UNNAMED = RefusalTemplate(
    400, INVALID_PARAMS, "invalid_params", "Invalid params: {parameter} must be a string"
)
_METHOD_NOT_ALLOWED = RefusalTemplate(405, INVALID_REQUEST, "method_not_allowed", "{hint}")

# Media types and batches

STREAM_NOT_ACCEPTABLE = RefusalTemplate(
    406,
    INVALID_REQUEST,
    "not_acceptable",
    "GET here opens an event stream: send Accept: text/event-stream",
)
RESPONSE_NOT_ACCEPTABLE = RefusalTemplate(
    406,
    INVALID_REQUEST,
    "not_acceptable",
    "POST needs Accept: application/json, text/event-stream; {what} is missing",
)
NOT_JSON = RefusalTemplate(
    415,
    INVALID_REQUEST,
    "unsupported_media_type",
    "POST needs a JSON-RPC message as body, with Content-Type: application/json",
)
BATCH_NOT_ALLOWED = RefusalTemplate(
    400,
    INVALID_REQUEST,
    "batch_not_allowed",
    "A JSON array is not a message in this protocol revision: send each message on its own",
)
BAD_BATCH = RefusalTemplate(400, INVALID_REQUEST, "bad_batch", "Not a valid batch: {rule}")

# Sessions. Source: 2025-03-26 basic/transports, Session Management; basic/lifecycle.

_SESSION_REQUIRED = RefusalTemplate(
    400,
    INVALID_REQUEST,
    "session_required",
    "No Mcp-Session-Id: POST initialize to this URL first, then {then} with the id it returns. The "
    "HTTP+SSE transport is {where}",
)
_SESSION_NOT_FOUND = RefusalTemplate(
    404,
    INVALID_REQUEST,
    "session_not_found",
    "Unknown or expired session; send initialize to open a new one{hint}",
)
INITIALIZE_IN_SESSION = RefusalTemplate(
    400,
    INVALID_REQUEST,
    "initialize_in_session",
    "initialize opens a new session: send it without Mcp-Session-Id",
)
INITIALIZED_ALREADY = RefusalTemplate(
    400,
    INVALID_REQUEST,
    "initialized_already",
    "This session is initialized already: open another connection for another session",
)
_NOT_INITIALIZED = RefusalTemplate(
    400,
    INVALID_REQUEST,
    "not_initialized",
    "Send initialize first; the protocol versions served here are {versions}",
)

# HTTP+SSE

_HTTP_SSE_STREAM_URL = RefusalTemplate(
    405,
    INVALID_REQUEST,
    "http_sse_stream_url",
    "This is the event stream of the deprecated HTTP+SSE transport, opened by GET; Streamable HTTP "
    "is served at {url}",
)
MESSAGE_TOKEN_REQUIRED = RefusalTemplate(
    400,
    INVALID_REQUEST,
    "message_token_required",
    "POST messages to the URI that the endpoint event of your event stream names",
)
MESSAGE_TOKEN_UNKNOWN = RefusalTemplate(
    404,
    INVALID_REQUEST,
    "session_not_found",
    "The event stream that this URI belongs to has ended: open a new one, and initialize again",
)
NOT_READING = RefusalTemplate(
    429,
    INVALID_REQUEST,
    "stream_not_read",
    "Too many unread messages on the event stream: read it before you send another request",
)
NOT_STDIO = RefusalTemplate(
    400,
    INVALID_REQUEST,
    "not_stdio",
    "The client speaks stdio-v2 (HTTP/2), and this server stdio (lines of JSON); set the same "
    "transport for both",
)

# Resumption, and parked calls

UNKNOWN_EVENT_ID = RefusalTemplate(
    400,
    INVALID_REQUEST,
    "unknown_event_id",
    "Last-Event-ID names no event of this session that can be resumed from: it is unknown or has "
    "expired",
)
UNKNOWN_TURN = RefusalTemplate(
    400,
    INVALID_REQUEST,
    "unknown_turn",
    "The call of this server request has expired, or belongs to another session: send the call "
    "again",
)

# Versions. SEP-2575 defines code and data; 2025-06-18 only the status 400.

_UNSUPPORTED_VERSION = RefusalTemplate(
    400,
    UNSUPPORTED_VERSION,
    "unsupported_version",
    "Protocol version {requested!r} is not served here; served are {versions}",
)
_NO_HANDSHAKE = RefusalTemplate(
    400,
    UNSUPPORTED_VERSION,
    "unsupported_version",
    "The protocol versions that are served here have no initialize: {versions}; send "
    "server/discover",
)
_VERSION_NOT_SERVED = RefusalTemplate(
    400,
    INVALID_REQUEST,
    "unsupported_version",
    "Protocol version {requested!r} is not served here; served are {versions}",
)

# Requests of 2026-07-28

UNEXPECTED_RESPONSE = RefusalTemplate(
    400,
    INVALID_REQUEST,
    "unexpected_response",
    "At this protocol revision servers make no requests, so a response is not expected",
)
# Source: SEP-2243.
HEADER_MISMATCHED = RefusalTemplate(
    400,
    HEADER_MISMATCH,
    "header_mismatch",
    "The header {header} is missing, repeated, or differs from the body",
    ("header",),
)
# The application's definition of a tool is wrong, so its headers cannot be checked.
BAD_TOOL = RefusalTemplate(
    500, INTERNAL_ERROR, "bad_tool", "The input schema of this tool cannot be used: {what}"
)
META_REQUIRED = RefusalTemplate(400, INVALID_PARAMS, "meta_required", "Invalid params: {what}")
UNKNOWN_LOG_LEVEL = RefusalTemplate(
    400, INVALID_PARAMS, "unknown_log_level", "Invalid params: {what}"
)
BAD_REQUEST_STATE = RefusalTemplate(
    400, INVALID_PARAMS, "bad_request_state", "Invalid params: {what}"
)
INVALID_MODERN_PARAMS = RefusalTemplate(
    400, INVALID_PARAMS, "invalid_params", "Invalid params: {what}"
)
METHOD_UNSUPPORTED = RefusalTemplate(
    404, METHOD_NOT_FOUND, "method_not_found", "Method {method!r} is not supported"
)

# Requests in a session. Their status is not 404, which would mean that the session has ended.

UNKNOWN_METHOD = RefusalTemplate(
    200, METHOD_NOT_FOUND, "method_not_found", "Method {method!r} is not supported"
)
INVALID_SESSION_PARAMS = RefusalTemplate(
    200, INVALID_PARAMS, "invalid_params", "Invalid params: {what}"
)
DUPLICATE_REQUEST_ID = RefusalTemplate(
    400,
    INVALID_REQUEST,
    "duplicate_request_id",
    "A request with this id is still running in this session: ids must not repeat",
)

# Limits, and shutdown

# Source: RFC 6585 section 4.
_RATE_LIMITED = RefusalTemplate(
    429,
    INVALID_REQUEST,
    "rate_limited",
    "Too many requests: {rate} are allowed, and nothing was run: wait for {seconds} s",
)
_TOO_MANY_PROOFS = RefusalTemplate(
    429,
    INVALID_REQUEST,
    "too_many_proofs",
    "Too many DPoP proofs of this user are remembered (max_dpop_proofs): try again in {seconds} s",
)
TOO_MANY_CALLS = RefusalTemplate(
    429,
    INVALID_REQUEST,
    "too_many_requests",
    "This session already runs {limit} requests: wait for some of them to end",
    ("limit",),
)
BUSY = RefusalTemplate(
    503,
    INVALID_REQUEST,
    "busy",
    "Too many calls are running, and nothing was run for this one: try again later",
)
TOO_MANY_SESSIONS = RefusalTemplate(
    503,
    INVALID_REQUEST,
    "too_many_sessions",
    "The server already holds {limit} sessions: try again later",
    ("limit",),
)
TOO_MANY_STREAMS = RefusalTemplate(
    429,
    INVALID_REQUEST,
    "too_many_streams",
    "This session already has {limit} standalone event streams: close one, or resume one with "
    "Last-Event-ID",
    ("limit",),
)
TOO_MANY_SUBSCRIPTIONS = RefusalTemplate(
    503,
    INVALID_REQUEST,
    "too_many_subscriptions",
    "The server already has {limit} subscriptions: try again later",
    ("limit",),
)
TOO_MANY_RESOURCES = RefusalTemplate(
    200,
    INVALID_REQUEST,
    "too_many_resources",
    "This session has subscribed to {limit} resources already: unsubscribe from some",
    ("limit",),
)
SHUTTING_DOWN = RefusalTemplate(
    503, INVALID_REQUEST, "shutting_down", "The server is shutting down: connect again later"
)

INSTANCE_LOST = RefusalTemplate(
    200,
    INTERNAL_ERROR,
    "instance_lost",
    "The instance of the server that ran this call has died, and nobody knows how far the call has "
    "come. Repeat it only if that does no harm",
)
# Source: the extension io.modelcontextprotocol/tasks.
BAD_KEY = RefusalTemplate(
    400,
    INVALID_PARAMS,
    "bad_key",
    "Invalid params: sansmcp/reclaim in _meta is no key (see docs/reclaim.md)",
)
KEY_IN_USE = RefusalTemplate(
    409, INVALID_REQUEST, "key_in_use", "Another call has this key; make a new one for each call"
)
OTHER_PLACE = RefusalTemplate(
    409,
    INVALID_REQUEST,
    "other_place",
    "The call is for another process of this server, or too old; send it for the place in data",
)
UNKNOWN_KEY = RefusalTemplate(
    409,
    INVALID_REQUEST,
    "unknown_key",
    "This process has no response of a call with this key",
)
RUNS_ELSEWHERE = RefusalTemplate(
    503,
    INVALID_REQUEST,
    "runs_elsewhere",
    "Another instance runs the call with this key; ask again, so that it gets the request",
)
TOO_MANY_KEYS = RefusalTemplate(
    429,
    INVALID_REQUEST,
    "too_many_keys",
    "This instance has stored the keys of too many calls (max_stored_entries), and nothing was "
    "run: try again later",
)
TOO_MANY_CUT_CALLS = RefusalTemplate(
    200,
    INTERNAL_ERROR,
    "too_many_cut_calls",
    "The server has cancelled this call, because {why}; it may have done some of its work",
)
CANCELLED_ELSEWHERE = RefusalTemplate(
    503,
    INVALID_REQUEST,
    "unknown_key",
    "Another process may have the call with this key; send the notification again",
)
UNKNOWN_TASK = RefusalTemplate(
    200,
    INVALID_PARAMS,
    "unknown_task",
    "There is no such task: taskId is wrong, or its time to live is over",
)
BAD_TASK_RULE = RefusalTemplate(
    500,
    INTERNAL_ERROR,
    "bad_task_rule",
    "This server cannot decide if the call becomes a task: its rule has raised {what}",
)
TASK_REQUEST_STOPPED = RefusalTemplate(
    200,
    INTERNAL_ERROR,
    "shutting_down",
    "The server was stopped before it had read the task: ask for the task again",
)
TASK_NOT_STORED = RefusalTemplate(
    200,
    INTERNAL_ERROR,
    "task_not_stored",
    "The store of this server does not work at present, so this call could not become a task, and "
    "has ended. Nobody knows how far it has come. Repeat it only if that does no harm",
)
TASK_STORE_FAILED = RefusalTemplate(
    200,
    INTERNAL_ERROR,
    "store_failed",
    "The store of this server does not work at present: ask for the task again later",
)
TOO_MANY_TASKS = RefusalTemplate(
    429,
    INVALID_REQUEST,
    "too_many_tasks",
    "This needs a task, and {limit} tasks run or wait for input already: wait for some of them to "
    "end",
    ("limit",),
)
TASK_LOST = RefusalTemplate(
    200,
    INTERNAL_ERROR,
    "instance_lost",
    "The instance of the server that ran this task has died, and nobody knows how far the task has "
    "come. Repeat the call only if that does no harm",
)
TASK_STOPPED = RefusalTemplate(
    200,
    INTERNAL_ERROR,
    "shutting_down",
    "The server was stopped while this task ran. Repeat the call only if that does no harm",
)
TASK_TIMED_OUT = RefusalTemplate(
    200, INTERNAL_ERROR, "task_timeout", "The task took longer than {limit} s"
)
TASK_TOO_DEEP = RefusalTemplate(
    200,
    INTERNAL_ERROR,
    "too_deep",
    "The response nests deeper than {limit} levels, which is more than a task keeps",
    ("limit",),
)
RECORD_TOO_NEW = RefusalTemplate(
    503,
    INTERNAL_ERROR,
    "record_too_new",
    "A later version of this server has stored what this needs, and this process cannot read it: "
    "try again, so that a process of that version gets the request",
)
_STORE_FAILED = RefusalTemplate(
    503,
    INTERNAL_ERROR,
    "store_failed",
    "The store of this server does not work at present, and nothing was run: try again later",
)


# Refusals whose values or headers are computed


def rate_limited(
    request_id: RequestId | None, limit: RateLimit, seconds: int
) -> RemoteProtocolError:
    """Return the error for a request that exceeds the rate; ``seconds``: the time to wait."""
    return _RATE_LIMITED(
        request_id,
        rate=f"{limit.per_second:g} per second, and {limit.burst} at once,",
        seconds=seconds,
        headers=((b"retry-after", b"%d" % seconds),),
    )


def too_many_proofs(seconds: int) -> RemoteProtocolError:
    """Return the error for a DPoP proof that cannot be kept; ``seconds``: the time to wait."""
    return _TOO_MANY_PROOFS(seconds=seconds, headers=((b"retry-after", b"%d" % seconds),))


def unknown_key(request: Request, place: str, *, never_arrived: bool) -> RemoteProtocolError:
    """Return the error for a request for the rest of a call whose response is not kept.

    ``place``: that which clients are to name. ``never_arrived``: no call with the key has arrived.
    """
    return UNKNOWN_KEY(request.id, data={PLACE: place, NEVER_ARRIVED: never_arrived})


def store_failed(request_id: RequestId | None = None) -> RemoteProtocolError:
    """Return the error for a request that needs the store, which does not work at present."""
    return _STORE_FAILED(request_id, headers=((b"retry-after", b"1"),))


def method_not_allowed(allow: bytes, hint: str) -> RemoteProtocolError:
    """Return the error for an HTTP method that this path does not have.

    ``allow``: the methods that it has, as the header has them.
    """
    allowed = allow.decode().split(", ")
    return _METHOD_NOT_ALLOWED(hint=hint, data={"allow": allowed}, headers=((b"allow", allow),))


def stream_not_acceptable() -> RemoteProtocolError:
    """Return the error for a GET whose ``Accept`` excludes event streams."""
    return STREAM_NOT_ACCEPTABLE(data={"required": ["text/event-stream"]})


def response_not_acceptable(missing: Sequence[str]) -> RemoteProtocolError:
    """Return the error for a POST whose ``Accept`` excludes the ``missing`` media types."""
    required = ["application/json", "text/event-stream"]
    data = {"required": required, "missing": list(missing)}
    return RESPONSE_NOT_ACCEPTABLE(what=" and ".join(missing), data=data)


def session_required(
    *, standalone_streams: bool, http_sse_url: str | None, request_id: RequestId | None
) -> RemoteProtocolError:
    """Return the error for a request without the session id that it needs.

    ``http_sse_url``: the URL of HTTP+SSE; None if it is not served.
    """
    where = "not served on this URL" if http_sse_url is None else f"served at {http_sse_url}"
    return _SESSION_REQUIRED(
        request_id,
        then="GET" if standalone_streams else "send this",
        where=where,
        data={"transports": ["streamable-http"], "httpSseUrl": http_sse_url},
    )


def session_not_found(
    *, is_shared: bool, request_id: RequestId | None = None
) -> RemoteProtocolError:
    """Return the error for an unknown session, an ended one, or one of another principal.

    ``is_shared``: True if the sessions of other instances are known here.
    """
    hint = (
        ". If several processes serve this URL, another one may have opened it: they must share a "
        "store (store and shared_store), or each session must stay at one process"
    )
    return _SESSION_NOT_FOUND(request_id, hint="" if is_shared else hint)


def not_initialized(served: Sequence[str], request_id: RequestId | None) -> RemoteProtocolError:
    """Return the error for a channel that does not begin with ``initialize``."""
    data = {"supported": list(served)}
    return _NOT_INITIALIZED(request_id, versions=", ".join(served), data=data)


def http_sse_stream_url(url: str) -> RemoteProtocolError:
    """Return the error for a POST to the event stream of HTTP+SSE.

    Its client is probably a newer one that looks for the MCP endpoint, which is at ``url``.
    """
    return _HTTP_SSE_STREAM_URL(url=url, data={"mcpUrl": url}, headers=((b"allow", b"GET"),))


def unsupported_version(
    requested: str, served: Sequence[str], request_id: RequestId | None = None
) -> RemoteProtocolError:
    """Return the error for a version that is not served."""
    data = {"supported": list(reversed(served)), "requested": requested[:40]}
    return _UNSUPPORTED_VERSION(
        request_id, requested=requested[:40], versions=", ".join(served), data=data
    )


def no_handshake(request: Request, served: Sequence[str]) -> RemoteProtocolError:
    """Return the error for ``initialize`` at a server without handshake revisions.

    It names the versions that are served. Source: 2026-07-28 basic/versioning.
    """
    requested = str((request.params or {}).get("protocolVersion"))[:40]
    data = {"supported": list(reversed(served)), "requested": requested}
    return _NO_HANDSHAKE(request.id, versions=", ".join(served), data=data)


def version_not_served(
    requested: str, served: Sequence[str], request_id: RequestId | None
) -> RemoteProtocolError:
    """Return the error for a handshake version that this server does not serve."""
    data = {"supported": list(served), "requested": requested}
    return _VERSION_NOT_SERVED(
        request_id, requested=requested, versions=", ".join(served), data=data
    )
