"""What a store keeps: logs.

A *stream* is the ordered log of what the server has to say about one client request, or about
nothing in particular (a standalone stream). HTTP responses only read it. Whatever else the
instances of one server have to know of each other is a log, too: the answers to the questions of a
handler, and that a session exists.

The core mints the sequence numbers, so a store is a dumb thing: it appends, reads in pages and
forgets. One promise is all it takes for several instances to agree: of two who append the same
number to a log, only one succeeds. A store is reached by effects (:mod:`sansmcp.effects`), never
called by the core.
"""

from __future__ import annotations

import enum
from typing import Protocol, runtime_checkable

import attrs

from .types import elide, redact


@attrs.frozen(cache_hash=True)
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


class EntryKind(enum.Enum):
    """What an entry is to those who read the log; the values are for stores that write them."""

    MESSAGE = "message"
    BUFFER_INPUT = "buffer_input"
    """The client shall keep its answers until it is told to send them (SEP-1858)."""
    INPUT_REQUIRED = "input_required"
    """It shall send them now. The data is not for the client: it is what the handler needs to be
    entered again.
    """
    TURN = "turn"
    """The same, where the client is not told."""
    OPENED = "opened"
    """The client has been told an id of this log, before any message: so all instances know it."""
    KEPT = "kept"
    """Nothing was said for a while, and the stream goes on. The data, a decimal number, names the
    last entry before it that was of another kind: whoever has read that misses nothing.
    """


@attrs.define
class Entry:
    """One entry of a log.

    Attributes:
        seq: its place, counted from 1 without gaps.
        data: the encoded JSON-RPC message, or what the kind says.
        final: nothing follows: the request of this stream is answered.
        kind: what it is.
    """

    seq: int
    data: bytes = attrs.field(repr=elide)
    final: bool = False
    kind: EntryKind = EntryKind.MESSAGE

    @property
    def waits(self) -> bool:
        """Whether what follows is up to the client, who has been asked for input."""
        return self.kind in (EntryKind.TURN, EntryKind.INPUT_REQUIRED)


@attrs.frozen
class Page:
    """A piece of a log.

    Attributes:
        entries: what follows the place that was asked for, in order; possibly not all of it.
        last: the last entry of the log; a store may leave its data out.
    """

    entries: tuple[Entry, ...]
    last: Entry


@runtime_checkable
class Store(Protocol):
    """A store that works at once: :class:`~sansmcp.memory_store.MemoryStore` and its like.

    The methods are plain functions: what they return is used as it is, and never awaited.

    ``now`` is in seconds, on the clock of the machine; it only serves to let old entries go. A
    clock that jumps forward must not empty the store of what is in use: count a jump as at most a
    third of ``max_stored_age``.

    A store that is full lets the oldest entries of the principal go that uses most of it, and
    within that principal those of the session that uses most.

    A store may have two more attributes:

    * ``is_durable``, a bool: what it keeps outlives the process. Adapters then set ``shared_store``
      by default, so that sessions outlive the process, too. Without the attribute a store is taken
      for one that ends with its process.
    * ``secret``, 32 random bytes, the same for all who use what is stored: the adapters' default
      key of the seal.
    """

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> bool:
        """Add entries to the end of a log, all or none of them, and create it if need be.

        Returns False, and adds nothing, where the first of them is not the next of a log that there
        is: somebody else was faster.
        """
        ...

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        """What follows ``after``, or None where there is no such log.

        At most ``limit`` entries, and ``max_bytes`` unless the first alone has more.
        """

    def drop(self, principal: str, session: str) -> None:
        """Forget all logs of a session."""


def aged(before: float | None, now: float, max_stored_age: float) -> float:
    """Return how many seconds older stored entries have become since the clock said ``before``.

    That is at most a third of ``max_stored_age``, and never below zero: a clock that is put forward
    by an hour does not take along what is in use, and one that is put back does not keep it for
    ever.
    """
    if before is None:
        return 0.0
    return min(max(now - before, 0.0), max_stored_age / 3)
