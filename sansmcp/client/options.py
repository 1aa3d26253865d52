"""What can be set on a client and on its calls: validated once, read everywhere, never changed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import attrs

from ..codecs.headers import Headers, HeaderTypes, further_headers
from ..errors import LocalProtocolError, check_seconds, expect, of_kind
from ..limits import Limits
from ..meta import checked_capabilities
from ..revisions import of_era
from ..trace import Tracer
from ..types import HTTP_SSE, STREAMABLE_HTTP, Era
from ..wire import Http11

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
    """The settings of :class:`sansmcp.Client`, which explains them, for adapters."""

    name: str
    version: str
    anonymous: bool
    capabilities: Mapping[str, Any] | None
    versions: tuple[str, ...]
    headers: HeaderTypes
    transports: tuple[str, ...]
    listen: bool
    multi_turn: bool
    assume_multi_turn: bool
    timeout: float
    total_timeout: float
    connect_timeout: float
    probe_timeout: float
    close_timeout: float
    reconnect: ReconnectPolicy | None
    verdicts: Verdicts | None
    limits: Limits | None
    http11: Http11 | None
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
        return min(self.cap, self.initial * 2.0 ** min(attempt - 1, 63))


@attrs.define(eq=False)
class Verdicts:
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


def usable_transports(names: tuple[str, ...], versions: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the transports on which one of the versions exists.

    Raises LocalProtocolError if there is none, or for what is no way to talk to a URL.
    """
    if not names or not set(names) <= set(URL_TRANSPORTS):
        known = ", ".join(URL_TRANSPORTS)
        raise LocalProtocolError(f"Transports are a tuple of some of {known}, and not {names!r}")
    if not of_era(versions, Era.LEGACY):
        names = tuple(name for name in names if name != HTTP_SSE)
    if not names:
        raise LocalProtocolError(f"On {HTTP_SSE} versions without a handshake do not exist")
    return names


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


def _of_strings(
    options: ClientOptions, attribute: attrs.Attribute[Mapping[str, Any]], info: Mapping[str, Any]
) -> None:
    expect(str, **info)


@attrs.frozen(eq=False, kw_only=True)
class ClientOptions:
    """The settings of one client, validated. :class:`sansmcp.Client` explains them."""

    info: Mapping[str, Any] = attrs.field(validator=_of_strings)
    """Name and version of this client, as ``clientInfo`` tells them."""
    anonymous: bool
    capabilities: Mapping[str, Any] = attrs.field(converter=checked_capabilities)
    versions: tuple[str, ...]
    headers: Headers = attrs.field(converter=further_headers)
    transports: tuple[str, ...]
    listen: bool
    multi_turn: bool
    assume_multi_turn: bool
    timeout: float
    total_timeout: float
    connect_timeout: float
    probe_timeout: float
    close_timeout: float
    reconnect: ReconnectPolicy = attrs.field(validator=of_kind(ReconnectPolicy))
    verdicts: Verdicts = attrs.field(validator=of_kind(Verdicts))
    limits: Limits = attrs.field(validator=of_kind(Limits))
    cache: bool
    jitter: Callable[[], float]

    @property
    def handshake_versions(self) -> tuple[str, ...]:
        """The versions that open with ``initialize``, oldest first."""
        return of_era(self.versions, Era.LEGACY)

    @property
    def modern_versions(self) -> tuple[str, ...]:
        """The versions that need no handshake, oldest first."""
        return of_era(self.versions, Era.MODERN)
