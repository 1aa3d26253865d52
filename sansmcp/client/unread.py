"""What a server sent that is no message, or a message for no request, to be quoted in errors.

A call that ends without its response then shows what came instead: a text that the server printed,
the error of a gateway in an event, an error without an id.
"""

from __future__ import annotations

from collections import deque

import attrs

from ..codecs.sse import SseEvent

_KEPT = 20
_QUOTED = 3
"""The most texts in one error; the latest ones."""
_MAX_CHARS = 200


@attrs.define(eq=False, repr=False)
class Unread:
    """The latest of these texts."""

    _texts: deque[tuple[float, int | None, str]] = attrs.field(
        factory=lambda: deque[tuple[float, int | None, str]](maxlen=_KEPT), init=False
    )
    """Each with its time, and the number of the request on whose stream it came."""

    def add(self, text: bytes | str, owner: int | None, now: float) -> None:
        """Record a text. ``owner``: the request on whose stream it came; None for a shared one."""
        shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        shown = " ".join(shown[:_MAX_CHARS].split())
        if shown and (not self._texts or self._texts[-1][1:] != (owner, shown)):
            self._texts.append((now, owner, shown))

    def add_event(self, event: SseEvent, owner: int | None, now: float) -> None:
        """Record an event that is no message, such as an error of a gateway."""
        if event.data:
            self.add(f"{event.event}: {event.data}", owner, now)

    def quotes(self, owner: int, since: float) -> tuple[str, ...]:
        """Return the latest texts for a request, from a time on."""
        found = [text for now, each, text in self._texts if now >= since and each in (None, owner)]
        return tuple(found[-_QUOTED:])
