"""The settings of a client: what can be set, what it means, its default, and what is refused.

A setting is written in :class:`ClientOptions`, and its name and type once more in
:class:`ClientSettings`, for the signatures of what takes settings; a test compares the two.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import attrs

from ..codecs.headers import Headers, HeaderTypes, further_headers
from ..errors import LocalProtocolError, check_positive_seconds, check_type, instance_of_type
from ..http11_parser import Http11Parser
from ..limits import Limits
from ..meta_keys import checked_capabilities
from ..revisions import REVISIONS, checked_versions, of_era
from ..trace import Tracer
from ..types import HTTP_SSE, STREAMABLE_HTTP, Era

URL_TRANSPORTS = (STREAMABLE_HTTP, HTTP_SSE)
"""How a client can talk to a URL, the newest way first."""

SAFE_METHODS = frozenset(
    (
        "ping",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "server/discover",
        "subscriptions/listen",
    )
)
"""Methods that change nothing at the server, so that repeating them does no harm."""

_SHORTEST_POLL = 0.01
"""Seconds between two polls, so that a server that asks for none is not asked without a pause."""


class ClientSettings(TypedDict, total=False):
    """The keyword arguments that make :class:`ClientOptions`, which explains them."""

    name: str
    version: str
    anonymous: bool
    capabilities: Mapping[str, Any] | None
    versions: tuple[str, ...]
    headers: HeaderTypes
    transports: tuple[str, ...]
    standalone_stream: bool
    multi_turn: bool
    assume_multi_turn: bool
    timeout: float
    total_timeout: float
    connect_timeout: float
    probe_timeout: float
    close_timeout: float
    reconnect: ReconnectPolicy | None
    known_servers: KnownServers | None
    limits: Limits | None
    http11: Http11Parser | None
    cache: bool
    trace: Tracer | None


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

    initial_delay: float = 0.5
    """Seconds within which the first attempt comes."""
    max_delay: float = 30.0
    """Seconds that no attempt's random part exceeds."""
    max_attempts: int = 10
    """Attempts without progress after which a stream is given up."""

    def __attrs_post_init__(self) -> None:
        check_positive_seconds(self.initial_delay, self.max_delay)
        check_type(int, max_attempts=self.max_attempts)

    def delay(self, attempt: int, retry: float, jitter: float) -> float:
        """Return the seconds to wait before an attempt; ``jitter`` is a number from 0 to 1."""
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
        return min(self.max_delay, self.initial_delay * 2.0 ** min(attempt - 1, 63))


@attrs.define(eq=False)
class KnownServers:
    """Remembers what servers have turned out to speak, for as many as ``limit``.

    Share one among the clients of a program: the next client of the same URL asks no detours. What
    is remembered is only where to begin; when that fails, the rest is tried. Threads may share it:
    nothing is looked up twice.
    """

    limit: int = 1000
    _found: OrderedDict[str, tuple[str, Era]] = attrs.field(
        factory=OrderedDict[str, "tuple[str, Era]"], init=False
    )

    def plan(self, target: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
        """Return the allowed transports in the order in which to try them."""
        first, _ = self._found.get(target, (None, None))
        return tuple(sorted(allowed, key=lambda name: name != first))

    def era(self, target: str) -> Era | None:
        """Return the era of a server; None if it is not known."""
        _, era = self._found.get(target, (None, None))
        return era

    def remember(self, target: str, name: str, era: Era) -> None:
        """Record that a transport and an era work."""
        self._found.pop(target, None)  # so that it comes last
        self._found[target] = name, era
        if len(self._found) > self.limit:
            self._found.popitem(last=False)

    def forget(self, target: str) -> None:
        """Record that what is remembered of a server does not work any more."""
        self._found.pop(target, None)


def command_of(target: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command. Raises LocalProtocolError for what is none."""
    try:
        is_command = " ".join(target) != ""
    except TypeError:  # a path, or a word that is one
        is_command = False
    if not is_command:
        raise LocalProtocolError(
            "target must be a URL (str) or a command (sequence of str), "
            f"got {target!r}; for a path write str(path), to run a script ['python', 'server.py']"
        )
    return tuple(target)


def _check_seconds(options: object, attribute: object, seconds: float) -> None:
    check_positive_seconds(seconds)


def _check_transports(options: ClientOptions, attribute: object, names: tuple[str, ...]) -> None:
    if not names or not set(names) <= set(URL_TRANSPORTS):
        known = ", ".join(URL_TRANSPORTS)
        raise LocalProtocolError(f"Transports are a tuple of some of {known}, and not {names!r}")
    if not options.usable_transports:
        raise LocalProtocolError(f"On {HTTP_SSE} versions without a handshake do not exist")


def _capabilities(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return checked_capabilities({} if given is None else given)


def _reconnect(given: ReconnectPolicy | None) -> ReconnectPolicy:
    return ReconnectPolicy() if given is None else given


def _verdicts(given: KnownServers | None) -> KnownServers:
    return KnownServers() if given is None else given


def _limits(given: Limits | None) -> Limits:
    return Limits() if given is None else given


@attrs.frozen(eq=False, kw_only=True)
class ClientOptions:
    """The settings of a client, checked. All have defaults.

    :class:`sansmcp.Client` takes them as keyword arguments, and so does whatever connects in an
    adapter: ``connect(url, timeout=5, capabilities={"elicitation": {}})``.

    Raises LocalProtocolError for settings that make no sense, alone or together.

    Attributes:
        name: of this client, told to the server (``clientInfo``).
        version: of this client, told to the server (``clientInfo``).
        anonymous: tell ``name`` and ``version`` only where the protocol requires it
            (``initialize``).
        capabilities: what the server may ask of this client, e.g. ``{"elicitation": {}}``; None:
            nothing.
        versions: the protocol versions to speak, oldest first; the newest one that the server
            speaks, too, is used.
        headers: further headers of every HTTP request, as a mapping or pairs of str or bytes, e.g.
            ``{"Authorization": "Bearer x"}``.
        transports: how to talk to a URL; what comes first is tried first.
        standalone_stream: open the standalone stream, on which the server sends what belongs to no
            call.
        multi_turn: offer SEP-1858, an experiment, to servers of 2025-11-25: one that names the
            experimental capability ``sansmcp/multi-turn-sse``, too, may have all answers to its
            questions at once.
        assume_multi_turn: the same with every server of 2025-11-25, whether or not it names the
            capability, as the proposal itself has it.
        timeout: default of :meth:`sansmcp.Client.call`: seconds that a call may be without an
            answer and without progress.
        total_timeout: default of :meth:`sansmcp.Client.call`: seconds that a call may be without an
            answer, whatever progress there is.
        connect_timeout: seconds for the handshake. While the server cannot be reached, breaks off
            its answer, or refuses with 502, 503 or 504, the opening is tried again within that
            time, as ``reconnect`` says.
        probe_timeout: seconds in which a server must say whether it needs a handshake; not more
            than ``connect_timeout`` counts, and it is added to that if the server does not answer.
        close_timeout: seconds that the server gets to end the session when the client closes; a
            process gets them for each step of its end.
        reconnect: when broken streams are resumed; None: the defaults of
            :class:`sansmcp.ReconnectPolicy`.
        known_servers: remembers which servers speak which transport; several clients may share one.
            None: one of its own for a bare client, and one for all clients of the process in
            adapters.
        limits: bounds of bytes, seconds and counts; None: the defaults of :class:`sansmcp.Limits`.
        http11: what reads heads of HTTP/1.1 on raw sockets, e.g.
            ``sansmcp.httptools_parser.HTTP11``; None: h11.
        cache: keep lists and resources for as long as the server says that they hold, and answer
            from there (2026-07-28). That a server tells of changes takes a call of
            ``subscriptions/listen``.
        trace: is told everything that is sent and received.
    """

    name: str = attrs.field(default="sansmcp", validator=instance_of_type(str))
    version: str = attrs.field(default="0", validator=instance_of_type(str))
    anonymous: bool = False
    capabilities: Mapping[str, Any] = attrs.field(default=None, converter=_capabilities)
    versions: tuple[str, ...] = attrs.field(default=tuple(REVISIONS), converter=checked_versions)
    headers: Headers = attrs.field(default=(), converter=further_headers, repr=False)
    transports: tuple[str, ...] = attrs.field(default=URL_TRANSPORTS, validator=_check_transports)
    standalone_stream: bool = True
    multi_turn: bool = False
    assume_multi_turn: bool = False
    timeout: float = attrs.field(default=60.0, validator=_check_seconds)
    total_timeout: float = attrs.field(default=3600.0, validator=_check_seconds)
    connect_timeout: float = attrs.field(default=30.0, validator=_check_seconds)
    probe_timeout: float = attrs.field(default=5.0, validator=_check_seconds)
    close_timeout: float = attrs.field(default=5.0, validator=_check_seconds)
    reconnect: ReconnectPolicy = attrs.field(
        default=None, converter=_reconnect, validator=instance_of_type(ReconnectPolicy)
    )
    known_servers: KnownServers = attrs.field(
        default=None, converter=_verdicts, validator=instance_of_type(KnownServers)
    )
    limits: Limits = attrs.field(
        default=None, converter=_limits, validator=instance_of_type(Limits)
    )
    http11: Http11Parser | None = None
    cache: bool = False
    trace: Tracer | None = None

    @property
    def info(self) -> dict[str, Any]:
        """What ``clientInfo`` tells of this client."""
        return {"name": self.name, "version": self.version}

    @property
    def offers_multi_turn(self) -> bool:
        """True if SEP-1858 is offered, to whichever servers."""
        return self.multi_turn or self.assume_multi_turn

    @property
    def capped_probe_timeout(self) -> float:
        """Seconds that a probe lasts at most."""
        return min(self.probe_timeout, self.connect_timeout)

    @property
    def usable_transports(self) -> tuple[str, ...]:
        """Those of the transports on which one of the versions exists."""
        if self.handshake_versions:
            return self.transports
        return tuple(name for name in self.transports if name != HTTP_SSE)

    @property
    def handshake_versions(self) -> tuple[str, ...]:
        """The versions that open with ``initialize``, oldest first."""
        return of_era(self.versions, Era.LEGACY)

    @property
    def modern_versions(self) -> tuple[str, ...]:
        """The versions that need no handshake, oldest first."""
        return of_era(self.versions, Era.MODERN)
