"""JSON-RPC messages whose payload stays JSON text.

A gateway routes a message by its method, or by its id if it is a response, and forwards it. It does
not need the payload, so the payload is not decoded. It stays as it is, byte for byte, which costs
next to nothing.

The envelope is checked against all rules of :mod:`sansmcp.codecs.jsonrpc`. The payload is only
checked to be well-formed JSON in UTF-8, to have no more values than a message can have, and not to
nest deeper than parsers can recurse. The other rules of :mod:`sansmcp.codecs.json` (names, depth,
numbers) are checked when it is decoded. As there, the rules are implemented with the standard
library, and ``msgspec`` decodes those messages for which it provably gives the same result.
"""

from __future__ import annotations

import json as standard
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

import attrs

from ..limits import Limits
from ..messages import ErrorResponse, Message, Notification, Request, RequestId, Response
from ..types import assert_never, elide
from . import json, jsonrpc

try:
    from .members import read
except ImportError:  # not CPython: decode_stdlib() decodes everything
    read = None  # type: ignore[assignment]

_PAYLOADS = {"params", "result", "error"}
_STAND_IN = {"code": 0, "message": ""}
"""Replaces a payload that is an object, while the envelope is checked: valid as each of them."""

_NAME = re.compile(r'[ \t\n\r]*([{,])[ \t\n\r]*"')
"""The bracket or comma before a member, and the quote that begins its name."""
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_END = re.compile(r"[ \t\n\r]*}[ \t\n\r]*")


@attrs.define
class Envelope:
    """A message whose payload is not decoded; :func:`sansmcp.decode_envelope` returns it.

    Attributes:
        id: the id of a request or response; None for a notification, and for an error response
            that belongs to no request.
        method: the method of a request or notification; None for a response.
        params, result, error: the payload as JSON text. A response has a result or an error, a
            request or notification can have params; the others are None.
        further: other members by name, as JSON text: those that JSON-RPC does not define, and an
            ``id`` that is null. :meth:`encode` writes them again.
    """

    id: RequestId | None = None
    method: str | None = None
    params: bytes | None = attrs.field(default=None, repr=elide)
    result: bytes | None = attrs.field(default=None, repr=elide)
    error: bytes | None = attrs.field(default=None, repr=elide)
    further: Mapping[str, bytes] = attrs.field(default=MappingProxyType[str, bytes]({}), repr=elide)

    def encode(self) -> bytes:
        """Return the message as one JSON object, with its payload unchanged.

        To forward it with another id, assign :attr:`id` first.
        """
        members = [b'{"jsonrpc":"2.0"']
        if self.id is not None:
            members.append(b'"id":' + json.encode(self.id))
        for name, text in self.further.items():
            if name != "id" or self.id is None:
                members.append(json.encode(name) + b":" + text)
        if self.method is not None:
            members.append(b'"method":' + json.encode(self.method))
        if self.params is not None:
            members.append(b'"params":' + self.params)
        if self.result is not None:
            members.append(b'"result":' + self.result)
        if self.error is not None:
            members.append(b'"error":' + self.error)
        return b",".join(members) + b"}"

    def decode_payload(self, limits: Limits) -> Message:
        """Return the message with its payload decoded.

        Raises:
            RemoteProtocolError: as :func:`~sansmcp.codecs.jsonrpc.decode` does.
        """
        return jsonrpc.message_from(
            json.decode(self.encode(), limits.max_json_depth, limits.max_values)
        )


def decode(data: bytes, limits: Limits) -> Envelope:
    """Decode the envelope of one message.

    Raises:
        RemoteProtocolError: as :func:`~sansmcp.codecs.jsonrpc.decode` does; with -32600 and
            ``invalid_message`` for a batch. The payload only has to be well-formed, with no more
            values than a message can have, and nested no deeper than 1,024.
    """
    json.check_bounds(data, json.SAFE_DEPTH, limits.max_values)
    members = None if read is None else read(data)
    if members is not None:
        id, method = members.id, members.method
        params, result, error = members.params, members.result, members.error
        payload = bytes(params or result or error)
        is_object = payload[:1] == b"{"
        if method is not None:
            if not (result or error) and (is_object or not payload):
                return Envelope(id, method, payload or None)
        elif id is not None and not params:
            if result and not error:
                return Envelope(id, None, None, payload)
            if error and not result and is_object:
                return Envelope(id, None, None, None, payload)
    return decode_stdlib(data, limits)


def decode_stdlib(data: bytes, limits: Limits) -> Envelope:
    """Decode as :func:`decode` does, with the standard library alone: all rules, but slower."""
    json.check_bounds(data, json.SAFE_DEPTH, limits.max_values)
    texts = _texts(data, limits)
    if texts is None:  # malformed, not an object, or empty
        return _envelope(json.decode(data, limits.max_json_depth), {})
    members: dict[str, Any] = {}
    for name, text in texts.items():
        if name in _PAYLOADS:
            members[name] = _STAND_IN if text.startswith(b"{") else None
        else:
            members[name] = json.decode(text, limits.max_json_depth - 1)
    return _envelope(members, texts)


def _envelope(members: Any, texts: dict[str, bytes]) -> Envelope:
    """Return the envelope of a message with these members, whose JSON texts are ``texts``."""
    match jsonrpc.message_from(members):
        case Request(id, method):
            found = Envelope(id, method, params=texts.pop("params", None))
        case Notification(method):
            found = Envelope(None, method, params=texts.pop("params", None))
        case Response(id):
            found = Envelope(id, result=texts.pop("result"))
        case ErrorResponse(id):
            found = Envelope(id, error=texts.pop("error"))
        case _ as impossible:
            assert_never(impossible)
    for name in ("jsonrpc", "method", *(("id",) if found.id is not None else ())):
        texts.pop(name, None)
    if texts:
        found.further = texts
    return found


def _texts(data: bytes, limits: Limits) -> dict[str, bytes] | None:
    """Return the members of an object as JSON text; None if they cannot be separated."""
    texts: dict[str, bytes] = {}
    end = 0
    try:
        text = data.decode()
        while (quote := _NAME.match(text, end)) and (quote[1] == "{") == (end == 0):
            start = quote.end() - 1
            _, after = _SCANNER.raw_decode(text, start)
            name = json.decode(text[start:after].encode(), limits.max_json_depth)
            colon = _COLON.match(text, after)
            if colon is None or name in texts:
                return None
            _, end = _SCANNER.raw_decode(text, colon.end())
            texts[name] = text[colon.end() : end].encode()
    except (ValueError, RecursionError):
        return None
    return texts if _END.fullmatch(text, end) else None


def _no_constant(literal: str) -> NoReturn:
    raise ValueError(literal)


_SCANNER = standard.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant)
