"""What all parts of one server share: settings, queues, timers, and the time."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import attrs

from ..app import App
from ..effects import ServerEffect, StoreEffect
from ..errors import LocalProtocolError, RemoteProtocolError, check_type
from ..events import ServerEvent
from ..http import RequestHead
from ..limits import Limits
from ..messages import Request
from ..meta_keys import checked_capabilities
from ..revisions import of_era
from ..shares import Shares
from ..timers import TimerTable
from ..types import Drivable, Era
from . import refusals
from .options import ServerOptions, milliseconds_of

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,128}", re.ASCII)


def _with_good_capabilities(core: ServerCore, attribute: attrs.Attribute[App], app: App) -> None:
    check_type(App, app=app)
    checked_capabilities(app.declared_capabilities())


class Sink(Protocol):
    """Where everything goes that a server says to one client: stdout, or the stream of HTTP+SSE."""

    @property
    def head(self) -> RequestHead | None:
        """The HTTP request that opened it; None where there is none."""
        ...

    @property
    def is_above_high_water(self) -> bool:
        """Whether to wait before saying more: the client does not keep up."""
        ...

    def send(self, message: bytes) -> bool:
        """Send a message after all others; False if nobody is there any more."""
        ...

    def close(self) -> None:
        """Nothing more will be said. May be called twice."""


class BufferedResponse(Hashable, Protocol):
    """A response of which some bytes wait for the peer."""

    def give_up(self) -> None:
        """Break the response off, and drop what waits."""


class LoneCall(Protocol):
    """A call that belongs to no session."""

    request: Request

    def abandon(self, refusal: RemoteProtocolError) -> None:
        """Answer with an error, and stop the handler: the server shuts down."""


@attrs.define(eq=False, on_setattr=attrs.setters.NO_OP)  # the time is set often
class ServerCore:
    """The common ground of the parts of a server; nobody outside the machine sees it."""

    app: App = attrs.field(validator=_with_good_capabilities)
    options: ServerOptions
    new_token: Callable[[], str]
    limits: Limits = attrs.field(init=False)
    """Those of the options, which are read often."""
    versions: tuple[str, ...] = attrs.field(init=False)
    """Those of the options."""
    modern_versions: tuple[str, ...] = attrs.field(init=False)
    """Those whose requests stand alone, oldest first."""
    handshake_versions: tuple[str, ...] = attrs.field(init=False)
    """Those that open with ``initialize``, oldest first."""
    retry_ms: int | None = attrs.field(init=False)
    """Milliseconds after which a client shall come back to a stream, as they are sent; None: as it
    likes.
    """

    now: float = attrs.field(default=0.0, init=False)
    """The latest time that was passed in."""
    effects: deque[ServerEffect] = attrs.field(factory=deque[ServerEffect], init=False)
    events: deque[ServerEvent] = attrs.field(factory=deque[ServerEvent], init=False)
    timers: TimerTable = attrs.field(factory=TimerTable, init=False)
    _is_full: bool = attrs.field(default=False, init=False)
    failing: set[tuple[type[StoreEffect], bool]] = attrs.field(
        factory=set[tuple["type[StoreEffect]", bool]], init=False
    )
    """Which uses of the store have failed since one of the kind succeeded, and whether messages
    were lost.
    """
    unsent: Shares[BufferedResponse] = attrs.field(factory=Shares[BufferedResponse], init=False)
    """Bytes that wait for the peers of exchanges."""
    stateless: dict[LoneCall, None] = attrs.field(factory=dict[LoneCall, None], init=False)
    """The calls that run and belong to no session, of whatever revision; oldest first."""
    draining: bool = attrs.field(default=False, init=False)
    """Nothing new is taken."""
    has_stopped: bool = attrs.field(default=False, init=False)
    """The server has ended its sessions, and opens none for a late answer of the store."""
    paused: dict[Drivable, None] = attrs.field(factory=dict["Drivable", None], init=False)
    """Who must not read before the application has taken events, in the order of their waiting."""
    sinks: dict[Sink, None] = attrs.field(factory=dict[Sink, None], init=False)
    """Those of the channels that are open, oldest first."""

    def __attrs_post_init__(self) -> None:
        self.limits, self.versions = self.options.limits, self.options.versions
        self.retry_ms = milliseconds_of(self.options.retry)
        self.modern_versions = of_era(self.versions, Era.MODERN)
        self.handshake_versions = of_era(self.versions, Era.LEGACY)

    def stream_after_of(self, method: str) -> float | None:
        """Seconds after which a request of this method gets an event stream.

        None leaves it to :class:`~sansmcp.server.responder.HttpResponder`.
        """
        own = self.app.options_of(method).stream_after
        return self.options.stream_after if own is None else own

    @property
    def is_full(self) -> bool:
        """Whether the application must take events before more is read.

        It is so until half of them are taken: not everybody who waits is to be woken for each.
        """
        most = self.limits.max_queued_events
        self._is_full = len(self.events) >= (most // 2 + 1 if self._is_full else most)
        return self._is_full

    @property
    def refresh_interval(self) -> float:
        """Seconds after which what is used is stored again, so that it does not grow too old."""
        return self.limits.max_stored_age / 3

    def token(self) -> str:
        """A fresh unguessable token.

        Raises LocalProtocolError if the injected source gives anything but 16 to 128 letters,
        digits, "-" and "_".
        """
        token = self.new_token()
        if _TOKEN.fullmatch(token) is None:
            raise LocalProtocolError(
                "new_token must give 16 to 128 letters, digits, '-' and '_' (secrets.token_urlsafe)"
            )
        return token

    def sign_state(self, state: Any, principal: str, request: Request) -> str:
        """Seal what a handler saves. Raises LocalProtocolError where there is no seal."""
        if self.options.state_signer is None:
            raise LocalProtocolError("To ask for input the server needs a seal (StateSigner)")
        params = request.params or {}
        return self.options.state_signer.sign(
            state, principal, request.method, params, name=self.token()
        )

    def verify_state(self, sealed: str, principal: str, request: Request) -> Any:
        """What a handler has saved. Raises RemoteProtocolError for what cannot be used."""
        if self.options.state_signer is None:
            raise refusals.BAD_REQUEST_STATE(request.id, what="nothing here gives a requestState")
        try:
            return self.options.state_signer.verify(
                sealed, principal, request.method, request.params or {}
            )
        except RemoteProtocolError as error:
            error.request_id = request.id
            raise
