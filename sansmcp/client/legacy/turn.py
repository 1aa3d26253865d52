"""Answers that are kept back until the server wants them, all at once (SEP-1858).

When a server has sent ``buffer_input`` on the stream of a call, the answers to what it asks there
are not sent one by one. ``input_required`` ends the turn, and the stream: as soon as all answers
are there they go out as one array, by a POST with the id of that event, and the call goes on in the
response to it. An error, because the user has declined, is an answer like others.

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
    """What is asked in one turn of a call, and the answers so far."""

    number: int
    """Of the call."""
    _limits: Limits
    request_ids: set[RequestId] = attrs.field(factory=set[RequestId], init=False)
    _responses: list[bytes] = attrs.field(factory=list[bytes], init=False)
    _size: int = attrs.field(default=0, init=False)
    _is_closed: bool = attrs.field(default=False, init=False)

    def add_request(self, id: RequestId) -> LimitExceeded | bool:
        """Add a server request to the turn; False if it is in it already."""
        if id in self.request_ids:
            return False
        if len(self.request_ids) == self._limits.max_batch_messages:
            return LimitExceeded(f"more than {self._limits.max_batch_messages} questions at once")
        self.request_ids.add(id)
        return True

    def add_response(
        self, message: Response | ErrorResponse
    ) -> TurnDone | ResponseBuffered | LimitExceeded:
        """Keep the answer to one of them."""
        data = jsonrpc.encode(message)
        self._responses.append(data)
        self._size += len(data) + 1
        if self._size >= self._limits.max_message_bytes:
            return LimitExceeded(f"questions with answers of {self._size} bytes")
        return self._check()

    def close(self) -> TurnDone | ResponseBuffered:
        """Record that the server asks nothing more in this turn."""
        self._is_closed = True
        return self._check()

    def _check(self) -> TurnDone | ResponseBuffered:
        if self._is_closed and len(self._responses) == len(self.request_ids):
            return TurnDone(self.number, jsonrpc.encode_batch(self._responses))
        return ResponseBuffered()
