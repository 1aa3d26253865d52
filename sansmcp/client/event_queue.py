"""The events of a client that its application has not taken."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ..errors import RemoteProtocolError
from ..events import ClientEvent, ProtocolViolation, StderrLine


class EventQueue(deque[ClientEvent]):
    """The queue of events, oldest first. It is bounded by the readers, which ask if it is full."""

    __slots__ = ("_most", "_was_full")

    def __init__(self, most: int) -> None:
        """Create an empty queue that is full with ``most`` events."""
        super().__init__()
        self._most = most
        self._was_full = False

    def is_full(self) -> bool:
        """Return True if the application must take events before more data is read.

        After the queue was full, this is true until half of it is empty, so that readers are not
        woken for every event.
        """
        self._was_full = len(self) >= (self._most // 2 + 1 if self._was_full else self._most)
        return self._was_full

    def report_violation(self, what: str, reason: str) -> None:
        """Report that the server has sent what it must not."""
        error = RemoteProtocolError(f"The server has sent {what}", reason=reason)
        self.append(ProtocolViolation(error))

    def report_log(self, lines: Iterable[str]) -> None:
        """Report lines of the server's log, as many as there is room for: the log is optional."""
        for line in lines:
            if not self.is_full():
                self.append(StderrLine(line))
