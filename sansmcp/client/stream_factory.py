"""Makes the streams of a client, as its settings and the revision in use want them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs

from ..meta_keys import LISTEN
from .connections import Connections
from .message_encoder import MessageEncoder
from .outcomes import Kind
from .request import PendingRequest
from .stream import SHARED, Stream, StreamKind

if TYPE_CHECKING:
    from .legacy.cursor import Cursor

_REQUEST: Final = StreamKind.REQUEST
_KEYED: Final = StreamKind.KEYED


@attrs.define(eq=False, repr=False)
class StreamFactory:
    """Makes streams: of requests, and those that belong to none."""

    _encoder: MessageEncoder
    """It has the settings, and what was negotiated."""
    _jitter: Callable[[], float]
    _cursor: type[Cursor] | None = attrs.field(default=None, init=False)
    """None before the first stream that can be resumed."""

    def for_request(self, request: PendingRequest) -> Stream:
        """Return a stream for the response to a request."""
        kind = _REQUEST
        if request.key is not None:
            kind = _KEYED
        elif request.method == LISTEN and request.kind is not Kind.LISTENER:
            kind = StreamKind.SUBSCRIPTION
        options, cursor = self._encoder.options, self._new_cursor()
        can_be_silent = cursor is None and kind is _REQUEST
        return Stream(
            request.number,
            Connections(options.reconnect, self._jitter),
            cursor,
            request.options.idempotent and request.key is None,
            idle_limit(request, options.limits.stream_idle_timeout),
            kind,
            None if can_be_silent else -math.inf,
        )

    def standalone(self) -> Stream:
        """Return a stream for messages that belong to no request."""
        return self._shared(self._new_cursor(), StreamKind.STANDALONE)

    def session(self) -> Stream:
        """Return the stream of a session of HTTP+SSE, which carries all messages."""
        return self._shared(None, StreamKind.SESSION)

    def _shared(self, cursor: Cursor | None, kind: StreamKind) -> Stream:
        options, can_restart = self._encoder.options, cursor is not None
        limit = options.limits.stream_idle_timeout
        connections = Connections(options.reconnect, self._jitter)
        return Stream(SHARED, connections, cursor, can_restart, limit, kind, -math.inf)

    def _new_cursor(self) -> Cursor | None:
        """Return where a new stream begins; None if it cannot be resumed at this revision."""
        if not self._encoder.agreed.revision.resumption:
            return None
        if self._cursor is None:
            from .legacy.cursor import Cursor  # only here, so that the folder can be deleted

            self._cursor = Cursor
        return self._cursor(self._encoder.options.limits.max_seen_event_ids)


def idle_limit(request: PendingRequest, most: float) -> float:
    """Return how many seconds the stream of a request may be silent, at most ``most``.

    It is at most three quarters of the time of a call, so that some is left after a silence.
    """
    timeouts = request.timeouts
    if timeouts is None or timeouts.open_requests or request.method == LISTEN:
        return most
    return timeouts.part(3 / 4, most)
