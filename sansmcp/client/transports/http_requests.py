"""The requests of a client over HTTP: each in an exchange, most with a stream.

The stream of a request outlives its connections: after a cut it is resumed, or the request is sent
again, if that is allowed. At the end of a turn (SEP-1858) the request goes on with a POST of all
responses. Here is decided how to get the response; what it means is not known here.

Source: 2025-03-26 to 2026-07-28, basic/transports; SEP-1699; SEP-1858.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from ...codecs.sse import SseEvent
from ...errors import RemoteProtocolError
from ...http import Unsent
from ...messages import ErrorResponse, Message, Notification, Request, RequestId, Response
from ...timers import Timer, TimerTable
from ...types import assert_never
from ..call_keys import Cut
from ..event_queue import EventQueue
from ..exchange import Exchange, ForRequest
from ..http_heads import Refusal
from ..message_encoder import MessageEncoder
from ..outcomes import (
    Continue,
    Ended,
    EndpointOnPost,
    Invalid,
    Kind,
    LimitExceeded,
    Lost,
    NextAttempt,
    OtherEvent,
    ReaderOutcome,
    Refused,
    ResponseBuffered,
    Restart,
    Resume,
    StreamOutcome,
    TurnDone,
)
from ..request import PendingRequest
from ..request_table import RequestTable
from ..silence import Renew, Silence, Silent
from ..stream import Stream, StreamKind
from ..stream_factory import StreamFactory
from ..unread import Unread
from .http import HttpExchanges

if TYPE_CHECKING:
    from ..legacy.turn import Turn

_REQUEST: Final = StreamKind.REQUEST
_RECONNECT: Final = Timer.RECONNECT
_STREAM_IDLE: Final = Timer.STREAM_IDLE

RequestDelivery: TypeAlias = (
    Message | Invalid | Lost | Refusal | RemoteProtocolError | EndpointOnPost
)
"""What has come for a request; RemoteProtocolError: its response is invalid."""


@attrs.define(eq=False, repr=False)
class HttpRequests:
    """Sends the requests of one client, and reconnects their streams."""

    _http: HttpExchanges
    _requests: RequestTable
    _encoder: MessageEncoder
    _streams: StreamFactory
    _silence: Silence
    _timers: TimerTable
    _events: EventQueue
    _unread: Unread
    _turns: dict[int, Turn] = attrs.field(factory=dict[int, "Turn"], init=False)
    """The turns in progress (SEP-1858), by the numbers of their requests."""
    _turns_by_id: dict[RequestId, Turn] = attrs.field(factory=dict[RequestId, "Turn"], init=False)
    """Those to which the responses to open server requests belong, by the ids of these."""

    def send(self, request: PendingRequest, now: float, *, has_stream: bool) -> None:
        """Send a request, for the first time or again from the beginning."""
        stream = request.stream
        if stream is not None:
            stream.restarted()
            self._drop_turn(request)
        elif has_stream:
            stream = request.stream = self._streams.for_request(request)
        body = self._encoder.request(request)
        mirrored = self._encoder.request_headers(request)
        purpose = ForRequest(request.number)
        request.exchange = self._http.open(
            purpose, b"POST", body, stream=stream, mirrored=mirrored, now=now
        )
        if stream is not None and stream.kind is not _REQUEST:
            self._silence.restart(stream, now)

    def leave(self, request: PendingRequest, now: float, *, can_discard: bool) -> None:
        """End the stream and the exchange of a request.

        ``can_discard``: True to let the rest of the response come, so that the connection can be
        reused.
        """
        if request.stream is not None:
            self._timers.stop(_RECONNECT, request.number)
            if request.stream.heard_at is not None:
                self._timers.stop(_STREAM_IDLE, request.number)
            request.stream = None
        if self._turns:
            self._drop_turn(request)
        if request.exchange is not None:
            if can_discard:
                self._http.discard_response(request.exchange, now)
            else:
                self._http.abort(request.exchange)
            request.exchange = None

    def end(self, request: PendingRequest, now: float, *, can_discard: bool = False) -> None:
        """End a request of the client's own."""
        self._requests.remove_own(request)
        self.leave(request, now, can_discard=can_discard)

    # What comes for a request

    def receive(
        self, request: PendingRequest, exchange: Exchange, outcome: ReaderOutcome, now: float
    ) -> RequestDelivery | None:
        """Return what an outcome of the HTTP response to a request, or of its stream, means.

        None means nothing, or that the request has an answer later.
        """
        stream = request.stream
        match outcome:
            case Request() | Notification() | Response() | ErrorResponse():
                if request.key is not None and isinstance(outcome, Notification | Request):
                    request.key.received += 1
                if stream is not None and stream.cursor is not None:
                    request.attempts.refusals = 0  # without a cursor, messages are no progress
                if isinstance(outcome, Request) and request.number in self._turns:
                    return self._add_to_turn(request, outcome)
                return outcome
            case OtherEvent(event):
                return self._on_other_event(request, event, now)
            case Invalid(error, is_fatal=False, line=text):
                is_ours = request.kind is Kind.TOOLS  # the application has not made this request
                return outcome if not is_ours or not text or error.request_id is not None else None
            case Invalid(error):
                request.exchange = None
                return error
            case Ended(reason, unsent):
                request.exchange = None
                return self._ended(request, exchange, reason, unsent, now)
            case Refused(refusal):
                request.exchange = None
                decided = None if stream is None else stream.refused(refusal, now)
                return refusal if decided is None else self._go_on(request, decided, now)
            case _ as impossible:
                assert_never(impossible)

    def _ended(
        self,
        request: PendingRequest,
        exchange: Exchange,
        reason: str | None,
        unsent: Unsent | None,
        now: float,
    ) -> Lost | None:
        """Handle the end of the HTTP response to a request; ``reason``: why it broke off."""
        sent, stream = exchange.request, request.stream
        if unsent is not None and sent.method == b"POST" and not sent.last_event_id:
            if unsent is Unsent.REFUSED and not sent.url.is_local:
                unsent = Unsent.UNREACHABLE  # on another machine that may not be for long
            return Lost(str(reason), unsent=unsent)
        request.attempts.connection_ended(broke_off=reason is not None)
        if stream is None:
            return None if reason is None else Lost(reason)
        started = -math.inf if request.timeouts is None else request.timeouts.started
        self._unread.add(exchange.reader.remainder, request.number, now)
        came = "; ".join(self._unread.quotes(request.number, started))
        retry = exchange.reader.reconnection_time
        return self._go_on(request, stream.ended(reason, retry, now, came), now)

    def _go_on(self, request: PendingRequest, outcome: StreamOutcome, now: float) -> Lost | None:
        """Wait for the next connection of a stream whose last one has ended; or it is lost."""
        self._timers.stop(_STREAM_IDLE, request.number)
        if request.number > 0 and request.listener is not None:
            self.end_renewal(request, now)
        if isinstance(outcome, Lost):
            return outcome
        self._timers.set(_RECONNECT, request.number, now + outcome.delay)
        self._events.append(outcome.as_event(request.number if request.number > 0 else None))
        return None

    def reconnect(self, request: PendingRequest, now: float) -> Restart | None:
        """Reconnect the stream of a request after its delay; or return that it is sent again."""
        assert request.stream is not None
        return self._connect(request, request.stream, request.stream.due(), now)

    def _connect(
        self, request: PendingRequest, stream: Stream, attempt: NextAttempt, now: float
    ) -> Restart | None:
        match attempt:
            case Resume(id):
                method, body = b"GET", b""
            case Continue(body, id):
                method = b"POST"
            case Restart():
                return attempt
            case _ as impossible:
                assert_never(impossible)
        purpose = ForRequest(request.number)
        request.exchange = self._http.open(
            purpose, method, body, stream=stream, last_event_id=id, now=now
        )
        self._silence.restart(stream, now)
        return None

    # Silence

    def silent(
        self, request: PendingRequest, now: float, *, can_tell: bool
    ) -> tuple[PendingRequest, Lost | Cut] | None:
        """Act on a connection that was silent for so long that it may be dead.

        Returns the request that gets no response on it, with what follows for it; None if nothing
        does.
        """
        stream, exchange = request.stream, request.exchange
        assert stream is not None
        assert exchange is not None  # the timer stops with the exchange
        match self._silence.due(stream, exchange, now, can_tell=can_tell):
            case Silent() as silent:
                return self._on_silent(silent, now)
            case Renew(renewal):
                self._requests.renew_id(renewal)
                self.send(renewal, now, has_stream=True)
            case Cut() as cut:
                return request, cut
            case None:
                pass
            case _ as impossible:
                assert_never(impossible)
        return None

    def subscription_lost(self, call: PendingRequest, failure: str, now: float) -> None:
        """Give the connection of a subscription up: its renewal could not reach the server."""
        lost = self._on_silent(self._silence.subscription_lost(call, now, failure=failure), now)
        assert lost is None, "a subscription with a renewal was open, so it is made again"

    def _on_silent(self, silent: Silent, now: float) -> tuple[PendingRequest, Lost] | None:
        request = self._requests.get(silent.number)
        lost = self._go_on(request, silent.outcome, now)
        return None if lost is None else (request, lost)

    def end_renewal(self, call: PendingRequest, now: float, *, can_discard: bool = False) -> None:
        """End the renewal of a subscription."""
        assert call.listener is not None
        renewal, call.listener = self._requests.own[call.listener], None
        self.end(renewal, now, can_discard=can_discard)

    # Turns (SEP-1858)

    def _on_other_event(
        self, request: PendingRequest, event: SseEvent, now: float
    ) -> EndpointOnPost | RemoteProtocolError | None:
        """Handle an event that carries no message; it may begin or end a turn."""
        is_of_opening = request.kind is Kind.DISCOVER or request.kind is Kind.INITIALIZE
        if is_of_opening and event.event == "endpoint" and event.data:
            return EndpointOnPost()
        if event.data:
            self._unread.add_event(event, request.number, now)
        elif self._encoder.agreed.has_turns:
            return self._on_turn_event(request, event, now)
        return None

    def _on_turn_event(
        self, request: PendingRequest, event: SseEvent, now: float
    ) -> RemoteProtocolError | None:
        from ..legacy.turn import BUFFER_INPUT, INPUT_REQUIRED, Turn

        limits = self._encoder.options.limits
        if event.event == BUFFER_INPUT:
            self._turns.setdefault(request.number, Turn(request.number, limits))
        elif event.event == INPUT_REQUIRED:
            assert request.stream is not None
            assert request.exchange is not None
            reader = self._http.open_exchanges[request.exchange].reader
            request.stream.parked(reader.reconnection_time)
            self._timers.stop(_STREAM_IDLE, request.number)
            self._http.discard_response(request.exchange, now)
            request.exchange = None
            turn = self._turns.setdefault(request.number, Turn(request.number, limits))
            return self._on_turn(request, turn.close(), now)
        return None

    def _add_to_turn(
        self, request: PendingRequest, server_request: Request
    ) -> Request | RemoteProtocolError | None:
        """Add a server request to a turn; return it unless it was there before."""
        turn = self._turns[request.number]
        is_new = turn.add_request(server_request.id)
        if isinstance(is_new, LimitExceeded):
            return self._refuse_turn(request, is_new)
        if not is_new:
            return None
        self._turns_by_id[server_request.id] = turn
        return server_request

    def has_turn(self, message: Request | Notification | Response | ErrorResponse) -> bool:
        """Return True if a message is a response that belongs to a turn."""
        return isinstance(message, Response | ErrorResponse) and message.id in self._turns_by_id

    def add_response(
        self, message: Response | ErrorResponse, now: float
    ) -> tuple[PendingRequest, RemoteProtocolError] | None:
        """Add a response to its turn. Return the request that is refused, if it is too much."""
        assert message.id is not None
        turn = self._turns_by_id.pop(message.id)
        request = self._requests.calls[turn.number]
        error = self._on_turn(request, turn.add_response(message), now)
        return None if error is None else (request, error)

    def _on_turn(
        self,
        request: PendingRequest,
        outcome: TurnDone | ResponseBuffered | LimitExceeded,
        now: float,
    ) -> RemoteProtocolError | None:
        match outcome:
            case TurnDone(_, body):
                assert request.stream is not None
                del self._turns[request.number]
                self._connect(request, request.stream, request.stream.continued(body), now)
            case LimitExceeded():
                return self._refuse_turn(request, outcome)
            case ResponseBuffered():
                pass
            case _ as impossible:
                assert_never(impossible)
        return None

    def _refuse_turn(self, request: PendingRequest, limit: LimitExceeded) -> RemoteProtocolError:
        if request.exchange is not None:
            self._http.abort(request.exchange)
        text = f"The server has sent {limit.what}"
        return RemoteProtocolError(text, reason="too_much_asked")

    def _drop_turn(self, request: PendingRequest) -> None:
        """Discard the turn of a request, if there is one, and its responses."""
        turn = self._turns.pop(request.number, None)
        for id in () if turn is None else turn.request_ids:
            self._turns_by_id.pop(id, None)
