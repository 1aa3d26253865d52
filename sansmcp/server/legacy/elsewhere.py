"""What comes to one instance of a server and is meant for another.

A handler that runs is at one instance, and so is what it asks and waits for. The client's answer,
or its cancellation, may come to any. The instance to which it comes does not know who waits for it,
so it leaves it in the store: in a log of one entry, named after what it is about. Whoever may be
waiting looks there every ``follow_interval``.

Source: 2025-03-26 to 2025-11-25, basic/transports: Sending Messages to the Server, basic/utilities:
cancellation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from ...codecs import json, jsonrpc
from ...effects import StoreAppend, StoreEffect, StoreRead
from ...messages import Message, Notification, RequestId
from ...store import Entry, Page, StreamKey
from ...timers import Timer
from ..exchange import ServerExchange
from .logs import StreamTable, store_failed


def cancellation_log(id: RequestId) -> str:
    """Where the cancellation of a request is left. No stream has such a name: it has points."""
    return f".cancelled.{json.encode(id).decode()}"


def answer_log(id: int) -> str:
    """Where the answer to a question is left."""
    return f".answer.{id}"


def reason_of(cancellation: Notification) -> str:
    """Why a request is cancelled, as the client says."""
    reason = (cancellation.params or {}).get("reason")
    return reason if isinstance(reason, str) else "cancelled by the client"


@attrs.define(eq=False)
class Left:
    """A message that is left in the store. The first one counts."""

    _exchange: ServerExchange | None
    """That which has brought it; None: nothing waits."""

    def stored(self) -> None:
        """It can be found."""
        if self._exchange is not None and not self._exchange.is_done:
            self._exchange.reply(202)

    def overtaken(self) -> None:
        """There is one already."""
        self.stored()

    def replayed(self, effect: StoreRead, page: Page | None) -> None:
        """Nothing is read."""

    def failed(self, effect: StoreEffect) -> bool:
        """The client may send it again."""
        if self._exchange is not None and not self._exchange.is_done:
            self._exchange.refuse(store_failed())
        return True


def leave(
    table: StreamTable, key: StreamKey, message: Message, exchange: ServerExchange | None
) -> None:
    """Leave a message in the store, and answer the exchange that has brought it."""
    entries = (Entry(1, jsonrpc.encode(message)),)
    table.put(StoreAppend(stream=key, entries=entries), Left(exchange))


@attrs.define(eq=False)
class Watch:
    """Looks for a message that may be left in the store, for as long as it is wanted."""

    _table: StreamTable
    _key: StreamKey
    _is_wanted: Callable[[], bool]
    _found: Callable[[Any], None]
    """Is given the message."""

    def wait(self) -> None:
        """Look after a while."""
        if self._is_wanted():
            core = self._table.core
            core.timers.set(Timer.FOLLOW, self, core.now + core.limits.follow_interval)

    def look(self) -> None:
        """See whether it is there."""
        if self._is_wanted():
            most = self._table.limits.stored_bytes
            read = StoreRead(stream=self._key, after=0, limit=1, max_bytes=most)
            self._table.put(read, self)

    def stored(self) -> None:
        """Nothing is written."""

    def overtaken(self) -> None:
        """Nothing is written."""

    def replayed(self, effect: StoreRead, page: Page | None) -> None:
        """The store has told."""
        if page is None:
            self.wait()
        elif self._is_wanted():
            self._found(jsonrpc.decode(page.entries[0].data, self._table.limits))

    def failed(self, effect: StoreEffect) -> bool:
        """Perhaps the next time."""
        self.wait()
        return True
