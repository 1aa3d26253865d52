"""Parked calls: they wait in the store for input responses, so that any instance can continue them.

When a handler needs input, and its call has a log, the call is *parked*: the input requests are
appended to the log, and with them, in the same append, everything needed to call the handler again.
Nothing is held in memory. The input responses of each round are a log, too. The instance that
receives one appends it there. If two instances append at the same place, one of them conflicts, so
exactly one instance appends the last missing response. That one takes the call over: it appends an
entry to the log of the call that names it as the writer, and when that is stored, it calls the
handler and writes on in the log. Readers at all instances follow that log. If the instance dies
before, the client's POST has no response, and the instance that gets its repetition takes over.

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

from ...codecs import jsonrpc
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
from ..calls import STORED_DEPTH, RunningCall
from ..core import ServerCore
from ..exchange import ServerExchange
from ..logs import StoreOperation
from ..records import NOTHING, RecordTooNewError, read_record, record_in, write_record
from .mailbox import MailboxPost, cancellation_mailbox, response_mailbox
from .results import LegacyResults
from .sessions import LegacySession
from .streams import ResumableStream, WriterDeclaration

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
    unknown: Mapping[str, Any] = NOTHING
    """The members that only a later version knows, also those of the request."""

    def encode(self) -> bytes:
        """Return the data of an entry. Raises LocalProtocolError if the state is not JSON."""
        return write_record(self, self.unknown)

    @classmethod
    def decode(cls, data: bytes) -> ParkedCall:
        """Return the call in the data of an entry. Raises RecordTooNewError."""
        return read_record(cls, data, STORED_DEPTH, {"request": Request})


def park_call(
    call: RunningCall,
    stream: ResumableStream,
    session: LegacySession,
    required: InputRequired,
    unknown: Mapping[str, Any] = NOTHING,
) -> None:
    """Park a call in the store until the input responses arrive.

    ``unknown``: the members that only a later version knows, from the record of the round before.
    """
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
        unknown,
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
    """Return the responses to the input requests of a turn, by the ids of these."""
    responses = (item for item in items if isinstance(item, AnyResponse))
    return {item.id: item for item in responses if item.id is not None and item.id in parked.names}


def _responses_missing() -> RemoteProtocolError:
    """Return the error for a POST that lacks input responses of its turn."""
    return RemoteProtocolError(
        "Send one array with one response to each input request of the turn, and nothing else",
        reason="answers_missing",
    )


def _cursor_used() -> RemoteProtocolError:
    """Return the error for a turn that was continued with other input responses."""
    return RemoteProtocolError(
        "The turn that Last-Event-ID names was continued before, with other responses",
        reason="cursor_used",
    )


@attrs.define(eq=False, repr=False)
class ParkedCallResponder(LegacyResults):
    """Sends the messages of a continued call: they are appended to its log."""

    session: LegacySession
    _stream: ResumableStream
    _parked: ParkedCall
    """The record of the call, from the round that has ended."""
    head: RequestHead | None
    """The head of the POST with the last input response; None if it is unknown."""
    open_calls: int = attrs.field(default=1, init=False)
    is_batch: bool = attrs.field(default=False, init=False)

    def start(self) -> None:
        """Do nothing: the stream exists."""

    @property
    def is_above_high_water(self) -> bool:
        """True if the store is behind."""
        return self._stream.is_above_high_water

    def message(self, data: bytes) -> bool:
        """Send a message before the response. Returns False if it is lost."""
        return self._stream.append(data)

    def respond(self, data: bytes, http_status: int = 200) -> bool:
        """Send the response. Returns False if it is lost."""
        self.open_calls = 0
        return self._stream.append(data, final=True)

    def complete_without_response(self) -> None:
        self.open_calls = 0
        self._stream.append(b"", final=True)

    def disconnect(self, retry: int | None) -> bool:
        """Close the connection. Returns False, with nothing changed, if no client could resume."""
        return self._stream.disconnect(retry)

    def send_input_requests(self, call: RunningCall, required: InputRequired) -> bool:
        """Send input requests and park the call, or keep it in memory if it cannot be parked."""
        if not self._stream.is_stored or not required.requests:
            return call.send_input_requests(required)
        park_call(call, self._stream, self.session, required, self._parked.unknown)
        return True


@attrs.define(eq=False, repr=False)
class ResponseDelivery(StoreOperation):
    """Stores input responses with their turn, and continues the call when all are there.

    The store operations are, in order: read the turn, read the stored responses, look for a
    cancellation of the call, and append the new responses.
    """

    _core: ServerCore
    _session: LegacySession
    _turn: EventId
    _responses: Sequence[AnyResponse]
    _exchange: ServerExchange | None
    """The exchange of the POST that brought the responses, if there is one."""
    continues: bool
    """True if the call continues in the HTTP response to the POST (SEP-1858)."""
    _on_page: Callable[[Page | None], None] = attrs.field(init=False)
    """Called with the page that is being read."""
    _parked: ParkedCall | None = attrs.field(default=None, init=False)
    _stored: dict[RequestId, AnyResponse] = attrs.field(
        factory=dict[RequestId, "AnyResponse"], init=False
    )
    """The responses that are stored, by the ids of their requests."""
    _new: dict[RequestId, AnyResponse] = attrs.field(
        factory=dict[RequestId, "AnyResponse"], init=False
    )
    """The responses that this delivery is storing."""
    _last_seq: int = attrs.field(default=0, init=False)
    _is_last: bool = attrs.field(default=False, init=False)
    """True if the log of the call ended with the turn when it was read."""
    _is_claiming: bool = attrs.field(default=False, init=False)
    """True if the entry that names this instance as the writer is being stored."""

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
        is_turn = entry is not None and entry.kind in (kind, EntryKind.UNKNOWN)
        if entry is None or entry.seq != self._turn.seq or not is_turn:
            self._turn_missing()
            return
        try:
            self._parked = ParkedCall.decode(record_in(entry))
        except RecordTooNewError:  # an instance of the later version may get the responses yet
            self._refuse(refusals.RECORD_TOO_NEW())
            return
        self._is_last = page.last.seq == self._turn.seq
        self._read_responses(self._parked)

    def _on_responses_read(self, parked: ParkedCall, page: Page | None) -> None:
        for entry in page.entries if page is not None else ():
            response = jsonrpc.decode(entry.data, self._core.limits)
            self._stored |= match_responses((response,), parked)
            self._last_seq = entry.seq
        self._choose(parked)

    def on_append_done(self) -> None:
        """Continue the call if its last response has been appended."""
        assert self._parked is not None
        if self._is_claiming:
            self._continue(self._parked, self._turn.seq + 1)
            self._done()
            return
        self._stored |= self._new
        if not self._is_complete(self._parked):
            self._done()
        elif self._session.is_shared and not self._core.has_stopped:
            self._claim(self._parked)
        else:
            self._continue(self._parked, self._turn.seq)
            self._done()

    def on_append_conflict(self) -> None:
        """Read the responses again, because another instance has appended some.

        If this instance was about to continue the call, another one does.
        """
        assert self._parked is not None
        if self._is_claiming:
            self._done()
        else:
            self._read_responses(self._parked)

    def on_append_behind(self) -> None:
        """Treat the call as evicted, because the store has lost a part of it."""
        self._log_evicted()

    def may_repeat(self, effect: StoreEffect) -> bool:
        """Repeat an append in any case, and a read while the client waits for its HTTP response.

        The store may have done the append, and the client's next POST finds nothing left to do.
        """
        is_awaited = self._exchange is None or not self._exchange.is_done
        return is_awaited or isinstance(effect, StoreAppend)

    def failed(self, effect: StoreEffect) -> bool:
        """Refuse the POST, so that the client may send the responses again."""
        self._refuse(refusals.store_failed())
        return True

    def _choose(self, parked: ParkedCall) -> None:
        """Append the responses that are not stored yet, unless the call has been cancelled."""
        responses = match_responses(self._responses, parked)
        self._new = {id: response for id, response in responses.items() if id not in self._stored}
        if self.continues and not len(self._responses) == len(responses) == len(parked.names):
            self._refuse(_responses_missing())
        elif self.continues and self._stored and responses != self._stored:
            self._refuse(_cursor_used())
        elif self._new:
            self._read(cancellation_mailbox(parked.request.id), 0, 1, self._add_or_end)
        elif self._is_last and self._is_complete(parked) and self._session.is_shared:
            self._claim(parked)
        else:
            self._done()

    def _is_complete(self, parked: ParkedCall) -> bool:
        return len(self._stored) == len(parked.names)

    def _add_or_end(self, cancellation: Page | None) -> None:
        if self._core.has_stopped:  # another instance may get the same responses, and continue
            self._refuse(refusals.SHUTTING_DOWN())
            return
        if cancellation is not None and cancellation.last.seq > 1:
            self._session.take_over(self._turn).append(b"", final=True)
            self._done()
            return
        key = self._session.log_key(f"{self._turn.encode()}.")
        entries = tuple(
            Entry(seq, jsonrpc.encode(response))
            for seq, response in enumerate(self._new.values(), self._last_seq + 1)
        )
        self._session.table.logs.append(key, entries, self)

    def _claim(self, parked: ParkedCall) -> None:
        """Append the entry that names this instance as the writer. Of several, one succeeds."""
        # The number is what decides: the entry directly after the turn. A claim by another instance
        # has taken that number, and so has the end of the call by a cancellation. The handler runs
        # only after the store has the claim: at most once for each turn, even if instances die.
        self._is_claiming = True
        data = WriterDeclaration(self._core.instance, (parked.request.id,)).encode()
        entry = Entry(self._turn.seq + 1, data, kind=EntryKind.WRITER)
        key = self._session.log_key(self._turn.stream)
        self._session.table.logs.append(key, (entry,), self)

    def _continue(self, parked: ParkedCall, seq: int) -> None:
        """Call the handler again; its messages follow the entry of this number."""
        session, is_stopped = self._session, self._core.has_stopped
        if session.state is SessionState.ENDED and not is_stopped:
            return
        stream = session.take_over(EventId(self._turn.stream, seq))
        if is_stopped:
            # No other instance will continue the call. End it as the calls that run here are ended.
            error = refusals.SHUTTING_DOWN(parked.request.id)
            stream.append(jsonrpc.encode(error.reply), final=True)
            return
        names, exchange = parked.names, self._exchange
        responses = InputResponses({names[id]: response for id, response in self._stored.items()})
        head = None if exchange is None else exchange.head
        call = RunningCall(
            self._core,
            session,
            parked.request,
            ParkedCallResponder(session, stream, parked, head),
            HandlerInput(responses, parked.state),
            rounds=parked.rounds,
            last_progress=parked.progress,
        )
        session.begin(call)
        self._core.events.append(CallReceived(call))

    def _done(self) -> None:
        """Respond to the POST, because the responses are stored."""
        exchange = self._exchange
        if exchange is None or exchange.is_done:
            return
        if self.continues:
            stream = self._session.find_stream(self._turn.stream)
            self._session.read(exchange, stream, self._turn.seq)
        else:
            exchange.send_response(202)

    def _log_evicted(self) -> None:
        """Refuse the POST and end the readers of the call, which the store has evicted.

        Without this the client would wait for a result until its timeout.
        """
        self._session.table.lose(self._session.log_key(self._turn.stream))
        self._refuse(refusals.UNKNOWN_EVENT_ID() if self.continues else refusals.UNKNOWN_TURN())

    def _turn_missing(self) -> None:
        """Handle responses to a turn that the log does not have: they are too late, or made up."""
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
        """Read a page of a log; ``found`` is called with it."""
        self._on_page = found
        key, most = self._session.log_key(log), self._core.limits.max_stored_bytes
        self._session.table.logs.read(key, after, self, limit=limit, max_bytes=most)


def deliver_responses(
    core: ServerCore,
    session: LegacySession,
    response: AnyResponse,
    exchange: ServerExchange | None = None,
) -> bool:
    """Deliver a response to its turn, or to the mailbox of the instance that waits for it.

    Returns False if its id is neither that of a turn nor one of a server request.
    """
    turn = parse_turn_id(response.id) if isinstance(response.id, str) else None
    if turn is not None and session.can_park:
        ResponseDelivery(core, session, turn, (response,), exchange, continues=False).start()
    elif isinstance(response.id, int) and session.is_shared:
        log = session.log_key(response_mailbox(response.id))
        data = jsonrpc.encode(response)
        post = MailboxPost(
            session.table, log, data, exchange, looks_again=True, holds_exchange=True
        )
        post.append_if_expected()
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
    """Continue a call in the HTTP response to its input responses. Source: SEP-1858."""
    assert turn is not None, "the validators refuse every other array"
    responses = tuple(item for item in batch.items if isinstance(item, AnyResponse))
    ResponseDelivery(core, session, turn, responses, exchange, continues=True).start()
