"""The inbox of a session: what other instances leave for the one that writes its standalone stream.

A handler can run at any instance. What it tells the client outside of its call, and what the client
subscribes to there, is appended to a log of the session. The instance that writes the standalone
stream follows that log. If there is none, messages wait in the log until the client opens a stream.

A message and its number go into the standalone stream with one append, so whoever continues that
stream knows which came last. For a new stream, the writer also notes in the inbox which messages
are stored in a stream.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import attrs

from ...codecs import json
from ...store import StreamKey
from .shared_logs import SharedLog
from .stream_table import StreamTable

INBOX = ".notify"
"""The name of the log. No stream has this name, because tokens contain no point."""

_MESSAGE, _SUBSCRIBED, _UNSUBSCRIBED, _ALL_SUBSCRIBED, _TAKEN = b"m", b"s", b"u", b"a", b"t"
"""What the data of an entry begin with: its kind."""


class Receiver(Protocol):
    """The session of an inbox."""

    subscriptions: set[str]

    @property
    def writes_standalone(self) -> bool:
        """True if a standalone stream of the session is written here."""
        ...

    @property
    def has_stored_all(self) -> bool:
        """True if the store has all messages of the standalone streams."""
        ...

    @property
    def drops_messages(self) -> bool:
        """True if too many messages of the standalone stream wait for the store."""
        ...

    def forward(self, data: bytes | None, log: str, seq: int | None) -> None:
        """Send a message of a shared log to the client, if it listens to this instance."""


@attrs.define(eq=False, repr=False)
class Inbox:
    """The inbox of one session, as this instance adds to it or follows it."""

    _table: StreamTable
    _key: StreamKey
    _receiver: Receiver
    _log: SharedLog = attrs.field(init=False)
    _waiting: dict[int, bytes] = attrs.field(factory=dict[int, bytes], init=False)
    """The messages that were read, until the end of the log is reached: a later entry may say that
    some were taken before.
    """
    _place: int | None = attrs.field(default=0, init=False)
    """The number of the last message that is in the stream which this instance has continued. None
    once the end of the log was reached: the messages after it were not taken before.
    """
    _taken: int = attrs.field(default=0, init=False)
    """The number of the last message that is in a standalone stream."""
    _noted: int = attrs.field(default=0, init=False)
    """The same, as noted in the log."""
    _has_dropped: bool = attrs.field(default=False, init=False)
    """True if the last message was dropped. Another instance that continues the stream sends it,
    unless a later message of the log is in the stream.
    """
    _saved_at: float = attrs.field(default=-math.inf, init=False)
    """When all subscriptions were last appended."""

    def __attrs_post_init__(self) -> None:
        self._log = SharedLog(self._table, self._key, self._found, self._on_end)

    @property
    def is_forwarded(self) -> bool:
        """True if no message of this instance, or known to be in the log, is still to be sent."""
        has_unsent = self._place is not None or self._waiting or self._has_dropped
        return not (has_unsent or self._log.has_pending(_MESSAGE))

    def add_message(self, data: bytes) -> bool:
        """Leave a message. Returns False if too many wait for the store."""
        return self._log.add(_MESSAGE + data)

    @property
    def is_awaited(self) -> bool:
        """True if responses wait until subscriptions are stored."""
        return self._log.is_awaited

    def subscribe(self, uri: str, on_stored: Callable[[bool], object], *, ends: bool) -> bool:
        """Tell of a subscription to a resource, or its end.

        ``on_stored`` is called when that is stored, with False if the store has failed. Returns
        False if it is not stored, because too many entries wait for the store.
        """
        kind = _UNSUBSCRIBED if ends else _SUBSCRIBED
        return self._log.add(kind + uri.encode(), on_stored=on_stored)

    def follow(self, taken: int) -> None:
        """Forward the messages after a number: this instance writes the standalone stream."""
        if not self._log.is_followed:
            self._place, self._taken, self._noted = taken, 0, 0
            self._has_dropped = False
            self._saved_at = self._table.core.now
            self._waiting.clear()
            self._log.follow(after=0)

    def end(self, *, is_deleted: bool) -> None:
        """Follow the log no more, because the session has ended here."""
        if is_deleted:
            self._log.close()
        else:
            self._log.leave()

    def _found(self, seq: int | None, data: bytes) -> None:
        kind, rest = data[:1], data[1:]
        if kind == _MESSAGE and seq is None:
            self._receiver.forward(rest, INBOX, None)
        elif kind == _MESSAGE and seq is not None:
            self._waiting[seq] = rest
        elif kind == _TAKEN:
            self._taken = self._noted = int(rest)
        elif kind == _SUBSCRIBED:
            self._receiver.subscriptions.add(rest.decode())
        elif kind == _UNSUBSCRIBED:
            self._receiver.subscriptions.discard(rest.decode())
        else:
            assert kind == _ALL_SUBSCRIBED, "instances append no other entries"
            self._receiver.subscriptions.update(json.decode(rest, max_depth=2))

    def _on_end(self) -> None:
        """Forward what has been read, unless another instance writes the stream by now."""
        if not self._receiver.writes_standalone:
            self._log.leave()
            return
        before = 0
        if self._place is not None:
            is_of_this_log = self._place <= (self._log.cursor or 0)  # else it was begun anew since
            before = max(self._place, self._taken) if is_of_this_log else self._taken
            self._place = None
        for seq, message in self._waiting.items():
            if seq > before:
                self._has_dropped = self._receiver.drops_messages
                self._receiver.forward(message, INBOX, seq)
                self._taken = seq
        self._waiting.clear()
        core = self._table.core
        if self._taken != self._noted and self._receiver.has_stored_all:
            self._noted = self._taken
            self._log.add(_TAKEN + b"%d" % self._taken)
        if core.now - self._saved_at > core.refresh_interval and self._receiver.subscriptions:
            self._saved_at = core.now  # the store evicts old entries
            self._log.add(_ALL_SUBSCRIBED + json.encode(sorted(self._receiver.subscriptions)))
