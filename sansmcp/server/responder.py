"""The HTTP response to a POST: JSON or an event stream, at every revision.

The form is chosen late. If the handler responds in the step in which the call arrived (it awaits
nothing), the response is plain JSON, however large. It becomes an event stream as soon as there is
a message before the result, or if there is no result after ``stream_after`` seconds. If the client
can resume the stream as soon as it has begun, the default is to open it at once: with a timer that
is due now, which the driver handles after everything else.

Source: 2025-03-26 to 2026-07-28, basic/transports: Sending Messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final

from ..codecs.headers import Headers
from ..http import RequestHead
from ..timers import Timer
from .core import ServerCore
from .exchange import ServerExchange

_STREAM_OPEN: Final = Timer.STREAM_OPEN

_STREAM_AFTER = 0.05
"""Seconds. Most calls end sooner, and JSON is cheaper if the client could not resume a stream."""


RETRY_AFTER: Headers = ((b"retry-after", b"1"),)


class HttpResponder(ABC):
    """Sends the HTTP response to one POST."""

    __slots__ = ()
    _core: ServerCore
    exchange: ServerExchange
    stream_after: float | None
    """Seconds after which the response becomes a stream; None: at once if ``is_resumable``."""

    @property
    def head(self) -> RequestHead | None:
        return self.exchange.head

    @property
    def is_connected(self) -> bool:
        return not self.exchange.is_done

    def send_json(self, data: bytes, http_status: int) -> None:
        """Send the whole response as JSON."""
        self.exchange.send_response(http_status, data, RETRY_AFTER if http_status == 503 else ())

    def start(self) -> None:
        """Wait for the result, and open the stream at once or after a while."""
        self.exchange.responder = self
        if self.stream_after == 0:
            self.open()
            return
        seconds = self.stream_after
        if seconds is None:
            seconds = 0.0 if self.is_resumable else _STREAM_AFTER
        self._core.timers.set(_STREAM_OPEN, self, self._core.now + seconds)

    @property
    @abstractmethod
    def is_resumable(self) -> bool:
        """True if a client can resume the stream before it has read a message."""

    @abstractmethod
    def open(self) -> Any:
        """Turn the response into an event stream, if it is not one yet."""

    @abstractmethod
    def peer_gone(self) -> None:
        """Handle the loss of the connection that carried the POST."""
