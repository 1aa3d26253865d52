"""The common part of client and server drivers: deadlines, and containment of bugs.

Machines do not raise for input of a peer. If a bug makes a machine or a driver raise nevertheless,
the driver logs the exception and ends only the connection or call to which it belongs. Exceptions
that do not derive from Exception pass: KeyboardInterrupt, SystemExit and cancellations.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

_Outcome = TypeVar("_Outcome")

_PAUSE = 0.1
"""Seconds before ``handle_timeout()`` of a machine that has raised is due again, so that the
driver does not spin.
"""

_ATTEMPTS = 100
"""How often to drive a machine again at once after it raised. Each time it loses one effect or
event at most.
"""


class Machine(Protocol):
    """The methods of a client or server machine that a driver needs."""

    def next_deadline(self) -> float | None:
        """Return when to call ``handle_timeout()``; None if there is no deadline."""
        ...

    def drive(self, perform: Callable[[Any], None], on_event: Callable[[Any], None]) -> None:
        """Pull all effects and events, and pass them to ``perform`` and ``on_event``."""


_Machine = TypeVar("_Machine", bound=Machine)


class MachineDriver(abc.ABC, Generic[_Machine]):
    """Drives a machine and keeps its deadlines, also if the machine raises."""

    def __init__(self, core: _Machine) -> None:
        self.core = core
        self._rests_until = -math.inf
        """The machine raised: ``handle_timeout()`` is not due before this time."""

    @abc.abstractmethod
    def now(self) -> float:
        """Return the time of the driver's clock, in seconds."""

    @abc.abstractmethod
    def unexpected(self, error: Exception) -> None:
        """Log an exception that is a bug of the library, with its traceback."""

    def on_idle(self) -> None:
        """Set a timer to :meth:`next_deadline`; resume tasks or threads that wait for a change.

        ``pump()`` calls this at its end. Without effect, unless it is overridden.
        """

    def next_deadline(self) -> float:
        """Return when to call ``handle_timeout()`` on this clock; ``math.inf`` for never."""
        try:
            deadline = self.core.next_deadline()
        except Exception as error:
            self._machine_raised(error)
            deadline = self._rests_until
        return math.inf if deadline is None else max(deadline, self._rests_until)

    def _drive(self, perform: Callable[[Any], None], on_event: Callable[[Any], None]) -> None:
        """Perform the machine's effects and handle its events until none is left."""
        attempts = _ATTEMPTS
        while attempts:
            try:
                self.core.drive(perform, on_event)
            except Exception as error:
                self._machine_raised(error)
                attempts -= 1
            else:
                return

    def _use_machine(self, act: Callable[[], None]) -> None:
        """Call the machine, and log the exception if it raises."""
        try:
            act()
        except Exception as error:
            self._machine_raised(error)

    def safely(self, act: Callable[[], _Outcome]) -> _Outcome | None:
        """Call ``act`` and return its result. If it raises, log the exception and return None."""
        try:
            return act()
        except Exception as error:
            self.unexpected(error)
            return None

    def _machine_raised(self, error: Exception) -> None:
        """Log an exception of the machine that belongs to no known exchange or call."""
        self._rests_until = self.now() + _PAUSE
        self.unexpected(error)
