"""A client's end of one stream, over any number of connections.

A stream outlives the connections that carry it. What the client keeps of it is a cursor: the id of
the last event it has seen. When a connection ends before the stream does, cleanly or not (a server
may close early and let its clients poll, SEP-1699), the cursor waits, then asks with GET and
``Last-Event-ID`` for what follows. Three rules keep that from doing harm:

* the server's ``retry`` is a minimum for the delay, the random part on top grows with each attempt;
* attempts are counted until there is *progress*, a new event id or a message; a connection that
  merely opens is none, or a server that closes at once would be asked for ever;
* an event whose id was seen before is not delivered again.

Without an event id nothing can be resumed: then the stream is lost, unless its owner can start
again from the beginning.

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


@attrs.define(eq=False, repr=False)
class Cursor:
    """The reading end of a stream."""

    _core: ClientCore
    _owner: RequestOwner
    _call: int | None
    """For events: whose stream it is."""
    _turns: Turns | None = None
    """Where answers are kept back; None: the server does not ask for that."""
    expects_messages: bool = attrs.field(default=True, init=False)
    state: CursorState = attrs.field(default=CursorState.OPENING, init=False)
    _exchange: ClientExchange | None = attrs.field(default=None, init=False)
    _last_event_id: str = attrs.field(default="", init=False)
    _retry: float = attrs.field(default=0.0, init=False)
    """Seconds the server wants us to wait."""
    _attempts: int = attrs.field(default=0, init=False)
    """Connections since the last progress."""
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

    @property
    def response_headers(self) -> Headers:
        """The headers of the latest response."""
        response = self._exchange.response if self._exchange is not None else None
        return response.headers if response is not None else ()

    # What comes of the HTTP request

    def opened(self) -> None:
        """The response is an event stream."""
        self._advance(CursorEvent.OPENED)

    def received(self, event: SseEvent) -> None:
        """A block of the stream.

        Source: SEP-1699: empty data comes with an id and is never read as JSON.
        """
        if event.retry is not None:
            self._retry = event.retry / 1000
        if event.id is not None and len(event.id) > _LONGEST_ID:
            error = RemoteProtocolError("An event id is too long to be used", reason="bad_event_id")
            self._core.events.append(Violation(error))
            event = attrs.evolve(event, id=None, last_event_id=self._last_event_id)
        is_new = event.id is None or event.id not in self._seen
        if event.last_event_id != self._last_event_id:
            self._last_event_id = event.last_event_id
            self._attempts, self._answers = 0, b""
        if self._turns is not None and not event.data:
            self._turn_event(self._turns, event.event)
        elif event.data and event.event == "message" and is_new:
            self._remember(event.id)
            self._attempts, self._answers = 0, b""
            self._decode(event.data)

    def answered(self, message: Message | RemoteProtocolError) -> None:
        """A message of a plain JSON answer."""
        if isinstance(message, RemoteProtocolError):
            self._owner.violated(message)
        else:
            self._owner.message(message)

    def ended(self, reason: str | None) -> None:
        """The connection has ended; the stream may go on."""
        if self.state is not CursorState.CLOSED:
            why = reason or "the server closed the stream before the answer"
            if self._last_event_id or self._owner.restarts:
                self._schedule(why)
            else:
                self._lose(why)

    def refused(self, refusal: Refusal) -> None:
        """The server said no.

        What may pass is tried again, but never a request of ours that may have been executed.
        """
        assert self._exchange is not None
        may_repeat = self._exchange.method == b"GET" or bool(self._answers)
        if may_repeat and is_temporary(refusal.status):
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

    def _schedule(self, reason: str, wait: float = 0.0) -> None:
        """Try again after a while, ``wait`` at least, unless that was tried often enough."""
        policy = self._core.reconnect
        self._attempts += 1
        if self._attempts > policy.attempts:
            self._lose(f"given up after {policy.attempts} attempts without progress: {reason}")
            return
        self._advance(CursorEvent.BROKEN)
        delay = policy.delay(self._attempts, max(self._retry, wait), self._core.jitter())
        self._core.timers.set(Timer.RECONNECT, self, self._core.now + delay)
        self._core.events.append(
            Reconnecting(call=self._call, delay=delay, attempt=self._attempts, reason=reason)
        )

    def _lose(self, reason: str) -> None:
        self._advance(CursorEvent.CLOSE)
        self._owner.lost(reason)

    def _advance(self, event: CursorEvent) -> None:
        if event is CursorEvent.CLOSE:
            self._drop_turn()
        self.state = advance(CURSOR, self.state, event)
