"""Where a client is in a stream that can be resumed.

A cursor outlives the connections of its stream. It keeps the id of the last event, which a GET
names to ask for what follows, and the ids of the events seen, because servers repeat events.

Source: 2025-11-25 basic/transports: Resumability and Redelivery; WHATWG HTML, 9.2.
"""

from __future__ import annotations

import attrs

from ...codecs.sse import SseEvent
from ...errors import RemoteProtocolError

_MAX_EVENT_ID_CHARS = 2048
"""A longer one would not fit into the header that brings it back."""


@attrs.define(eq=False, repr=False)
class Cursor:
    """The position in one stream."""

    _max_seen: int
    """Event ids that are remembered at most."""
    last_event_id: str = attrs.field(default="", init=False)
    """"" if nothing can be resumed."""
    has_progress: bool = attrs.field(default=False, init=False)
    """True if something new has come since this was set to False."""
    _seen: dict[str, None] | None = attrs.field(default=None, init=False)
    """The ids of messages that were accepted, oldest first; None before the first."""

    def accept(self, event: SseEvent) -> RemoteProtocolError | bool:
        """Record an event.

        Returns True if what it carries is new, False if an event of that id was accepted before,
        and an error if its id is too long to be used; then the position is not changed.
        """
        if event.id is not None and len(event.id) > _MAX_EVENT_ID_CHARS:
            self.has_progress = True
            return RemoteProtocolError("An event id is too long to be used", reason="bad_event_id")
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
