"""Read one event stream over any number of connections, as a browser's ``EventSource`` does.

This is for event streams that are not MCP; a :class:`~sansmcp.Client` does the same for its own.
:class:`EventSource` has no I/O: it says when to send a GET and with which headers, takes the parts
of the response, and returns the events. It reconnects with ``Last-Event-ID`` after the server has
ended the stream (after its ``retry``), after a broken connection, and after a temporary refusal
(with growing delays).

It differs from the standard in three points, all of which protect the server or the program: the
delays grow, it gives up after ``max_attempts`` failures in a row, and it tries again after a
refusal that is temporary (408, 425, 429 and 5xx), which the standard makes a final failure.

Source: WHATWG HTML, 9.2 Server-sent events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .client.connections import Connections
from .client.http_heads import GET_HEADERS, is_temporary, retry_after
from .client.options import ReconnectPolicy
from .codecs import headers
from .codecs.headers import EVENT_STREAM
from .codecs.sse import SseDecoder, SseEvent
from .errors import CallError, Disconnected, RemoteProtocolError, RequestRefused
from .http import (
    BodyData,
    BodyEnd,
    ConnectionLost,
    RequestHead,
    ResponseHead,
    ResponsePart,
    Url,
)
from .limits import Limits
from .types import Idle, assert_never

_HTTP_NO_CONTENT = 204
_HTTP_OK = 200


class EventSource:
    """The state of one event stream: its cursor, and when to connect next.

    Send the request whose head :meth:`start_request` returns, and pass each part of the response,
    and its end, to :meth:`receive_part`. After each part call :meth:`next_event` until it
    returns ``Idle.NEED_DATA``. When the response has ended, :attr:`reconnect_at` is the time of the
    next request; it is None if the server has finished the stream.

    A program that saves :attr:`last_event_id` after it has handled an event can continue from there
    with another object, in another process.

    Not thread-safe.
    """

    def __init__(
        self,
        url: str,
        *,
        jitter: Callable[[], float],
        last_event_id: str = "",
        policy: ReconnectPolicy | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Create a reader that has no connection.

        Args:
            url: the http or https URL of the stream, for error messages.
            jitter: returns a random number from 0 (inclusive) to 1 at each call, such as
                ``random.random``.
            last_event_id: where to resume; "" begins where the server likes.
            policy: the delays between connections; None for the default.
            limits: ``max_message_bytes`` bounds an event; None for the default.

        Raises:
            LocalProtocolError: ``url`` is not one.
        """
        self._url = Url.parse(url)
        self._connections = Connections(ReconnectPolicy() if policy is None else policy, jitter)
        self._limit = (Limits() if limits is None else limits).max_message_bytes
        self._decoder = SseDecoder(self._limit, last_event_id=last_event_id)
        self._is_open = False
        self._events: deque[SseEvent] = deque()
        self._error: CallError | RemoteProtocolError | None = None
        self.last_event_id = last_event_id
        """The last event id of the events that :meth:`next_event` has returned."""
        self.reconnect_at: float | None = None
        """Time of the next GET, in seconds on the clock of ``now``; None while a response is being
        read, and after the server has finished the stream.
        """
        self.is_finished = False
        """True if the server has said that there is nothing more to come (204)."""

    def start_request(self) -> RequestHead:
        """Begin the next request, and return its head, to which the application may add headers."""
        self.reconnect_at = None
        id = self._decoder.last_event_id
        resume = ((b"last-event-id", id.encode()),) if id else ()
        target = self._url.target.encode()
        return RequestHead(method=b"GET", target=target, headers=(*GET_HEADERS, *resume))

    def receive_part(self, part: ResponsePart, *, now: float) -> None:
        """Take a part of the response, or its end.

        Args:
            part: the head after any redirects, a piece of the body, or the end.
            now: the current time in seconds, on a clock that only goes forward.
        """
        match part:
            case ResponseHead():
                self._receive_head(part, now)
            case BodyData(data):
                if self._is_open:
                    self._receive_data(data)
            case BodyEnd():
                if self._is_open:
                    self._close()
                    self.reconnect_at = now + self._connections.polled(grows=False)
            case ConnectionLost(reason):
                if self._is_open or self._is_waiting:
                    self._fail(reason, 0.0, now)
            case _ as impossible:
                assert_never(impossible)

    def next_event(self) -> SseEvent | Idle:
        """Return the next event that the standard dispatches, or ``Idle.NEED_DATA``.

        Raises:
            RequestRefused: the server has refused the stream, or does not send an event stream.
            Disconnected: too many connections in a row have failed.
            RemoteProtocolError: an event is larger than the limit.
        """
        while self._events:
            event = self._events.popleft()
            self.last_event_id = event.last_event_id
            if event.dispatched:
                return event
        if self._error is not None:
            raise self._error
        return Idle.NEED_DATA

    @property
    def _is_waiting(self) -> bool:
        """True if a response, or its head, is awaited."""
        return self._error is None and not self.is_finished and self.reconnect_at is None

    def _receive_head(self, head: ResponseHead, now: float) -> None:
        kind = headers.response_media_type(head.headers)
        if head.status == _HTTP_OK and kind == EVENT_STREAM:
            self._is_open = True
        elif head.status == _HTTP_NO_CONTENT:
            self.is_finished = True
        elif is_temporary(head.status):
            self._fail(f"the server refused with HTTP {head.status}", retry_after(head), now)
        else:
            got = f"HTTP {head.status}" if head.status != _HTTP_OK else "it is no text/event-stream"
            self._error = RequestRefused(
                f"GET {self._url.shown} gave no event stream: {got}",
                status=head.status,
                http_method="GET",
                url=str(self._url),
                reason=None,
                body=b"",
                method="",
                request_id=None,
            )

    def _receive_data(self, data: bytes) -> None:
        try:
            events = self._decoder.feed(data)
        except RemoteProtocolError as error:
            self._is_open = False
            self._error = error
            return
        if events:
            self._connections.progressed()
        self._events += events

    def _close(self) -> None:
        """Forget the rest of the body; the next response continues after its last event."""
        self._connections.set_retry(self._decoder.reconnection_time)
        self._decoder = SseDecoder(self._limit, last_event_id=self._decoder.last_event_id)
        self._is_open = False

    def _fail(self, reason: str, wait: float, now: float) -> None:
        self._close()
        delay = self._connections.failed(now, wait)
        if delay is None:
            most = self._connections.policy.max_attempts
            self._error = Disconnected(
                f"GET {self._url.shown} was given up after {most} attempts without an event: "
                f"{reason}"
            )
        else:
            self.reconnect_at = now + delay
