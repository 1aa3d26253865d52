"""Run the generators of a flow: one at a time, each to its end.

Every flow ends with :class:`Obtained` or :class:`Failed`: a login has a time limit, each HTTP
request, and all requests of a flow together, since the requests that wait for it have none
meanwhile. The table AUTHORIZATION names the states.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import attrs

from ..effects import (
    AuthEffect,
    LoadCredentials,
    LockCredentials,
    MakeKey,
    SaveCredentials,
    SignJwt,
    UnlockCredentials,
)
from ..errors import AuthorizationFailed
from ..events import AuthorizationNeeded
from ..http import ResponsePart
from ..states import AUTHORIZATION, AuthorizationEvent, AuthorizationState, advance
from .codes import PendingCode, code_in
from .http import REQUEST_TIMEOUT, ResponseCollector
from .steps import AbortFetch, Failed, Fetch, Obtained, Pause, Step, Steps, Wait
from .stored_credentials import StoredCredentials

FLOW_TIMEOUT = 60.0
"""Seconds for all HTTP requests of a flow; what else it waits for, as a login, does not count."""

LOGOUT_TIMEOUT = 60.0
"""Seconds for a whole logout: the wait for the lock, all requests, and the storage."""

_DELETION_TIMEOUT = 10.0
"""Seconds at the end of a logout for the storage, to delete what was not revoked by then."""

_FAILURES: dict[type[AuthEffect], str] = {
    LoadCredentials: "the stored credentials cannot be read",
    SaveCredentials: "the credentials cannot be stored",
    LockCredentials: "the stored credentials cannot be locked",
    MakeKey: "no key can be made",
    SignJwt: "a JWT cannot be signed",
}


@attrs.define(eq=False, repr=False)
class Runner:
    """Runs generators, and holds what the present one waits for."""

    _stored: StoredCredentials
    _login_timeout: float
    state: AuthorizationState = attrs.field(default=AuthorizationState.NEW, init=False)
    deadline: float = attrs.field(default=math.inf, init=False)
    """When :meth:`due` is to be called, in seconds on the machine's clock."""
    _steps: deque[Step] = attrs.field(factory=deque[Step], init=False)
    _running: Steps[None] | None = attrs.field(default=None, init=False)
    _wait: AuthEffect | PendingCode | Pause | ResponseCollector | None = attrs.field(
        default=None, init=False
    )
    """What it waits for; for a :class:`Fetch`, what has arrived of the response."""
    _asked_at: float = attrs.field(default=0.0, init=False)
    """When the last HTTP request began."""
    _left: float = attrs.field(default=0.0, init=False)
    """The seconds that were left then for all requests of the flow."""
    _logout_deadline: float = attrs.field(default=math.inf, init=False)
    """The time at which a logout ends; infinite in flows that are no logout."""

    @property
    def is_busy(self) -> bool:
        """True if requests must wait."""
        return self.state not in _NOT_BUSY

    def run(self, event: AuthorizationEvent, steps: Steps[None], now: float) -> None:
        """Run a generator; ``event`` is what has led to it."""
        self._advance(event)
        self._running, self._left = steps, FLOW_TIMEOUT
        self._resume(None, now)

    def run_logout(self, steps: Steps[None], now: float) -> None:
        """Run the generator of a logout, which has a time limit as a whole."""
        self._logout_deadline = now + LOGOUT_TIMEOUT
        self.run(AuthorizationEvent.LOGOUT, steps, now)

    def close(self) -> None:
        """Break off the generator, and release the lock."""
        self._steps.extend(self._stored.unlock())
        if isinstance(self._wait, ResponseCollector):
            self._steps.append(AbortFetch())
        self._running = self._wait = None
        self.deadline = math.inf
        self._advance(AuthorizationEvent.CLOSE)

    def next_step(self) -> Step | None:
        """Remove and return what to do next; None if there is nothing."""
        return self._steps.popleft() if self._steps else None

    def next_failure(self) -> AuthorizationFailed | None:
        """Remove and return why the flow failed before it waited for anything; None otherwise."""
        if self._running is not None:
            return None
        failed = self._steps.pop()
        assert isinstance(failed, Failed)
        return failed.error

    def receive(self, part: ResponsePart, now: float) -> None:
        """Receive a part of the response to the request of the last :class:`Fetch`."""
        if isinstance(self._wait, ResponseCollector):
            result = self._wait.receive(part)
            if isinstance(result, AuthorizationFailed):
                self._steps.append(AbortFetch())
            if result is not None:
                self._resume(result, now)

    def completed(self, effect: AuthEffect, result: Any, now: float) -> None:
        """Receive the result of an effect. Those of a flow that was broken off are ignored."""
        if effect is self._wait:
            self._resume(result, now)
        elif isinstance(effect, LockCredentials) and result:
            self._steps.append(UnlockCredentials(effect.key))

    def effect_failed(self, effect: AuthEffect, reason: str, now: float) -> None:
        """Record that an effect could not be performed."""
        if effect is self._wait:
            text = f"Authorization failed: {_FAILURES[type(effect)]}: {reason}"
            self._resume(AuthorizationFailed(text, reason="effect_failed"), now)

    def redirected(self, redirect: str, now: float) -> bool:
        """Receive the URL to which a browser was sent. Return False if it is not of this login."""
        if not isinstance(self._wait, PendingCode):
            return False
        result: str | AuthorizationFailed | None
        try:
            result = code_in(self._wait, redirect)
        except AuthorizationFailed as error:
            result = error
        if result is None:
            return False
        self._resume(result, now)
        return True

    def login_failed(self, reason: str, now: float) -> None:
        """Record that the person does not log in."""
        if isinstance(self._wait, PendingCode):
            text = f"Authorization failed at the login: {reason}"
            self._resume(AuthorizationFailed(text, reason="login_failed"), now)

    def due(self, now: float) -> None:
        """Handle the deadline."""
        match self._wait:
            case ResponseCollector() as collector:
                self._steps.append(AbortFetch())
                if now >= self._asked_at + self._left:  # whatever other request might help
                    limit = f"within the {FLOW_TIMEOUT:g} s for all requests of an authorization"
                    self._wait, self.deadline = None, math.inf
                    self._fail(collector.timed_out(limit))
                    return
                is_last = now >= self._logout_deadline - _DELETION_TIMEOUT
                seconds = LOGOUT_TIMEOUT - _DELETION_TIMEOUT if is_last else REQUEST_TIMEOUT
                limit = f"within {seconds:g} s" + " of the logout" * is_last
                self._resume(collector.timed_out(limit), now)
            case PendingCode():
                limit = f"{self._login_timeout:g} s (login_timeout)"
                self.login_failed(f"it was not completed within {limit}", now)
            case Pause() | None:
                self._resume(None, now)
            case effect:
                reason = f"the logout has taken {LOGOUT_TIMEOUT:g} s, and still waits for that"
                self.effect_failed(effect, reason, now)

    def _advance(self, event: AuthorizationEvent) -> None:
        self.state = advance(AUTHORIZATION, self.state, event)

    def _resume(self, result: Any, now: float) -> None:
        """Send a result to the generator, or raise a failure there; run it until it waits again."""
        running = self._running
        assert running is not None
        if isinstance(self._wait, ResponseCollector):
            self._left -= now - self._asked_at
        self.deadline, self._wait = math.inf, None
        is_failure = isinstance(result, AuthorizationFailed)
        try:
            wait = running.throw(result) if is_failure else running.send(result)
            while isinstance(wait, AuthorizationEvent | UnlockCredentials):
                if isinstance(wait, AuthorizationEvent):
                    self._advance(wait)
                else:
                    self._steps.append(wait)
                wait = running.send(None)
        except StopIteration:
            self._finish(Obtained())
        except AuthorizationFailed as error:
            self._fail(error)
        except Exception as error:  # a bug of this library: no request may wait for ever
            text = f"Authorization failed after an internal error: {error!r}"
            failure = AuthorizationFailed(text, reason="internal_error")
            failure.__cause__ = error
            self._fail(failure)
        else:
            self._begin_wait(wait, now)

    def _fail(self, error: AuthorizationFailed) -> None:
        has_token = self._stored.tokens is not None
        self._advance(AuthorizationEvent.KEPT if has_token else AuthorizationEvent.FAILED)
        self._finish(Failed(error))

    def _begin_wait(self, wait: Wait, now: float) -> None:
        self._wait = ResponseCollector(wait.request) if isinstance(wait, Fetch) else wait
        match wait:
            case Fetch():
                self._asked_at = now
                self.deadline = min(
                    now + min(REQUEST_TIMEOUT, self._left),
                    self._logout_deadline - _DELETION_TIMEOUT,
                )
                self._steps.append(wait)
            case PendingCode():
                self.deadline = now + self._login_timeout
                self._steps.append(AuthorizationNeeded(wait.url))
            case Pause(seconds):
                self.deadline = now + seconds
            case _:
                self.deadline = self._logout_deadline
                self._steps.append(wait)

    def _finish(self, end: Obtained | Failed) -> None:
        self._steps.extend(self._stored.unlock())
        self._running = None
        self._steps.append(end)


_NOT_BUSY = (AuthorizationState.IDLE, AuthorizationState.READY, AuthorizationState.CLOSED)
