"""The HTTP response to a POST at the handshake revisions, on Streamable HTTP.

``HttpResponder`` chooses between JSON and an event stream. A stream is stored; JSON is not, because
a client could not resume it. A batch (2025-03-26) has one HTTP response for several calls.

A call with a key survives the loss of its connection also before its client has an event id, or if
nothing is stored. Where the client has an id, it resumes.

Source: 2025-03-26 to 2025-11-25, basic/transports: Sending Messages to the Server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import attrs

from ...codecs import jsonrpc
from ...input_required import InputRequired
from ...messages import RequestId
from ...states import ExchangeState
from ...timers import Timer
from .. import refusals
from ..calls import RunningCall
from ..core import ServerCore
from ..exchange import ServerExchange
from ..keyed_calls import KeyedCall, KeyedCalls
from ..responder import HttpResponder
from .parked_calls import park_call
from .results import LegacyResults
from .sessions import LegacySession
from .streams import ResumableStream

_STREAM_OPEN: Final = Timer.STREAM_OPEN
_DONE: Final = ExchangeState.DONE

_MAX_OFFSETS = 64
"""The offsets of one call that are remembered. The store evicts entries sooner: it gets three
entries without a message in ``Limits.max_stored_age``, and some more for each round of input.
"""


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

    @property
    def is_connected(self) -> bool:
        """True if there is a connection to the client, which may have resumed the stream."""
        return not self.exchange.is_done if self.stream is None else self.stream.reader is not None

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
        is_connected = self.exchange.state is not _DONE
        if self.open_calls == 0:
            # The other statuses are those of 2026-07-28; here 404 would end the session.
            self._finish(503 if http_status == 503 and not self.is_batch else 200)
        return is_connected

    def complete_without_response(self) -> None:
        self.open_calls -= 1
        if self.open_calls == 0:
            if self._collected:
                self._finish()
            elif (stream := self.open()) is not None:
                stream.append(b"", final=True)

    def open(self) -> ResumableStream | None:
        """Open the event stream, if it is not open. Returns None if no client could read it."""
        if self.stream is None and not self.exchange.is_done:
            self._core.timers.stop(_STREAM_OPEN, self)
            self.stream = self.session.new_stream()
            self.stream.declare_writer(self.request_ids)
            self.session.read(self.exchange, self.stream, 0)
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
            self._core.timers.stop(_STREAM_OPEN, self)

    def _finish(self, http_status: int = 200) -> None:
        """Send the response as JSON: all calls have ended, and nothing was sent before."""
        body = self._collected[0] if not self.is_batch else jsonrpc.encode_batch(self._collected)
        if self.exchange.state is not _DONE:
            self._core.timers.stop(_STREAM_OPEN, self)
            self.send_json(body, http_status)


@attrs.define(eq=False, repr=False)
class KeyedSessionResponder(SessionResponder):
    """The same for one call that has a key."""

    _calls: KeyedCalls = attrs.field(alias="calls")
    call: KeyedCall | None = attrs.field(default=None, init=False)
    """None if there was no room for the key."""
    _is_parked: bool = attrs.field(default=False, init=False)
    _offsets: deque[tuple[int, int]] = attrs.field(
        factory=lambda: deque[tuple[int, int]](maxlen=_MAX_OFFSETS), init=False
    )
    """How many entries without a message precede the messages before the response. Each item has
    the number of the first message after them, and their number.
    """
    _count: int = attrs.field(default=0, init=False)
    """The number of messages before the response in the stream."""

    def open(self) -> ResumableStream | None:
        """Open the event stream, if it is not open. Returns None if no client could read it."""
        stream = super().open()
        if stream is not None:
            stream.writer = self
        return stream

    def peer_gone(self) -> None:
        """Let the call run on. It is counted as one without a connection."""
        super().peer_gone()
        if self.stream is None:
            self.on_reader_lost()

    def on_reader_lost(self) -> None:
        """Count the call as one without a connection, unless it has ended or is parked."""
        if self.call is not None and self.call.responder is not None and not self._is_parked:
            self._calls.cut(self.call, expires=False)

    def on_reader_attached(self) -> None:
        """Count the call no longer: its client has resumed the stream."""
        if self.call is not None and self.call.responder is not None and not self._is_parked:
            self._calls.connected(self.call)

    def message(self, data: bytes) -> bool:
        """Send a message before the response, and keep it for the next connection."""
        if self.call is None:
            return super().message(data)
        self._calls.report(self.call, data)
        self._append(data)
        return True

    def _append(self, data: bytes) -> None:
        """Send a message before the response, and note the place of its entry."""
        if super().message(data) and self.stream is not None:
            self._note_entries(self.stream.next_seq - 1, 1)

    def _note_entries(self, first: int, count: int) -> None:
        """Note the places of the entries of messages, from the number of the first one on."""
        offset = first - self._count - 1
        if not self._offsets or self._offsets[-1][1] != offset:
            self._offsets.append((self._count + 1, offset))
        self._count += count

    def _place_of(self, received: int) -> int:
        """Return the number of the entry of the last message that the client has received.

        The place of the last reader is another one: what it was sent may have been lost with its
        connection. The client counts messages, and there are entries without one. If the call was
        parked and went on, the client may have received more than this responder has sent; then it
        is the last message that this one has sent.
        """
        known = min(received, self._count)
        if not known:
            return 0
        offsets = self._offsets
        first, offset = next((each for each in reversed(offsets) if each[0] <= known), offsets[0])
        return offset + max(known, first - 1)

    def respond(self, data: bytes, http_status: int = 200) -> bool:
        """Send the response, and keep it for the next connection."""
        if self.call is None:
            return super().respond(data, http_status)
        self._calls.ended(self.call, data, 503 if http_status == 503 else 200)
        super().respond(data, http_status)
        return True

    def complete_without_response(self) -> None:
        """End without a response, because the call has been cancelled."""
        if self.call is not None:
            self._calls.ended(self.call, None)
        super().complete_without_response()

    def send_input_requests(self, call: RunningCall, required: InputRequired) -> bool:
        """Send input requests. A call that is parked by that keeps its key for a while."""
        can_park = bool(required.requests) and self.session.id is not None
        stream = self.open() if can_park else None
        next_seq = 0 if stream is None else stream.next_seq
        is_sent = super().send_input_requests(call, required)
        if self.call is not None and not call.is_running:
            self._is_parked = True
            first = next_seq + self.session.multi_turn
            self._note_entries(first, len(required.requests))
            self._calls.cut(self.call)
        return is_sent

    def cancel_calls(self, reason: str) -> None:
        """Cancel the call, with an error for a client that resumes it.

        A parked one only loses its key: its client can resume.
        """
        call = self.call
        assert call is not None
        self._calls.ended(call, None)
        if not self._is_parked:
            self.call = None
            refusal = refusals.TOO_MANY_CUT_CALLS(call.request_id, why=reason)
            self.session.calls[call.request_id].abandon(refusal, reason)

    def reconnect(self, exchange: ServerExchange, received: int) -> None:
        """Go on with another connection, and send first what was missed."""
        assert self.call is not None
        stream = self.stream
        if stream is not None and stream.key is not None and (stream.is_stored or self._is_parked):
            log = self.session.find_stream(stream.key.stream)
            place, skipped = self._place_of(received), max(received - self._count, 0)
            self.session.read(exchange, log, place, skipped=skipped)
            if self._is_parked:
                self._calls.cut(self.call)
            return
        if stream is not None:
            self.session.read(exchange, stream, None)
        else:
            if not self.exchange.is_done:
                self.exchange.responder = None
                self.exchange.abort()
            self.exchange = exchange
            self.start()
        for data in self.call.missed(received):
            self._append(data)
