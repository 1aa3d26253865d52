"""The HTTP exchanges of a client: requests with cookies and tokens, redirects, and their ends.

:meth:`HttpExchanges.open` queues the request of an exchange. With authorization it is held until
the client passes the exchange to :meth:`HttpExchanges.admit`, before it returns its next effect:
that sends the request with a token, or holds it on until there is one. An exchange is opened with
what it is for (:class:`Purpose`), which comes back with every outcome; nothing here depends on what
is behind it.

The steps of the authorization are generators of outcomes. The client has to consume each of them at
once, and act on each outcome before it takes the next: that can fail calls and open exchanges, so a
second such generator may run to its end while the first one waits.

Source: 2025-03-26 to 2026-07-28, basic/transports; basic/authorization.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from ...addresses import AddressPolicy
from ...codecs.headers import Headers, get
from ...effects import AbortExchange, ClientEffect, OpenExchange
from ...errors import AuthorizationFailed, LocalProtocolError
from ...events import AuthorizationNeeded
from ...http import RequestHead, ResponseHead, Url
from ...timers import Timer, TimerTable
from ...types import assert_never
from ..cookies import Cookies
from ..exchange import Discarding, Exchange, ForPost, Purpose
from ..http_heads import HttpRequest, request_headers
from ..message_decoder import MessageDecoder
from ..message_encoder import MessageEncoder
from ..options import ClientOptions
from ..reader import Form, ResponseReader
from ..stream import Stream

if TYPE_CHECKING:  # authorizing_for() imports them for a client that has the setting authorization
    from ...auth.http import AuthRequest
    from ...auth.step_ups import Attempt
    from ..authorizing import Authorizing

_UNKNOWN: Final = Form.UNKNOWN
_IGNORED: Final = Form.IGNORED

_DISCARD_TIMEOUT = 1.0
"""Seconds for the rest of a response that is discarded, before its exchange is aborted."""

_DISCARDING = Discarding()


@attrs.frozen(eq=False, repr=False)
class Held:
    """An exchange waits for authorization: stop the clocks of what it is for."""

    purpose: Purpose


@attrs.frozen(eq=False, repr=False)
class Released:
    """An exchange no longer waits for authorization: let the clocks of what it is for run on."""

    purpose: Purpose


@attrs.frozen(eq=False, repr=False)
class Unauthorized:
    """An exchange that is over gets no authorization: end what it is for."""

    purpose: Purpose
    error: AuthorizationFailed


@attrs.frozen(eq=False, repr=False)
class FlowEnded:
    """No person and no authorization server is waited for any more."""

    error: AuthorizationFailed | None = None
    """Why the flow has failed; None if it has not."""


AuthorizationOutcome: TypeAlias = AuthorizationNeeded | FlowEnded | Held | Released | Unauthorized
AuthorizationSteps: TypeAlias = Iterator[AuthorizationOutcome]


@attrs.define(eq=False, repr=False)
class HttpExchanges:
    """The exchanges of one client that have not ended; on stdio there are none."""

    url: Url | None
    """The endpoint, after redirects; None on stdio."""
    _messages: MessageDecoder
    _encoder: MessageEncoder
    """It has the settings, and what was agreed, revision and session, for headers."""
    _effects: deque[ClientEffect]
    """The client's queue. It is shared, because the order of effects is that of the client's steps:
    an exchange must be opened before it is aborted.
    """
    _timers: TimerTable
    authorizing: Authorizing | None
    """None without authorization."""
    message_url: Url | None = attrs.field(default=None, init=False)
    """The URL to POST to on HTTP+SSE; None before the server has named it, and elsewhere."""
    open_exchanges: dict[int, Exchange] = attrs.field(factory=dict[int, Exchange], init=False)
    _numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)
    """Of exchanges, those of the authorization included: a driver sees one sequence."""
    _cookies: Cookies = attrs.field(factory=Cookies, init=False)

    def open(
        self,
        purpose: Purpose,
        method: bytes,
        body: bytes = b"",
        *,
        stream: Stream | None = None,
        last_event_id: str = "",
        mirrored: Headers = (),
        now: float,
    ) -> int:
        """Open an exchange, and return its number.

        Args:
            purpose: what it is for.
            method, body: the HTTP request. A POST goes to ``message_url`` if there is one.
            stream: the stream of which it carries a part. None if it is not part of any.
            last_event_id: the event after which to resume; "" if there is none.
            mirrored: headers that repeat parts of ``body``.
            now: the current time in seconds, on the machine's clock.
        """
        assert self.url is not None
        url = (self.message_url or self.url) if method == b"POST" else self.url
        agreed = self._encoder.agreed
        session_id, revision = agreed.session_id, agreed.revision
        headers = request_headers(
            method, mirrored, session_id, revision, last_event_id, self._encoder.options.headers
        )
        names_session = session_id is not None or (url is self.message_url)
        request = HttpRequest(url, method, headers, body, names_session, last_event_id)
        return self._begin(purpose, request, stream, 0, None, now)

    def reopen(
        self,
        ended: Exchange,
        request: HttpRequest,
        stream: Stream | None,
        now: float,
    ) -> int:
        """Open another exchange for the purpose of one that has ended, as :meth:`open` does.

        A ``request`` to another URL than that of ``ended`` counts as a redirect.
        """
        redirects = ended.redirects + (request is not ended.request)
        return self._begin(ended.purpose, request, stream, redirects, ended.attempt, now)

    def _begin(
        self,
        purpose: Purpose,
        request: HttpRequest,
        stream: Stream | None,
        redirects: int,
        attempt: Attempt | None,
        now: float,
    ) -> int:
        cursor = None if stream is None else stream.cursor
        is_request = isinstance(purpose, ForPost) and purpose.is_request
        form = _UNKNOWN if is_request or stream is not None else _IGNORED
        reader = ResponseReader(request, self._messages, form, cursor)
        number = next(self._numbers)
        self.open_exchanges[number] = Exchange(purpose, request, reader, stream, redirects, attempt)
        if self.authorizing is None:
            self._send(number, request, request.headers, now)
        else:
            self.open_exchanges[number].is_held = True
            self.authorizing.arrived.append(number)
        return number

    def _send(self, number: int, request: HttpRequest, headers: Headers, now: float) -> None:
        url = request.url
        if self._cookies.found:
            headers = (*headers, *self._cookies.header_for(url, now))
        head = RequestHead(method=request.method, target=url.target.encode(), headers=headers)
        effect = OpenExchange(exchange=number, url=str(url), head=head, body=request.body)
        self._effects.append(effect)

    def take_cookies(self, exchange: Exchange, head: ResponseHead, now: float) -> None:
        """Keep the cookies of a response, unless the application sends its own."""
        options = self._encoder.options
        if options.cookies and get(options.headers, b"cookie") is None:
            self._cookies.receive(exchange.request.url, head, now)

    def redirected(self, exchange: Exchange, head: ResponseHead) -> HttpRequest | None:
        """Return the request to make after a redirect, if following it is allowed; else None.

        Further requests to the old URL go to the new one, too.
        """
        most, old = self._encoder.options.limits.max_redirects, exchange.request.url
        request = exchange.request.redirected(head, exchange.redirects, most)
        if request is not None:
            if self.url == old:
                self.url = request.url
            if self.message_url == old:
                self.message_url = request.url
        return request

    def holds_message(self, number: int | None) -> bool:
        """Return True if an exchange holds a message that waits for authorization."""
        exchange = None if number is None else self.open_exchanges.get(number)
        if exchange is None or not exchange.is_held:
            return False
        return exchange.request.method == b"POST" and not exchange.request.last_event_id

    def discard_response(self, number: int, now: float) -> None:
        """Discard the rest of an exchange, so that its connection can be reused."""
        exchange = self.open_exchanges.get(number)
        if exchange is not None and exchange.is_held:
            self.abort(number)
        elif exchange is not None:
            exchange.purpose, exchange.stream = _DISCARDING, None
            if exchange.reader.stop():
                del self.open_exchanges[number]
            elif not exchange.reader.is_complete:
                self._timers.set(Timer.DISCARD_RESPONSE, number, now + _DISCARD_TIMEOUT)

    def abort(self, number: int) -> None:
        """Abort an exchange, if it has not ended."""
        exchange = self.open_exchanges.pop(number, None)
        if exchange is not None:
            exchange.stream = None
            self._timers.stop(Timer.DISCARD_RESPONSE, number)
            if exchange.is_held:
                assert self.authorizing is not None
                self.authorizing.held.pop(number, None)
            elif not exchange.reader.is_complete:
                self._effects.append(AbortExchange(exchange=number))

    def clear(self) -> None:
        """Abort all exchanges, and forget the URL for messages: the session has ended."""
        for number in tuple(self.open_exchanges):
            self.abort(number)
        self.message_url = None

    # Authorization

    def admit(self, number: int, now: float, operation: str = "") -> AuthorizationSteps:
        """Send the request of an exchange with a token, or hold it on.

        Args:
            number: the exchange.
            now: the current time in seconds, on the machine's clock.
            operation: what the request is about, as far as scopes can depend on it. It is used if
                the exchange replaces no other one.
        """
        from ...auth.step_ups import Attempt
        from ..authorizing import Hold, SendNow, SignFirst

        authorizing, exchange = self.authorizing, self.open_exchanges[number]
        assert authorizing is not None
        if exchange.attempt is None:
            exchange.attempt = Attempt(operation)
        match authorizing.admit(number, exchange, now):
            case SendNow(headers):
                self._send_authorized(authorizing, number, headers, now)
            case SignFirst(effect):
                self._effects.append(effect)
            case Hold():
                yield Held(exchange.purpose)
                yield from self.run_flow(now)
            case _ as impossible:
                assert_never(impossible)

    def run_flow(self, now: float) -> AuthorizationSteps:
        """Perform the steps that the flow wants; call this after everything that may change it."""
        from ...auth.steps import AbortFetch, Failed, Fetch, Obtained

        authorizing = self.authorizing
        assert authorizing is not None
        while (step := authorizing.flow.next_step()) is not None:
            match step:
                case Fetch(request, policy):
                    authorizing.exchange = next(self._numbers)
                    self._effects.append(_auth_exchange(authorizing.exchange, request, policy))
                case AbortFetch():
                    self._effects.append(AbortExchange(exchange=authorizing.exchange))
                case AuthorizationNeeded():
                    yield step
                case Obtained():
                    self._cookies.logged_in(authorizing.flow.logins)
                    yield FlowEnded()
                    for number in authorizing.release():
                        yield Released(self.open_exchanges[number].purpose)
                        yield from self.admit(number, now)
                case Failed(error):
                    yield FlowEnded(error)
                    for number in authorizing.release():
                        yield from self.fail_held(number, error)
                case _:
                    self._effects.append(step)
        self._timers.set(Timer.AUTHORIZATION, 0, authorizing.flow.deadline)

    def send_signed(self, number: int, proof: str, now: float) -> None:
        """Send the request for which a proof was signed, unless it was aborted meanwhile."""
        if number in self.open_exchanges:
            assert self.authorizing is not None
            headers = self.authorizing.flow.headers(proof)
            self._send_authorized(self.authorizing, number, headers, now)

    def fail_held(self, number: int, error: AuthorizationFailed) -> AuthorizationSteps:
        """End an exchange that waits for authorization, unless it was aborted meanwhile."""
        exchange = self.open_exchanges.pop(number, None)
        if exchange is not None:
            yield Released(exchange.purpose)
            yield Unauthorized(exchange.purpose, error)

    def _send_authorized(
        self, authorizing: Authorizing, number: int, headers: Headers, now: float
    ) -> None:
        exchange = self.open_exchanges[number]
        exchange.is_held = False
        assert exchange.attempt is not None
        exchange.attempt.sends += 1
        exchange.attempt.generation = authorizing.flow.generation
        self._send(number, exchange.request, (*exchange.request.headers, *headers), now)


def authorizing_for(
    options: ClientOptions,
    url: Url | None,
    random_bytes: Callable[[int], bytes] | None,
    wall_clock: Callable[[], float] | None,
) -> Authorizing | None:
    """Return the authorization of a client; None if it has none, or its server is a process.

    Raises LocalProtocolError if ``url`` is that of a Unix socket, or a callable is missing.
    """
    if options.authorization is None or url is None:
        return None
    if url.socket_path is not None:
        raise LocalProtocolError(
            "authorization (OAuth 2.1) is for http and https URLs; the server at a Unix socket "
            "knows the user of the client. If it asks for a token, send it in headers"
        )
    if random_bytes is None or wall_clock is None:
        raise LocalProtocolError(
            "authorization needs random_bytes and wall_clock, e.g. secrets.token_bytes and "
            "time.time"
        )
    from ...auth.discovery import OLDEST
    from ...auth.flow import Flow
    from ..authorizing import Authorizing

    is_legacy_allowed = OLDEST in options.versions
    flow = Flow(str(url), options.authorization, random_bytes, wall_clock, is_legacy_allowed)
    return Authorizing(flow)


def _auth_exchange(number: int, request: AuthRequest, policy: AddressPolicy) -> OpenExchange:
    """Return the effect for a request of the authorization."""
    url = Url.parse(request.url)
    head = RequestHead(method=request.method, target=url.target.encode(), headers=request.headers)
    return OpenExchange(
        exchange=number, url=request.url, head=head, body=request.body, address_policy=policy
    )
