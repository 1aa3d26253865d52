"""How requests of the handshake revisions are answered on Streamable HTTP.

What makes an answer an event stream is in :mod:`..responder`. A stream is stored; JSON is not, for
nobody could read it again. A batch (2025-03-26) is one answer to several calls.

Source: 2025-03-26 to 2025-11-25, basic/transports: Sending Messages to the Server.
"""

from __future__ import annotations

import attrs

from ...codecs import jsonrpc
from ...input_required import InputRequired
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
    """How one POST is answered."""

    _core: ServerCore
    session: LegacySession
    exchange: ServerExchange
    stream_after: float | None
    open_calls: int
    is_batch: bool
    stream: ResumableStream | None = attrs.field(default=None, init=False)
    """What the answer has become, once it is an event stream."""
    _abandoned: bool = attrs.field(default=False, init=False)
    """The peer left before it had an event id: nothing can ever be delivered."""
    _collected: list[bytes] = attrs.field(factory=lambda: [], init=False)
    """Answers so far that may still go out as plain JSON."""

    @property
    def is_resumable(self) -> bool:
        """Whether the first event is an id, and what follows is stored."""
        return self._core.options.resumable and self.session.revision.polling

    @property
    def is_above_high_water(self) -> bool:
        """Whether to wait: the store, or the client, does not keep up."""
        return self.stream is not None and self.stream.is_above_high_water

    def message(self, data: bytes) -> bool:
        """Something to say before the answer; returns False if it is lost."""
        stream = self.open()
        return stream is not None and stream.append(data)

    def respond(self, data: bytes, http_status: int = 200) -> bool:
        """The answer of one call; returns False if it is lost."""
        self.open_calls -= 1
        if self.stream is not None:
            return self.stream.append(data, final=self.open_calls == 0)
        self._collected.append(data)
        if self.open_calls == 0:
            self._finish()
        return not self._abandoned

    def complete_without_response(self) -> None:
        self.open_calls -= 1
        if self.open_calls == 0:
            if self._collected:
                self._finish()
            elif (stream := self.open()) is not None:
                stream.append(b"", final=True)

    def open(self) -> ResumableStream | None:
        """Turn the answer into a stream, if it is not one yet; None if nobody can ever read it."""
        if self.stream is None and not self._abandoned:
            self._core.timers.stop(Timer.STREAM_OPEN, self)
            self.stream = self.session.new_stream()
            self.stream.append_opened_entry()
            self.session.read(self.exchange, self.stream, 0, is_fresh=True)
            for index, data in enumerate(self._collected, 1):
                is_last = self.open_calls == 0 and index == len(self._collected)
                self.stream.append(data, final=is_last)
            self._collected.clear()
        return self.stream

    def send_input_requests(self, call: RunningCall, required: InputRequired) -> bool:
        """Ask. Where there is a log the call is parked; without questions it goes on at once."""
        is_kept = self.is_batch or self.session.id is None or not required.requests
        stream = None if is_kept else self.open()
        if stream is None or not stream.is_stored:
            return call.send_input_requests(required)
        park_call(call, stream, self.session, required)
        return True

    def disconnect(self, retry: int | None) -> bool:
        """Close the connection; the client reads on later. False, and no change, if it cannot."""
        if not self.is_resumable:
            return False
        stream = self.open()
        return stream is not None and stream.disconnect(retry)

    def peer_gone(self) -> None:
        if self.stream is None:
            self._core.timers.stop(Timer.STREAM_OPEN, self)
            self._abandoned = True

    def _finish(self) -> None:
        """All calls are answered and nothing was sent yet: choose the form."""
        body = self._collected[0] if not self.is_batch else jsonrpc.encode_batch(self._collected)
        if not self._abandoned:
            self._core.timers.stop(Timer.STREAM_OPEN, self)
            self.exchange.send_response(200, body)
