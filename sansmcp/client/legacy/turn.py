"""Responses to server requests that are sent together at the end of a turn (SEP-1858).

After the event ``buffer_input`` on the stream of a call, the responses to the server requests on
that stream are buffered. The event ``input_required`` ends the turn and the stream. When all
responses are complete, the client sends them as one array, in a POST with the id of that event. The
call continues in the response to this POST. An error response, such as when the user declines,
counts as a response.

Source: SEP-1858.
"""

from __future__ import annotations

import attrs

from ...codecs import jsonrpc
from ...limits import Limits
from ...messages import ErrorResponse, RequestId, Response
from ..outcomes import LimitExceeded, ResponseBuffered, TurnDone

BUFFER_INPUT = "buffer_input"
INPUT_REQUIRED = "input_required"


@attrs.define(eq=False, repr=False)
class Turn:
    """The server requests of one turn of a call, and the responses so far."""

    number: int
    """The number of the call."""
    _limits: Limits
    request_ids: set[RequestId] = attrs.field(factory=lambda: set(), init=False)
    _responses: list[bytes] = attrs.field(factory=lambda: [], init=False)
    _size: int = attrs.field(default=0, init=False)
    _is_closed: bool = attrs.field(default=False, init=False)

    def add_request(self, id: RequestId) -> LimitExceeded | bool:
        """Add a server request to the turn. Return False if it was added before."""
        if id in self.request_ids:
            return False
        most = self._limits.max_batch_messages
        if len(self.request_ids) == most:
            return LimitExceeded(
                f"more than {most} server requests in one turn (max_batch_messages)"
            )
        self.request_ids.add(id)
        return True

    def add_response(
        self, message: Response | ErrorResponse
    ) -> TurnDone | ResponseBuffered | LimitExceeded:
        """Buffer the response to one of the server requests."""
        data = jsonrpc.encode(message)
        self._responses.append(data)
        self._size += len(data) + 1
        if self._size >= self._limits.max_message_bytes:
            return LimitExceeded(
                f"server requests whose responses have {self._size} bytes (max_message_bytes)"
            )
        return self._check()

    def close(self) -> TurnDone | ResponseBuffered:
        """Record that the turn has no further server requests."""
        self._is_closed = True
        return self._check()

    def _check(self) -> TurnDone | ResponseBuffered:
        if self._is_closed and len(self._responses) == len(self.request_ids):
            return TurnDone(self.number, jsonrpc.encode_batch(self._responses))
        return ResponseBuffered()
