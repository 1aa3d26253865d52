"""Every way in which a server says no, and what it tells the person at the other end.

A refusal is a status, one line of JSON-RPC error, and a ``data.reason`` that programs can match.
The message says what to send instead. Each mistake has its own reason, because a bare status led
people to wrong theories for days. They are ordinary :class:`~sansmcp.errors.RemoteProtocolError`
objects: the ladder of :mod:`.dispatch` raises them, the exchange answers with their ``reply``.

Source: 2025-03-26 to 2026-07-28 basic/transports, for status and code where they are prescribed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..authentication import Refusal
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


def not_found(mcp_url: str) -> RemoteProtocolError:
    """The path is not ours."""
    text = f"Nothing is served at this path: the MCP endpoint is {mcp_url}"
    return RemoteProtocolError(text, reason="not_found", http_status=404)


def bad_host() -> RemoteProtocolError:
    """DNS rebinding (CVE-2025-66416): a page of another site talks to a server on this machine."""
    return RemoteProtocolError(
        "This Host is not served here: use the name or address that the server was set up for",
        reason="host_not_allowed",
        http_status=403,
    )


def bad_origin() -> RemoteProtocolError:
    """A page of an origin that is not allowed. Source: 2025-11-25 basic/transports."""
    return RemoteProtocolError(
        "Requests from web pages of this Origin are not allowed here",
        reason="origin_not_allowed",
        http_status=403,
    )


def not_authenticated(refusal: Refusal) -> RemoteProtocolError:
    """What the application's ``authenticate`` has refused. Source: RFC 9110 section 15.5.2."""
    is_challenge = refusal.status == 401
    challenge = refusal.challenge or ("Bearer" if is_challenge else None)
    return RemoteProtocolError(
        refusal.message,
        reason=refusal.reason or ("unauthorized" if is_challenge else "forbidden"),
        http_status=refusal.status,
        headers=() if challenge is None else ((b"www-authenticate", challenge.encode()),),
    )


def authentication_failed() -> RemoteProtocolError:
    """The application's ``authenticate`` has raised, or returned what is no principal."""
    return RemoteProtocolError(
        "The server cannot find out who makes this request",
        reason="authentication_failed",
        http_status=500,
        jsonrpc_code=INTERNAL_ERROR,
    )


def method_not_allowed(allow: bytes, hint: str) -> RemoteProtocolError:
    """An HTTP method that has no meaning here."""
    return RemoteProtocolError(
        hint,
        reason="method_not_allowed",
        http_status=405,
        data={"allow": allow.decode().split(", ")},
        headers=((b"allow", allow),),
    )


def stream_not_acceptable() -> RemoteProtocolError:
    """A GET whose Accept header excludes event streams."""
    return RemoteProtocolError(
        "GET here opens an event stream: send Accept: text/event-stream",
        reason="not_acceptable",
        http_status=406,
        data={"required": ["text/event-stream"]},
    )


def answer_not_acceptable(missing: Sequence[str]) -> RemoteProtocolError:
    """A POST whose ``Accept`` rules out one of the two forms of answer."""
    return RemoteProtocolError(
        "POST needs Accept: application/json, text/event-stream; "
        f"{' and '.join(missing)} is missing",
        reason="not_acceptable",
        http_status=406,
        data={"required": ["application/json", "text/event-stream"], "missing": list(missing)},
    )


def not_json() -> RemoteProtocolError:
    """A body that does not even claim to be JSON."""
    return RemoteProtocolError(
        "POST needs a JSON-RPC message as body, with Content-Type: application/json",
        reason="unsupported_media_type",
        http_status=415,
    )


def session_required(
    *, listening: bool, http_sse_url: str | None, request_id: RequestId | None
) -> RemoteProtocolError:
    """No session id where one is needed. ``http_sse_url``: where HTTP+SSE is served, if it is."""
    then = "GET" if listening else "send this"
    where = "not served on this URL" if http_sse_url is None else f"served at {http_sse_url}"
    return RemoteProtocolError(
        f"No Mcp-Session-Id: POST initialize to this URL first, then {then} with the id it "
        f"returns. The HTTP+SSE transport is {where}",
        reason="session_required",
        request_id=request_id,
        data={"transports": ["streamable-http"], "httpSseUrl": http_sse_url},
    )


def http_sse_stream_url(mcp_url: str) -> RemoteProtocolError:
    """A POST to the stream of HTTP+SSE: a newer client that looks for the MCP endpoint."""
    return RemoteProtocolError(
        "This is the event stream of the deprecated HTTP+SSE transport, opened by GET; "
        f"Streamable HTTP is served at {mcp_url}",
        reason="http_sse_stream_url",
        http_status=405,
        data={"mcpUrl": mcp_url},
        headers=((b"allow", b"GET"),),
    )


def message_token_required() -> RemoteProtocolError:
    """A POST to the messages of HTTP+SSE that belongs to no stream."""
    return RemoteProtocolError(
        "POST messages to the URI that the endpoint event of your event stream names",
        reason="message_token_required",
    )


def message_token_unknown() -> RemoteProtocolError:
    """A POST that belongs to a stream that has ended, or to somebody else's."""
    return RemoteProtocolError(
        "The event stream that this URI belongs to has ended: open a new one, and initialize again",
        reason="session_not_found",
        http_status=404,
    )


def not_reading(request_id: RequestId | None) -> RemoteProtocolError:
    """More is asked on a stream whose reader has not taken the answers that wait for it."""
    return RemoteProtocolError(
        "Read your event stream before you ask for more: too much waits there to be read",
        reason="stream_not_read",
        http_status=429,
        request_id=request_id,
    )


def session_not_found(
    *, is_shared: bool, request_id: RequestId | None = None
) -> RemoteProtocolError:
    """An unknown, ended or foreign session; ``is_shared``: other instances' sessions are known.

    Source: 2025-03-26 basic/transports: Session Management.
    """
    message = "Unknown or expired session; send initialize to open a new one"
    if not is_shared:
        message += (
            ". If several processes serve this URL, another one may have opened it: they must "
            "share a store (store and shared_store), or each session must stay at one process"
        )
    return RemoteProtocolError(
        message,
        reason="session_not_found",
        http_status=404,
        request_id=request_id,
    )


def unknown_event_id() -> RemoteProtocolError:
    """A cursor that is none of this session's, or whose messages are no longer kept."""
    return RemoteProtocolError(
        "Last-Event-ID names no event of this session that can be resumed from: "
        "it is unknown or has expired",
        reason="unknown_event_id",
    )


def unknown_turn() -> RemoteProtocolError:
    """An answer to a question of a call that waited in the store, and is no longer kept there."""
    return RemoteProtocolError(
        "The call that asked this is no longer kept, or is not of this session: it has ended "
        "without a result. Make it again",
        reason="unknown_turn",
    )


def unsupported_version(
    asked: str, served: Sequence[str], request_id: RequestId | None = None
) -> RemoteProtocolError:
    """A version nobody has heard of. Source: SEP-2575; 2025-06-18 only asks for 400."""
    return RemoteProtocolError(
        f"Protocol version {asked[:40]!r} is not served here; served are {', '.join(served)}",
        reason="unsupported_version",
        jsonrpc_code=UNSUPPORTED_VERSION,
        request_id=request_id,
        data={"supported": list(reversed(served)), "requested": asked[:40]},
    )


def no_handshake(request: Request, served: Sequence[str]) -> RemoteProtocolError:
    """``initialize``, where no revision is served that has it.

    Source: 2026-07-28 basic/versioning: such a client is told which ones are.
    """
    return RemoteProtocolError(
        "There is no initialize at the protocol versions that are served here: "
        f"{', '.join(served)}; ask server/discover",
        reason="unsupported_version",
        jsonrpc_code=UNSUPPORTED_VERSION,
        request_id=request.id,
        data={
            "supported": list(reversed(served)),
            "requested": str((request.params or {}).get("protocolVersion"))[:40],
        },
    )


def version_not_served(
    asked: str, served: Sequence[str], request_id: RequestId | None
) -> RemoteProtocolError:
    """A known handshake version that this server does not offer."""
    return RemoteProtocolError(
        f"Protocol version {asked!r} is not served here; served are {', '.join(served)}",
        reason="unsupported_version",
        jsonrpc_code=INVALID_REQUEST,
        request_id=request_id,
        data={"supported": list(served), "requested": asked},
    )


def initialize_in_session(request_id: RequestId) -> RemoteProtocolError:
    """Source: 2025-03-26 basic/transports: initialize opens a session and carries no id of one."""
    return RemoteProtocolError(
        "initialize opens a new session: send it without Mcp-Session-Id",
        reason="initialize_in_session",
        request_id=request_id,
    )


def invalid_request_params(what: str, reason: str, request_id: RequestId) -> RemoteProtocolError:
    """Of the stateless revisions: the parameters that every request has."""
    return RemoteProtocolError(
        f"Invalid params: {what}",
        reason=reason,
        jsonrpc_code=INVALID_PARAMS,
        request_id=request_id,
    )


def no_answers_wanted() -> RemoteProtocolError:
    """Of the stateless revisions: a server asks nothing, so nothing can be answered."""
    return RemoteProtocolError(
        "At this protocol revision servers make no requests, so there is nothing to answer",
        reason="unexpected_response",
    )


def header_mismatch(name: str, request_id: RequestId | None) -> RemoteProtocolError:
    """A header that does not repeat the body. Source: SEP-2243."""
    return RemoteProtocolError(
        f"The header {name} is missing, doubled, or says something else than the body",
        reason="header_mismatch",
        jsonrpc_code=HEADER_MISMATCH,
        request_id=request_id,
        data={"header": name},
    )


def bad_tool(what: str, request_id: RequestId) -> RemoteProtocolError:
    """Our own definition of a tool is wrong, so its headers cannot be checked."""
    return RemoteProtocolError(
        f"The input schema of this tool cannot be used: {what}",
        reason="bad_tool",
        http_status=500,
        jsonrpc_code=INTERNAL_ERROR,
        request_id=request_id,
    )


def method_not_found(method: str, request_id: RequestId) -> RemoteProtocolError:
    """Of the stateless revisions: with HTTP 404."""
    return RemoteProtocolError(
        f"Method {method[:100]!r} is not supported",
        reason="method_not_found",
        http_status=404,
        jsonrpc_code=METHOD_NOT_FOUND,
        request_id=request_id,
    )


def too_many_subscriptions(limit: int, request_id: RequestId) -> RemoteProtocolError:
    """As many listen as may."""
    return RemoteProtocolError(
        f"{limit} clients are listening already: try again later",
        reason="too_many_subscriptions",
        http_status=503,
        request_id=request_id,
        data={"limit": limit},
    )


def too_many_resources(limit: int, request_id: RequestId) -> RemoteProtocolError:
    """A session that has subscribed to as many resources as it may."""
    return RemoteProtocolError(
        f"This session has subscribed to {limit} resources already: unsubscribe from some",
        reason="too_many_resources",
        http_status=200,
        request_id=request_id,
        data={"limit": limit},
    )


def initialized_already(request_id: RequestId) -> RemoteProtocolError:
    """A second ``initialize`` on a channel that is a session."""
    return RemoteProtocolError(
        "This session is initialized already: another one needs a connection of its own",
        reason="initialized_already",
        request_id=request_id,
    )


def not_initialized(served: Sequence[str], request_id: RequestId | None) -> RemoteProtocolError:
    """Source: basic/lifecycle: Initialization: ``initialize`` comes first."""
    return RemoteProtocolError(
        f"Send initialize first; the protocol versions served here are {', '.join(served)}",
        reason="not_initialized",
        request_id=request_id,
        data={"supported": list(served)},
    )


def batch_not_allowed() -> RemoteProtocolError:
    """An array, under a revision that has none."""
    return RemoteProtocolError(
        "A JSON array is not a message in this protocol revision: send each message on its own",
        reason="batch_not_allowed",
    )


def bad_batch(rule: str) -> RemoteProtocolError:
    """An array that 2025-03-26 does not allow."""
    return RemoteProtocolError(f"Not a valid batch: {rule}", reason="bad_batch")


def duplicate_request_id(request_id: RequestId) -> RemoteProtocolError:
    """A second request with the id of one that is still running; the first goes on unharmed."""
    return RemoteProtocolError(
        "A request with this id is still running in this session: ids must not repeat",
        reason="duplicate_request_id",
        request_id=request_id,
    )


def too_many_calls(limit: int, request_id: RequestId) -> RemoteProtocolError:
    """The session runs as many requests as it may."""
    return RemoteProtocolError(
        f"This session already runs {limit} requests: wait for some of them to end",
        reason="too_many_requests",
        http_status=429,
        request_id=request_id,
        data={"limit": limit},
    )


def too_many_sessions(limit: int, request_id: RequestId | None) -> RemoteProtocolError:
    """The server holds as many sessions as it may."""
    return RemoteProtocolError(
        f"The server already holds {limit} sessions: try again later",
        reason="too_many_sessions",
        http_status=503,
        request_id=request_id,
        data={"limit": limit},
    )


def too_many_streams(limit: int) -> RemoteProtocolError:
    """The session has as many standalone streams as it may."""
    return RemoteProtocolError(
        f"This session already has {limit} standalone event streams: "
        "close one, or resume one with Last-Event-ID",
        reason="too_many_streams",
        http_status=429,
        data={"limit": limit},
    )


def shutting_down(request_id: RequestId | None = None) -> RemoteProtocolError:
    """The server takes nothing new."""
    return RemoteProtocolError(
        "The server is shutting down: connect again later",
        reason="shutting_down",
        http_status=503,
        request_id=request_id,
    )


def unknown_method(method: str, request_id: RequestId) -> RemoteProtocolError:
    """Answered with HTTP 200: in a session, 404 would mean that the session is gone."""
    return RemoteProtocolError(
        f"Method {method[:100]!r} is not supported",
        reason="method_not_found",
        http_status=200,
        jsonrpc_code=METHOD_NOT_FOUND,
        request_id=request_id,
    )


def invalid_params(what: str, request_id: RequestId) -> RemoteProtocolError:
    """Parameters that the protocol itself defines are missing or of the wrong type."""
    return RemoteProtocolError(
        f"Invalid params: {what}",
        reason="invalid_params",
        http_status=200,
        jsonrpc_code=INVALID_PARAMS,
        request_id=request_id,
    )
