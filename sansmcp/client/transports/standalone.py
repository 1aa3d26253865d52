"""The standalone stream of a session, for messages of the server that belong to no request.

The stream is optional. If the server refuses it, or it fails for good, that is reported once, and
the session and its calls continue. A server without the stream should send 405; some send another
status, even 404. A 404 means that the session has ended only if the stream was open before.

Source: 2025-03-26 to 2025-11-25, basic/transports: Listening for Messages from the Server.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from ...events import Reconnecting, StandaloneStreamClosed
from ...messages import Message
from ...timers import Timer, TimerTable
from ..exchange import Exchange, ForStandaloneStream
from ..outcomes import (
    Ended,
    Invalid,
    OtherEvent,
    ReaderOutcome,
    Refused,
    Retry,
    SessionOver,
    StreamOutcome,
)
from ..silence import Silence, Silent
from ..stream import SHARED, Stream
from .http import HttpExchanges

StandaloneOutcome: TypeAlias = (
    Message | OtherEvent | Invalid | Reconnecting | StandaloneStreamClosed | SessionOver
)
"""After StandaloneStreamClosed there is no stream any more."""


@attrs.define(eq=False, repr=False)
class StandaloneStream:
    """The standalone stream of one session, over any number of exchanges."""

    stream: Stream
    _http: HttpExchanges
    _silence: Silence
    _timers: TimerTable
    exchange: int = attrs.field(default=0, init=False)
    """The exchange that carries it, or the last one that did."""

    def connect(self, now: float) -> None:
        """Open the stream, or resume it after its last event."""
        self.exchange = self._http.open(
            ForStandaloneStream(),
            b"GET",
            stream=self.stream,
            last_event_id=self.stream.last_event_id,
            now=now,
        )
        self._silence.restart(self.stream, now)

    def due(self, now: float) -> None:
        """Resume the stream, after the delay."""
        self.stream.due()
        self.connect(now)

    def receive(self, exchange: Exchange, outcome: ReaderOutcome, now: float) -> StandaloneOutcome:
        """Return what an outcome of the HTTP response means."""
        match outcome:
            case Ended(reason):
                retry = exchange.reader.reconnection_time
                return self._go_on(self.stream.ended(reason, retry, now), now)
            case Refused(refusal):
                decided = self.stream.refused(refusal, now)
                if decided is not None:
                    return self._go_on(decided, now)
                if refusal.ends_session and self.stream.connections.was_opened:
                    return SessionOver(refusal)
                return self.give_up(refusal.message)
            case Invalid(error, is_fatal=True):
                return self.give_up(error.message)
            case _:
                return outcome

    def silent(self, now: float, *, can_tell: bool) -> StandaloneOutcome | None:
        """Return what follows a silence, as :meth:`Silence.due` does; None to wait on."""
        match self._silence.due(self.stream, self.exchange, now, can_tell=can_tell):
            case Silent(outcome=outcome):
                return self._go_on(outcome, now)
            case _:
                return None

    def give_up(self, reason: str) -> StandaloneStreamClosed:
        """Stop, and return the event that reports it."""
        self.stop()
        return StandaloneStreamClosed(reason)

    def stop(self) -> None:
        """End the stream: the session has ended, or does without it from now on."""
        self._timers.stop(Timer.RECONNECT, SHARED)
        self._timers.stop(Timer.STREAM_IDLE, SHARED)
        self._http.abort(self.exchange)

    def _go_on(self, outcome: StreamOutcome, now: float) -> Reconnecting | StandaloneStreamClosed:
        if not isinstance(outcome, Retry):
            return self.give_up(outcome.reason)
        self._timers.stop(Timer.STREAM_IDLE, SHARED)
        self._timers.set(Timer.RECONNECT, SHARED, now + outcome.delay)
        return outcome.as_event(None)
