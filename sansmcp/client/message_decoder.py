"""Decode what a server sends: strictly first, and tolerantly what that refuses.

The user has chosen the server, and gains nothing from a call that fails because of half an emoji in
a text. So what can be read in one way only is read, and each kind of fault is reported once.

A response that cannot be read ends its call at once if the id of the call can be seen in it.

Source: docs/decisions/reading-tolerantly.md.
"""

from __future__ import annotations

from typing import Any

import attrs

from ..codecs import json, jsonrpc
from ..codecs.jsonrpc import Batch, Decoded
from ..codecs.tolerant import glimpse, mend_from_server
from ..errors import RemoteProtocolError
from ..limits import Limits
from ..messages import ErrorResponse, Message
from .outcomes import Invalid

_LIMITS = {"too_deep": "max_response_depth", "too_many_values": "max_values"}
"""By reason of an error: the limit that was exceeded."""


def items_of(batch: Batch) -> list[Message | Invalid]:
    """Return the messages of a batch in order, with an error in place of what is none."""
    return [
        Invalid(item) if isinstance(item, RemoteProtocolError) else item for item in batch.items
    ]


@attrs.define(eq=False, repr=False)
class MessageDecoder:
    """Decodes the messages of one server."""

    limits: Limits
    """Those of the client."""
    _is_strict: bool = attrs.field(alias="is_strict")
    """True to read only what is exactly right."""
    _limits: Limits = attrs.field(init=False)
    """The same, with the depth of what a client reads."""
    _faults: list[RemoteProtocolError] = attrs.field(factory=list[RemoteProtocolError], init=False)
    """The faults of the document that is being decoded."""
    _reported: set[str] = attrs.field(factory=set[str], init=False)
    """The kinds of faults that were reported."""

    def __attrs_post_init__(self) -> None:
        depth = self.limits.max_response_depth
        self._limits = attrs.evolve(self.limits, max_json_depth=depth)

    def decode(self, data: bytes) -> Decoded:
        """Return the message or batch of which these are the bytes.

        A message that is not exactly right is returned in a batch, after an error for each kind of
        fault that was not reported before.

        Raises:
            RemoteProtocolError: it cannot be read. ``request_id`` is set if it is a response to
                that request.
        """
        limits = self._limits
        try:  # as jsonrpc.decode(), whose call would take a tenth of the time
            value = json.decode(data, limits.max_json_depth, limits.max_values)
            if type(value) is dict:
                return jsonrpc.message_from(value)
        except RemoteProtocolError as error:
            return self._with_faults(self._decode_again(data, error))
        return self._with_faults(jsonrpc.decoded_from(value, limits, self._mend))

    def decode_refusal(self, body: bytes) -> ErrorResponse | None:
        """Return the error in the body of a refusal; None if the body is none, such as a page."""
        mend = None if self._is_strict else mend_from_server
        start = 0 if self._is_strict or not body.startswith(json.BOM) else len(json.BOM)
        try:
            message = jsonrpc.decode(body[start:], self._limits, mend)
        except RemoteProtocolError:
            return None
        return message if isinstance(message, ErrorResponse) else None

    def unreadable(self, beginning: bytes, error: RemoteProtocolError) -> RemoteProtocolError:
        """Return the error for a message of which these bytes are the beginning, or all.

        Its ``request_id`` is set if the message is a response to that request.
        """
        limit = _LIMITS.get(error.reason)
        return RemoteProtocolError(
            error.message if limit is None else f"{error.message} ({limit})",
            reason=error.reason,
            http_status=error.http_status,
            jsonrpc_code=error.jsonrpc_code,
            request_id=glimpse(beginning).answered,
            data=error.data,
        )

    def _decode_again(self, data: bytes, error: RemoteProtocolError) -> Decoded:
        """Decode what is not exactly right. Raises as :meth:`decode` does."""
        limits = self._limits
        if error.reason == "invalid_message":
            return self._mend(json.decode(data, limits.max_json_depth), error)
        if not self._is_strict and error.reason not in _LIMITS:
            try:
                value, faults = json.decode_tolerant(data, limits.max_json_depth, limits.max_values)
            except RemoteProtocolError as again:
                error = again
            else:
                self._faults += faults
                try:
                    return jsonrpc.decoded_from(value, limits, self._mend)
                except RemoteProtocolError:
                    self._faults.clear()
                    raise
        raise self.unreadable(data, error)

    def _mend(self, value: Any, error: RemoteProtocolError) -> Message:
        if self._is_strict:
            raise error
        message = mend_from_server(value, error)
        self._faults.append(error)
        return message

    def _with_faults(self, decoded: Decoded) -> Decoded:
        """Return what was decoded, after the faults that were not reported before."""
        new: list[RemoteProtocolError] = []
        for fault in self._faults:
            kind = fault.message if fault.reason == "invalid_message" else fault.reason
            if kind not in self._reported:
                self._reported.add(kind)
                text = f"The server sent what is not exactly right, and was read: {fault.message}"
                new.append(RemoteProtocolError(text, reason=fault.reason))
        self._faults.clear()
        items = decoded.items if isinstance(decoded, Batch) else (decoded,)
        return Batch((*new, *items)) if new else decoded
