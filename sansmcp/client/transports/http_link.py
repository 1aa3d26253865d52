"""The link of a client over HTTP: Streamable HTTP, and HTTP+SSE.

It knows what each exchange is for, and passes what arrives to the part that has opened it: the
requests with their streams, the messages that are sent by themselves, the standalone stream, the
event stream of HTTP+SSE. What remains is delivered to the client, one at a time: each delivery can
end any exchange, and if it ends the one that is read, its further outcomes are dropped.

Source: 2024-11-05 to 2026-07-28, basic/transports; basic/authorization.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from ...effects import AuthEffect, SignJwt
from ...errors import AuthorizationFailed
from ...events import AuthorizationNeeded, Reconnecting, StandaloneStreamClosed
from ...http import ResponsePart
from ...limits import Limits
from ...messages import ErrorResponse, Notification, Request, Response
from ...meta_keys import NAMED
from ...states import AuthorizationState
from ...timers import Timer, TimerTable
from ...types import assert_never
from ..event_queue import EventQueue
from ..exchange import (
    Discarding,
    Exchange,
    ForDelete,
    ForEventStream,
    ForPost,
    ForRequest,
    ForStandaloneStream,
    Purpose,
)
from ..http_heads import HttpRequest, Refusal
from ..message_encoder import MessageEncoder
from ..outcomes import (
    Ended,
    EventStreamLost,
    Failed,
    Invalid,
    Kind,
    Lost,
    OtherEvent,
    OwnAnswer,
    PingFailed,
    ReaderOutcome,
    Redirected,
    Refused,
    SendPing,
    SessionEnded,
    SessionOver,
)
from ..post import Posts
from ..request import PendingRequest
from ..request_table import RequestTable
from ..silence import Silence
from ..stream import SHARED, Stream, StreamKind
from ..stream_factory import StreamFactory
from ..unread import Unread
from .http import AuthorizationSteps, FlowEnded, Held, HttpExchanges, Released, Unauthorized
from .http_requests import HttpRequests
from .link import Deliveries, Delivery

if TYPE_CHECKING:
    from ...auth.flow import GiveUp, SendAgain
    from .http_sse import HttpSse
    from .standalone import StandaloneOutcome, StandaloneStream


@attrs.define(eq=False, repr=False)
class HttpLink:
    """What is open to one server over HTTP; nothing on stdio."""

    exchanges: HttpExchanges
    posts: Posts
    _of_requests: HttpRequests
    _requests: RequestTable
    _streams: StreamFactory
    _silence: Silence
    _timers: TimerTable
    _events: EventQueue
    _unread: Unread
    _standalone: StandaloneStream | None = attrs.field(default=None, init=False)
    _http_sse: HttpSse | None = attrs.field(default=None, init=False)
    """The event stream of HTTP+SSE; None with another transport, and before it is opened."""

    @property
    def is_shared(self) -> bool:
        """True if all messages arrive on one stream, except those of calls with keys."""
        return self._http_sse is not None

    @property
    def is_http_sse(self) -> bool:
        """True in a session of HTTP+SSE."""
        return self.exchanges.message_url is not None

    @property
    def is_full(self) -> bool:
        """True if no further message can be sent by itself."""
        return self.posts.is_full

    # Messages to the server

    def send(self, request: PendingRequest, now: float) -> None:
        """Send a request, under the id that it has."""
        http_sse = self._http_sse
        has_stream = http_sse is None or request.key is not None
        self._of_requests.send(request, now, has_stream=has_stream)
        if http_sse is not None and not has_stream and request.timeouts is not None:
            http_sse.expect(request.timeouts, now)

    def post(
        self, message: Request | Notification | Response | ErrorResponse, now: float
    ) -> Delivery | None:
        """Send a message by itself; a response that belongs to a turn waits for the others."""
        if isinstance(message, Response | ErrorResponse) and self._of_requests.has_turn(message):
            return self._of_requests.add_response(message, now)
        undelivered = self.posts.add(message, now)
        return None if undelivered is None else (None, undelivered)

    def leave(self, request: PendingRequest, now: float, *, complete: bool) -> None:
        """End the stream and exchange of a request; ``complete``: its response has arrived."""
        self._of_requests.leave(request, now, can_discard=complete or request.stream is None)

    def holds(self, request: PendingRequest) -> bool:
        """Return True if a request waits for authorization, and its message was not sent."""
        return self.exchanges.holds_message(request.exchange)

    def break_off(self, request: PendingRequest) -> None:
        """Abort the exchange of a request, unless its response comes on a shared stream."""
        if request.exchange is not None and request.stream is not None:
            self.exchanges.abort(request.exchange)

    # The session

    def open_standalone_stream(self, now: float) -> None:
        """Open the stream for messages that belong to no request."""
        from .standalone import StandaloneStream

        stream = self._streams.standalone()
        self._standalone = StandaloneStream(stream, self.exchanges, self._silence, self._timers)
        self._standalone.connect(now)

    def open_event_stream(self, limits: Limits, now: float) -> None:
        """Open the event stream of HTTP+SSE."""
        from .http_sse import HttpSse

        stream = self._streams.session()
        self._http_sse = HttpSse(stream, self.exchanges, self._timers, limits)
        self._http_sse.open(now)

    def delete_session(self, now: float) -> None:
        """Ask the server to end the session."""
        self.exchanges.open(ForDelete(), b"DELETE", now=now)

    def clear(self, now: float) -> list[Request]:
        """Discard everything of the session except what its requests know.

        Returns each ``tasks/cancel`` that the server has not confirmed.
        """
        if self._standalone is not None:
            self._standalone.stop()
            self._standalone = None
        if self._http_sse is not None:
            self._end_ping(now)
            self._http_sse.stop()
            self._http_sse = None
        messages = self.posts.clear()
        self.exchanges.clear()
        return [message for message in messages if isinstance(message, Request)]

    # What arrives

    def receive(self, number: int, part: ResponsePart, now: float) -> Deliveries:
        """Receive a part of the response of an exchange.

        A part of an exchange that has ended or was aborted is ignored.
        """
        exchange, authorizing = (
            self.exchanges.open_exchanges.get(number),
            self.exchanges.authorizing,
        )
        if exchange is None:
            if authorizing is not None and number == authorizing.exchange:
                authorizing.flow.receive(part, now)
                return self.run_flow(now)
            return ()
        reader, stream = exchange.reader, exchange.stream
        has_more = reader.receive(part)
        head = reader.head
        if head is not None and part is head:
            for name, _ in head.headers:
                if name == b"set-cookie":
                    self.exchanges.take_cookies(exchange, head, now)
                    break
            if authorizing is not None:
                assert exchange.attempt is not None
                authorizing.flow.responded(exchange.attempt, str(exchange.request.url), head)
            if stream is not None and reader.events is not None:
                stream.opened(now)
        if has_more:
            return self.read(number, now, heard=exchange)
        if stream is not None and stream.heard_at is not None:
            stream.heard_at = now
        return ()

    def read(self, number: int, now: float, *, heard: Exchange | None = None) -> Deliveries:
        """Yield what an exchange brings, until it needs data or the queue of events is full.

        Args:
            number: the number of the exchange.
            now: the current time in seconds, on the machine's clock.
            heard: the exchange, if a part of its response has just arrived.
        """
        while (exchange := self.exchanges.open_exchanges.get(number)) is not None:
            reader = exchange.reader
            if reader.events is not None and self._events.is_full():
                break
            outcome = reader.next_outcome()
            if outcome is None:
                break
            if outcome is reader.final:
                self.exchanges.abort(number)
                again = self._repeat(exchange, outcome, now)
                if again is not None:
                    yield from again
                    break
            purpose = exchange.purpose
            if isinstance(purpose, ForRequest):
                request = self._requests.get(purpose.number)
                came = self._of_requests.receive(request, exchange, outcome, now)
                if came is not None:
                    yield request, came
                elif request.kind is Kind.PING and isinstance(outcome, Ended):
                    self._ping_accepted(now)
            elif (delivery := self._deliver(purpose, exchange, outcome, now)) is not None:
                yield delivery
        stream = None if heard is None or heard.reader.events is None else heard.stream
        if stream is not None and stream.heard_at is not None:
            self._silence.restart(stream, now)
            if stream.kind is StreamKind.SESSION:
                self._end_ping(now)

    def _deliver(
        self, purpose: Purpose, exchange: Exchange, outcome: ReaderOutcome, now: float
    ) -> Delivery | None:
        """Return what is to be delivered of an outcome of an exchange that is for no request."""
        match purpose:
            case ForPost(number=number):
                posted = self.posts.responded(number, outcome, now)
                return None if posted is None else (None, posted)
            case ForStandaloneStream():
                assert self._standalone is not None
                return self._on_standalone(self._standalone.receive(exchange, outcome, now), now)
            case ForEventStream():
                return self._on_event_stream(exchange, outcome, now)
            case ForDelete():  # also 405: not allowed there; and 404: the session has ended
                return None, SessionEnded()
            case _:
                return _rest_of_batch(outcome)

    def _on_standalone(self, outcome: StandaloneOutcome, now: float) -> Delivery | None:
        match outcome:
            case OtherEvent(event):
                self._unread.add_event(event, None, now)
            case Reconnecting():
                self._events.append(outcome)
            case StandaloneStreamClosed():
                self._standalone = None
                self._events.append(outcome)
            case _:
                return None, outcome
        return None

    def _on_event_stream(
        self, exchange: Exchange, outcome: ReaderOutcome, now: float
    ) -> Delivery | None:
        """Handle an outcome of the event stream of HTTP+SSE, which is the session."""
        assert self._http_sse is not None
        match self._http_sse.receive(exchange, outcome):
            case OtherEvent(event):
                self._unread.add_event(event, None, now)
            case None:
                pass
            case delivered:
                return None, delivered
        return None

    # Time

    def due(
        self, timer: Timer, number: int, now: float, *, can_tell: bool, is_ready: bool
    ) -> Deliveries:
        """Act on a timer that is due.

        Args:
            timer: the timer.
            number: what it belongs to: an exchange, a stream or a message.
            now: the current time in seconds, on the machine's clock.
            can_tell: False if received data may be unread, so that a silence says nothing.
            is_ready: False if the session is not open.
        """
        match timer:
            case Timer.RECONNECT if number == SHARED:
                assert self._standalone is not None
                self._standalone.due(now)
            case Timer.RECONNECT:
                request = self._requests.get(number)
                if (restart := self._of_requests.reconnect(request, now)) is not None:
                    yield request, restart
            case Timer.STREAM_IDLE:
                delivery = self._silent(number, now, can_tell=can_tell, is_ready=is_ready)
                if delivery is not None:
                    yield delivery
            case Timer.POST:
                if (outcome := self.posts.due(number, now)) is not None:
                    yield None, outcome
            case Timer.DISCARD_RESPONSE:
                self.exchanges.abort(number)
            case _:
                assert timer is Timer.AUTHORIZATION
                assert self.exchanges.authorizing is not None
                self.exchanges.authorizing.flow.due(now)
                yield from self.run_flow(now)

    def _silent(
        self, number: int, now: float, *, can_tell: bool, is_ready: bool
    ) -> Delivery | None:
        """Act on a connection that was silent for so long that it may be dead."""
        if number != SHARED:
            request = self._requests.get(number)
            return self._of_requests.silent(request, now, can_tell=can_tell)
        if self._standalone is None:
            return self._session_silent(now, can_tell=can_tell and is_ready)
        outcome = self._standalone.silent(now, can_tell=can_tell)
        return None if outcome is None else self._on_standalone(outcome, now)

    # A subscription that is renewed because its connection is silent

    def renewed(self, renewal: PendingRequest) -> None:
        """Let a subscription go on with the connection of its renewal."""
        self._silence.renewed(renewal)

    def renewal_failed(self, renewal: PendingRequest, answer: OwnAnswer, now: float) -> None:
        """Act on the end of a renewal that was not acknowledged.

        If it was refused, the server can be reached and takes no second subscription: wait on for
        the first.
        """
        call = self._requests.parent_of(renewal)
        if isinstance(answer, Lost):
            self._of_requests.subscription_lost(call, answer.reason, now)
            return
        self._of_requests.end_renewal(call, now, can_discard=True)
        assert call.stream is not None
        self._silence.restart(call.stream, now)

    # The event stream of HTTP+SSE, if it is silent

    def _session_silent(self, now: float, *, can_tell: bool) -> Delivery | None:
        """Send a ``ping`` after a silence; the session is lost if its response does not come."""
        assert self._http_sse is not None
        if not can_tell:
            self._ping_failed(now)
            return None
        match self._http_sse.silent():
            case SendPing():
                ping = self._requests.add_own(Kind.PING, "ping", None)
                self._requests.renew_id(ping)
                self._http_sse.test(ping, now)
                self.send(ping, now)
            case PingFailed():
                self._ping_failed(now)
            case EventStreamLost() as lost:
                return None, lost
            case _ as impossible:
                assert_never(impossible)
        return None

    def _ping_accepted(self, now: float) -> None:
        assert self._http_sse is not None
        timeouts = [each.timeouts for each in self._requests.calls.values()]
        self._http_sse.accepted([each for each in timeouts if each is not None], now)

    def ping_ended(self, answer: OwnAnswer, now: float) -> Deliveries:
        """Act on the end of the ``ping`` that tests a silent stream."""
        match answer:
            case Refusal(ends_session=True):
                yield None, SessionOver(answer)
            case Lost() | Refusal() | AuthorizationFailed():
                self._ping_failed(now)
            case _:
                self._end_ping(now)

    def _ping_failed(self, now: float) -> None:
        """Send another ``ping`` after the next silence: this one says nothing about the stream."""
        assert self._http_sse is not None
        self._silence.restart(self._http_sse.stream, now)
        self._end_ping(now)

    def _end_ping(self, now: float) -> None:
        """End the ``ping`` of a silent event stream, if there is one."""
        ping = None if self._http_sse is None else self._http_sse.take_ping()
        if ping is not None:
            self._of_requests.end(ping, now, can_discard=True)

    # Redirects and authorization

    def _repeat(self, exchange: Exchange, outcome: ReaderOutcome, now: float) -> Deliveries | None:
        """Make the request of an exchange again that was redirected, or refused without a token.

        Returns None if its last outcome is of another kind.
        """
        if not isinstance(outcome, Refused):
            return None
        head, authorizing = outcome.refusal.head, self.exchanges.authorizing
        request = self.exchanges.redirected(exchange, head)
        if request is not None:
            self._reopen(exchange, request, now)
            assert self.exchanges.url is not None
            delivery: Delivery = None, Redirected(self.exchanges.url.shown)
            return (delivery,)
        if authorizing is None or exchange.attempt is None:
            return None
        is_closed = authorizing.flow.state is AuthorizationState.CLOSED
        if is_closed or isinstance(exchange.purpose, Discarding):
            return None
        url = str(exchange.request.url)
        verdict = authorizing.flow.refused(exchange.attempt, url, head, now)
        return None if verdict is None else self._authorize(exchange, verdict, now)

    def _authorize(self, exchange: Exchange, verdict: SendAgain | GiveUp, now: float) -> Deliveries:
        """Send a request again that was refused without a token, once there is one."""
        from ...auth.flow import GiveUp

        if isinstance(verdict, GiveUp):
            yield from self._unauthorized(exchange.purpose, verdict.error, now)
        else:
            self._reopen(exchange, exchange.request, now)
            yield from self.admit(now)  # the flow may end at once, and with it what waits for it
        yield from self.run_flow(now)

    def _reopen(self, exchange: Exchange, request: HttpRequest, now: float) -> None:
        """Replace an exchange that has ended by another one for the same purpose."""
        stream: Stream | None = None
        match exchange.purpose:
            case ForRequest(request_number):
                stream = self._requests.get(request_number).stream
            case ForStandaloneStream():
                assert self._standalone is not None
                stream = self._standalone.stream
            case ForEventStream():
                assert self._http_sse is not None
                stream = self._http_sse.stream
            case _:
                pass
        number = self.exchanges.reopen(exchange, request, stream, now)
        match exchange.purpose:
            case ForRequest(request_number):
                self._requests.get(request_number).exchange = number
            case ForPost(post_number):
                self.posts.reopened(post_number, number)
            case ForStandaloneStream():
                assert self._standalone is not None
                self._standalone.exchange = number
            case _:
                pass

    def admit(self, now: float) -> Deliveries:
        """Send the requests of new exchanges with a token, or let them wait for one."""
        authorizing = self.exchanges.authorizing
        assert authorizing is not None
        while authorizing.arrived:
            number = authorizing.arrived.popleft()
            exchange = self.exchanges.open_exchanges.get(number)
            if exchange is not None:  # else it was aborted meanwhile
                purpose, operation = exchange.purpose, ""
                if isinstance(purpose, ForRequest):
                    operation = _operation_of(self._requests.get(purpose.number))
                yield from self._act(self.exchanges.admit(number, now, operation), now)

    def run_flow(self, now: float) -> Deliveries:
        """Perform the steps that the flow wants; call this after everything that may change it."""
        return self._act(self.exchanges.run_flow(now), now)

    def auth_completed(self, effect: AuthEffect, result: Any, now: float) -> Deliveries:
        """Receive the result of an effect of the authorization."""
        authorizing = self.exchanges.authorizing
        assert authorizing is not None
        number = authorizing.signed(effect) if isinstance(effect, SignJwt) else None
        if number is not None:
            self.exchanges.send_signed(number, str(result), now)
            return ()
        authorizing.flow.completed(effect, result, now)
        return self.run_flow(now)

    def auth_failed(self, effect: AuthEffect, reason: str, now: float) -> Deliveries:
        """Receive the reason why an effect of the authorization cannot be performed."""
        authorizing = self.exchanges.authorizing
        assert authorizing is not None
        number = authorizing.signed(effect) if isinstance(effect, SignJwt) else None
        if number is not None:
            text = f"Authorization failed: a JWT cannot be signed: {reason}"
            error = AuthorizationFailed(text, reason="effect_failed")
            return self._act(self.exchanges.fail_held(number, error), now)
        authorizing.flow.effect_failed(effect, reason, now)
        return self.run_flow(now)

    def _act(self, steps: AuthorizationSteps, now: float) -> Deliveries:
        """Deliver what the steps of the authorization mean for what waits for it."""
        for outcome in steps:
            match outcome:
                case AuthorizationNeeded():
                    self._events.append(outcome)
                case FlowEnded():
                    yield None, outcome
                case Held(purpose):
                    if isinstance(purpose, ForPost):
                        self.posts.pause(purpose.number)
                    yield self._owner(purpose), outcome
                case Released(purpose):
                    if isinstance(purpose, ForPost):
                        self.posts.restart(purpose.number, now)
                    yield self._owner(purpose), outcome
                case Unauthorized(purpose, error):
                    yield from self._unauthorized(purpose, error, now)
                case _ as impossible:
                    assert_never(impossible)

    def _owner(self, purpose: Purpose) -> PendingRequest | None:
        return self._requests.get(purpose.number) if isinstance(purpose, ForRequest) else None

    def _unauthorized(self, purpose: Purpose, error: AuthorizationFailed, now: float) -> Deliveries:
        """End what an exchange is for: it gets no authorization."""
        match purpose:
            case ForRequest(number):
                request = self._requests.get(number)
                request.exchange = None
                yield request, error
            case ForPost(number):
                yield None, self.posts.given_up(number, str(error), now)
            case ForStandaloneStream():
                assert self._standalone is not None
                self._events.append(self._standalone.give_up(str(error)))
                self._standalone = None
            case ForEventStream():
                yield None, Failed(error)
            case _:
                yield None, SessionEnded()


def http_link(
    exchanges: HttpExchanges,
    requests: RequestTable,
    encoder: MessageEncoder,
    jitter: Callable[[], float],
    timers: TimerTable,
    events: EventQueue,
    unread: Unread,
) -> HttpLink:
    """Return the link of a client, whose parts these are; ``jitter`` as in :class:`Client`."""
    options, streams = encoder.options, StreamFactory(encoder, jitter)
    silence = Silence(requests, exchanges, timers)
    posts = Posts(options.limits, options.reconnect, jitter, exchanges, encoder, timers)
    of_requests = HttpRequests(
        exchanges, requests, encoder, streams, silence, timers, events, unread
    )
    return HttpLink(
        exchanges, posts, of_requests, requests, streams, silence, timers, events, unread
    )


def _rest_of_batch(outcome: ReaderOutcome) -> Delivery | None:
    """Return what comes in one batch with the response, whose rest is discarded."""
    match outcome:
        case Request() | Notification() | Response() | ErrorResponse() | Invalid(is_fatal=False):
            return None, outcome
        case _:
            return None


def _operation_of(request: PendingRequest) -> str:
    """Return what a request is about, as far as scopes can depend on it."""
    name = (request.params or {}).get(NAMED.get(request.method, ""))
    return f"{request.method} {name}" if isinstance(name, str) else request.method
