"""HTTP+SSE, the transport of 2024-11-05: one event stream for all answers, a POST per message.

The client opens the stream with GET. Its first event names the URI that messages are POSTed to;
that URI must be of the same origin, for credentials go there. When the stream breaks, the session
is lost: nothing can be resumed, so a new stream and a new session are opened, after the delay that
is due, as long as that leads to something.

Source: 2024-11-05 basic/transports: HTTP with SSE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ...codecs.headers import Headers
from ...codecs.sse import SseEvent
from ...errors import (
    CallError,
    Disconnected,
    InvalidResponse,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
)
from ...events import Reconnecting, Violation
from ...http import Url
from ...messages import ErrorResponse, Message, Notification, Request, Response
from ...timers import Timer
from ...types import HTTP_SSE
from ..calls import refused
from ..core import ClientCore
from ..detection import OUT_OF_REACH, Verdict, after_get, is_temporary
from ..exchange import ClientExchange, Nobody, Refusal
from ..posts import Post
from ..transport import RequestOwner

if TYPE_CHECKING:
    from ..conversation import Conversation

_OPENING = "opening the event stream"


@attrs.define(eq=False, repr=False)
class HttpSse:
    """The transport of one event stream after the other."""

    _core: ClientCore
    _conversation: Conversation
    name: str = attrs.field(default=HTTP_SSE, init=False)
    speaks_modern: bool = attrs.field(default=False, init=False)
    printed: tuple[str, ...] = attrs.field(default=(), init=False)
    is_one_stream: bool = attrs.field(default=True, init=False)
    expects_messages: bool = attrs.field(default=True, init=False)
    _exchange: ClientExchange | None = attrs.field(default=None, init=False)
    _attempts: int = attrs.field(default=0, init=False)
    """Streams that were lost since the last message of the server."""
    _wait: float = attrs.field(default=0.0, init=False)
    """Seconds that the server wants us to wait before the next one."""

    # What the conversation wants

    def connect(self) -> None:
        """Open the stream, after a delay if one was lost before."""
        if self._attempts == 0:
            self.open()
            return
        policy = self._core.reconnect
        delay = policy.delay(self._attempts, self._wait, self._core.jitter())
        self._wait = 0.0
        self._core.timers.set(Timer.RECONNECT, self, self._core.now + delay)
        self._core.events.append(
            Reconnecting(
                call=None, delay=delay, attempt=self._attempts, reason="the event stream is lost"
            )
        )

    def open(self) -> None:
        """Open the stream, without anything of the session before."""
        self._core.session_id, self._core.revision = None, None
        self._core.timers.set(Timer.REQUEST, self, self._core.now + self._core.connect_timeout)
        self._exchange = self._core.open(self, b"GET")

    def carrier(self, owner: RequestOwner, call: int | None) -> _Sent:
        """A request is a POST; its answer comes on the stream."""
        return _Sent(self._core, owner)

    def post(self, message: Notification | Response | ErrorResponse) -> None:
        """A POST of its own."""
        Post(self._core, self._conversation, message).send()

    def listen(self) -> None:
        """The stream is there already."""

    def leave(self) -> None:
        """Break off the stream and all requests."""
        self._core.timers.stop(Timer.REQUEST, self)
        self._core.timers.stop(Timer.RECONNECT, self)
        self._core.message_url = None
        self._exchange = None
        self._core.give_up()

    def farewell(self, error: CallError | None) -> bool:
        """Breaking off the stream has ended the session."""
        return False

    def timed_out(self) -> None:
        """The stream does not say where messages go."""
        seconds = self._core.connect_timeout
        message = f"{self._request} brought no endpoint event within {seconds:g} s"
        self._fail(RequestTimeout(message, seconds=seconds, method=_OPENING, request_id=None))

    # What comes of the stream

    def opened(self) -> None:
        """The first event has to come now."""

    def received(self, event: SseEvent) -> None:
        """An event."""
        if self._core.message_url is None:
            if event.dispatched:
                self._located(event)
        elif event.data and event.event == "message":
            self._attempts = 0 if self._conversation.is_ready else self._attempts
            try:
                self._conversation.inbox.hear(event.data.encode())
            except RemoteProtocolError as error:
                self._core.events.append(Violation(error))

    def answered(self, message: Message | RemoteProtocolError) -> None:
        """A JSON document is no stream, however many messages it has."""
        if self._exchange is not None:
            self._fail(self._error(InvalidResponse, "brought JSON instead of an event stream"))

    def ended(self, reason: str | None) -> None:
        """The stream is gone."""
        why = reason or "the server closed it"
        if self._exchange is None:
            return  # it had brought something else
        self._attempts += 1
        if self._core.message_url is None:
            verdict = Verdict.NOT_SPOKEN if reason is None else Verdict.NONE
            error = self._error(Disconnected, f"failed: {why}")
            self._fail(error, verdict, may_pass=True, is_away=reason is not None)
        else:
            self._lose(f"the event stream broke: {why}")

    def refused(self, refusal: Refusal) -> None:
        """No stream here."""
        self._attempts += 1
        self._wait = refusal.retry_after
        error, status = refused(refusal, _OPENING, None), refusal.status
        is_away = status in OUT_OF_REACH
        self._fail(error, after_get(status), may_pass=is_temporary(status), is_away=is_away)

    def garbled(self, error: RemoteProtocolError) -> None:
        """The stream cannot be read any further."""
        self._attempts += 1
        if self._core.message_url is None:
            self._fail(self._error(InvalidResponse, f"failed: {error.message}"))
        else:
            self._lose(error.message)

    def _located(self, event: SseEvent) -> None:
        if event.event != "endpoint" or not event.data:
            self._fail(self._error(InvalidResponse, "brought another event than endpoint first"))
            return
        stream_url = self._core.url
        assert stream_url is not None
        try:
            url = stream_url.join(event.data)
        except LocalProtocolError as error:
            self._fail(self._error(InvalidResponse, f"failed: {error}"))
            return
        if url.origin != stream_url.origin:
            text = f"named an endpoint of another origin, {_origin(url)}, which is not trusted"
            self._fail(self._error(InvalidResponse, text))
            return
        self._core.message_url = url
        self._core.timers.stop(Timer.REQUEST, self)
        self._conversation.reachable()

    def _lose(self, reason: str) -> None:
        if self._attempts > self._core.reconnect.attempts:
            attempts = self._core.reconnect.attempts
            reason = f"given up after {attempts} attempts without any message: {reason}"
            self._fail(self._error(Disconnected, f"failed: {reason}"))
        else:
            self._conversation.lose_session(reason)

    def _fail(
        self,
        error: CallError,
        verdict: Verdict = Verdict.NOT_SPOKEN,
        *,
        may_pass: bool = False,
        is_away: bool = False,
    ) -> None:
        """There is no stream.

        Args:
            error: why.
            verdict: what that says about the server.
            may_pass: it may do so while a stream that was lost is replaced.
            is_away: the server cannot be reached, so even the first stream is asked for again.
        """
        self.leave()
        is_new = self._attempts <= 1
        if may_pass and not is_new and self._attempts <= self._core.reconnect.attempts:
            self.connect()
            return
        wait, self._wait = self._wait, 0.0
        if is_new:
            self._attempts = 0
        self._conversation.unreachable(error, verdict, wait=wait if is_new and is_away else None)

    def _error(self, kind: type[CallError], what: str) -> CallError:
        return kind(f"{self._request} {what}", method=_OPENING)

    @property
    def _request(self) -> str:
        return f"{_OPENING} (GET {self._core.server})"


@attrs.define(eq=False, repr=False)
class _Sent(Nobody):
    """A request that is POSTed; the POST's own answer says nothing but that it has arrived."""

    _core: ClientCore
    _owner: RequestOwner
    expects_messages: bool = attrs.field(default=False, init=False)
    _exchange: ClientExchange | None = attrs.field(default=None, init=False)

    def post(self, request: Request) -> None:
        """Send it."""
        self._exchange = self._core.post(self, request)

    def close(self, *, complete: bool = False) -> None:
        """The answer has come on the stream, or is not wanted any more."""
        self._core.let_end(self._exchange)

    @property
    def response_headers(self) -> Headers:
        """They say nothing."""
        return ()

    def ended(self, reason: str | None) -> None:
        """The server has it, or the connection broke."""
        if reason is not None:
            self._owner.lost(reason)

    def refused(self, refusal: Refusal) -> None:
        """The server does not want it."""
        self._owner.refused(refusal)


def _origin(url: Url) -> str:
    return f"{url.scheme}://{url.authority}"
