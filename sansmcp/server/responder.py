"""How a POST is answered, as far as all revisions do the same.

Which form the answer takes is decided late. A call that is answered in the step in which it came
(its handler awaits nothing) gets plain JSON, however large. It becomes an event stream as soon as
there is something to say before the result, or when the answer is not there ``stream_after``
seconds later. Where the client can resume the stream as soon as it has begun, that is at once: a
timer that is due now goes off when the driver has done everything else.

Source: 2025-03-26 to 2026-07-28, basic/transports: Sending Messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ..http import RequestHead
from ..timers import Timer
from .core import ServerCore
from .exchange import ServerExchange

_STREAM_AFTER = 0.05
"""Seconds. Most calls are answered within it, and JSON is cheaper where nothing can be resumed."""


class HttpResponder(ABC):
    """The answer to one POST."""

    __slots__ = ()
    _core: ServerCore
    exchange: ServerExchange
    stream_after: float | None
    """Seconds after which it becomes a stream; None: at once where :attr:`is_resumable` says so."""

    @property
    def head(self) -> RequestHead | None:
        return self.exchange.head

    def start(self) -> None:
        """Begin to wait for the answer; it becomes a stream when that takes long."""
        self.exchange.responder = self
        if self.stream_after == 0:
            self.open()
            return
        seconds = self.stream_after
        if seconds is None:
            seconds = 0.0 if self.is_resumable else _STREAM_AFTER
        self._core.timers.set(Timer.STREAM_OPEN, self, self._core.now + seconds)

    @property
    @abstractmethod
    def is_resumable(self) -> bool:
        """Whether a client can resume the stream before it has read a message."""

    @abstractmethod
    def open(self) -> Any:
        """Turn the answer into an event stream, if it is not one yet."""

    @abstractmethod
    def peer_gone(self) -> None:
        """The connection of the POST broke."""
