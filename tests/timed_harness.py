"""Benches whose time is set by hand, and the hours that follow each test on one.

A test looks at one thing and leaves the rest: calls that run, streams that are open, timers that
are set. When it has ended, each bench that it has made lives on for three hours:

1. The other side stays as the test has left it, and nothing more comes of it.
2. The other side takes nothing, either (:meth:`TimedBench.stall`).
3. The driver stops (:meth:`TimedBench.stop`): it does what every driver does at its end. The store
   does what it was asked for before, and peers take what there is for them, or leave.

In an hour each deadline is handled when it comes, up to 100 of them. Then the driver sleeps for the
rest of the hour, and handles all that is due at once. These rules hold then:

- Nothing raises.
- Once a deadline was handled, the machine names a later one, or none. What is to be sent need not
  be pulled for that, since a driver that cannot send at the moment would spin. Only
  ``Client`` and ``Server`` may name the present, until their own effects have been pulled.
- A timer that goes off has an effect, an event or bytes, or is set again. That of something that
  has ended would do nothing. The exception is ``Timer.FOLLOW``, whose owner reads from the store at
  intervals and finds out by itself when to stop.
- While it is open, a machine may keep what serves a peer that may come back: sessions, listeners,
  calls without a time limit, processes. An hour after the stop it has neither deadline nor effect;
  :meth:`TimedBench.check_stopped` says what else has ended by then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Protocol

from sansmcp import Client, Server
from sansmcp.timers import Timer

_HOUR = 3600.0
_STEPS = 100
"""Deadlines that are handled in time in one hour."""

_INSIDE = attrgetter("_timers", "_effects", "_events")
_CORE = attrgetter("_core")
_ENTRIES = attrgetter("_entries")
"""Drivers cannot see that a timer has gone off without a result; here it can be seen."""

_made: list[TimedHarness] | None = None
"""Those of the test that runs; None where benches end with their test."""


class Machine(Protocol):
    """What has deadlines."""

    def next_deadline(self) -> float | None: ...

    def handle_timeout(self, *, now: float) -> None: ...


class TimedHarness(ABC):
    """Machines, and their time."""

    now: float = 0.0

    def __init__(self) -> None:
        self.lives_on = _made is not None
        """Whether hours follow; if not, what is over is forgotten, and time costs little."""
        if _made is not None:
            _made.append(self)

    @property
    @abstractmethod
    def machines(self) -> Sequence[Machine]:
        """All that have deadlines."""

    @abstractmethod
    def run_pending(self) -> object:
        """Do everything that there is to do."""

    @abstractmethod
    def stall(self) -> None:
        """Take nothing from the machines that a slow peer or a busy application would not take."""

    @abstractmethod
    def stop(self) -> None:
        """Do what a driver does at its end."""

    @abstractmethod
    def check_stopped(self) -> None:
        """Raise AssertionError for what is left an hour after :meth:`stop`."""

    def next_deadline(self) -> float | None:
        """The earliest deadline of all machines."""
        deadlines = (machine.next_deadline() for machine in self.machines)
        return min((each for each in deadlines if each is not None), default=None)

    def wait(self, seconds: float) -> None:
        """Let time pass, with everything that is due in it."""
        end = self.now + seconds
        while (due := self.next_deadline()) is not None and due <= end:
            self._handle(due)
        self.now = end

    def live_on(self) -> None:
        """Pass the hours after a test."""
        self.run_pending()
        self._pass_an_hour()
        self.stall()
        self._pass_an_hour()
        self.stop()
        self._pass_an_hour()
        assert self.next_deadline() is None
        self.check_stopped()

    def _pass_an_hour(self) -> None:
        end = self.now + _HOUR
        for _ in range(_STEPS):
            due = self.next_deadline()
            if due is None or due > end:
                break
            self._handle(due)
            deadline = self.next_deadline()
            assert deadline is None or deadline > self.now, "a driver would spin"
        self._handle(end)

    def _handle(self, due: float) -> None:
        """Let time go on until something is due, and do it."""
        self.now = max(self.now, due)
        handle = _handle_and_check if self.lives_on else _handle
        for machine in self.machines:
            handle(machine, self.now)
        self.run_pending()


@contextmanager
def hours_after() -> Generator[None, None, None]:
    """Let each bench that is made in a block live on after it, the latest first."""
    global _made
    _made = []
    try:
        yield
        while _made:
            _made.pop().live_on()
    finally:
        _made = None


def _handle(machine: Machine, now: float) -> None:
    machine.handle_timeout(now=now)


def _handle_and_check(machine: Machine, now: float) -> None:
    if not isinstance(machine, Client | Server):
        machine.handle_timeout(now=now)
        deadline = machine.next_deadline()
        assert deadline is None or deadline > now, "a driver would spin"
        return
    table = _INSIDE(machine)[0] if isinstance(machine, Client) else _CORE(machine).timers
    table.next_deadline()  # gives a place to those that were set since
    due = [key for key, entry in _ENTRIES(table).items() if entry.deadline <= now]
    timers, results = len(table), _results(machine)
    machine.handle_timeout(now=now)
    if len(table) < timers and _results(machine) == results:
        assert all(timer is Timer.STORE_POLL for timer, _ in due), due


def _results(machine: Client | Server) -> int:
    """Count what a machine has for its driver and its application: effects, events and bytes."""
    if isinstance(machine, Client):
        _, effects, events = _INSIDE(machine)
        return len(effects) + len(events)
    core = _CORE(machine)
    return len(core.effects) + len(core.events) + int(core.unsent.total)
