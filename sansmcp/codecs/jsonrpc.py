"""Decode and encode JSON-RPC 2.0 messages, as MCP restricts them.

MCP is stricter than JSON-RPC: ids are strings or integers and never null, and ``params`` is an
object. Whether an array of messages (a batch) is allowed depends on the revision, which only a
machine knows, so :func:`decode` returns a :class:`Batch` and leaves the decision to its caller.

A message that is not exactly one of the four kinds is refused: member names are case-sensitive
(CVE-2026-27896), and a message with ``method`` and ``result`` is neither request nor response.

Source: every revision, basic: Messages; JSON-RPC 2.0; 2025-03-26 basic: Batching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeGuard

import attrs

from ..errors import LocalProtocolError, RemoteProtocolError
from ..limits import Limits
from ..messages import ErrorResponse, Message, Notification, Request, RequestId, Response
from ..types import Value, assert_never
from . import json

INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
"""Error codes that MCP defines. Source: 2026-07-28 basic: Error Codes."""


@attrs.frozen(eq=False, repr=False)
class Batch(Value):
    """A JSON array of messages. An element that is not a message is the error to respond with."""

    items: tuple[Message | RemoteProtocolError, ...]


Decoded: TypeAlias = Message | Batch
Mend: TypeAlias = Callable[[Any, RemoteProtocolError], Message]
"""Returns the message that a value means that is not exactly one; else it raises the error."""


def decode(data: bytes, limits: Limits, mend: Mend | None = None) -> Decoded:
    """Decode one JSON document to a message, or to a batch, which can be empty.

    Args:
        data: the document.
        limits: its bounds.
        mend: is called for each value that is not a message; if it is given, a byte order mark
            before the document is skipped, too. None refuses both.

    Raises:
        RemoteProtocolError: with ``jsonrpc_code`` -32700 if the document is not valid JSON (reasons
            of :mod:`sansmcp.codecs.json`). With -32600 and ``invalid_message`` if it is not a
            JSON-RPC message; ``request_id`` is set if the id can be read. With -32600 and
            ``batch_too_large`` for a batch beyond
            :attr:`~sansmcp.limits.Limits.max_batch_messages`.
        LocalProtocolError: ``data`` is not bytes.
    """
    try:
        value = json.decode(data, limits.max_json_depth, limits.max_values)
    except RemoteProtocolError:
        if mend is None or not data.startswith(json.BOM):
            raise
        bare = data.removeprefix(json.BOM)
        value = json.decode(bare, limits.max_json_depth, limits.max_values)
    if json.is_array(value):
        return decoded_from(value, limits, mend)
    try:
        return message_from(value)
    except RemoteProtocolError as error:
        if mend is None:
            raise
        return mend(value, error)


def decoded_from(value: Any, limits: Limits, mend: Mend | None = None) -> Decoded:
    """Convert a decoded JSON value to a message, or to a batch. Raises as :func:`decode` does."""
    if not json.is_array(value):
        return _mended_from(value, mend)
    if len(value) > limits.max_batch_messages:
        raise RemoteProtocolError(
            f"A batch of {len(value)} messages; at most {limits.max_batch_messages} are accepted",
            reason="batch_too_large",
            data={"limit": limits.max_batch_messages},
        )
    return Batch(tuple(_message_or_error(item, mend) for item in value))


def message_from(value: Any) -> Message:
    """Convert a decoded JSON value to a message.

    Raises RemoteProtocolError (-32600, ``invalid_message``) if it is not one.
    """
    if not json.is_object(value):
        raise _invalid("a message is a JSON object")
    members = value
    if members.get("jsonrpc") != "2.0":
        raise _invalid('the member jsonrpc must be "2.0"', members)
    if "method" in members:
        if "result" not in members and "error" not in members:
            return _call_from(members)
    elif "result" in members:
        if "error" not in members:
            return Response(_response_id(members), members["result"])
    elif "error" in members:
        return _error_from(members)
    raise _invalid("a message has exactly one of method, result and error", members)


def encode(message: Message, *, null_id: bool = False) -> bytes:
    """Encode a message as a JSON object on one line.

    Args:
        message: the message.
        null_id: True to write ``"id":null`` into an error response without an id, as JSON-RPC 2.0
            and the revisions before 2025-11-25 require; False to omit ``id``.

    Raises:
        LocalProtocolError: a value cannot be JSON, ``method`` is not a string, or ``params`` are
            not an object.
    """
    match message:  # patterns that bind names would take as long as the encoding
        case Request():
            members: dict[str, Any] = {
                "jsonrpc": "2.0",
                "id": message.id,
                "method": message.method,
            }
            _add_params(members, message)
        case Notification():
            members = {"jsonrpc": "2.0", "method": message.method}
            _add_params(members, message)
        case Response():
            members = {"jsonrpc": "2.0", "id": message.id, "result": message.result}
        case ErrorResponse():
            error = {"code": message.code, "message": message.message}
            if message.data is not None:
                error["data"] = message.data
            members = {"jsonrpc": "2.0", "error": error}
            if message.id is not None or null_id:
                members = {"jsonrpc": "2.0", "id": message.id, "error": error}
        case _ as impossible:
            assert_never(impossible)
    return json.encode(members)


def encode_request(
    id: RequestId, method: str, encoded_params: bytes, meta: Mapping[str, Any]
) -> bytes:
    """Encode a request whose parameters are encoded already.

    Args:
        id, method: of the request.
        encoded_params: its parameters as a JSON object without a member ``_meta``.
        meta: that member, which must not be empty.

    Raises:
        LocalProtocolError: a value is not JSON.
    """
    # One encoding of all that is not encoded yet; in a string, quotes would have backslashes.
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": {"_meta": meta}}
    head, _, rest = json.encode(message).partition(b',"params":{')
    separator = b"" if encoded_params == b"{}" else b","
    return b'%b,"params":%b%b%b' % (head, encoded_params[:-1], separator, rest)


def check_call(method: object, params: object) -> None:
    """Raise LocalProtocolError if ``method`` is not a string or ``params`` are not an object."""
    if not isinstance(method, str):
        raise LocalProtocolError(f"A method must be a string, and is {type(method).__name__}")
    if params is not None and not json.is_object(params):
        raise LocalProtocolError(
            f"The parameters must be an object (a dict), and are {type(params).__name__}"
        )


def _add_params(members: dict[str, Any], message: Request | Notification) -> None:
    check_call(message.method, message.params)
    if message.params is not None:
        members["params"] = message.params


def encode_batch(encoded: Iterable[bytes]) -> bytes:
    """Return a batch of messages that are encoded already."""
    return b"[" + b",".join(encoded) + b"]"


def is_request_id(value: Any) -> TypeGuard[RequestId]:
    """Return True if a value can be an id: a string or an integer; a bool is not an integer."""
    return type(value) is int or type(value) is str


def _call_from(members: dict[str, Any]) -> Request | Notification:
    method = members["method"]
    if not isinstance(method, str):
        raise _invalid("method must be a string", members)
    params: Any = members.get("params")
    if not json.is_object(params) and "params" in members:
        raise _invalid("params must be an object", members)
    if "id" not in members:
        return Notification(method, params)
    id = members["id"]
    if not is_request_id(id):
        raise _invalid("the id of a request must be a string or an integer", members)
    return Request(id, method, params)


def _error_from(members: dict[str, Any]) -> ErrorResponse:
    error = json.as_object(members["error"])
    if error is None:
        raise _invalid("error must be an object", members)
    code, text = error.get("code"), error.get("message")
    if type(code) is not int or not isinstance(text, str):
        raise _invalid("error must have an integer code and a string message", members)
    id = None if members.get("id") is None else _response_id(members)
    return ErrorResponse(id, code, text, error.get("data"))


def _response_id(members: dict[str, Any]) -> RequestId:
    """Return the id of a response.

    A float without fraction counts as an integer: JavaScript peers write 1 as 1.0.
    """
    id = members.get("id")
    if isinstance(id, float) and id.is_integer():
        return int(id)
    if not is_request_id(id):
        raise _invalid("a response must have the id of its request", members)
    return id


def _mended_from(value: Any, mend: Mend | None) -> Message:
    try:
        return message_from(value)
    except RemoteProtocolError as error:
        if mend is None:
            raise
        return mend(value, error)


def _message_or_error(value: Any, mend: Mend | None) -> Message | RemoteProtocolError:
    try:
        return _mended_from(value, mend)
    except RemoteProtocolError as error:
        return error


def _invalid(rule: str, members: dict[str, Any] | None = None) -> RemoteProtocolError:
    id = None if members is None else members.get("id")
    return RemoteProtocolError(
        f"Not a JSON-RPC message: {rule}",
        reason="invalid_message",
        jsonrpc_code=INVALID_REQUEST,
        request_id=id if is_request_id(id) else None,
        is_request=members is not None
        and "method" in members
        and not members.keys() & {"result", "error"},
    )
