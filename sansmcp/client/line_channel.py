"""The messages that a server process writes: one per line.

A line that is not a message is reported, and the next line is read.

Source: every revision, basic/transports: stdio.
"""

from __future__ import annotations

from collections import deque

import attrs

from ..codecs import jsonrpc
from ..codecs.jsonrpc import Batch
from ..codecs.ndjson import NdjsonDecoder
from ..errors import RemoteProtocolError
from ..limits import Limits
from ..types import Idle
from .outcomes import Invalid, LineOutcome


@attrs.define(eq=False, repr=False)
class LineChannel:
    """Reads the standard output of a server process."""

    _limits: Limits
    _decoder: NdjsonDecoder = attrs.field(
        default=attrs.Factory(
            lambda self: NdjsonDecoder(self._limits.max_message_bytes), takes_self=True
        ),
        init=False,
    )
    _next: deque[LineOutcome] = attrs.field(factory=deque[LineOutcome], init=False)
    """Decoded outcomes that were not pulled yet: the rest of a batch."""

    def receive_data(self, data: bytes) -> None:
        """Receive bytes. Pull :meth:`next_outcome` afterwards."""
        self._decoder.receive_data(data)

    def receive_eof(self) -> None:
        """Record the end of the output; the bytes after the last line end count as a line."""
        self._decoder.receive_eof()

    def next_outcome(self) -> LineOutcome | None:
        """Return the next outcome; None if it has not arrived."""
        if self._next:
            return self._next.popleft()
        line = b""
        try:
            next_line = self._decoder.next_event()
            if isinstance(next_line, Idle):
                return None
            line = next_line
            decoded = jsonrpc.decode(line, self._limits)
        except RemoteProtocolError as error:
            return Invalid(error, is_fatal=True, line=line)
        if not isinstance(decoded, Batch):
            return decoded
        for item in decoded.items:
            self._next.append(Invalid(item) if isinstance(item, RemoteProtocolError) else item)
        return self.next_outcome()
