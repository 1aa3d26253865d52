"""The event stream of HTTP+SSE: it names the URL for messages, and is one session.

The first event names the URL to POST to. After it the stream carries all messages of the server,
until its connection ends, which ends the session: it cannot be resumed. Calls with keys have
streams of their own, and go on in the next session (``sansmcp/reclaim``).

A silent stream may be that of a dead connection. So the client sends a ``ping`` after a silence.
Only if the server takes the ``ping``, and its response does not come on the stream, the stream is
lost: a server that does not take it cannot be reached, or is busy, which says nothing about the
stream.

Source: 2024-11-05 basic/transports: HTTP with SSE.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from ...limits import Limits
from ...timers import Timer, TimerTable
from ..exchange import Exchange, ForEventStream
from ..legacy.endpoint import endpoint_from
from ..outcomes import (
    Ended,
    EndpointFound,
    EventStreamLost,
    EventStreamOutcome,
    EventStreamSilence,
    Invalid,
    NoEndpoint,
    OtherEvent,
    PingFailed,
    ReaderOutcome,
    Refused,
    SendPing,
)
from ..request import CallTimeouts, PendingRequest
from ..stream import Stream
from .http import HttpExchanges


@attrs.define(eq=False, repr=False)
class HttpSse:
    """The event stream of one session."""

    stream: Stream
    _http: HttpExchanges
    """It has ``message_url``, the URL to POST to, which follows redirects as the other URL does."""
    _timers: TimerTable
    _limits: Limits
    ping: PendingRequest | None = attrs.field(default=None, init=False)
    """The ``ping`` that tests the stream while it is silent; None if there is none."""

    def open(self, now: float) -> None:
        """Open the stream."""
        self._http.open(ForEventStream(), b"GET", stream=self.stream, now=now)

    def receive(self, exchange: Exchange, outcome: ReaderOutcome) -> EventStreamOutcome | None:
        """Return what an outcome of the HTTP response means; None for nothing.

        Messages and other events are returned as they are, but not before the endpoint event.
        """
        if self._http.message_url is None:
            return self._before_endpoint(exchange, outcome)
        match outcome:
            case Invalid(error, is_fatal=True):
                return EventStreamLost(error.message)
            case Ended(reason):
                why = reason or "the server closed it"
                return EventStreamLost(f"the event stream broke: {why}")
            case _:
                return outcome

    def _before_endpoint(
        self, exchange: Exchange, outcome: ReaderOutcome
    ) -> EventStreamOutcome | None:
        match outcome:
            case OtherEvent(event):
                if not event.dispatched:
                    return None
                assert self._http.url is not None
                url = endpoint_from(event, self._http.url)
                if isinstance(url, str):
                    return NoEndpoint(url)
                self._http.message_url = url
                return EndpointFound()
            case Ended() | Refused():
                return outcome
            case Invalid(error, is_fatal=True):
                return NoEndpoint(f"failed: {error.message}", was_read=False)
            case _ if exchange.reader.events is not None:
                return NoEndpoint("brought another event than endpoint first")
            case _:
                return NoEndpoint("brought JSON instead of an event stream")

    def expect(self, timeouts: CallTimeouts, now: float) -> None:
        """Find out within half of the time of a call whether a stream that is silent is dead.

        A ``ping`` that is out has its own time.
        """
        if self.ping is None:
            wait = timeouts.part(1 / 2, self._limits.stream_idle_timeout)
            self._timers.set_earlier(Timer.STREAM_IDLE, self.stream.number, now + wait)

    def silent(self) -> EventStreamSilence:
        """Return what follows after a silence."""
        if self.ping is None:
            return SendPing()
        if self.ping.exchange is not None:
            return PingFailed()  # the server has not taken it
        return EventStreamLost("the event stream was silent, and brought no response to ping")

    def test(self, ping: PendingRequest, now: float) -> None:
        """Test the stream by a ``ping`` that is sent now."""
        self.ping = ping
        self._wait(self._limits.post_timeout, now)

    def accepted(self, waiting: Iterable[CallTimeouts], now: float) -> None:
        """Wait for the response to the ``ping``, which the server has accepted.

        Its own time passes, or a quarter of that of a call that waits, too.
        """
        wait = self._limits.post_timeout
        for timeouts in waiting:
            wait = timeouts.part(1 / 4, wait)
        self._wait(wait, now)

    def _wait(self, seconds: float, now: float) -> None:
        """Wait so long for any bytes; :meth:`silent` is due then."""
        self._timers.set(Timer.STREAM_IDLE, self.stream.number, now + seconds)

    def stop(self) -> None:
        """Wait no longer: the session has ended, and the ``ping`` with it."""
        self._timers.stop(Timer.STREAM_IDLE, self.stream.number)

    def take_ping(self) -> PendingRequest | None:
        """Return the ``ping`` that is to be ended, if one is out: it has told what it can."""
        ping, self.ping = self.ping, None
        return ping
