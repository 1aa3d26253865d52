"""How a POST is answered, as far as all revisions do the same.

Which form the answer takes is decided late: a call that is answered at once gets plain JSON; it
becomes an event stream as soon as there is something to say before the result, or when it takes
longer than ``stream_after``.

Source: 2025-03-26 to 2026-07-28, basic/transports: Sending Messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ..timers import Timer
from .core import ServerCore
from .exchange import ServerExchange


class HttpAnswer(ABC):
    """The answer to one POST."""

    __slots__ = ()
    _core: ServerCore
    exchange: ServerExchange

    def start(self) -> None:
        """Begin to wait for the answer; it becomes a stream when that takes long."""
        self.exchange.answer = self
        if self._core.stream_after > 0:
            deadline = self._core.now + self._core.stream_after
            self._core.timers.set(Timer.STREAM_OPEN, self, deadline)
        else:
            self.open()

    @abstractmethod
    def open(self) -> Any:
        """Turn the answer into an event stream, if it is not one yet."""

    @abstractmethod
    def peer_gone(self) -> None:
        """The connection of the POST broke."""
