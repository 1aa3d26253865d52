"""Publications: what ``publish()`` tells the clients of all instances that share a store.

All instances append to one log, and each follows it and notifies the clients that listen to it. So
there is one order for all. An instance begins to follow the log at the end that it has at the first
request.

A standalone stream keeps the number of the last publication in its log. So if another instance
continues it, that one sends what is missing first.

Without a shared store, a publication goes to the clients of this instance at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from ...codecs import jsonrpc
from ...messages import Notification, Params
from ...store import StreamKey
from ..procedures import Procedure, Steps, read
from .shared_logs import SharedEntry, SharedLog
from .stream_table import StreamTable

_KEY = StreamKey("", ".publish", "log")
"""The log. No session has this id, because tokens contain no point."""

PassOn: TypeAlias = Callable[["int | None", str, Params], None]
"""A function that notifies the clients of this instance: number, method, parameters.

The number is that of the entry of the log; None if there is none.
"""

PassOnTo: TypeAlias = Callable[[tuple[str, str], int, str, Params], None]
"""A function that notifies one session, by principal and id."""


@attrs.define(eq=False, repr=False)
class Publications:
    """The log of publications, as this instance adds to it and follows it."""

    _table: StreamTable
    _pass_on: PassOn
    _pass_on_to: PassOnTo
    log: SharedLog = attrs.field(init=False)
    behind: dict[tuple[str, str], Procedure] = attrs.field(
        factory=dict[tuple[str, str], Procedure], init=False
    )
    """The sessions, by principal and id, that get former publications first."""

    def __attrs_post_init__(self) -> None:
        self.log = SharedLog(self._table, _KEY, self._found)

    @property
    def cursor(self) -> int | None:
        """The number of the last publication that was passed on; None if it is not known."""
        return self.log.cursor

    def catch_up(self, key: StreamKey, place: int) -> None:
        """Pass the publications after a number on to the session of a stream.

        Those that are found meanwhile are passed on to it afterwards.
        """
        session = (key.principal, key.session)
        if (earlier := self.behind.get(session)) is not None:
            earlier.close()  # this instance has lost the stream meanwhile
        steps = self._catch_up(session, place)
        self.behind[session] = catch_up = Procedure(self._table.logs, steps, lambda: True)
        catch_up.start()

    def _catch_up(self, session: tuple[str, str], place: int) -> Steps[None]:
        """Pass on what others here have got already; the session gets the rest with them."""
        limit, most = self._table.limits.replay_page_entries, self._table.limits.max_unsent_bytes
        try:
            while True:
                page = yield from read(_KEY, place, limit, most)
                entries = page.entries if page is not None else ()
                cursor = self.cursor
                for entry in entries:
                    if cursor is None or entry.seq <= cursor:
                        message = self._decode(SharedEntry.decode(entry.data).data)
                        params = message.params or {}
                        self._pass_on_to(session, entry.seq, message.method, params)
                        place = entry.seq
                if not entries or cursor is None or entries[-1].seq >= cursor:
                    return
        finally:
            self.behind.pop(session, None)

    def follow(self) -> None:
        """Follow the log from now on."""
        if not self._table.core.has_stopped:
            self.log.follow()

    def leave(self) -> None:
        """Follow the log no more, because the server stops."""
        self.log.leave()

    def publish(self, method: str, params: Params) -> None:
        """Notify the clients of all instances.

        If the store is so far behind that too many publications wait, notify those of this one.
        """
        if self._table.core.options.shared_store:
            self.follow()
            if self.log.add(jsonrpc.encode(Notification(method, params or None)), coalesce=True):
                return
        self._pass_on(None, method, params)

    def _found(self, seq: int | None, data: bytes) -> None:
        message = self._decode(data)
        self._pass_on(seq, message.method, message.params or {})

    def _decode(self, data: bytes) -> Notification:
        message = jsonrpc.decode(data, self._table.limits)
        assert isinstance(message, Notification)
        return message
