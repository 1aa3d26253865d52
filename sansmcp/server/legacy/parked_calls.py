"""Parked calls: they wait in the store for input responses, so that any instance can continue them.

When a handler needs input, and its call has a log, the call is *parked*: the input requests are
appended to the log, and with them, in the same append, everything needed to call the handler again.
Nothing is held in memory. The input responses of each round are a log, too. The instance that
receives one appends it there. If two instances append at the same place, one of them conflicts, so
exactly one instance appends the last missing response. That one takes the call over: it calls the
handler and writes on in the log of the call. Readers at all instances follow that log.

There are two ways to exchange input requests and responses:

* The input requests are server requests on the open stream. Each response is a POST of its own,
  and its id names the round.
* SEP-1858: the input requests stand between two events, ``buffer_input`` and ``input_required``,
  and the HTTP response ends after them. The input responses come as one array, in a POST whose
  ``Last-Event-ID`` names the second event, and the call goes on in the HTTP response to that POST.
  If the client repeats the POST, the responses are stored already, and it only reads the log.

A call that is cancelled while it is parked is not continued: the next input response ends its log.

If an instance crashes while a handler runs, the call is not continued, because it is unknown what
the handler has done. The client's timeout ends it.

Source: SEP-1858; 2025-03-26 to 2025-11-25, basic/transports: Sending Messages to the Server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import attrs

from ...codecs import json, jsonrpc
from ...codecs.event_id import EventId
from ...codecs.jsonrpc import Batch
from ...effects import StoreAppend, StoreEffect, StoreRead
from ...errors import RemoteProtocolError
from ...events import CallReceived, RefusalSent
from ...http import RequestHead
from ...input_required import HandlerInput, InputRequired, InputResponses
from ...messages import ErrorResponse, Request, RequestId, Response
from ...states import SessionState
from ...store import Entry, EntryKind, Page
from .. import refusals
from ..calls import RunningCall
from ..core import ServerCore
from ..exchange import ServerExchange
from .mailbox import MailboxPost, cancellation_mailbox, response_mailbox
from .results import LegacyResults
from .sessions import LegacySession
from .stream_table import store_failed
from .streams import ResumableStream

AnyResponse: TypeAlias = Response | ErrorResponse


@attrs.frozen
class ParkedCall:
    """Everything needed to call the handler again."""

    request: Request
    names: Mapping[RequestId, str]
    """The names of the input requests by their ids."""
    state: Any
    """The state that the handler saved."""
    rounds: int
    progress: float | None
    """The progress that was reported last."""

    def encode(self) -> bytes:
        """As the data of an entry. Raises LocalProtocolError for a state that is not JSON."""
        request = attrs.asdict(self.request, recurse=False)
        return json.encode({**attrs.asdict(self, recurse=False), "request": request})

    @classmethod
    def decode(cls, data: bytes) -> ParkedCall:
        """What :meth:`encode` has made."""
        members = json.decode(data, max_depth=500)
        request = Request(**members.pop("request"))
        return cls(request, **members)


def park_call(
    call: RunningCall, stream: ResumableStream, session: LegacySession, required: InputRequired
) -> None:
    """Park a call in the store until the input responses arrive."""
    assert stream.key is not None
    first = stream.next_seq + session.multi_turn
    turn = EventId(stream.key.stream, first + len(required.requests))
    ids = [f"{turn.encode()}.{number}" for number in range(len(required.requests))]
    entries = [
        Entry(seq, jsonrpc.encode(Request(id, input_request.method, input_request.params)))
        for seq, id, input_request in zip(
            range(first, turn.seq), ids, required.requests.values(), strict=True
        )
    ]
    parked = ParkedCall(
        call.request,
        dict(zip(ids, required.requests, strict=True)),
        required.state,
        call.rounds + 1,
        call.last_progress,
    )
    kind = EntryKind.INPUT_REQUIRED if session.multi_turn else EntryKind.TURN
    entries.append(Entry(turn.seq, parked.encode(), kind=kind))
    if session.multi_turn:
        entries.insert(0, Entry(first - 1, b"", kind=EntryKind.BUFFER_INPUT))
    call.end_parked()
    stream.hand_over(entries)
    MailboxPost(session.table, session.log_key(cancellation_mailbox(call.request.id)), b"").append()


def parse_turn_id(id: RequestId) -> EventId | None:
    """Return the turn of a server request; None for an id that is not of a turn."""
    turn, dot, _ = str(id).rpartition(".")
    return EventId.decode(turn) if dot else None


def match_responses(items: Iterable[object], parked: ParkedCall) -> dict[RequestId, AnyResponse]:
    """Those of the messages that answer questions of the turn, by the ids of these."""
    answers = (item for item in items if isinstance(item, AnyResponse))
    return {item.id: item for item in answers if item.id is not None and item.id in parked.names}


def _responses_missing() -> RemoteProtocolError:
    """A continuation that does not answer what was asked."""
    return RemoteProtocolError(
        "All questions of the turn must be answered, each once, in one array",
        reason="answers_missing",
    )


def _cursor_used() -> RemoteProtocolError:
    """A continuation of a turn that was continued with other answers."""
    return RemoteProtocolError(
        "The turn that Last-Event-ID names was continued before, with other answers",
        reason="cursor_used",
    )


@attrs.define(eq=False, repr=False)
class ParkedCallResponder(LegacyResults):
    """How a call is answered that was parked: in its log."""

    session: LegacySession
    _stream: ResumableStream
    head: RequestHead | None
    """The POST that brought the last answer, where it is known."""
    open_calls: int = attrs.field(default=1, init=False)
    is_batch: bool = attrs.field(default=False, init=False)

    def start(self) -> None:
        """The stream is there."""

    @property
    def is_above_high_water(self) -> bool:
        """Whether to wait: the store does not keep up."""
        return self._stream.is_above_high_water

    def message(self, data: bytes) -> bool:
        """Something to say before the answer; returns False if it is lost."""
        return self._stream.append(data)

    def respond(self, data: bytes, http_status: int = 200) -> bool:
        """The answer; returns False if it is lost."""
        self.open_calls = 0
        return self._stream.append(data, final=True)

    def complete_without_response(self) -> None:
        self.open_calls = 0
        self._stream.append(b"", final=True)

    def disconnect(self, retry: int | None) -> bool:
        """Close the connection; the client reads on later. False, and no change, if it cannot."""
        return self._stream.disconnect(retry)

    def send_input_requests(self, call: RunningCall, required: InputRequired) -> bool:
        """Ask, and park the call; without questions it goes on at once."""
        if not self._stream.is_stored or not required.requests:
            return call.send_input_requests(required)
        park_call(call, self._stream, self.session, required)
        return True


@attrs.define(eq=False, repr=False)
class ResponseDelivery:
    """Answers on their way to the turn that they belong to.

    The uses of the store: read the turn, read the answers that are there, see whether the call was
    cancelled, and add the answers that are new.
    """

    _core: ServerCore
    _session: LegacySession
    _turn: EventId
    _responses: Sequence[AnyResponse]
    _exchange: ServerExchange | None
    """What waits for the outcome; None: nothing."""
    continues: bool
    """The exchange is to be the continuation of the call (SEP-1858)."""
    _on_page: Callable[[Page | None], None] = attrs.field(init=False)
    """Gets the page that is being read."""
    _parked: ParkedCall | None = attrs.field(default=None, init=False)
    _stored: dict[RequestId, AnyResponse] = attrs.field(
        factory=dict[RequestId, "AnyResponse"], init=False
    )
    """The answers that are stored."""
    _new: dict[RequestId, AnyResponse] = attrs.field(
        factory=dict[RequestId, "AnyResponse"], init=False
    )
    """Those of ours that are being stored."""
    _last_seq: int = attrs.field(default=0, init=False)

    def start(self) -> None:
        """Read the turn."""
        self._read(self._turn.stream, self._turn.seq - 1, 1, self._on_turn_read)

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        self._on_page(page)

    def _on_turn_read(self, page: Page | None) -> None:
        if page is None:
            self._log_evicted()
            return
        entry = page.entries[0] if page.entries else None
        kind = EntryKind.INPUT_REQUIRED if self.continues else EntryKind.TURN
        if entry is None or entry.seq != self._turn.seq or entry.kind is not kind:
            self._turn_missing()
            return
        self._parked = ParkedCall.decode(entry.data)
        self._read_responses(self._parked)

    def _on_responses_read(self, parked: ParkedCall, page: Page | None) -> None:
        for entry in page.entries if page is not None else ():
            answer = jsonrpc.decode(entry.data, self._core.limits)
            self._stored |= match_responses((answer,), parked)
            self._last_seq = entry.seq
        self._choose(parked)

    def on_append_done(self) -> None:
        """The answers were added."""
        assert self._parked is not None
        self._stored |= self._new
        if len(self._stored) == len(self._parked.names):
            self._continue(self._parked)
        self._done()

    def on_append_conflict(self) -> None:
        """Others have added answers meanwhile."""
        assert self._parked is not None
        self._read_responses(self._parked)

    def failed(self, effect: StoreEffect) -> bool:
        """The store failed: the client may try again."""
        self._refuse(store_failed())
        return True

    def _choose(self, parked: ParkedCall) -> None:
        """Add what is new of the answers, unless nobody wants them any more."""
        answers = match_responses(self._responses, parked)
        self._new = {id: answer for id, answer in answers.items() if id not in self._stored}
        if self.continues and not len(self._responses) == len(answers) == len(parked.names):
            self._refuse(_responses_missing())
        elif self.continues and self._stored:
            self._repeat(answers)
        elif self._new:
            self._read(cancellation_mailbox(parked.request.id), 0, 1, self._add_or_end)
        else:
            self._done()

    def _add_or_end(self, cancellation: Page | None) -> None:
        if self._core.has_stopped:  # another instance will take the same answers, and go on
            self._refuse(refusals.SHUTTING_DOWN())
            return
        if cancellation is not None and cancellation.last.seq > 1:
            self._session.take_over(self._turn).append(b"", final=True)
            self._done()
            return
        key = self._session.log_key(f"{self._turn.encode()}.")
        entries = tuple(
            Entry(seq, jsonrpc.encode(answer))
            for seq, answer in enumerate(self._new.values(), self._last_seq + 1)
        )
        self._session.table.start_operation(StoreAppend(stream=key, entries=entries), self)

    def _repeat(self, answers: Mapping[RequestId, AnyResponse]) -> None:
        """The same POST again: its response is lost, and the call goes on or has ended."""
        if answers == self._stored:
            self._done()
        else:
            self._refuse(_cursor_used())

    def _continue(self, parked: ParkedCall) -> None:
        """All answers are there, and it was us who added the last one: enter the handler again."""
        session, is_stopped = self._session, self._core.has_stopped
        if session.state is SessionState.ENDED and not is_stopped:
            return
        stream = session.take_over(self._turn)
        if is_stopped:  # no other instance will go on: the call ends as those that run here do
            error = refusals.SHUTTING_DOWN(parked.request.id)
            stream.append(jsonrpc.encode(error.reply), final=True)
            return
        names, exchange = parked.names, self._exchange
        answers = InputResponses({names[id]: answer for id, answer in self._stored.items()})
        call = RunningCall(
            self._core,
            session,
            parked.request,
            ParkedCallResponder(session, stream, None if exchange is None else exchange.head),
            HandlerInput(answers, parked.state),
            rounds=parked.rounds,
            last_progress=parked.progress,
        )
        session.begin(call)
        self._core.events.append(CallReceived(call))

    def _done(self) -> None:
        """The answers are where they belong."""
        exchange = self._exchange
        if exchange is None or exchange.is_done:
            return
        if self.continues:
            stream = self._session.find_stream(self._turn.stream)
            self._session.read(exchange, stream, self._turn.seq)
        else:
            exchange.send_response(202)

    def _log_evicted(self) -> None:
        """The store has evicted the call. Its readers are cut, and find the same when they return.

        Without this the client would wait for its timeout, with its answer accepted.
        """
        self._session.table.lose(self._session.log_key(self._turn.stream))
        self._refuse(refusals.UNKNOWN_EVENT_ID() if self.continues else refusals.UNKNOWN_TURN())

    def _turn_missing(self) -> None:
        """There is no such turn in the log, or the call went on without it: the answer is late."""
        if self.continues:
            self._refuse(refusals.UNKNOWN_EVENT_ID())
        else:
            self._done()

    def _refuse(self, error: RemoteProtocolError) -> None:
        if self._exchange is None or self._exchange.is_done:
            self._core.events.append(RefusalSent(error))
        else:
            self._exchange.refuse(error)

    def _read_responses(self, parked: ParkedCall) -> None:
        found = partial(self._on_responses_read, parked)
        self._read(f"{self._turn.encode()}.", self._last_seq, len(parked.names), found)

    def _read(self, log: str, after: int, limit: int, found: Callable[[Page | None], None]) -> None:
        """Ask the store for a page, which ``found`` gets."""
        self._on_page = found
        effect = StoreRead(
            stream=self._session.log_key(log),
            after=after,
            limit=limit,
            max_bytes=self._core.limits.max_stored_bytes,
        )
        self._session.table.start_operation(effect, self)


def deliver_responses(
    core: ServerCore,
    session: LegacySession,
    answer: AnyResponse,
    exchange: ServerExchange | None = None,
) -> bool:
    """Bring an answer to where it belongs: to a turn, or to the instance that waits for it.

    Returns False if its id can be neither that of a turn nor of a input_request.
    """
    turn = parse_turn_id(answer.id) if isinstance(answer.id, str) else None
    if turn is not None and session.can_park:
        ResponseDelivery(core, session, turn, (answer,), exchange, continues=False).start()
    elif isinstance(answer.id, int) and session.is_shared:
        log = session.log_key(response_mailbox(answer.id))
        MailboxPost(session.table, log, jsonrpc.encode(answer), exchange).append_if_expected()
    else:
        return False
    return True


def continue_call(
    core: ServerCore,
    session: LegacySession,
    turn: EventId | None,
    batch: Batch,
    exchange: ServerExchange,
) -> None:
    """Go on with a call in the response to the answers that it needs. Source: SEP-1858."""
    assert turn is not None, "the ladder lets no other array through"
    answers = tuple(item for item in batch.items if isinstance(item, AnyResponse))
    ResponseDelivery(core, session, turn, answers, exchange, continues=True).start()
