"""The state that all parts of one server share: settings, queues, timers, and the time."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import attrs

from .. import tasks
from ..app import App
from ..effects import ServerEffect
from ..errors import LocalProtocolError, RemoteProtocolError, check_type
from ..events import ServerEvent
from ..http import RequestHead
from ..limits import Limits
from ..messages import Request
from ..meta_keys import checked_capabilities
from ..observer import Observer, both
from ..revisions import of_era
from ..shares import Shares
from ..states import SERVER, ServerState, StopEvent, advance
from ..timers import TimerTable
from ..types import Drivable, Era
from . import refusals
from .options import ServerOptions, milliseconds_of
from .store_health import StoreHealth

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,128}", re.ASCII)


def _with_good_capabilities(core: ServerCore, attribute: attrs.Attribute[App], app: App) -> None:
    check_type(App, app=app)
    checked_capabilities(app.declared_capabilities())


class Sink(Protocol):
    """Where the messages for one client are written: stdout, or the event stream of HTTP+SSE."""

    @property
    def head(self) -> RequestHead | None:
        """The head of the HTTP request that opened the stream; None on stdio."""
        ...

    @property
    def is_above_high_water(self) -> bool:
        """True if too many bytes wait for the client."""
        ...

    def send(self, message: bytes) -> bool:
        """Send a message after all others. Returns False if the stream has ended."""
        ...

    def close(self) -> None:
        """Close the stream after everything that waits is sent. Repeated calls are safe."""


class Gatherer(Hashable, Protocol):
    """A part with events that wait to leave together."""

    def send_gathered(self) -> None:
        """Let the events that wait leave now."""


class BufferedResponse(Hashable, Protocol):
    """A response with unsent bytes."""

    def give_up(self) -> None:
        """Abort the response and drop its unsent bytes."""


class SessionlessCall(Protocol):
    """A call that belongs to no session."""

    def shut_down(self) -> None:
        """Send an error as the response and cancel the handler, because the server shuts down."""


@attrs.define(eq=False, on_setattr=attrs.setters.NO_OP)  # the time is set often
class ServerCore:
    """The state that the parts of a server share. It is not visible outside the machine."""

    app: App = attrs.field(validator=_with_good_capabilities)
    options: ServerOptions
    new_token: Callable[[], str]
    limits: Limits = attrs.field(init=False)
    """The limits of the options, kept here because they are read often."""
    max_request_bytes: int = attrs.field(init=False)
    """The bytes of the largest message that a client may send."""
    modern_versions: tuple[str, ...] = attrs.field(init=False)
    """The versions without a handshake, oldest first."""
    handshake_versions: tuple[str, ...] = attrs.field(init=False)
    """The versions that open with ``initialize``, oldest first."""
    observer: Observer | None = attrs.field(init=False)
    """What watches the server; None for nothing."""
    now: float = attrs.field(default=0.0, init=False)
    """The latest time that was passed in."""
    effects: deque[ServerEffect] = attrs.field(factory=deque[ServerEffect], init=False)
    events: deque[ServerEvent] = attrs.field(factory=deque[ServerEvent], init=False)
    timers: TimerTable = attrs.field(factory=TimerTable, init=False)
    store_health: StoreHealth = attrs.field(factory=StoreHealth, init=False)
    instance: str = attrs.field(default="", init=False)
    """The name of this instance among those that share the store; empty if it shares none."""
    unsent: Shares[BufferedResponse] = attrs.field(factory=Shares[BufferedResponse], init=False)
    """The unsent bytes of all exchanges."""
    gathering: dict[Gatherer, None] = attrs.field(factory=dict[Gatherer, None], init=False)
    """The parts with events that wait to leave together, in the order in which they began."""
    stateless: dict[SessionlessCall, None] = attrs.field(
        factory=dict[SessionlessCall, None], init=False
    )
    """The running calls that belong to no session, of any revision, oldest first."""
    state: ServerState = attrs.field(default=ServerState.SERVING, init=False)
    paused: dict[Drivable, None] = attrs.field(factory=dict["Drivable", None], init=False)
    """The exchanges and pipes that may not read until the application takes events, in order."""
    sinks: dict[Sink, None] = attrs.field(factory=dict[Sink, None], init=False)
    """The sinks of the open channels, oldest first."""

    def __attrs_post_init__(self) -> None:
        self.limits = self.options.limits
        self.max_request_bytes = self.limits.request_bytes
        self.observer = both(self.options.trace, self.options.observer)
        self.modern_versions = of_era(self.options.versions, Era.MODERN)
        self.handshake_versions = of_era(self.options.versions, Era.LEGACY)
        if self.options.shared_store:
            self.instance = self.token()
        has_rule = self.app.options_of("tools/call").task not in (None, "never")
        if has_rule and self.modern_versions and not self.serves_tasks:
            raise LocalProtocolError(
                "Tasks need a store and a clock; pass wall_clock=time.time, leave resumable=True, "
                f"and register no handler for {', '.join(sorted(tasks.METHODS))}"
            )

    @property
    def retry_ms(self) -> int | None:
        """Milliseconds after which a client should reconnect to a stream; None leaves it to it."""
        return milliseconds_of(self.options.retry)

    @property
    def has_stopped(self) -> bool:
        """True after ``shut_down()``."""
        return self.state is ServerState.STOPPED

    def advance(self, event: StopEvent) -> None:
        """Go a step towards the end of the server."""
        self.state = advance(SERVER, self.state, event)

    @property
    def serves_tasks(self) -> bool:
        """True if calls of tools may become tasks, for clients of 2026-07-28 that declare them."""
        if "tools/call" not in self.app.handlers or self.options.wall_clock is None:
            return False
        rule = self.app.options_of("tools/call").task
        if not self.modern_versions or not self.options.resumable or rule == "never":
            return False
        is_default = rule is None
        return tasks.METHODS.isdisjoint(self.app.handlers) and (
            self.options.shared_store or not is_default
        )

    def send_gathered(self) -> None:
        """Let all events leave that wait for others, because a handler waits for its client."""
        for gatherer in tuple(self.gathering):
            gatherer.send_gathered()

    def wall_time(self) -> float:
        """Return seconds since 1970."""
        assert self.options.wall_clock is not None, "tasks are not served without it"
        return self.options.wall_clock()

    def stream_after_of(self, method: str) -> float | None:
        """Return the seconds after which a request of this method gets an event stream.

        None leaves the choice to ``HttpResponder``.
        """
        own = self.app.options_of(method).stream_after
        return self.options.stream_after if own is None else own

    @property
    def is_full(self) -> bool:
        """True if the application must take events before more is read.

        Once a driver waits for that, it stays True until half of the events are taken. Otherwise
        each event taken would wake every waiting driver.
        """
        limit = self.limits.max_queued_events
        return len(self.events) >= (limit // 2 + 1 if self.paused else limit)

    @property
    def refresh_interval(self) -> float:
        """Seconds after which a log in use gets a new entry, before the store evicts it."""
        return self.limits.max_stored_age / 3

    def token(self) -> str:
        """Return a new unguessable token.

        Raises LocalProtocolError if ``new_token`` returns anything but 16 to 128 letters, digits,
        "-" and "_".
        """
        token = self.new_token()
        if _TOKEN.fullmatch(token) is None:
            raise LocalProtocolError(
                "new_token must return 16 to 128 letters, digits, '-' and '_'; pass "
                "secrets.token_urlsafe"
            )
        return token

    def sign_state(self, state: Any, principal: str, request: Request) -> str:
        """Sign the state of a handler. Raises LocalProtocolError if there is no signer."""
        if self.options.state_signer is None:
            raise LocalProtocolError(
                "InputRequired at 2026-07-28 needs state_signer=StateSigner(...): the state "
                "travels with the client"
            )
        params = request.params or {}
        return self.options.state_signer.sign(
            state, principal, request.method, params, name=self.token()
        )

    def verify_state(self, signed: str, principal: str, request: Request) -> Any:
        """Return the state of a handler. Raises RemoteProtocolError if it is not valid."""
        if self.options.state_signer is None:
            raise refusals.BAD_REQUEST_STATE(
                request.id, what="this server issued no requestState; send the request without it"
            )
        try:
            return self.options.state_signer.verify(
                signed, principal, request.method, request.params or {}
            )
        except RemoteProtocolError as error:
            error.request_id = request.id
            raise
