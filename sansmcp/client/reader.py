"""One HTTP response of a client: parts in, outcomes out.

A response is an event stream, one JSON document, an acknowledgement without content, or a refusal;
its head shows which. HTML where the content is otherwise ignored is read: a page of a proxy is a
refusal. The reader decodes the response and returns one outcome per call. So if an outcome ends the
exchange, the rest of its chunk or batch is not pulled. Bytes that are not pulled stay undecoded,
and the end of the response waits behind them: that is backpressure.

Source: 2025-03-26 to 2026-07-28, basic/transports: Sending Messages to the Server.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final, Protocol

import attrs

from ..codecs import headers
from ..codecs.delimited_buffer import message_too_large
from ..codecs.jsonrpc import Batch
from ..codecs.sse import SseDecoder, SseEvent
from ..errors import RemoteProtocolError
from ..http import BodyData, BodyEnd, ConnectionLost, ResponseHead, ResponsePart
from ..messages import Message
from ..types import assert_never
from .http_heads import HttpRequest, Refusal
from .message_decoder import MessageDecoder, items_of
from .outcomes import Ended, Invalid, OtherEvent, ReaderOutcome, Refused

_MAX_ERROR_BODY_BYTES = 64 * 1024
"""The bytes of a refusal's body that are kept; the rest is discarded."""

_SHOWN_BYTES = 200
"""The bytes that are kept of what is no message."""

_ENDED = Ended(None)


class Form(enum.Enum):
    """What the body of a response is read as."""

    UNKNOWN = enum.auto()
    """Its head has not arrived."""
    STREAM = enum.auto()
    JSON = enum.auto()
    IGNORED = enum.auto()
    """The body is discarded; only its end counts. Before the head: that of a success is."""
    REFUSAL = enum.auto()
    PAGE = enum.auto()
    """HTML where the body of a success is ignored: a refusal, if it is a page."""


_IGNORED: Final = Form.IGNORED
_JSON: Final = Form.JSON
_PAGE: Final = Form.PAGE
_REFUSAL: Final = Form.REFUSAL
_UNKNOWN: Final = Form.UNKNOWN


class EventFilter(Protocol):
    """Records event ids, and recognises events that were received before."""

    def accept(self, event: SseEvent) -> RemoteProtocolError | bool:
        """Record an event. Return True if it is new, and an error if it is malformed."""
        ...


@attrs.define(eq=False, repr=False)
class ResponseReader:
    """Decodes one response."""

    _request: HttpRequest
    _messages: MessageDecoder
    _form: Form = Form.UNKNOWN
    """UNKNOWN or IGNORED at first."""
    _filter: EventFilter | None = None
    """None if the stream cannot be resumed."""
    head: ResponseHead | None = attrs.field(default=None, init=False)
    events: SseDecoder | None = attrs.field(default=None, init=False)
    """The decoder of an event stream that is read; None for other responses."""
    _body: bytearray = attrs.field(factory=bytearray, init=False)
    _next: deque[ReaderOutcome] | None = attrs.field(default=None, init=False)
    """Decoded outcomes that were not pulled yet: the rest of a batch."""
    _end: BodyEnd | ConnectionLost | None = attrs.field(default=None, init=False)
    final: Ended | Refused | Invalid | None = attrs.field(default=None, init=False)
    """The last outcome, pulled or not; None while it is not known."""

    @property
    def is_complete(self) -> bool:
        """True if the end of the response has arrived, pulled or not."""
        return self._end is not None

    @property
    def reconnection_time(self) -> int | None:
        """The last reconnection time of this response, in milliseconds; None if there was none.

        It counts as soon as its line has arrived, before its event is complete. Source: WHATWG
        HTML, 9.2.6.
        """
        return None if self.events is None else self.events.reconnection_time

    @property
    def remainder(self) -> str:
        """What was left at the end of an event stream without being an event, as text."""
        text = "" if self.events is None else self.events.unfinished
        if not text:
            return ""
        if text.lstrip()[:1] in ("{", "["):
            return f"JSON, though its Content-Type is that of an event stream: {text}"
        return f"an event without the blank line at its end: {text}"

    def receive(self, part: ResponsePart) -> bool:
        """Receive a part of the response. Return False if no outcome can follow from it."""
        match part:
            case BodyData(data=data):
                self._receive_data(data)
                return self.events is not None or self.final is not None
            case ResponseHead():
                self._receive_head(part)
                return self.events is not None or self.final is not None
            case BodyEnd() | ConnectionLost():
                self._end = part
                return True
            case _ as impossible:
                assert_never(impossible)

    def stop(self) -> bool:
        """Stop decoding. The rest of a decoded batch can still be pulled.

        Returns True if nothing is left to pull or receive.
        """
        self._form, self.events = _IGNORED, None
        self._body = bytearray()
        return self._end is not None and not self._next

    def next_outcome(self) -> ReaderOutcome | None:
        """Return the next outcome; None if it has not arrived. Do not call it after the last."""
        if self._next:
            return self._next.popleft()
        if self.final is None:
            outcome = None if self.events is None else self._from_stream(self.events)
            if outcome is None and self.final is None and self._end is not None:
                outcome = self._finish(self._end)
            if outcome is not None:
                return outcome
        return self.final

    def _receive_head(self, head: ResponseHead) -> None:
        self.head = head
        kinds: list[bytes] = []
        for name, value in head.headers:
            if name == b"content-type" and value not in kinds:  # equal ones count once
                kinds.append(value)
        kind = headers.media_type(kinds)
        if not 200 <= head.status < 300:
            self._form = _REFUSAL
        elif self._form is _IGNORED:
            if kind == headers.EVENT_STREAM:  # it might never end
                self.final = _ENDED
            elif kind == headers.HTML:
                self._form = _PAGE
        elif head.status == 200 and kind == headers.EVENT_STREAM:
            self._form = Form.STREAM
            most = self._messages.limits.max_message_bytes
            self.events = SseDecoder(most, last_event_id=self._request.last_event_id)
        else:
            self._form = _JSON if kind == headers.JSON else _REFUSAL

    def _receive_data(self, data: bytes) -> None:
        if self.events is not None:
            self.events.receive_data(data)
        elif self._form is _JSON:
            self._body += data
            most = self._messages.limits.max_message_bytes
            if len(self._body) > most:
                self.stop()
                error = message_too_large(most)
                self.final = Invalid(error, is_fatal=True)
        elif self._form is _REFUSAL or self._form is _PAGE:
            self._body += data[: _MAX_ERROR_BODY_BYTES - len(self._body)]

    def _from_stream(self, events: SseDecoder) -> ReaderOutcome | None:
        """Return the outcome of the next new event; skip events that were received before."""
        while True:
            try:
                event = events.next_event()
            except RemoteProtocolError as error:
                self.final = Invalid(error, is_fatal=True)
                return None
            if not isinstance(event, SseEvent):
                return None
            accepted = self._filter is None or self._filter.accept(event)
            if isinstance(accepted, RemoteProtocolError):
                first = self._decode_event(event)
                self._next = deque((first, *(self._next or ())))
                return Invalid(accepted)
            if accepted:
                return self._decode_event(event)

    def _decode_event(self, event: SseEvent) -> ReaderOutcome:
        if not event.data or event.event != "message":
            return OtherEvent(event)
        # A large text is not held as well while its bytes are read.
        data, event.data = event.data.encode(), None
        try:
            first = self._first_of(self._messages.decode(data))
        except RemoteProtocolError as error:
            return Invalid(error, line=data[:_SHOWN_BYTES])
        if first is None:  # a batch of no messages
            event.data = data.decode()
            return OtherEvent(event)
        return first

    def _first_of(self, decoded: Message | Batch) -> ReaderOutcome | None:
        """Return a message, or the first of a batch and keep the others; None if it is empty."""
        if not isinstance(decoded, Batch):
            return decoded
        self._next = deque(items_of(decoded))
        return self._next.popleft() if self._next else None

    def _finish(self, end: BodyEnd | ConnectionLost) -> ReaderOutcome | None:
        """Set the last outcome from the end of the response; return a message that precedes it."""
        self.final = _ENDED
        if self._form is _PAGE and (refusal := self._refusal()).is_page:
            self.final = Refused(refusal)
        elif self._form is _REFUSAL:
            self.final = Refused(self._refusal())
        elif isinstance(end, ConnectionLost):
            self.final = Ended(end.reason, end.unsent)
        elif self._form is _JSON:
            body, self._body = bytes(self._body), bytearray()
            try:
                return self._first_of(self._messages.decode(body))
            except RemoteProtocolError as error:
                self.final = Invalid(self._with_encoding(error), is_fatal=True)
        return None

    def _with_encoding(self, error: RemoteProtocolError) -> RemoteProtocolError:
        """Return the error of a body, with its encoding if it has one that was not asked for."""
        assert self.head is not None
        encodings = headers.get_all(self.head.headers, b"content-encoding")
        if error.reason == "invalid_message" or not encodings:
            return error
        shown = b", ".join(encodings).decode("latin-1")[:50]
        text = f"{error.message} (its Content-Encoding is {shown!r}, which was not asked for)"
        return RemoteProtocolError(text, reason=error.reason, request_id=error.request_id)

    def _refusal(self) -> Refusal:
        assert self.head is not None
        body = bytes(self._body)
        return Refusal(self._request, self.head, body, self._messages.decode_refusal(body))
