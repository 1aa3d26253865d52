"""The HTTP response to a POST at the handshake revisions, on Streamable HTTP.

``HttpResponder`` chooses between JSON and an event stream. A stream is stored; JSON is not, because
a client could not resume it. A batch (2025-03-26) has one HTTP response for several calls.

Source: 2025-03-26 to 2025-11-25, basic/transports: Sending Messages to the Server.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ...codecs import jsonrpc
from ...input_required import InputRequired
from ...messages import RequestId
from ...timers import Timer
from ..calls import RunningCall
from ..core import ServerCore
from ..exchange import ServerExchange
from ..responder import HttpResponder
from .parked_calls import park_call
from .results import LegacyResults
from .sessions import LegacySession
from .streams import ResumableStream


@attrs.define(eq=False, repr=False)
class SessionResponder(LegacyResults, HttpResponder):
    """Sends the responses to one POST."""

    _core: ServerCore
    session: LegacySession
    exchange: ServerExchange
    stream_after: float | None
    request_ids: Sequence[RequestId]
    """The ids of the requests that it answers."""
    open_calls: int
    is_batch: bool
    stream: ResumableStream | None = attrs.field(default=None, init=False)
    """The stream, once the HTTP response is an event stream."""
    _abandoned: bool = attrs.field(default=False, init=False)
    """True if the client disconnected before it had an event id, so that it cannot resume."""
    _collected: list[bytes] = attrs.field(factory=lambda: [], init=False)
    """The responses so far, which may still be sent as plain JSON."""

    @property
    def is_resumable(self) -> bool:
        """True if the stream begins with an event id, and its messages are stored."""
        return self._core.options.resumable and self.session.revision.polling

    @property
    def is_above_high_water(self) -> bool:
        """True if the store or the client is behind."""
        return self.stream is not None and self.stream.is_above_high_water

    def message(self, data: bytes) -> bool:
        """Send a message before the response. Returns False if it is lost."""
        stream = self.open()
        return stream is not None and stream.append(data)

    def respond(self, data: bytes, http_status: int = 200) -> bool:
        """Send the response of one call. Returns False if it is lost."""
        self.open_calls -= 1
        if self.stream is not None:
            return self.stream.append(data, final=self.open_calls == 0)
        self._collected.append(data)
        if self.open_calls == 0:
            # The other statuses are those of 2026-07-28; here 404 would end the session.
            self._finish(503 if http_status == 503 and not self.is_batch else 200)
        return not self._abandoned

    def complete_without_response(self) -> None:
        self.open_calls -= 1
        if self.open_calls == 0:
            if self._collected:
                self._finish()
            elif (stream := self.open()) is not None:
                stream.append(b"", final=True)

    def open(self) -> ResumableStream | None:
        """Open the event stream, if it is not open. Returns None if no client could read it."""
        if self.stream is None and not self._abandoned:
            self._core.timers.stop(Timer.STREAM_OPEN, self)
            self.stream = self.session.new_stream()
            self.stream.declare_writer(self.request_ids)
            self.session.read(self.exchange, self.stream, 0, is_fresh=True)
            for index, data in enumerate(self._collected, 1):
                is_last = self.open_calls == 0 and index == len(self._collected)
                self.stream.append(data, final=is_last)
            self._collected.clear()
        return self.stream

    def send_input_requests(self, call: RunningCall, required: InputRequired) -> bool:
        """Send input requests and park the call, or keep it in memory if it cannot be parked."""
        is_kept = self.is_batch or self.session.id is None or not required.requests
        stream = None if is_kept else self.open()
        if stream is None or not stream.is_stored:
            return call.send_input_requests(required)
        park_call(call, stream, self.session, required)
        return True

    def disconnect(self, retry: int | None) -> bool:
        """Close the connection. Returns False, with nothing changed, if no client could resume."""
        if not self.is_resumable:
            return False
        stream = self.open()
        return stream is not None and stream.disconnect(retry)

    def peer_gone(self) -> None:
        if self.stream is None:
            self._core.timers.stop(Timer.STREAM_OPEN, self)
            self._abandoned = True

    def _finish(self, http_status: int = 200) -> None:
        """Send the response as JSON: all calls have ended, and nothing was sent before."""
        body = self._collected[0] if not self.is_batch else jsonrpc.encode_batch(self._collected)
        if not self._abandoned:
            self._core.timers.stop(Timer.STREAM_OPEN, self)
            self.send_json(body, http_status)
