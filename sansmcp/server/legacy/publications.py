"""Publications: what ``publish()`` tells the clients of all instances that share a store.

All instances append to one log, and each follows it and notifies the clients that listen to it. So
there is one order for all. An instance begins to follow the log at the end that it has at the first
request.

Without a shared store, a publication goes to the clients of this instance at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from ...codecs import jsonrpc
from ...messages import Notification, Params
from ...store import StreamKey
from .shared_logs import SharedLog
from .stream_table import StreamTable

_KEY = StreamKey("", ".publish", "log")
"""The log. No session has this id, because tokens contain no point."""

PassOn: TypeAlias = Callable[["int | None", str, Params], None]
"""A function that notifies the clients of this instance: number, method, parameters.

The number is that of the entry of the log; None if there is none.
"""


@attrs.define(eq=False, repr=False)
class Publications:
    """The log of publications, as this instance adds to it and follows it."""

    _table: StreamTable
    _pass_on: PassOn
    log: SharedLog = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.log = SharedLog(self._table, _KEY, self._found)

    def follow(self) -> None:
        """Follow the log from now on, if instances share the store."""
        if self._table.core.options.shared_store and not self._table.core.has_stopped:
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
        message = jsonrpc.decode(data, self._table.limits)
        assert isinstance(message, Notification)
        self._pass_on(seq, message.method, message.params or {})
