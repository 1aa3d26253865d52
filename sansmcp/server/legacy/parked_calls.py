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

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from ...codecs import jsonrpc
from ...codecs.event_id import EventId
from ...codecs.jsonrpc import Batch
from ...errors import RemoteProtocolError
from ...events import CallReceived, RefusalSent
from ...http import RequestHead
from ...input_required import HandlerInput, InputRequired, InputResponses
from ...messages import ErrorResponse, Request, RequestId, Response
from ...states import SessionState
from ...store import AppendResult, Entry, EntryKind, Page
from .. import refusals
from ..calls import STORED_DEPTH, RunningCall
from ..core import ServerCore
from ..exchange import ServerExchange
from ..procedures import StepFailedError, Steps, append, read, run
from ..records import NOTHING, RecordTooNewError, read_record, record_in, write_record
from .mailbox import cancellation_mailbox, open_mailbox, post_message, response_mailbox
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
    open_mailbox(session.table, session.log_key(cancellation_mailbox(call.request.id)))


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

    def start(self) -> None:
        """Do nothing: the stream exists."""

    @property
    def is_above_high_water(self) -> bool:
        """True if the store is behind."""
        return self._stream.is_above_high_water

    @property
    def is_connected(self) -> bool:
        """True if the client reads the stream at this instance."""
        return self._stream.reader is not None

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
class ResponseDelivery:
    """Stores input responses with their turn, and continues the call when all are there."""

    _core: ServerCore
    _session: LegacySession
    _turn: EventId
    _responses: Sequence[AnyResponse]
    _exchange: ServerExchange | None
    """The exchange of the POST that brought the responses, if there is one."""
    continues: bool
    """True if the call continues in the HTTP response to the POST (SEP-1858)."""
    _stored: dict[RequestId, AnyResponse] = attrs.field(
        factory=dict[RequestId, "AnyResponse"], init=False
    )
    """The responses that are stored, by the ids of their requests."""

    def start(self) -> None:
        """Read the turn, and so on."""
        run(self._session.table.logs, self._respond(), self._is_awaited)

    def _is_awaited(self) -> bool:
        """True while the client waits for its HTTP response."""
        return self._exchange is None or not self._exchange.is_done

    def _respond(self) -> Steps[None]:
        """Respond to the POST when the responses are stored; else refuse it."""
        try:
            yield from self._deliver()
        except RemoteProtocolError as refusal:
            self._refuse(refusal)
        except StepFailedError:  # the client may send the responses again
            self._refuse(refusals.store_failed())
        except RecordTooNewError:  # an instance of the later version may get the responses yet
            self._refuse(refusals.RECORD_TOO_NEW())
        else:
            self._done()

    def _deliver(self) -> Steps[None]:
        """Store the responses, and continue the call with the last one.

        Raises RemoteProtocolError for a refusal, RecordTooNewError and StepFailedError.
        """
        page = yield from self._read(self._turn.stream, self._turn.seq - 1)
        if page is None:
            raise self._evicted()
        entry = page.entries[0] if page.entries else None
        kind = EntryKind.INPUT_REQUIRED if self.continues else EntryKind.TURN
        is_turn = entry is not None and entry.kind in (kind, EntryKind.UNKNOWN)
        if entry is None or entry.seq != self._turn.seq or not is_turn:
            if self.continues:
                raise refusals.UNKNOWN_EVENT_ID()
            return  # the responses are too late, or made up
        parked = ParkedCall.decode(record_in(entry))
        has_added = yield from self._add(parked)
        # A response that was stored before may be repeated because the instance that was about to
        # continue the call has died: the log then still ends with the turn.
        if (has_added or page.last.seq == self._turn.seq) and len(self._stored) == len(
            parked.names
        ):
            seq: int | None = self._turn.seq
            if self._session.is_shared and not (has_added and self._core.has_stopped):
                seq = yield from self._claim(parked)
            elif not has_added:
                seq = None
            if seq is not None:
                self._continue(parked, seq)

    def _add(self, parked: ParkedCall) -> Steps[bool]:
        """Append the responses that are not stored yet, unless the call has been cancelled.

        Returns True if any were appended.
        """
        responses, last = match_responses(self._responses, parked), 0
        while True:
            page = yield from self._read(f"{self._turn.encode()}.", last, len(parked.names))
            for entry in page.entries if page is not None else ():
                response = jsonrpc.decode(entry.data, self._core.limits)
                self._stored |= match_responses((response,), parked)
                last = entry.seq
            new = {id: each for id, each in responses.items() if id not in self._stored}
            if self.continues and not len(self._responses) == len(responses) == len(parked.names):
                raise _responses_missing()
            if self.continues and self._stored and responses != self._stored:
                raise _cursor_used()
            if not new:
                return False
            cancellation = yield from self._read(cancellation_mailbox(parked.request.id), 0)
            if self._core.has_stopped:  # another instance may get the same responses, and continue
                raise refusals.SHUTTING_DOWN()
            if cancellation is not None and cancellation.last.seq > 1:
                self._session.take_over(self._turn).append(b"", final=True)
                return False
            entries = tuple(
                Entry(seq, jsonrpc.encode(response))
                for seq, response in enumerate(new.values(), last + 1)
            )
            if (yield from self._append(f"{self._turn.encode()}.", entries)):
                self._stored |= new
                return True
            # Another instance has appended some: read them.

    def _claim(self, parked: ParkedCall) -> Steps[int | None]:
        """Append the entry that names this instance as the writer. Of several, one succeeds.

        Returns the number of that entry; None if another instance continues the call.
        """
        # The number is what decides: the entry directly after the turn. A claim by another instance
        # has taken that number, and so has the end of the call by a cancellation. The handler runs
        # only after the store has the claim: at most once for each turn, even if instances die.
        data = WriterDeclaration(self._core.instance, (parked.request.id,)).encode()
        entry = Entry(self._turn.seq + 1, data, kind=EntryKind.WRITER)
        is_stored = yield from self._append(self._turn.stream, (entry,))
        return entry.seq if is_stored else None

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

    def _evicted(self) -> RemoteProtocolError:
        """End the readers of the call, which the store has evicted; return the refusal of the POST.

        Without this the client would wait for a result until its timeout.
        """
        self._session.table.lose(self._session.log_key(self._turn.stream))
        return refusals.UNKNOWN_EVENT_ID() if self.continues else refusals.UNKNOWN_TURN()

    def _refuse(self, error: RemoteProtocolError) -> None:
        if self._exchange is None or self._exchange.is_done:
            self._core.events.append(RefusalSent(error))
        else:
            self._exchange.refuse(error)

    def _append(self, log: str, entries: Sequence[Entry]) -> Steps[bool]:
        """Append entries. Returns False if another instance was faster.

        Raises RemoteProtocolError if the store has lost a part of the call.
        """
        result = yield from append(self._session.log_key(log), entries)
        if result is AppendResult.BEHIND:
            raise self._evicted()
        return result is AppendResult.STORED

    def _read(self, log: str, after: int, limit: int = 1) -> Steps[Page | None]:
        return read(self._session.log_key(log), after, limit)


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
        post_message(session.table, log, data, exchange, looks_again=True, holds_exchange=True)
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
