"""What hosts of clients and servers have in common: time, and a second line of defence.

Machines do not raise for what a peer sends. Should one do so nevertheless, or the host itself, the
exception costs the connection or the call that it belongs to, is logged, and goes no further.
KeyboardInterrupt, SystemExit and cancellations are no such exceptions: they pass.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

_Outcome = TypeVar("_Outcome")

_PAUSE = 0.1
"""Seconds before a machine that has raised is told the time again: a host must not spin."""

_ATTEMPTS = 100
"""How often a machine that raises is driven on at once. Each time it has lost one thing at most."""


class Machine(Protocol):
    """What a client and a server have in common."""

    def next_deadline(self) -> float | None:
        """When to call ``handle_timeout()``."""
        ...

    def drive(self, perform: Callable[[Any], None], on_event: Callable[[Any], None]) -> None:
        """Pull all effects and events."""


class MachineDriver(abc.ABC):
    """Drives a machine and keeps its time, whatever the machine raises."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._rests_until = -math.inf
        """The machine has raised: it is not told the time before."""

    @abc.abstractmethod
    def now(self) -> float:
        """The host's clock."""

    @abc.abstractmethod
    def unexpected(self, error: Exception) -> None:
        """Log an exception that is a bug of the library, with its traceback."""

    def next_deadline(self) -> float:
        """When to call ``handle_timeout()``, on the host's clock; infinity: no need."""
        try:
            deadline = self._machine.next_deadline()
        except Exception as error:
            self._machine_raised(error)
            deadline = self._rests_until
        return math.inf if deadline is None else max(deadline, self._rests_until)

    def _drive_machine(
        self, perform: Callable[[Any], None], happened: Callable[[Any], None]
    ) -> None:
        """Perform what the machine wants, and take what it tells, until it has nothing more."""
        for _ in range(_ATTEMPTS):
            if self._use_machine(lambda: self._machine.drive(perform, happened)):
                return

    def _use_machine(self, act: Callable[[], None]) -> bool:
        """Call the machine; False if it has raised."""
        try:
            act()
        except Exception as error:
            self._machine_raised(error)
            return False
        return True

    def safely(self, act: Callable[[], _Outcome]) -> _Outcome | None:
        """Do something, and give what comes of it; None if it raises, which is logged."""
        try:
            return act()
        except Exception as error:
            self.unexpected(error)
            return None

    def _machine_raised(self, error: Exception) -> None:
        """The machine has raised something, and what it belongs to is not known."""
        self._rests_until = self.now() + _PAUSE
        self.unexpected(error)
