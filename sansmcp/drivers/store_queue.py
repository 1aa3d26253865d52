"""The order in which the effects for an asynchronous store are performed."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

import attrs

from ..effects import StoreAppend, StoreDrop, StoreEffect, StoreRead, StoreTake

_Session = tuple[str, str]
_LogEffect: TypeAlias = StoreAppend | StoreRead | StoreDrop


@attrs.define(eq=False)
class _Waiting:
    """The effects of one session that are in flight, or wait."""

    active: set[str] = attrs.field(factory=lambda: set())
    """The logs whose effect is in flight; all logs of the session are one if it is a StoreDrop."""
    queue: deque[_LogEffect] = attrs.field(factory=lambda: deque())


_ALL_LOGS = ""
"""Stands for all logs of a session."""


@attrs.define(eq=False)
class StoreQueue:
    """Effects that wait for an asynchronous store.

    The effects of one log are performed one after the other, in order, and those of different logs
    at the same time. A StoreDrop is an effect of all logs of its session, a StoreTake of none.
    """

    max_active: int
    """How many effects may be in flight at a time."""
    _active: int = attrs.field(default=0, init=False)
    _sessions: dict[_Session, _Waiting] = attrs.field(factory=dict[_Session, _Waiting], init=False)
    _ready: deque[StoreEffect] = attrs.field(factory=deque["StoreEffect"], init=False)
    """Those that wait for no other, but perhaps for ``max_active``."""

    def __len__(self) -> int:
        """The number of effects that are in flight or wait."""
        return self._active + len(self._ready) + sum(len(s.queue) for s in self._sessions.values())

    def add(self, effect: StoreEffect) -> None:
        """Add an effect after all others."""
        if isinstance(effect, StoreTake):
            self._ready.append(effect)
            return
        name = _session_of(effect)
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = _Waiting()
        session.queue.append(effect)
        if len(session.queue) == 1 or not isinstance(session.queue[0], StoreDrop):
            self._release(session)

    def start_next(self) -> StoreEffect | None:
        """Return an effect to perform now, or None. Call :meth:`finish` when it is performed."""
        if not self._ready or self._active >= self.max_active:
            return None
        self._active += 1
        return self._ready.popleft()

    def finish(self, effect: StoreEffect) -> None:
        """Record that an effect is performed, or has failed."""
        self._active -= 1
        if isinstance(effect, StoreTake):
            return
        name = _session_of(effect)
        session = self._sessions[name]
        session.active.discard(_log_of(effect))
        self._release(session)
        if not session.active and not session.queue:
            del self._sessions[name]

    def _release(self, session: _Waiting) -> None:
        """Make those effects of a session ready that wait for no other."""
        kept: deque[_LogEffect] = deque()
        while session.queue and _ALL_LOGS not in session.active:
            effect = session.queue.popleft()
            log = _log_of(effect)
            if log == _ALL_LOGS and (session.active or kept):
                kept.append(effect)
                break
            if log in session.active:
                kept.append(effect)
            else:
                session.active.add(log)
                self._ready.append(effect)
        kept.extend(session.queue)
        session.queue = kept


def _session_of(effect: _LogEffect) -> _Session:
    if isinstance(effect, StoreDrop):
        return effect.principal, effect.session
    return effect.stream.principal, effect.stream.session


def _log_of(effect: _LogEffect) -> str:
    """Return the name of the log of an effect. No log has the name of all."""
    return _ALL_LOGS if isinstance(effect, StoreDrop) else effect.stream.stream
