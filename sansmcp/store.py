"""Stores keep logs.

A *stream* is the ordered log of the server's messages about one client request, or about none (a
standalone stream). HTTP responses only read it. Everything else that the instances of one server
share is also a log: the responses to server requests, and the existence of a session.

The core assigns the sequence numbers. A store only appends, reads in pages and deletes. For several
instances to agree it must keep one promise: if two append the same number to a log, only one
succeeds. The core never calls a store; it emits effects (:mod:`sansmcp.effects`).

The reply to an append can be lost although the append was done. So each append has a token, and a
store recognises an append that is repeated with the same token.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import attrs

from .types import Value, elide, redact


@attrs.frozen(cache_hash=True)
class StreamKey:
    """The name of a log. It includes session and principal, so that no client reads another's log.

    Attributes:
        principal: the authenticated user; empty without authentication.
        session: the session id; empty without sessions.
        stream: the stream's own unguessable token.
    """

    principal: str
    session: str = attrs.field(repr=redact)
    stream: str = attrs.field(repr=redact)


class EntryKind(enum.Enum):
    """The meaning of an entry for the readers of its log. A store can save the values."""

    MESSAGE = "message"
    BUFFER_INPUT = "buffer_input"
    """The client must keep its input responses until they are requested (SEP-1858)."""
    INPUT_REQUIRED = "input_required"
    """The client must send them now. The data is not sent to it: it is what the server needs to
    call the handler again.
    """
    TURN = "turn"
    """The same, without a message to the client."""
    OPENED = "opened"
    """The client has an event id of this log, before any message; all instances read that here."""
    KEPT = "kept"
    """No message was sent for some time, and the stream continues. The data begin with a decimal
    number, that of the last entry of another kind: a reader that has it has missed no message. A
    space and the data of an entry WRITER may follow.
    """
    FORWARDED = "forwarded"
    """A message that the writer has found in another log. The data begin with a line that names
    that log and the number of the entry there; the message follows.
    """
    WRITER = "writer"
    """Another instance writes the log from here on. The data names it; no client sees the entry."""
    UNKNOWN = "unknown"
    """A kind that only a later version knows. A store returns it for any value that is none of
    these, and this version refuses the log from there on.
    """

    @classmethod
    def _missing_(cls, value: object) -> EntryKind:
        return cls.UNKNOWN


@attrs.define
class Entry:
    """One entry of a log.

    Attributes:
        seq: its sequence number, counted from 1 without gaps.
        data: the encoded JSON-RPC message, or what ``kind`` defines.
        final: True for the last entry: the response to the request of this stream.
        kind: the meaning of the entry.
    """

    seq: int
    data: bytes = attrs.field(repr=elide)
    final: bool = False
    kind: EntryKind = EntryKind.MESSAGE

    @property
    def waits(self) -> bool:
        """True if the log continues only after the client has sent input responses."""
        return self.kind in (EntryKind.TURN, EntryKind.INPUT_REQUIRED)


@attrs.frozen(eq=False, repr=False)
class Page(Value):
    """A piece of a log.

    Attributes:
        entries: entries after the requested number, in order; not necessarily all of them.
        last: the last entry of the log; a store can leave its data empty.
    """

    entries: tuple[Entry, ...]
    last: Entry


class AppendResult(enum.Enum):
    """What a store did with an append."""

    STORED = "stored"
    """Every later reader finds the entries; also if they were appended before, by this append."""
    CONFLICT = "conflict"
    """Nothing was appended: the log has an entry with the number of the first one, and another
    append has made it.
    """
    BEHIND = "behind"
    """Nothing was appended: the log ends before the number that precedes the first one. The store
    has lost entries that it had acknowledged, for instance with the disk of a machine.
    """


@runtime_checkable
class Store(Protocol):
    """A synchronous store that works at once, such as :class:`~sansmcp.memory_store.MemoryStore`.

    The methods are plain functions, called in the thread of the event loop: they must not block.
    A store that waits for a disk or a network is an :class:`AsyncStore`.

    ``now`` is in seconds, on the machine's clock, and serves only to discard old entries. Count a
    jump of that clock as at most a third of ``max_stored_age``, so that it does not discard entries
    in use; :func:`aged` does that.

    If the store is full, it discards the oldest entries of the principal that uses most of it, and
    within that principal those of the session that uses most.

    A store can have two more attributes:

    * ``is_durable``, a bool: True if its content outlives the process. Adapters then set
      ``shared_store`` by default, so that sessions also outlive the process. Without the attribute
      it counts as False.
    * ``secret``, 32 random bytes, the same in all processes that share the content: the adapters'
      default key of the StateSigner.
    """

    def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        """Append entries to a log, all or none of them. Create the log if it does not exist.

        A log that does not exist may begin with any number.

        Args:
            key: the log.
            entries: one or more, numbered without gaps.
            token: a name of this append that no other append has. If the last append to the log
                came with this token and the same first number, this one repeats it because its
                outcome was unknown: return ``STORED``, and append nothing.
            now: the current time in seconds, on the machine's clock.
        """
        ...

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        """Return the entries that follow number ``after``, or None if the log does not exist.

        Return at most ``limit`` entries and ``max_bytes`` bytes of data; the first entry may be
        larger.
        """

    def drop(self, principal: str, session: str) -> None:
        """Delete all logs of a session."""


@runtime_checkable
class AsyncStore(Protocol):
    """An asynchronous store: its methods are ``async def``, and do what those of :class:`Store` do.

    A driver performs the effects of one log in their order, and those of different logs at the same
    time. A method that is cancelled may have done its work, or not.

    The attributes ``is_durable`` and ``secret`` mean the same.
    """

    async def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        """Append entries to a log; see :meth:`Store.append`."""
        ...

    async def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        """Return the entries that follow number ``after``; see :meth:`Store.read`."""

    async def drop(self, principal: str, session: str) -> None:
        """Delete all logs of a session."""


@runtime_checkable
class WatchableStore(Protocol):
    """The part of a store, synchronous or not, that tells of changes. A store can do without.

    Without it, instances read the logs that others write every ``Limits.store_poll_interval``.
    """

    def watch(self, key: StreamKey, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed()`` when a log may have new entries, or be deleted. Return at once.

        Call it, from any thread, after each append to the log and each drop of its session by any
        instance; once when the watch works, since the log may have changed before; and once after
        each time for which the store was out of reach. One call for several changes is enough, and
        a call without a change does no harm. The log is then read.

        Returns:
            A function that ends the watch.
        """
        ...


def aged(before: float | None, now: float, max_stored_age: float) -> float:
    """Return how many seconds older stored entries have become from ``before`` to ``now``.

    The result is at most a third of ``max_stored_age``, and never below zero. So a clock that is
    put forward by an hour does not discard entries in use, and one that is put back does not keep
    entries for ever.
    """
    if before is None:
        return 0.0
    return min(max(now - before, 0.0), max_stored_age / 3)
