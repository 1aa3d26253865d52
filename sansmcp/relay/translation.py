"""Parameters and results, as the other end of a relay has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..codecs import json, jsonrpc
from ..errors import (
    AuthorizationFailed,
    Disconnected,
    InvalidResponse,
    JsonRpcError,
    LocalProtocolError,
    NegotiationFailed,
    ProcessEnded,
    RequestCancelled,
    RequestRefused,
    RequestTimeout,
    SessionLost,
    TaskCancelled,
    TaskLost,
)
from ..events import CallCompleted, CallFailed
from ..input_required import REQUEST_STATE, ROUND_PARAMS, InputRequest, InputRequired
from ..messages import Params
from ..meta_keys import LOG_LEVEL, OWN_META, SERVER_INFO, SUBSCRIPTION_ID
from ..revisions import Revision
from ..server_call import ServerCall
from ..tasks import EXTENSION
from ..types import Era

SERVER, RELAY, PARKED = "server", "relay", "parked"
"""Members of the signed state of a client: the upstream server that needs the input, and if the
upstream call is still open, which relay has it, and which pairing there. Relays of several
processes may have the same key, and one that was started again has that of the earlier one.
"""

_ABOUT_REQUEST = (jsonrpc.HEADER_MISMATCH, jsonrpc.UNSUPPORTED_VERSION)

PROGRESS_TOKEN = "progressToken"

_ITEMS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""By method: the member of its result that is a list."""


_REASONS: Mapping[type[Exception], str] = {
    ProcessEnded: "its process has ended, or could not be started",
    Disconnected: "its response is lost and the outcome is unknown",
    RequestTimeout: "it did not respond in time",
    SessionLost: "it has ended the session",
    AuthorizationFailed: "it requires authorization",
    InvalidResponse: "its response breaks the protocol",
    NegotiationFailed: "it has no transport or revision in common with the relay",
    TaskCancelled: "the task that ran the call was cancelled",
    TaskLost: "the state of the task that ran the call is lost",
}
"""By exception of an upstream client: what the clients of a relay are told."""


def reason_for_clients(error: Exception) -> str:
    """Return why an upstream server gave no result, a text that each client may read.

    The text of an exception has what the server process printed, which may be of calls of other
    clients, and URLs and paths of the relay's side. That is for a log.
    """
    match error:
        case RequestCancelled():  # its reason is that of the program with the relay
            return str(error)
        case RequestRefused(status=status):
            return f"it refused the HTTP request with status {status}"
        case Disconnected(was_sent=False):
            return "the connection to it was lost, and the call was not sent"
        case Disconnected(__cause__=ProcessEnded()):
            return "its process has ended and the outcome is unknown"
        case _:
            pass
    found = (text for kind, text in _REASONS.items() if isinstance(error, kind))
    return next(found, "it cannot be used")


def without_tasks(capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the capabilities of a client without those for tasks, which the relay follows."""
    extensions = json.as_object(capabilities.get("extensions")) or {}
    if "tasks" not in capabilities and EXTENSION not in extensions:
        return capabilities
    kept = {name: value for name, value in capabilities.items() if name != "tasks"}
    others = {name: value for name, value in extensions.items() if name != EXTENSION}
    return {**kept, "extensions": others}


def given(params: Params | None) -> Params | None:
    """Return parameters without what belongs to the conversation that they came in."""
    if params is None:
        return None
    given = {name: value for name, value in params.items() if name not in ROUND_PARAMS}
    meta = json.as_object(given.pop("_meta", None)) or {}
    kept = {name: value for name, value in meta.items() if name not in (*OWN_META, SUBSCRIPTION_ID)}
    return {**given, "_meta": kept} if kept else given


def with_level(params: Params | None, level: str | None) -> Params:
    """Return parameters with a log level."""
    given = params or {}
    meta = json.as_object(given.get("_meta")) or {}
    return {**given, "_meta": {**meta, LOG_LEVEL: level}}


def respond(
    call: ServerCall, event: CallCompleted | CallFailed, server: str | None, now: float
) -> str | None:
    """Respond to the call of a client as the upstream server did.

    Args:
        call: the call of the client.
        event: the end of the upstream call.
        server: the name of the upstream server.
        now: the current time in seconds, on the machine's clock.

    Returns:
        What of it could not be relayed, a text for a log; None if nothing is lost.
    """
    if isinstance(event, CallCompleted):
        try:
            call.respond(_result_for(call.peer.revision, event.result, server), now=now)
        except LocalProtocolError as error:
            return _respond_in_part(call, event.result, server, error, now)
    elif isinstance(event.error, JsonRpcError):
        data = event.error.data
        code, message = _error_for(call.peer.revision, event.error)
        try:
            call.respond_error(code, message, data, now=now)
        except LocalProtocolError as error:
            call.respond_error(code, message, now=now)
            return f"The data of an error of the upstream server cannot be sent: {error}"
    else:
        text = f"The upstream server gave no result: {reason_for_clients(event.error)}"
        call.respond_error(jsonrpc.INTERNAL_ERROR, text, now=now)
        if event.error.__cause__ is None:  # else the client has failed, and reports that once
            return f"{call.request.method[:100]!r} got no result: {event.error}"
    return None


def _error_for(revision: Revision, error: JsonRpcError) -> tuple[int, str]:
    """Return code and message of an error as a client of this revision gets them.

    At 2026-07-28 some codes say that the request was refused before anything has run, and the
    client may repeat it. Of the upstream server they are about a request of the relay.
    """
    if revision.era is Era.MODERN and error.code in _ABOUT_REQUEST:
        return jsonrpc.INTERNAL_ERROR, f"The upstream server failed: {error}"
    return error.code, error.message


def _respond_in_part(
    call: ServerCall, result: Any, server: str | None, error: LocalProtocolError, now: float
) -> str:
    """Respond where the result is not JSON, such as NaN, and return what is missing.

    A list has its other items then; the result of a tool becomes an error of the tool.
    """
    text = f"The result of the upstream server cannot be sent: {error}"
    members = json.as_object(result) or {}
    name = _ITEMS.get(call.request.method)
    items = members.get(name) if name is not None else None
    if json.is_array(items) and name is not None:
        kept = [item for item in items if _is_json(item)]
        try:
            call.respond(_result_for(call.peer.revision, {**members, name: kept}, server), now=now)
        except LocalProtocolError:  # the fault is beside the items
            pass
        else:
            return f"{len(items) - len(kept)} of {len(items)} {name} were left out: {error}"
    if call.request.method == "tools/call" and not _is_json(result):
        content = [{"type": "text", "text": text}]
        failed = {"content": content, "isError": True}
        kind = {"resultType": "complete"} if call.peer.revision.result_type else {}
        call.respond({**failed, **kind}, now=now)
    else:
        call.respond_error(jsonrpc.INTERNAL_ERROR, text, now=now)
    return text


def _is_json(value: Any) -> bool:
    try:
        json.encode(value)
    except LocalProtocolError:
        return False
    return True


def _result_for(revision: Revision, result: Any, server: str | None) -> Any:
    """Return a result as a client of this revision gets it.

    Raises:
        LocalProtocolError: the result asks for input in a way that the revision does not have.
    """
    members = json.as_object(result) or {}
    kind = members.get("resultType")
    if kind == "complete" and not revision.result_type:
        return _without_server_info(members)
    if kind == "input_required" and revision.result_type:
        return _input_required(members, server)
    return result


def _without_server_info(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result of 2026-07-28 without the members that older revisions do not have."""
    given = {name: value for name, value in members.items() if name != "resultType"}
    meta = json.as_object(given.get("_meta"))
    if meta is not None and SERVER_INFO in meta:
        given["_meta"] = {name: value for name, value in meta.items() if name != SERVER_INFO}
        if not given["_meta"]:
            del given["_meta"]
    return given


def _input_required(members: Mapping[str, Any], server: str | None) -> InputRequired:
    """Return the input requests of the upstream server, with its state inside that of our own.

    The state has the name of the server, so that no other one gets it.
    """
    requests: dict[str, InputRequest] = {}
    for name, given in (json.as_object(members.get("inputRequests")) or {}).items():
        request = json.as_object(given) or {}
        requests[name] = InputRequest(request.get("method", ""), request.get("params", {}))
    states = {name: members[name] for name in (REQUEST_STATE,) if name in members}
    state = {SERVER: server, **states}
    return InputRequired(requests, state)
