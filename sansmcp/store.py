"""What a store keeps: the logs of streams.

A *stream* is the ordered log of what the server has to say about one client request, or about
nothing in particular (a standalone stream). HTTP responses only read it. The core mints the
sequence numbers, so a store is a dumb
thing: it appends, reads in pages and forgets. It is reached by effects (:mod:`sansmcp.effects`),
    never called by the core.
"""

from __future__ import annotations

from typing import Protocol

import attrs

from .types import elide, redact


@attrs.frozen
class StreamKey:
    """The name of a log. Session and principal are part of it: nobody reads what is another's.

    Attributes:
        principal: who is served; empty without authentication.
        session: the session id; empty without sessions.
        stream: the stream's own unguessable token.
    """

    principal: str
    session: str = attrs.field(repr=redact)
    stream: str = attrs.field(repr=redact)


@attrs.frozen
class Entry:
    """One message in a log.

    Attributes:
        seq: its place, counted from 1 without gaps.
        data: the encoded JSON-RPC message.
        final: nothing follows: the request of this stream is answered.
    """

    seq: int
    data: bytes = attrs.field(repr=elide)
    final: bool = False


@attrs.frozen
class Page:
    """A piece of a log.

    Attributes:
        entries: what follows the place that was asked for, in order; possibly not all of it.
        last_seq: the highest sequence number in the log.
    """

    entries: tuple[Entry, ...]
    last_seq: int


class Store(Protocol):
    """A store that works at once: :class:`~sansmcp.memory.MemoryStore` and its like.

    ``now`` is in seconds, on the clock of the machine; it only serves to let old messages go.
    """

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> None:
        """Add messages to the end of a log, and create it if need be."""

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        """What follows ``after``, or None where there is no such log.

        At most ``limit`` messages, and ``max_bytes`` unless the first alone has more.
        """

    def drop(self, principal: str, session: str) -> None:
        """Forget all logs of a session."""
