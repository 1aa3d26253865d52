"""Harnesses whose time is set by hand, and three hours of virtual time after each test.

A test ends with running calls, open streams and timers that are set. After it, each harness that it
has made continues for three hours:

1. The peer stays as the test has left it, and sends nothing more.
2. The peer also reads nothing (:meth:`TimedHarness.stall`).
3. The driver stops (:meth:`TimedHarness.stop`), as every driver does. The store completes what it
   has begun, and peers read what there is for them, or disconnect.

In an hour each deadline is handled in time, up to 100 of them. Then the driver sleeps for the rest
of the hour, and handles all deadlines at once. These rules are checked:

- Nothing raises.
- After a deadline was handled, the next one is later, or there is none, even if effects were not
  pulled: a driver that cannot send at the moment would spin. Only ``Client`` and ``Server`` may
  return the present until their own effects have been pulled.
- A timer that fires causes an effect, an event or bytes, or is set again. A timer of something that
  has ended would do nothing. The exceptions are ``Timer.STORE_POLL`` and ``Timer.LEASE``, whose
  owners use the store at intervals and find out by themselves when to stop.
- While a machine is open, it may keep what serves a peer that may reconnect: sessions, listeners,
  calls without a timeout, processes. An hour after the stop it has neither deadline nor effect;
  :meth:`TimedHarness.check_stopped` checks what else must have ended by then.
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
"""The most deadlines that are handled in time in one hour."""

_INSIDE = attrgetter("_timers", "_effects", "_events")
_CORE = attrgetter("_core")
_ENTRIES = attrgetter("_entries")
"""Private attributes, because a timer that fires without a result is not visible otherwise."""


def timers_set(machine: Client | Server) -> set[Timer]:
    """Return the kinds of timers that are set."""
    table = _INSIDE(machine)[0] if isinstance(machine, Client) else _CORE(machine).timers
    table.next_deadline()  # gives a place to those that were set since
    return {timer for timer, _ in _ENTRIES(table)}


_made: list[TimedHarness] | None = None
"""The harnesses of the running test; None if they end with their test."""


class Machine(Protocol):
    """An object with deadlines."""

    def next_deadline(self) -> float | None: ...

    def handle_timeout(self, *, now: float) -> None: ...


class TimedHarness(ABC):
    """Machines, and the time that they are given."""

    now: float = 0.0

    def __init__(self) -> None:
        self.lives_on = _made is not None
        """Whether hours follow; if not, what is over is forgotten, and time costs little."""
        if _made is not None:
            _made.append(self)

    @property
    @abstractmethod
    def machines(self) -> Sequence[Machine]:
        """Return all objects with deadlines."""

    @abstractmethod
    def run_pending(self) -> object:
        """Perform all effects, and take all events."""

    @abstractmethod
    def stall(self) -> None:
        """Take nothing from the machines that a slow peer or a busy application would not take."""

    @abstractmethod
    def stop(self) -> None:
        """Stop as a driver does."""

    @abstractmethod
    def check_stopped(self) -> None:
        """Raise AssertionError if anything is pending an hour after :meth:`stop`."""

    def next_deadline(self) -> float | None:
        """Return the earliest deadline of all machines."""
        deadlines = (machine.next_deadline() for machine in self.machines)
        return min((each for each in deadlines if each is not None), default=None)

    def wait(self, seconds: float) -> None:
        """Advance the time, and handle all deadlines in it."""
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
        """Advance the time to the next deadline, and handle it."""
        self.now = max(self.now, due)
        handle = _handle_and_check if self.lives_on else _handle
        for machine in self.machines:
            handle(machine, self.now)
        self.run_pending()


@contextmanager
def hours_after() -> Generator[None, None, None]:
    """Run the hours of each harness that is made in a block after it, the latest first."""
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
        unseen = Timer.STORE_POLL, Timer.LEASE, Timer.KEPT, Timer.RECLAIM
        assert all(timer in unseen for timer, _ in due), due


def _results(machine: Client | Server) -> int:
    """Count the effects, events and bytes that a machine has for its driver and application."""
    if isinstance(machine, Client):
        _, effects, events = _INSIDE(machine)
        return len(effects) + len(events)
    core = _CORE(machine)
    return len(core.effects) + len(core.events) + int(core.unsent.total)
