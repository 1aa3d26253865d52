"""The clocks that notice the silence of streams, and what follows from a silence.

A connection on which nothing arrives for ``Stream.idle_limit`` seconds may be dead. What the client
does then depends on what the stream is for:

* A stream that can be resumed is resumed on another connection.
* Another call with a key (``sansmcp/reclaim``) asks for its response on another connection.
* A subscription is made again if its server has sent comments, because such a server would have
  sent another one. Many servers send none, and nothing may have changed: a second subscription, the
  *renewal*, shows whether the server can be reached, and takes the place of the first once it is
  acknowledged. If the renewal is refused, the server can be reached: the client waits on.

The event stream of HTTP+SSE is tested by a ``ping`` (``transports.http_sse``); its clock runs here
like the others.

A silence says nothing while received data may be unread, or while the request is held until there
is a token. The clock then starts again.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

from ..meta_keys import LISTEN
from ..timers import Timer, TimerTable
from .call_keys import Cut
from .exchange import ForRequest
from .outcomes import Kind, StreamOutcome
from .request import PendingRequest
from .request_table import RequestTable
from .stream import Stream, StreamKind
from .transports.http import HttpExchanges

_STREAM_IDLE: Final = Timer.STREAM_IDLE


@attrs.frozen(eq=False, repr=False)
class Silent:
    """A connection was aborted because it was silent."""

    number: int
    """The number of its stream."""
    outcome: StreamOutcome
    """What follows for the stream."""


@attrs.frozen(eq=False, repr=False)
class Renew:
    """Send a renewal, and wait on for its subscription."""

    renewal: PendingRequest


SilenceOutcome: TypeAlias = Silent | Renew | Cut
"""A Cut is for a call with a key: its connection was aborted, and its response is to be had."""


@attrs.define(eq=False, repr=False)
class Silence:
    """Notices the silence of the streams of one client."""

    _requests: RequestTable
    _http: HttpExchanges
    _timers: TimerTable

    def restart(self, stream: Stream, now: float) -> None:
        """Start the clock of a stream, if its silence matters: something has arrived, or was sent.

        Until a stream has an event id, only the timeouts of its call count.
        """
        if stream.notices_silence:
            self._timers.set(_STREAM_IDLE, stream.number, now + stream.idle_limit)
        else:
            self._timers.stop(_STREAM_IDLE, stream.number)

    def due(
        self, stream: Stream, exchange: int, now: float, *, can_tell: bool
    ) -> SilenceOutcome | None:
        """Return what follows when the clock of a stream is due; None to wait on.

        Args:
            stream: the stream.
            exchange: the exchange that carries it.
            now: the current time in seconds, on the machine's clock.
            can_tell: False if received data may be unread.
        """
        assert stream.heard_at is not None, "else no timer was set"
        until = stream.heard_at + stream.idle_limit
        if until > now and stream.kind is not StreamKind.STANDALONE:
            self._timers.set(_STREAM_IDLE, stream.number, until)
        elif not can_tell or self._http.open_exchanges[exchange].is_held:
            self.restart(stream, now)
        elif stream.kind is StreamKind.SUBSCRIPTION:
            return self._test_subscription(self._requests.get(stream.number), exchange, now)
        elif stream.kind is StreamKind.KEYED and not stream.can_resume:
            self._http.abort(exchange)
            call = self._requests.get(stream.number)
            call.exchange = None
            return Cut(_reason(stream), is_silent=True)
        else:
            return self._abort(stream, exchange, _reason(stream), now)
        return None

    def _test_subscription(
        self, request: PendingRequest, exchange: int, now: float
    ) -> SilenceOutcome | None:
        """Give a subscription up as silent, or return a renewal that is to be sent."""
        stream, reader = request.stream, self._http.open_exchanges[exchange].reader
        assert stream is not None
        if request.kind is Kind.RENEWAL:
            return self.subscription_lost(self._requests.parent_of(request), now)
        if reader.events is None or reader.events.has_comments:
            return self.subscription_lost(request, now)
        if request.listener is not None:
            self.restart(stream, now)
            return None
        renewal = self._requests.add_own(Kind.RENEWAL, LISTEN, request.params, request.number)
        request.listener = renewal.number
        return Renew(renewal)

    def subscription_lost(
        self, call: PendingRequest, now: float, *, failure: str | None = None
    ) -> Silent:
        """Abort the connection of a silent subscription, which is dead.

        ``failure``: why its renewal could not reach the server; None if there was only silence.
        """
        assert call.stream is not None
        assert call.exchange is not None
        reason = _reason(call.stream)
        if failure is not None:
            reason += f", and a second subscription failed: {failure}"
        return self._abort(call.stream, call.exchange, reason, now)

    def renewed(self, renewal: PendingRequest) -> PendingRequest:
        """Let a subscription go on with the connection of its renewal, and return it."""
        call, stream = self._requests.parent_of(renewal), renewal.stream
        assert call.exchange is not None
        assert renewal.exchange is not None
        assert stream is not None
        self._timers.stop(_STREAM_IDLE, renewal.number)
        self._http.abort(call.exchange)
        call.listener = None
        self._requests.take_place(call, renewal)
        stream.number, stream.can_restart = call.number, call.options.idempotent
        self._http.open_exchanges[renewal.exchange].purpose = ForRequest(call.number)
        return call

    def _abort(self, stream: Stream, exchange: int, reason: str, now: float) -> Silent:
        retry = self._http.open_exchanges[exchange].reader.reconnection_time
        self._http.abort(exchange)
        return Silent(stream.number, stream.silent(reason, retry, now))


def _reason(stream: Stream) -> str:
    return f"the connection was silent for {stream.idle_limit:g} s (stream_idle_timeout)"
