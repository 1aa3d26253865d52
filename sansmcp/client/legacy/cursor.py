"""A client's end of one stream, over any number of connections.

A stream outlives the connections that carry it. What the client keeps of it is a cursor: the id of
the last event it has seen. When a connection ends before the stream does, the cursor waits, then
asks with GET and ``Last-Event-ID`` for what follows. Why the connection ended decides how long it
waits:

* The server ended an event stream as it should: it lets its clients poll (SEP-1699). That is no
  failure, whatever the stream brought. The next GET comes after the server's ``retry``, or after
  ``ReconnectPolicy.initial`` where the server names none, for as long as the owner waits.
* The connection failed, its body broke off, or the server refused it: that is an *attempt*. The
  server's ``retry`` is a minimum for the delay, and the random part on top grows with each attempt.
  Attempts are counted until there is progress, a new event id or a message, or until the stream
  lasts for longer than ``ReconnectPolicy.cap``, polls included.
* The connection was silent for ``Limits.stream_idle_timeout``: the peer may be gone without a
  word. The cursor aborts it and asks again at once. That is an attempt only if the server has not
  answered the GET at all.

An event whose id was seen before is not delivered again. Without an event id nothing can be
resumed: then the stream is lost, unless its owner can start again from the beginning.

Source: 2025-11-25 basic/transports: Resumability and Redelivery; SEP-1699; WHATWG HTML, 9.2.
"""

from __future__ import annotations

import attrs

from ...codecs import jsonrpc
from ...codecs.headers import Headers
from ...codecs.jsonrpc import Batch
from ...codecs.sse import SseEvent
from ...errors import RemoteProtocolError
from ...events import Reconnecting, Violation
from ...messages import Message, Request
from ...states import CURSOR, CursorEvent, CursorState, advance
from ...timers import Timer
from ..core import ClientCore
from ..detection import is_temporary
from ..exchange import ClientExchange, Refusal
from ..transport import RequestOwner
from .turns import BUFFER_INPUT, INPUT_REQUIRED, KeptTurn, Turns

_LONGEST_ID = 2048
"""Characters; a longer one would not fit into the header that brings it back."""
_LONGEST_RETRY = 86_400.0
"""Seconds; a server may ask for any time, and selectors raise for one that is too long for them."""


@attrs.define(eq=False, repr=False)
class Cursor:
    """The reading end of a stream."""

    _core: ClientCore
    _owner: RequestOwner
    _call: int | None
    """For events: whose stream it is."""
    _turns: Turns | None = None
    """Where answers are kept back; None: the server does not ask for that."""
    _is_standalone: bool = attrs.field(default=False, alias="is_standalone")
    """True if any new stream of the session is as good as this one."""
    expects_messages: bool = attrs.field(default=True, init=False)
    state: CursorState = attrs.field(default=CursorState.OPENING, init=False)
    _exchange: ClientExchange | None = attrs.field(default=None, init=False)
    _last_event_id: str = attrs.field(default="", init=False)
    _retry: float | None = attrs.field(default=None, init=False)
    """Seconds that the server wants us to wait, as it last said; None if it never did."""
    _attempts: int = attrs.field(default=0, init=False)
    """Connections that failed since the last progress."""
    _polls: int = attrs.field(default=0, init=False)
    """Connections that ended as they should since the last progress."""
    _up_since: float | None = attrs.field(default=None, init=False)
    """When the first event stream after the latest failure was opened, in seconds on the machine's
    clock; None if there was none yet.
    """
    was_opened: bool = attrs.field(default=False, init=False)
    """True if the server has answered by an event stream at least once."""
    _seen: dict[str, None] = attrs.field(factory=dict[str, None], init=False)
    """The ids of messages that were delivered, oldest first."""
    _turn: KeptTurn | None = attrs.field(default=None, init=False)
    """The questions whose answers are kept back."""
    _answers: bytes = attrs.field(default=b"", init=False)
    """Those that were sent, until the response to them has brought something."""

    def post(self, request: Request) -> None:
        """Open the stream, or get a plain answer, by a request of ours."""
        self._drop_turn()
        self._exchange = self._core.post(self, request)

    def get(self) -> None:
        """Open a standalone stream, or resume where we were."""
        self._exchange = self._core.open(self, b"GET", last_event_id=self._last_event_id)
        self._watch()

    def close(self, *, complete: bool = False) -> None:
        """Nobody wants more of the stream.

        ``complete``: there is nothing more, so its connection may end well and be used again.
        """
        if self.state is not CursorState.CLOSED:
            self._advance(CursorEvent.CLOSE)
            self._core.timers.stop(Timer.RECONNECT, self)
            if complete:
                self._core.let_end(self._exchange)
            else:
                self._core.abort(self._exchange)

    def retry_due(self) -> None:
        """The delay before the next attempt is over."""
        self._advance(CursorEvent.RETRY)
        if self._answers:
            self._continue()
        elif self._last_event_id:
            self.get()
        else:
            self._owner.restart()

    def idle_due(self) -> None:
        """Abort a connection that was silent for too long, and connect again."""
        assert self._exchange is not None
        limit = self._core.limits.stream_idle_timeout
        if self._core.is_paused:  # the server may have sent what has not been read
            self._watch()
        elif self._exchange.last_heard + limit > self._core.now:
            deadline = self._exchange.last_heard + limit
            self._core.timers.set(Timer.STREAM_IDLE, self, deadline)
        else:
            self._note_retry()
            self._core.abort(self._exchange)
            reason = f"the connection was silent for {limit:g} s (stream_idle_timeout)"
            if self._exchange.response is None:
                self._schedule(reason)
            else:
                self._reconnect(0.0, reason)

    @property
    def response_headers(self) -> Headers:
        """The headers of the latest response."""
        response = self._exchange.response if self._exchange is not None else None
        return response.headers if response is not None else ()

    # What comes of the HTTP request

    def opened(self) -> None:
        """The response is an event stream."""
        self._advance(CursorEvent.OPENED)
        self.was_opened = True
        if self._up_since is None:
            self._up_since = self._core.now
        self._watch()

    def received(self, event: SseEvent) -> None:
        """A block of the stream.

        Source: SEP-1699: empty data comes with an id and is never read as JSON.
        """
        if event.id is not None and len(event.id) > _LONGEST_ID:
            error = RemoteProtocolError("An event id is too long to be used", reason="bad_event_id")
            self._core.events.append(Violation(error))
            event = attrs.evolve(event, id=None, last_event_id=self._last_event_id)
        is_new = event.id is None or event.id not in self._seen
        if event.last_event_id != self._last_event_id:
            self._last_event_id = event.last_event_id
            self._progressed()
            self._watch()
        if self._turns is not None and not event.data:
            self._turn_event(self._turns, event.event)
        elif event.data and event.event == "message" and is_new:
            self._remember(event.id)
            self._progressed()
            self._decode(event.data)

    def answered(self, message: Message | RemoteProtocolError) -> None:
        """A message of a plain JSON answer."""
        if isinstance(message, RemoteProtocolError):
            self._owner.violated(message)
        else:
            self._owner.message(message)

    def ended(self, reason: str | None) -> None:
        """The connection has ended; the stream may go on."""
        if self.state is CursorState.CLOSED:
            return
        why = reason or "the server closed the stream before the answer"
        is_stream = reason is None and self.state is CursorState.READING
        if is_stream and self._can_resume and not self._answers:
            self._poll()
        elif self._last_event_id or self._owner.restarts:
            self._schedule(why)
        else:
            self._lose(why, complete=reason is None)

    def refused(self, refusal: Refusal) -> None:
        """The server said no.

        What may pass is tried again, but never a request of ours that may have been executed.
        """
        assert self._exchange is not None
        may_repeat = self._exchange.method == b"GET" or bool(self._answers)
        # 409: the server has one standalone stream, and has not noticed that its connection broke.
        is_taken = refusal.status == 409 and self._is_standalone and self.was_opened
        if is_taken or (may_repeat and is_temporary(refusal.status)):
            self._schedule(refusal.message, refusal.retry_after)
        elif self._last_event_id and refusal.status != 404:
            self._last_event_id, self._answers = "", b""
            self.ended(f"it cannot be resumed: {refusal.message}")
        else:
            self._advance(CursorEvent.CLOSE)
            self._owner.refused(refusal)

    def garbled(self, error: RemoteProtocolError) -> None:
        """The response cannot be read."""
        self._advance(CursorEvent.CLOSE)
        self._owner.garbled(error)

    def _decode(self, data: str) -> None:
        try:
            decoded = jsonrpc.decode(data.encode(), self._core.limits)
        except RemoteProtocolError as error:
            self._owner.violated(error)
            return
        for item in decoded.items if isinstance(decoded, Batch) else (decoded,):
            if self._turn is None or not isinstance(item, Request) or self._turn.ask(item.id):
                self.answered(item)

    # Turns

    def _turn_event(self, turns: Turns, kind: str) -> None:
        """Answers are to be kept back, or to be sent. Source: SEP-1858."""
        if kind == BUFFER_INPUT and self._turn is None:
            self._turn = KeptTurn(turns, self._core.limits, self._send_answers, self._refuse_turn)
        elif kind == INPUT_REQUIRED:
            self._core.let_end(self._exchange)
            self._note_retry()
            self._advance(CursorEvent.BROKEN)
            limits = self._core.limits
            turn = self._turn or KeptTurn(turns, limits, self._send_answers, self._refuse_turn)
            turn.close()

    def _send_answers(self, answers: bytes) -> None:
        """All answers are there: the call goes on in the response to them."""
        self._turn, self._answers = None, answers
        self._advance(CursorEvent.RETRY)
        self._continue()

    def _continue(self) -> None:
        cursor = self._last_event_id
        self._exchange = self._core.open(self, b"POST", self._answers, last_event_id=cursor)

    def _refuse_turn(self, what: str) -> None:
        error = RemoteProtocolError(f"The server has asked {what}", reason="too_much_asked")
        self._core.abort(self._exchange)
        self.garbled(error)

    def _drop_turn(self) -> None:
        self._answers = b""
        if self._turn is not None:
            self._turn.drop()
            self._turn = None

    def _remember(self, id: str | None) -> None:
        if id:
            self._seen[id] = None
            if len(self._seen) > self._core.limits.max_seen_event_ids:
                del self._seen[next(iter(self._seen))]

    @property
    def _can_resume(self) -> bool:
        """True if a GET can go on with the stream."""
        return self._is_standalone or self._last_event_id != ""

    def _progressed(self) -> None:
        self._attempts, self._polls, self._answers = 0, 0, b""

    def _watch(self) -> None:
        """Start the time in which something has to come, unless only the call's timeouts count."""
        if not self._can_resume:
            self._core.timers.stop(Timer.STREAM_IDLE, self)
            return
        deadline = self._core.now + self._core.limits.stream_idle_timeout
        self._core.timers.set(Timer.STREAM_IDLE, self, deadline)

    def _poll(self) -> None:
        """Ask again when the server wants us to."""
        polls = self._polls if self._is_standalone else 0  # a call waits: it is told without delay
        self._polls += 1
        self._note_retry()
        delay = self._core.reconnect.poll_delay(polls, self._retry, self._core.jitter())
        self._reconnect(delay, "the server ended the connection, and more is to follow")

    def _schedule(self, reason: str, wait: float = 0.0) -> None:
        """Try again after a while, ``wait`` at least, unless that was tried often enough."""
        policy = self._core.reconnect
        self._note_retry()
        if self._up_since is not None and self._core.now - self._up_since > policy.cap:
            self._attempts = 0
        self._up_since = None
        self._attempts += 1
        if self._attempts > policy.attempts:
            self._lose(f"given up after {policy.attempts} attempts without progress: {reason}")
            return
        wait = max(self._retry or 0.0, wait)
        delay = policy.delay(self._attempts, wait, self._core.jitter())
        self._reconnect(delay, reason, attempt=self._attempts)

    def _note_retry(self) -> None:
        """Keep the time that the server wants us to wait.

        It counts as soon as its line has come. Source: WHATWG HTML, 9.2.6.
        """
        assert self._exchange is not None
        if self._exchange.reconnection_time is not None:
            self._retry = min(self._exchange.reconnection_time / 1000, _LONGEST_RETRY)

    def _reconnect(self, delay: float, reason: str, *, attempt: int = 0) -> None:
        self._advance(CursorEvent.BROKEN)
        self._core.timers.set(Timer.RECONNECT, self, self._core.now + delay)
        self._core.events.append(
            Reconnecting(call=self._call, delay=delay, attempt=attempt, reason=reason)
        )

    def _lose(self, reason: str, *, complete: bool = False) -> None:
        self._advance(CursorEvent.CLOSE)
        self._owner.lost(reason, complete=complete)

    def _advance(self, event: CursorEvent) -> None:
        if event is CursorEvent.CLOSE:
            self._drop_turn()
        if event in (CursorEvent.CLOSE, CursorEvent.BROKEN):
            self._core.timers.stop(Timer.STREAM_IDLE, self)
        self.state = advance(CURSOR, self.state, event)
