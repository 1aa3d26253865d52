"""The settings of a server: what can be set, what it means, its default, and what is refused.

A setting is written in :class:`ServerOptions`, and its name and type once more in
:class:`ServerSettings`, for the signatures of what takes settings; a test compares the two.
"""

from __future__ import annotations

import math
import re
from types import NoneType
from typing import Any, TypedDict

import attrs

from ..errors import LocalProtocolError, check_delay, instance_of_type
from ..http11_parser import Http11Parser
from ..input_required import StateSigner
from ..limits import Limits
from ..revisions import REVISIONS, checked_versions, of_era
from ..security import SecurityPolicy
from ..trace import Tracer
from ..types import Era

_PATH = re.compile(r"/[!-\"$->@-~]*")


class ServerSettings(TypedDict, total=False):
    """The keyword arguments that make :class:`ServerOptions`, which explains them."""

    path: str
    http_sse: str | None
    versions: tuple[str, ...]
    resumable: bool
    shared_store: bool
    multi_turn: bool
    assume_multi_turn: bool
    sessions: bool
    standalone_streams: bool
    stream_after: float | None
    retry: float | None
    state_signer: StateSigner | None
    policy: SecurityPolicy | None
    limits: Limits | None
    http11: Http11Parser | None
    trace: Tracer | None


def _check_path(options: object, attribute: attrs.Attribute[Any], path: object) -> None:
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise LocalProtocolError(f"Not a path like '/mcp': {path!r}")


def _check_delay(
    options: object, attribute: attrs.Attribute[float | None], seconds: float | None
) -> None:
    check_delay(**{attribute.name: seconds})


def milliseconds_of(retry: float | None) -> int | None:
    """Return the value of the SSE field ``retry``. Raises LocalProtocolError for what is none."""
    check_delay(retry=retry)
    if retry == math.inf:
        raise LocalProtocolError("retry must be finite; None leaves the wait to the client")
    return None if retry is None else round(retry * 1000)


def _check_retry(options: object, attribute: object, retry: float | None) -> None:
    milliseconds_of(retry)


def _policy(given: SecurityPolicy | None) -> SecurityPolicy:
    return SecurityPolicy() if given is None else given


def _limits(given: Limits | None) -> Limits:
    return Limits() if given is None else given


@attrs.frozen(kw_only=True)
class ServerOptions:
    """The settings of a server, checked. All have defaults.

    :class:`sansmcp.Server` takes them as keyword arguments, and so does whatever serves in an
    adapter: ``serve(app, path="/mcp", sessions=False)``.

    Raises LocalProtocolError for settings that make no sense, alone or together.

    Attributes:
        path: the path of the MCP endpoint.
        http_sse: the path where clients of 2024-11-05 open their event stream, e.g. ``"/sse"``
            (they POST to ``/messages`` beside it); it may be the same as ``path``. None: that
            transport is not served.
        versions: the protocol versions to serve, oldest first.
        resumable: keep what is sent on streams in a store, so that clients can resume them after
            their connection was lost. A bare :class:`sansmcp.Server` asks its driver for that by
            effects; adapters have a store. False: nothing is kept.
        shared_store: other instances of this server use the same store, so any of them may get
            the next request of a session.
        multi_turn: offer SEP-1858, an experiment, to clients of 2025-11-25 that name the
            experimental capability ``sansmcp/multi-turn-sse``, too: they send all answers to an
            InputRequired at once, and the call goes on in the response to that.
        assume_multi_turn: the same, but with all clients of 2025-11-25, whether or not they name
            the capability. That is the gate of the proposal itself. Set it only where you know all
            clients: any other would wait for ever.
        sessions: give clients of the handshake revisions a session. Without, every request stands
            alone, and these clients cannot be asked anything.
        standalone_streams: offer standalone event streams (GET) for what belongs to no request.
        stream_after: seconds after which a request that is not answered gets an event stream
            instead of JSON; 0: at once, even if it is answered in the same step. None: where the
            client can resume the stream before it has read a message (2025-11-25, with a store), as
            soon as the handler has not answered in the same step; elsewhere after 0.05 s.
            App.handler() takes it for one method. A call that is not answered yet can be resumed
            only once it has a stream, which costs a write to the store and a few hundred bytes;
            docs/streams.md has the trade.
        retry: seconds after which clients shall come back to a stream that has ended or broken (the
            SSE field of that name), sent at the beginning of each stream that can be resumed; None
            leaves it to the clients.
        state_signer: seals what handlers save while the client is asked for input; at 2026-07-28
            InputRequired with a state, or without questions, needs it. Adapters make one if none is
            set.
        policy: which hosts and origins are served; None: those of this machine only.
        limits: bounds of bytes, seconds and counts; None: the defaults of :class:`sansmcp.Limits`.
        http11: what reads heads of HTTP/1.1 on raw sockets, e.g.
            ``sansmcp.httptools_parser.HTTP11``; None: h11.
        trace: is told everything that is sent and received.
    """

    path: str = attrs.field(default="/mcp", validator=_check_path)
    http_sse: str | None = attrs.field(
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
    retry: float | None = attrs.field(default=None, validator=_check_retry)
    state_signer: StateSigner | None = attrs.field(
        default=None, validator=instance_of_type((StateSigner, NoneType))
    )
    policy: SecurityPolicy = attrs.field(
        default=None, converter=_policy, validator=instance_of_type(SecurityPolicy)
    )
    limits: Limits = attrs.field(
        default=None, converter=_limits, validator=instance_of_type(Limits)
    )
    http11: Http11Parser | None = None
    trace: Tracer | None = None

    def __attrs_post_init__(self) -> None:
        if self.http_sse is not None and not of_era(self.versions, Era.LEGACY):
            raise LocalProtocolError("HTTP+SSE needs a version that opens with initialize")
        if (self.shared_store or self.offers_multi_turn) and not self.resumable:
            raise LocalProtocolError("This needs a store that is used: set resumable")
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
        """True if SEP-1858 is offered, to whichever clients."""
        return self.multi_turn or self.assume_multi_turn
