"""The HTTP response to the POST of one call, of which nothing is stored.

So are all responses at 2026-07-28, and on HTTP+SSE those to calls with keys. A call with a key
survives the loss of its connection, and goes on with the next one of its client
(``KeyedCalls``).

Source: 2026-07-28 basic/transports: Sending Messages, Cancellation; docs/reclaim.md.
"""

from __future__ import annotations

from typing import Final

import attrs

from ..codecs.sse import encode_event
from ..states import ExchangeState
from ..timers import Timer
from .calls import CallOwner
from .core import ServerCore
from .exchange import ServerExchange
from .keyed_calls import MAX_REPORT_BYTES, MAX_REPORTS, KeyedCall, KeyedCalls
from .responder import HttpResponder

_STREAM_OPEN: Final = Timer.STREAM_OPEN
_DECIDING: Final = ExchangeState.DECIDING


@attrs.define(eq=False, repr=False)
class UnstoredResponder(HttpResponder):
    """Sends the response to one POST: as JSON, or on an event stream if messages precede it."""

    _core: ServerCore
    session: CallOwner
    exchange: ServerExchange
    stream_after: float | None
    open_calls: int = attrs.field(default=1, init=False)

    @property
    def is_resumable(self) -> bool:
        """Always False: the events have no ids."""
        return False

    def open(self) -> None:
        """Open the event stream, if it is not open."""
        if self.exchange.state is _DECIDING:
            self._core.timers.stop(_STREAM_OPEN, self)
            self.exchange.open_stream()

    @property
    def is_above_high_water(self) -> bool:
        """True if too many bytes wait for the client."""
        return self.exchange.is_slow

    def message(self, data: bytes) -> bool:
        """Send a message before the response."""
        self.open()
        self.exchange.send(encode_event(data))
        return True

    def respond(self, data: bytes, http_status: int = 200) -> bool:
        """Send the response. Returns False if it is lost."""
        self._complete()
        if self.exchange.is_done:  # the client has left before the handle of a task was stored
            return False
        if self.exchange.state is _DECIDING:
            self.send_json(data, http_status)
        else:
            self.exchange.send(encode_event(data))
            self.exchange.end()
        return True

    def complete_without_response(self) -> None:
        """End without a response, because the client has disconnected."""
        self._complete()

    def disconnect(self, retry: int | None) -> bool:
        """Always False: the client could not resume."""
        return False

    def peer_gone(self) -> None:
        """Cancel the call: a client cancels by closing the connection."""
        self.cancel_calls("the client has closed the response")

    def cancel_calls(self, reason: str) -> None:
        """Cancel the call, unless it has become a task."""
        for call in tuple(self.session.calls.values()):
            call.cancel(reason)

    def _complete(self) -> None:
        self.open_calls = 0
        self._core.timers.stop(_STREAM_OPEN, self)


@attrs.define(eq=False, repr=False)
class KeyedResponder(UnstoredResponder):
    """The same for a call that outlives its connections, because it has a key."""

    _calls: KeyedCalls
    call: KeyedCall | None = attrs.field(default=None, init=False)
    """None if there was no room for the key."""
    _held: int = attrs.field(default=0, init=False)
    """Bytes of messages since the connection was cut."""

    @property
    def is_above_high_water(self) -> bool:
        """True if too many bytes wait for the client, or for its next connection."""
        if self.call is None or not self.exchange.is_done:
            return self.exchange.is_slow
        return self._held >= MAX_REPORT_BYTES

    def message(self, data: bytes) -> bool:
        """Send a message before the response, and keep it for the next connection."""
        if self.call is None:
            return super().message(data)
        self._calls.report(self.call, data)
        if not self.exchange.is_done:
            return super().message(data)
        # At least so much that no more messages wait than are kept.
        self._held += max(len(data), MAX_REPORT_BYTES // MAX_REPORTS)
        return True

    def respond(self, data: bytes, http_status: int = 200) -> bool:
        """Send the response, and keep it for the next connection."""
        if self.call is None:
            return super().respond(data, http_status)
        self._calls.ended(self.call, data, http_status)
        return super().respond(data, http_status) or True

    def complete_without_response(self) -> None:
        """End without a response, because the call has been cancelled."""
        super().complete_without_response()
        if self.call is not None:
            self._calls.ended(self.call, None)
        if not self.exchange.is_done:
            self.exchange.abort()

    def peer_gone(self) -> None:
        """Let the call run on. Without a key, cancel it."""
        if self.call is None:
            super().peer_gone()
        else:
            self._core.timers.stop(_STREAM_OPEN, self)
            self._calls.cut(self.call)

    def reconnect(self, exchange: ServerExchange, received: int) -> None:
        """Go on with another connection, and send first what was missed."""
        assert self.call is not None
        if not self.exchange.is_done:
            self.exchange.responder = None
            self.exchange.abort()
        self.exchange, self._held = exchange, 0
        self.start()
        for message in self.call.missed(received):
            super().message(message)
