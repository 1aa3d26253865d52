"""The settings of a server: their names, meanings, defaults and checks.

Each setting is defined in ``ServerOptions``. ``ServerSettings`` repeats its name and type for the
signatures of functions that take settings; a test compares the two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from types import NoneType
from typing import Any, TypedDict

import attrs

from ..errors import (
    LocalProtocolError,
    check_delay,
    check_positive_seconds,
    instance_of_type,
)
from ..http11_parser import Http11Parser
from ..input_required import StateSigner
from ..limits import Limits
from ..observer import Observer
from ..protected_resource import ProtectedResource
from ..rates import RateLimit
from ..revisions import REVISIONS, checked_versions, of_era
from ..security import SecurityPolicy
from ..trace import Tracer
from ..types import Era
from .addresses import parse_networks

_PATH = re.compile(r"/[!-\"$->@-~]*")


class ServerSettings(TypedDict, total=False):
    """The keyword arguments that make :class:`ServerOptions`, which explains them."""

    path: str
    http_sse: str | None
    health_path: str | None
    versions: tuple[str, ...]
    resumable: bool
    shared_store: bool
    multi_turn: bool
    assume_multi_turn: bool
    sessions: bool
    standalone_streams: bool
    stream_after: float | None
    task_after: float | None
    task_poll_interval: float
    wall_clock: Callable[[], float] | None
    retry: float | None
    reclaim: bool | str
    state_signer: StateSigner | None
    policy: SecurityPolicy | None
    limits: Limits | None
    rate_limit: RateLimit | None
    trusted_proxies: tuple[str, ...]
    protected_resource: ProtectedResource | None
    http11: Http11Parser | None
    trace: Tracer | None
    observer: Observer | None


def _check_path(options: object, attribute: attrs.Attribute[Any], path: object) -> None:
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise LocalProtocolError(f"{attribute.name} must be a path like '/mcp', got {path!r}")


def _check_delay(options: object, attribute: attrs.Attribute[Any], seconds: float | None) -> None:
    check_delay(**{attribute.name: seconds})


def milliseconds_of(retry: float | None) -> int | None:
    """Return the value of the SSE field ``retry`` for a number of seconds; None for None.

    Raises LocalProtocolError if it is negative, infinite or NaN.
    """
    check_delay(retry=retry)
    if retry == math.inf:
        raise LocalProtocolError("retry must be finite; None leaves the wait to the client")
    return None if retry is None else round(retry * 1000)


def _check_interval(options: object, attribute: object, seconds: float) -> None:
    check_positive_seconds(seconds)


def _check_networks(options: object, attribute: object, networks: tuple[str, ...]) -> None:
    parse_networks(networks)


def _check_reclaim(options: object, attribute: object, reclaim: object) -> None:
    if not isinstance(reclaim, bool) and reclaim != "store":
        raise LocalProtocolError(f"reclaim must be True, False or 'store', got {reclaim!r}")


def _check_retry(options: object, attribute: object, retry: float | None) -> None:
    milliseconds_of(retry)


def _policy(given: SecurityPolicy | None) -> SecurityPolicy:
    return SecurityPolicy() if given is None else given


def _limits(given: Limits | None) -> Limits:
    return Limits() if given is None else given


@attrs.frozen(kw_only=True)
class ServerOptions:
    """The settings of a server, checked. All have defaults.

    ``sansmcp.Server`` takes them as keyword arguments, and so does every function of an adapter
    that serves: ``serve(app, path="/mcp", sessions=False)``.

    Raises:
        LocalProtocolError: a setting is not valid, alone or with others.

    Attributes:
        path: the path of the MCP endpoint.
        http_sse: the path where clients of 2024-11-05 open their event stream, e.g. ``"/sse"``;
            they POST to ``/messages`` beside it. It may be the same as ``path``. None does not
            serve that transport.
        health_path: a path where GET tells load balancers if the server takes new calls, e.g.
            ``"/healthz"``: with status 200, or 503 once the server is about to stop. The body is
            ``{"status": "ok", "store": "ok"}``, with ``"draining"`` and ``"failing"`` where that
            applies; a failing store alone leaves the status at 200. Anybody may ask, under any host
            name and without authentication. None does not serve it.
        versions: the protocol versions to serve, oldest first.
        resumable: store the messages of streams, so that clients can resume a stream after a lost
            connection. A bare ``sansmcp.Server`` asks its driver for that with store effects;
            adapters have a store. False stores nothing.
        shared_store: True if other instances of this server use the same store, so that any of
            them may get the next request of a session.
        multi_turn: offer SEP-1858, an experiment, to clients of 2025-11-25 that declare the
            experimental capability ``sansmcp/multi-turn-sse``, too. They send all input responses
            in one POST, and the call goes on in the HTTP response to it.
        assume_multi_turn: use SEP-1858 with all clients of 2025-11-25, whether or not they declare
            the capability, as the proposal itself does. Set it only if you know all clients: a
            client without SEP-1858 would wait for ever.
        sessions: give clients of the handshake revisions a session. Without sessions every request
            stands alone, and these clients get no server requests.
        standalone_streams: offer standalone event streams (GET) for messages that belong to no
            call.
        stream_after: seconds after which a call without a response gets an event stream instead of
            JSON. 0 opens the stream at once, even if the handler responds in the same step. None
            depends on the client: if it can resume the stream before it has read a message
            (2025-11-25, with a store), the stream opens unless the handler responds in the same
            step; if it asks for neither progress nor a log (2026-07-28), after
            ``Limits.stream_comment_interval``; otherwise after 0.05 s. App.handler() takes this
            setting for one method. A running call can be resumed only once it has a stream, which
            costs a write to the store and a few hundred bytes; docs/streams.md explains the choice.
        task_after: seconds after which a call of a tool without a response becomes a task, if the
            client can follow tasks (2026-07-28 with the extension): the client gets the id of the
            task, and a lost connection no longer costs the call. 0 gives it the id at once. None
            leaves that to the handler. This holds for handlers whose option ``task`` does not say
            otherwise; see ``App.handler()`` and docs/tasks.md.
        task_poll_interval: seconds between two polls that the clients of a task should leave.
        wall_clock: returns seconds since 1970, e.g. ``time.time``; the clocks of all instances must
            agree. Tasks need it. None serves no tasks; adapters pass ``time.time``.
        retry: seconds after which clients should reconnect to a stream that has ended or broken,
            sent as the SSE field of that name at the beginning of each stream that can be resumed.
            None leaves the wait to the clients.
        reclaim: let calls of tools run on if their connections are cut, and keep their responses in
            memory for a while, for clients that give their calls keys (``sansmcp/reclaim``), as
            those of this library do. False suits a process that ends with each request. ``"store"``
            also keeps keys and responses in the store, by an append before each call and one after
            it, so that any instance that shares the store gives the rest of a call; it needs
            ``shared_store``, ``wall_clock`` and ``state_signer``. See docs/streams.md.
        state_signer: signs the state that handlers save while the client is asked for input. At
            2026-07-28, InputRequired needs it if there is a state, or no input requests. None makes
            adapters create one.
        policy: the hosts and origins that are served; None serves those of this machine only.
            ``SecurityPolicy(allowed_origins=("https://app.example.com",), cors=True)`` lets web
            pages of these origins read the responses, too (CORS).
        limits: bounds of bytes, seconds and counts; None takes the defaults of ``sansmcp.Limits``.
        rate_limit: how many requests a client may send, e.g. ``RateLimit(10, burst=50)``. Each
            principal has its own share, or each address where there is no authentication. What
            exceeds it is refused with status 429 and ``Retry-After`` before anything runs; each
            request of a batch counts, and responses, notifications and cancellations never do.
            Instances that share a store count together, if it can (``sansmcp.RateStore``). None
            sets no bound.
        trusted_proxies: the addresses or networks of proxies, e.g. ``("10.0.0.0/8",)``, that report
            the addresses of clients to ``rate_limit`` in ``X-Forwarded-For``, or in ``Forwarded``
            where the former is missing. The proxies must remove both headers from what clients send
            or add to them. Without it the other end of the connection counts as the client.
        protected_resource: the URL, authorization servers and scopes of a server whose clients get
            access tokens by OAuth 2.1. The server publishes them as protected resource metadata,
            refuses requests in the form that makes clients get a token, and hides the tokens from
            handlers; its ``dpop="required"`` demands tokens that are bound to keys. It needs
            ``authenticate``, which verifies the tokens; docs/authorization.md has examples. None
            publishes nothing.
        http11: the parser of HTTP/1.1 heads on raw sockets, e.g.
            ``sansmcp.httptools_parser.HTTP11``; None takes h11.
        trace: records everything that is sent and received; None: no trace.
        observer: is called with everything that is sent, received and reported; None: none.
    """

    path: str = attrs.field(default="/mcp", validator=_check_path)
    http_sse: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(_check_path)
    )
    health_path: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(_check_path)
    )
    versions: tuple[str, ...] = attrs.field(default=tuple(REVISIONS), converter=checked_versions)
    resumable: bool = True
    shared_store: bool = False
    multi_turn: bool = False
    assume_multi_turn: bool = False
    sessions: bool = True
    standalone_streams: bool = True
    stream_after: float | None = attrs.field(default=None, validator=_check_delay)
    task_after: float | None = attrs.field(default=1.0, validator=_check_delay)
    task_poll_interval: float = attrs.field(default=1.0, validator=_check_interval)
    wall_clock: Callable[[], float] | None = None
    retry: float | None = attrs.field(default=None, validator=_check_retry)
    reclaim: bool | str = attrs.field(default=True, validator=_check_reclaim)
    state_signer: StateSigner | None = attrs.field(
        default=None, validator=instance_of_type((StateSigner, NoneType))
    )
    policy: SecurityPolicy = attrs.field(
        default=None, converter=_policy, validator=instance_of_type(SecurityPolicy)
    )
    limits: Limits = attrs.field(
        default=None, converter=_limits, validator=instance_of_type(Limits)
    )
    rate_limit: RateLimit | None = attrs.field(
        default=None, validator=instance_of_type((RateLimit, NoneType))
    )
    trusted_proxies: tuple[str, ...] = attrs.field(default=(), validator=_check_networks)
    protected_resource: ProtectedResource | None = attrs.field(
        default=None, validator=instance_of_type((ProtectedResource, NoneType))
    )
    http11: Http11Parser | None = None
    trace: Tracer | None = attrs.field(
        default=None, validator=attrs.validators.optional(instance_of_type(Tracer))
    )
    observer: Observer | None = attrs.field(
        default=None, validator=attrs.validators.optional(instance_of_type(Observer))
    )

    def __attrs_post_init__(self) -> None:
        if self.http_sse is not None and not of_era(self.versions, Era.LEGACY):
            raise LocalProtocolError(
                "http_sse needs a handshake revision in versions, 2024-11-05 to 2025-11-25"
            )
        if (self.shared_store or self.offers_multi_turn) and not self.resumable:
            raise LocalProtocolError(
                "shared_store and multi_turn need resumable=True, because they use the store"
            )
        if self.reclaim == "store" and not (
            self.shared_store and self.wall_clock is not None and self.state_signer is not None
        ):
            raise LocalProtocolError(
                "reclaim='store' needs shared_store=True, wall_clock=time.time and a state_signer "
                "that all instances have"
            )
        if self.health_path is not None:
            health = self.health_path.rstrip("/")
            sse = None if self.http_sse is None else self.http_sse.rstrip("/")
            messages = None if sse is None else sse.rpartition("/")[0] + "/messages"
            if health in (self.path.rstrip("/"), sse, messages):
                raise LocalProtocolError(
                    f"health_path must be a path of its own, and {self.health_path!r} is served"
                )
        shares_path = self.http_sse is not None and self.http_sse.rstrip("/") == self.path.rstrip(
            "/"
        )
        if shares_path and not self.sessions:
            raise LocalProtocolError(
                "Without sessions, HTTP+SSE needs a path of its own: on the MCP path, a GET may be "
                "from a client of either transport"
            )

    @property
    def offers_multi_turn(self) -> bool:
        """True if SEP-1858 is offered to any client."""
        return self.multi_turn or self.assume_multi_turn
