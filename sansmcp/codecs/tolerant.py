"""Read messages that are not exactly right, where they can mean only one thing.

Strict decoding comes first; these functions are for what it has refused. A ``null`` counts as
absent where JSON-RPC allows none: ``params``, and ``error`` beside a result. It never does for an
id. In what a server sends, more is read: see :func:`mend_from_server` and
:func:`sansmcp.codecs.json.decode_tolerant`.

Source: docs/decisions/reading-tolerantly.md.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import attrs

from ..errors import RemoteProtocolError
from ..messages import Message, RequestId
from ..types import Value
from . import json, jsonrpc

_MAX_TOKENS = 1_000_000
"""Brackets and strings of a broken document that are looked at, in a third of a second."""

_TOKEN = re.compile(rb'"([^"]*)("|\Z)|[{}\[\]]')
_COLON = re.compile(rb"\s*:\s*")
_ID = re.compile(rb'(-?[0-9]{1,18}|"[^"\0\\]{0,1000}")\s*[,}]')


def mend_from_client(value: Any, error: RemoteProtocolError) -> Message:
    """Return the message without ``params`` or ``error`` that is null. Raises ``error`` else."""
    given = _without_nulls(value, ("params", "error"))
    if given is None:
        raise error
    return jsonrpc.message_from(given)


def mend_from_server(value: Any, error: RemoteProtocolError) -> Message:
    """Return the message without what its server's serialiser added to it. Raises ``error`` else.

    ``method``, ``params`` and ``error`` count as absent if they are null, and so does a null
    ``result`` beside an error. An error code such as -32000.0 counts as the integer.
    """
    given = _without_nulls(value, ("method", "params", "error"))
    members = json.as_object(value) if given is None else given
    failure = None if members is None else json.as_object(members.get("error"))
    if members is not None and failure is not None:
        if "result" in members and members["result"] is None:
            members = given = {name: each for name, each in members.items() if name != "result"}
        code = failure.get("code")
        if isinstance(code, float) and code.is_integer():
            given = {**members, "error": {**failure, "code": int(code)}}
    if given is None:
        raise error
    try:
        return jsonrpc.message_from(given)
    except RemoteProtocolError:
        raise error from None


def _without_nulls(value: Any, names: tuple[str, ...]) -> dict[str, Any] | None:
    """Return an object without those of the members that are null; None if it has none of them."""
    members = json.as_object(value)
    if members is None or all(members.get(name, value) is not None for name in names):
        return None
    return {name: each for name, each in members.items() if each is not None or name not in names}


@attrs.frozen(eq=False, repr=False)
class Glimpse(Value):
    """What can be seen of a message that cannot be decoded, as a whole or only its beginning."""

    id: RequestId | None
    """The one id at the top level; None if there is none, or more."""
    names: frozenset[bytes]
    """The names of the members at the top level."""
    is_whole: bool
    """True if the object has its end."""

    @property
    def answered(self) -> RequestId | None:
        """The id of the request to which the message is a response; None if it may be none."""
        is_response = self.is_whole or not self.names.isdisjoint((b"result", b"error"))
        return self.id if is_response and b"method" not in self.names else None

    @property
    def asked(self) -> RequestId | None:
        """The id of the request that the message is; None if it may be something else."""
        return self.id if self.names.isdisjoint((b"result", b"error")) else None


def glimpse(data: bytes) -> Glimpse:
    """Return the members at the top level of an object that is not quite JSON, or cut off.

    What looks like members within strings, arrays and other objects is none.
    """
    # Neither an escaped quote nor an escaped backslash before a quote ends or begins a string.
    text = data.removeprefix(json.BOM).replace(rb"\\", b"\0\0").replace(rb"\"", b"\0\0")
    names: list[bytes] = []
    ids: list[bytes] = []
    depth = 0
    is_whole = False
    if text.lstrip()[:1] != b"{":
        return Glimpse(None, frozenset(), is_whole=False)
    for token in itertools.islice(_TOKEN.finditer(text), _MAX_TOKENS):
        mark = token[0]
        if mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and (colon := _COLON.match(text, token.end())) is not None:
            names.append(token[1])
            if token[1] == b"id":
                value = _ID.match(text, colon.end())
                ids.append(b"" if value is None else value[1])
        is_whole = depth == 0
    is_plain = not any(b"\\" in name for name in names)  # else it may be "id", written otherwise
    id = _id_from(ids[0]) if is_plain and len(ids) == 1 else None
    return Glimpse(id, frozenset(names), is_whole)


def _id_from(literal: bytes) -> RequestId | None:
    try:
        value = json.decode(literal, 1)
    except RemoteProtocolError:  # no id, or invalid UTF-8 in it
        return None
    return value if jsonrpc.is_request_id(value) else None
