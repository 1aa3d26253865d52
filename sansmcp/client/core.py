"""What all parts of one client share: settings, queues, timers, the exchanges under way."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from ..codecs import json, jsonrpc
from ..codecs.headers import Headers, further_headers
from ..effects import AbortExchange, ClientEffect, OpenExchange
from ..errors import LocalProtocolError, check_seconds, expect, of_kind
from ..events import ClientEvent
from ..http import RequestHead, Url
from ..limits import Limits
from ..messages import Message, Params
from ..meta import OWN_META, checked_capabilities
from ..revisions import Revision, of_era
from ..timers import Timer, TimerTable
from ..types import Era, Secret
from .detection import Verdicts
from .exchange import NOBODY, ClientExchange, ExchangeOwner
from .modern.cache import Cache
from .modern.requests import ToolHeaders, dress, headers_of
from .posts import Posts

POST_HEADERS: Headers = (
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
)
_SHORTEST_POLL = 0.01
"""Seconds between two polls, so that a server that asks for none is not asked without a pause."""
GET_HEADERS: Headers = ((b"accept", b"text/event-stream"), (b"cache-control", b"no-store"))


@attrs.frozen(kw_only=True)
class ReconnectPolicy:
    """When a client reconnects, and when it gives up.

    Delays after failures grow exponentially, and are random so that clients do not come in step.
    Attempt n (from 1) comes ``retry + random * min(cap, initial * 2 ** (n - 1))`` seconds after the
    break, where ``retry`` is what the server asked for, or 0: ``retry`` of the stream, or
    ``Retry-After`` of a refusal, of which five minutes count. Progress (a new event id, a message)
    starts the count again, and so does a stream that has lasted for longer than ``cap``, polls
    included; a connection that opens and breaks does not. Where nothing can be resumed (at the
    stateless revisions), only a stream that has lasted does.

    An event stream that the server ends as it should is a poll, and no failure: it is not counted,
    and the next one comes after ``retry``, see :meth:`poll_delay`.

    The opening of a conversation is repeated by the same policy, within ``connect_timeout``; and so
    are sessions that the server forgets one after the other.

    Raises LocalProtocolError for times not above zero, and if ``attempts`` is no integer.
    """

    initial: float = 0.5
    """Seconds within which the first attempt comes."""
    cap: float = 30.0
    """Seconds that no attempt's random part exceeds."""
    attempts: int = 10
    """Attempts without progress after which a stream is given up."""

    def __attrs_post_init__(self) -> None:
        check_seconds(self.initial, self.cap)
        expect(int, attempts=self.attempts)

    def delay(self, attempt: int, retry: float, jitter: float) -> float:
        """Seconds to wait before an attempt; ``jitter`` is a random number from 0 to 1."""
        return retry + jitter * self._growing(attempt)

    def poll_delay(self, polls: int, retry: float | None, jitter: float) -> float:
        """Return the seconds to wait after a stream that the server has ended as it should.

        Args:
            polls: how many polls in a row have brought nothing before this one; 0 for the stream of
                a call, which must not learn of its response later and later.
            retry: seconds that the server wants us to wait; None if it names no time. Then
                ``initial`` is waited for, twice as long after each poll that brought nothing, up to
                ``cap``. Ten milliseconds are the least.
            jitter: a random number from 0 to 1; a tenth of it, at most, comes on top.
        """
        wait = self._growing(polls + 1) if retry is None else max(retry, _SHORTEST_POLL)
        return wait * (1 + jitter / 10)

    def _growing(self, attempt: int) -> float:
        return min(self.cap, self.initial * 2.0 ** min(attempt - 1, 63))


def checked_params(
    method: str, params: Params | None, meta: Mapping[str, Any] | None
) -> Params | None:
    """Return the parameters with ``meta`` as further members of their ``_meta``.

    Raises LocalProtocolError for a method or parameters that cannot be sent, and for a member of
    ``meta`` that the client sets itself.
    """
    jsonrpc.check_call(method, params)
    if params is not None and json.as_object(params.get("_meta", {})) is None:
        raise LocalProtocolError("_meta of the parameters must be an object")
    if meta is not None:
        expect(Mapping, meta=meta)
        for name in OWN_META.intersection(meta):
            raise LocalProtocolError(f"meta cannot have {name!r}: the client sets it itself")
        given = params or {}
        params = {**given, "_meta": {**given.get("_meta", {}), **meta}}
    if params is not None:
        json.encode(params)
    return params


def _of_strings(
    core: ClientCore, attribute: attrs.Attribute[Mapping[str, Any]], info: Mapping[str, Any]
) -> None:
    expect(str, **info)


@attrs.define(eq=False, kw_only=True, on_setattr=attrs.setters.NO_OP)  # the time is set often
class ClientCore:
    """The common ground of the parts of a client; nobody outside the machine sees it."""

    target: str
    """What the application has named: a URL, or a command."""
    url: Url | None
    """The MCP endpoint; None where the server is a process."""
    info: Mapping[str, Any] = attrs.field(validator=_of_strings)
    """Who we are."""
    anonymous: bool
    """Whether that is told only where it has to be."""
    capabilities: Mapping[str, Any] = attrs.field(converter=checked_capabilities)
    versions: tuple[str, ...]
    headers: Headers = attrs.field(converter=further_headers)
    transports: tuple[str, ...]
    """How to talk to a URL."""
    verdicts: Verdicts = attrs.field(validator=of_kind(Verdicts))
    listens: bool
    connect_timeout: float
    close_timeout: float
    probe_timeout: float
    reconnect: ReconnectPolicy = attrs.field(validator=of_kind(ReconnectPolicy))
    limits: Limits = attrs.field(validator=of_kind(Limits))
    multi_turn: bool
    """Whether SEP-1858 is offered to servers."""
    assume_multi_turn: bool
    """Whether servers of the right revision take part in it, whether or not they name it."""
    caches: bool
    """Whether results are kept."""
    jitter: Callable[[], float]

    now: float = 0.0
    """The latest time that was passed in."""
    is_reading: bool = True
    """False while the driver reads no responses, because it has events that its application must
    take first.
    """
    session_id: Secret | None = None
    has_turns: bool = False
    """Both sides have named SEP-1858."""
    revision: Revision | None = None
    """What was negotiated; None before."""
    effects: deque[ClientEffect] = attrs.field(factory=deque[ClientEffect], init=False)
    events: deque[ClientEvent] = attrs.field(factory=deque[ClientEvent], init=False)
    timers: TimerTable = attrs.field(factory=TimerTable, init=False)
    _is_full: bool = attrs.field(default=False, init=False)
    exchanges: dict[int, ClientExchange] = attrs.field(
        factory=dict[int, ClientExchange], init=False
    )
    """The HTTP requests under way."""
    message_url: Url | None = attrs.field(default=None, init=False)
    """Where messages are POSTed to, if that is not ``url``."""
    posts: Posts = attrs.field(default=attrs.Factory(Posts, takes_self=True), init=False)
    """The messages that get no response and are under way."""
    _exchange_ids: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)
    last_request_id: int = attrs.field(default=-1, init=False)
    """The highest JSON-RPC id that was used."""

    tools: ToolHeaders = attrs.field(factory=ToolHeaders, init=False)
    cache: Cache = attrs.field(
        default=attrs.Factory(lambda core: Cache(core.limits, core.caches), takes_self=True),
        init=False,
    )

    @property
    def is_modern(self) -> bool:
        """Whether the revision in force does without a handshake."""
        return self.revision is not None and self.revision.era is Era.MODERN

    @property
    def server(self) -> str:
        """Whom we ask, for messages about that."""
        return "the server process" if self.url is None else self.url.shown

    @property
    def handshake_versions(self) -> tuple[str, ...]:
        """The versions of ours that open with ``initialize``, oldest first."""
        return of_era(self.versions, Era.LEGACY)

    @property
    def is_full(self) -> bool:
        """Whether the application must take events before more is read.

        It is so until half of them are taken: not everybody who waits is to be woken for each.
        """
        most = self.limits.max_queued_events
        self._is_full = len(self.events) >= (most // 2 + 1 if self._is_full else most)
        return self._is_full

    @property
    def is_paused(self) -> bool:
        """True if the server may have sent what has not been read."""
        return self.is_full or not self.is_reading

    def next_request_id(self) -> int:
        """A JSON-RPC id that this client has not used."""
        self.last_request_id += 1
        return self.last_request_id

    def post(self, owner: ExchangeOwner, message: Message) -> ClientExchange:
        """POST a message; ``owner`` is told what comes of it."""
        body = jsonrpc.encode(dress(self, message))
        return self.open(owner, b"POST", body, headers=headers_of(self, message))

    def open(
        self,
        owner: ExchangeOwner,
        method: bytes,
        body: bytes = b"",
        *,
        last_event_id: str = "",
        headers: Headers = (),
    ) -> ClientExchange:
        """Make an HTTP request of the conversation; ``owner`` is told what comes of it."""
        assert self.url is not None
        all_headers = [*(POST_HEADERS if method == b"POST" else GET_HEADERS), *headers]
        if self.session_id is not None:
            all_headers.append((b"mcp-session-id", self.session_id.reveal().encode()))
        if self.revision is not None and self.revision.version_header:
            all_headers.append((b"mcp-protocol-version", self.revision.name.encode()))
        if last_event_id:
            all_headers.append((b"last-event-id", last_event_id.encode()))
        exchange = ClientExchange(
            self,
            owner,
            (self.message_url or self.url) if method == b"POST" else self.url,
            method,
            (*all_headers, *self.headers),
            body,
            last_event_id,
            self.session_id,
        )
        exchange.send()
        return exchange

    def send(self, exchange: ClientExchange) -> int:
        """Let the request of an exchange be made.

        Returns the number under which its response will come.
        """
        id = next(self._exchange_ids)
        self.exchanges[id] = exchange
        url = exchange.url
        head = RequestHead(
            method=exchange.method, target=url.target.encode(), headers=exchange.headers
        )
        self.effects.append(OpenExchange(exchange=id, url=str(url), head=head, body=exchange.body))
        return id

    def moved(self, old: Url, new: Url) -> None:
        """The server has redirected a request: what follows goes to the new place at once."""
        if self.url == old:
            self.url = new
        if self.message_url == old:
            self.message_url = new

    def let_end(self, exchange: ClientExchange | None) -> None:
        """Nothing more is wanted of an exchange, but its connection may be of use again."""
        if exchange is not None and exchange.id in self.exchanges:
            exchange.owner = NOBODY
            self.timers.set(Timer.DRAIN, exchange, self.now + 1.0)

    def abort(self, exchange: ClientExchange | None) -> None:
        """Break off an exchange, if it is still under way."""
        if exchange is not None and self.exchanges.pop(exchange.id, None) is not None:
            self.timers.stop(Timer.DRAIN, exchange)
            self.effects.append(AbortExchange(exchange=exchange.id))

    def give_up(self) -> None:
        """Break off all exchanges, and those that were to be tried again."""
        self.posts.clear()
        for exchange in tuple(self.exchanges.values()):
            self.abort(exchange)
