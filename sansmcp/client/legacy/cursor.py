"""The position of a client in a resumable stream.

A cursor outlives the connections of its stream. It keeps the id of the last event, for the
``Last-Event-ID`` of the next GET, and the ids of the events received, since servers repeat events.

Source: 2025-11-25 basic/transports: Resumability and Redelivery; WHATWG HTML, 9.2.
"""

from __future__ import annotations

import attrs

from ...codecs.sse import SseEvent
from ...errors import RemoteProtocolError

_MAX_EVENT_ID_CHARS = 2048
"""A longer id might not fit into the header ``Last-Event-ID``."""


@attrs.define(eq=False, repr=False)
class Cursor:
    """The position in one stream."""

    _max_seen: int
    """The number of event ids to remember."""
    last_event_id: str = attrs.field(default="", init=False)
    """The id of the last event; "" if the stream cannot be resumed."""
    has_progress: bool = attrs.field(default=False, init=False)
    """True if a new event id or message has arrived since this was set to False."""
    _seen: dict[str, None] | None = attrs.field(default=None, init=False)
    """The ids of messages that were accepted, oldest first; None before the first."""

    def accept(self, event: SseEvent) -> RemoteProtocolError | bool:
        """Record an event.

        Returns True if it is new, False if an event with this id was accepted before, and an error
        if its id is too long. The error leaves the position unchanged.
        """
        if event.id is not None and len(event.id) > _MAX_EVENT_ID_CHARS:
            self.has_progress = True
            return RemoteProtocolError(
                f"An event id is longer than {_MAX_EVENT_ID_CHARS} characters",
                reason="bad_event_id",
            )
        if event.last_event_id != self.last_event_id:
            self.last_event_id = event.last_event_id
            self.has_progress = True
        if not event.data or event.event != "message":
            return True
        if self._seen is None:
            self._seen = {}
        if event.id in self._seen:
            return False
        self.has_progress = True
        if event.id:
            self._seen[event.id] = None
            if len(self._seen) > self._max_seen:
                del self._seen[next(iter(self._seen))]
        return True
