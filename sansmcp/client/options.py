"""The settings of a client: their meaning, their defaults and their validation.

A setting is written in :class:`ClientOptions`, and its name and type once more in
:class:`ClientSettings`, for the signatures of what takes settings; a test compares the two.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

import attrs

from ..auth.options import Authorization
from ..codecs import json
from ..codecs.headers import Headers, HeaderTypes, further_headers, get
from ..errors import LocalProtocolError, check_positive_seconds, check_type, instance_of_type
from ..http11_parser import Http11Parser
from ..limits import Limits
from ..meta_keys import CLIENT_CAPABILITIES, checked_capabilities, with_extension
from ..observer import Observer
from ..revisions import REVISIONS, checked_versions, of_era
from ..tasks import EXTENSION, RESULT_TYPE
from ..trace import Tracer
from ..types import HTTP_SSE, STREAMABLE_HTTP, URL_TRANSPORTS, Era, Shown, Value

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
"""Methods that change nothing at the server, so that the client may repeat their requests."""

_SHORTEST_POLL = 0.01
"""The shortest time between two polls, in seconds, for servers that send ``retry: 0``."""


class ClientSettings(TypedDict, total=False):
    """The keyword arguments of a client; :class:`ClientOptions` explains them."""

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
    strict: bool
    cookies: bool
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
    reclaim: bool
    tasks: bool
    result_types: Mapping[str, str] | None
    trace: Tracer | None
    observer: Observer | None
    authorization: Authorization | None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ReconnectPolicy(Value):
    """When a client reconnects, and when it stops trying: exponential backoff with jitter.

    Attempt n (from 1) starts ``retry + jitter * min(max_delay, initial_delay * 2 ** (n - 1))``
    seconds after the failure. ``jitter`` is random, from 0 to 1, so that clients do not reconnect
    all at once. ``retry`` is the time that the server sent, or 0: ``retry`` of the event stream,
    or ``Retry-After`` of a refusal, of which at most five minutes count.

    Progress (a new event id, a message) starts the count again, and so does a stream that has
    lasted for longer than ``max_delay``, polls included. A connection that opens and breaks does
    not. If streams cannot be resumed (2026-07-28), only a stream that has lasted starts it again.

    If the server ends an event stream properly, the client polls. That is not a failure and is not
    counted; :meth:`poll_delay` gives the time to wait.

    The same policy holds for whatever else is sent again: calls that were refused, messages that
    were not accepted, the opening, within ``connect_timeout``, and new sessions if the server
    discards several in a row.

    Raises:
        LocalProtocolError: a delay is not above zero, or ``max_attempts`` is not an integer.
    """

    initial_delay: float = 0.5
    """The longest random delay before the first attempt, in seconds."""
    max_delay: float = 30.0
    """The longest random delay before any attempt, in seconds."""
    max_attempts: int = 10
    """Failed attempts without progress after which the client gives up what it repeats."""

    def __attrs_post_init__(self) -> None:
        check_positive_seconds(self.initial_delay, self.max_delay)
        check_type(int, max_attempts=self.max_attempts)

    def delay(self, attempt: int, retry: float, jitter: float) -> float:
        """Return the seconds to wait before ``attempt``; ``jitter`` is a number from 0 to 1."""
        return retry + jitter * self._growing(attempt)

    def poll_delay(self, polls: int, retry: float | None, jitter: float) -> float:
        """Return the seconds to wait before the next poll of a stream that the server has ended.

        Args:
            polls: how many polls in a row brought no message before this one. It is 0 for the
                stream of a call, whose response would otherwise arrive later and later.
            retry: the seconds that the server asked for, at least 0.01. None if it asked for none:
                the wait is then ``initial_delay``, doubled after each poll that brought no message,
                up to ``max_delay``.
            jitter: a random number from 0 to 1; it makes the wait up to a tenth longer.
        """
        wait = self._growing(polls + 1) if retry is None else max(retry, _SHORTEST_POLL)
        return wait * (1 + jitter / 10)

    def _growing(self, attempt: int) -> float:
        return min(self.max_delay, self.initial_delay * 2.0 ** min(attempt - 1, 63))


@attrs.define(eq=False)
class KnownServers:
    """Records the transport and era of each server, for the ``limit`` servers recorded last.

    Share one instance among the clients of a program: the next client of the same URL starts with
    what worked before. If that fails, it tries the rest. Threads can share an instance.
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
        """Return the recorded era of a server; None if there is none."""
        _, era = self._found.get(target, (None, None))
        return era

    def remember(self, target: str, name: str, era: Era) -> None:
        """Record the transport and era that work with a server."""
        self._found.pop(target, None)  # so that it comes last
        self._found[target] = name, era
        if len(self._found) > self.limit:
            self._found.popitem(last=False)

    def forget(self, target: str) -> None:
        """Discard the record of a server, because it no longer works."""
        self._found.pop(target, None)


def command_of(target: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command. Raises LocalProtocolError if ``target`` is not one."""
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
        raise LocalProtocolError(f"transports must be a tuple of some of {known}, got {names!r}")
    if not options.usable_transports:
        raise LocalProtocolError(
            f"transports has only {HTTP_SSE}, which none of the versions supports; add "
            f"{STREAMABLE_HTTP} to transports, or a handshake version to versions"
        )


def _capabilities(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return checked_capabilities({} if given is None else given)


def _result_types(given: Mapping[str, str] | None) -> Mapping[str, str]:
    return {} if given is None else dict(given)


def _check_result_types(
    options: ClientOptions, attribute: object, result_types: Mapping[str, str]
) -> None:
    extensions = json.as_object(options.capabilities.get("extensions")) or {}
    for kind, extension in result_types.items():
        if kind in ("complete", "input_required"):
            raise LocalProtocolError(f"result_types must not have {kind!r}: MCP defines it itself")
        if kind == RESULT_TYPE and options.tasks:
            raise LocalProtocolError(
                "result_types must not have 'task' unless tasks=False: the client follows tasks "
                "itself; to get the handle of one call, pass detach=True"
            )
        if extension not in extensions:
            raise LocalProtocolError(
                f"result_types names the extension {extension!r}, which is not declared; add it "
                "to 'extensions' of capabilities"
            )


def _unknown_request(method: str) -> str:
    import difflib  # imported here because it is slow to import and rarely needed

    text = f"request_handlers has no {method!r} to handle"
    near = difflib.get_close_matches(method, CLIENT_CAPABILITIES, n=1)
    text += f"; did you mean {near[0]!r}?" if near else "."
    return (
        f"{text} Servers request {', '.join(sorted(CLIENT_CAPABILITIES))}; for a method of an "
        "extension, declare the extension in capabilities"
    )


def _reconnect(given: ReconnectPolicy | None) -> ReconnectPolicy:
    return ReconnectPolicy() if given is None else given


def _known_servers(given: KnownServers | None) -> KnownServers:
    return KnownServers() if given is None else given


def _limits(given: Limits | None) -> Limits:
    return Limits() if given is None else given


@attrs.frozen(eq=False, kw_only=True, repr=False)
class ClientOptions(Shown):
    """The settings of a client, checked. All have defaults.

    :class:`sansmcp.Client` takes them as keyword arguments, and so does ``connect()`` of an
    adapter: ``connect(url, timeout=5, capabilities={"elicitation": {}})``.

    Raises:
        LocalProtocolError: a setting is invalid, alone or together with others.

    Attributes:
        name: the name of this client, sent to the server (``clientInfo``).
        version: the version of this client, sent to the server (``clientInfo``).
        anonymous: send ``name`` and ``version`` only if the protocol requires it (``initialize``).
        capabilities: the server requests that this client supports, e.g. ``{"elicitation": {}}``;
            None: none. Adapters add those for which there are ``request_handlers``, so they are
            needed only for what a handler does not show, e.g. ``{"elicitation": {"url": {}}}``.
        versions: the protocol versions to support, oldest first; the newest one that the server
            also supports is used.
        headers: further headers of every HTTP request, as a mapping or pairs of str or bytes, e.g.
            ``{"Authorization": "Bearer x"}``.
        transports: the transports to try for a URL, in order.
        standalone_stream: open the standalone stream, on which the server sends messages that
            belong to no call.
        multi_turn: offer SEP-1858, an experiment, to servers of 2025-11-25. Those that declare the
            experimental capability ``sansmcp/multi-turn-sse`` can then request the input responses
            of a turn together.
        assume_multi_turn: offer it to every server of 2025-11-25, also without that capability, as
            the proposal describes.
        strict: read only messages that are exactly right. Otherwise the client also reads those
            that can mean only one thing: with half a surrogate pair, NaN, bytes that are not UTF-8,
            a byte order mark, or ``"error": null`` beside a result. The event
            ``ProtocolViolation`` reports each such fault once.
        cookies: keep the cookies of the server in memory, and send them back to its origin: load
            balancers find the instance of a session by them. False: ignore them. A client that has
            ``Cookie`` among its ``headers`` ignores them, too; ``sansmcp_httpx`` leaves them to its
            HTTP client.
        timeout: default of :meth:`sansmcp.Client.call`: the seconds that a call may take without a
            response and without progress.
        total_timeout: default of :meth:`sansmcp.Client.call`: the seconds that a call may take
            without a response, whatever progress there is.
        connect_timeout: seconds for the opening. If the server cannot be reached, closes the
            connection early, or refuses with 502, 503 or 504, the opening is repeated within that
            time, as ``reconnect`` sets it; for 5 seconds only if this machine refuses the
            connections. What would fail in the same way again (TLS, an unknown host) ends it.
        probe_timeout: seconds in which a server must respond to ``server/discover``, at most half
            of ``connect_timeout``. If it does not respond, the handshake gets the rest of
            ``connect_timeout``. Without a version that has a handshake, all of it is for
            ``server/discover``.
        close_timeout: seconds that the server gets to end the session when the client closes; a
            server process gets them for each step of its shutdown.
        reconnect: when broken streams are resumed; None: the defaults of
            :class:`sansmcp.ReconnectPolicy`.
        known_servers: a record of the transport and era of each server, which several clients can
            share. None: a new one for a bare client; in adapters, one for all clients of the
            process.
        limits: bounds of bytes, seconds and counts; None: the defaults of :class:`sansmcp.Limits`.
        http11: the parser of HTTP/1.1 heads on raw sockets, e.g.
            ``sansmcp.httptools_parser.HTTP11``; None: h11.
        cache: keep lists and resources for as long as the server allows, and return them without a
            request (2026-07-28). To receive the server's notifications of changes, call
            ``subscriptions/listen``.
        reclaim: give each call of a tool a key, if the server offers that (``sansmcp/reclaim``, as
            servers of this library do): a call whose connection is cut runs on, and the client gets
            its response over another one. Bare clients need ``random_bytes``. See docs/streams.md.
        tasks: declare the extension for tasks (2026-07-28). If a server answers ``tools/call`` by
            the handle of a task, the client asks for the result until it is there.
        result_types: the values of ``resultType`` that extensions in ``capabilities`` define, each
            with the name of its extension: ``{"partial": "com.example/partial"}``. Such results
            are returned as they are (2026-07-28). None: none.
        trace: records everything that is sent and received; None: no trace.
        observer: is called with everything that is sent, received and reported; None: none.
        authorization: how to obtain authorization (OAuth 2.1) for a server at a URL that requires
            it; None: a request that the server refuses for that reason fails.
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
    strict: bool = False
    cookies: bool = True
    timeout: float = attrs.field(default=60.0, validator=_check_seconds)
    total_timeout: float = attrs.field(default=3600.0, validator=_check_seconds)
    connect_timeout: float = attrs.field(default=30.0, validator=_check_seconds)
    probe_timeout: float = attrs.field(default=5.0, validator=_check_seconds)
    close_timeout: float = attrs.field(default=5.0, validator=_check_seconds)
    reconnect: ReconnectPolicy = attrs.field(
        default=None, converter=_reconnect, validator=instance_of_type(ReconnectPolicy)
    )
    known_servers: KnownServers = attrs.field(
        default=None, converter=_known_servers, validator=instance_of_type(KnownServers)
    )
    limits: Limits = attrs.field(
        default=None, converter=_limits, validator=instance_of_type(Limits)
    )
    http11: Http11Parser | None = None
    cache: bool = False
    reclaim: bool = True
    tasks: bool = True
    result_types: Mapping[str, str] = attrs.field(
        default=None, converter=_result_types, validator=_check_result_types
    )
    trace: Tracer | None = attrs.field(
        default=None, validator=attrs.validators.optional(instance_of_type(Tracer))
    )
    observer: Observer | None = attrs.field(
        default=None, validator=attrs.validators.optional(instance_of_type(Observer))
    )
    authorization: Authorization | None = attrs.field(
        default=None, validator=attrs.validators.optional(instance_of_type(Authorization))
    )

    def __attrs_post_init__(self) -> None:
        if self.authorization is not None and get(self.headers, b"authorization") is not None:
            raise LocalProtocolError(
                "Set either authorization or the header Authorization: a request has only one"
            )

    def handling(self, methods: Iterable[str]) -> ClientOptions:
        """Return these settings with the capabilities for the server requests of these methods.

        Raises:
            LocalProtocolError: a server sends no request of that method.
        """
        implied: dict[str, Any] = {}
        has_others = not self.capabilities.keys().isdisjoint(("extensions", "experimental"))
        for method in methods:
            if method in CLIENT_CAPABILITIES:
                implied[CLIENT_CAPABILITIES[method]] = {}
            elif not has_others:
                raise LocalProtocolError(_unknown_request(method))
        return attrs.evolve(self, capabilities={**implied, **self.capabilities})

    @property
    def declared_capabilities(self) -> Mapping[str, Any]:
        """The capabilities to declare at 2026-07-28."""
        return self.with_tasks(self.capabilities)

    def with_tasks(self, capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return capabilities with the extension for tasks, if the client follows them."""
        return with_extension(capabilities, EXTENSION) if self.tasks else capabilities

    @property
    def info(self) -> dict[str, Any]:
        """The value of ``clientInfo``."""
        return {"name": self.name, "version": self.version}

    @property
    def offers_multi_turn(self) -> bool:
        """True if SEP-1858 is offered to any server."""
        return self.multi_turn or self.assume_multi_turn

    @property
    def capped_probe_timeout(self) -> float:
        """The longest time of a probe, in seconds: at least as long is left for a handshake."""
        return min(self.probe_timeout, self.connect_timeout / 2)

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
