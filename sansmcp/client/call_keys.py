"""Get the response to a call whose connection was cut, without running the call again.

Each ``tools/call`` gets a key, if the server offers that (``sansmcp/reclaim``). After a cut the
client asks with the key for the rest of the call, again and again for as long as the server lets
the call run on without a connection. The request has the id of the call, so its response and
progress reports need no translation. Nothing runs meanwhile: only if the process for which the call
was sent says that it has never arrived, the client sends it anew, with the same key.

A call is sent for one process, at the place that this has named last. If another process refuses
it, nothing has run, and the client sends it for that one. If a process comes back that was seen
before, a load balancer chooses among several. Then calls are for any of them, and a request for the
rest that reaches the wrong one is repeated.

Source: docs/reclaim.md.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeAlias

import attrs

from ..codecs import json
from ..codecs.jsonrpc import METHOD_NOT_FOUND
from ..messages import Notification
from ..reclaim import (
    ANY_PLACE,
    CANCEL,
    EXTENSION,
    MAX_CONFIRMED,
    NEVER_ARRIVED,
    OTHER_PLACE,
    UNKNOWN_KEY,
    WAIT,
    place_in,
)
from .http_heads import Refusal
from .options import ReconnectPolicy
from .outcomes import Lost, Restart, Retry

NEW_CONNECTION = (b"connection", b"close")
"""A header of what must reach the process of a call. The connection of the call is cut, and others
that are kept alive may lead to another process, again and again.
"""

_MAX_PROCESSES = 64
"""Processes of one server that a client remembers."""

_MAX_ELSEWHERE = 8
"""Answers of other processes after which the one that has the call is taken to have ended; as many
for each known process if a load balancer chooses. For a call that may be repeated it is one.
"""

_MAX_DELAY = 5.0
"""Seconds between two requests for the rest of a call, unless the server wants more."""

_MAX_MOVES = 4
"""Refusals of one call after which it is for any process."""

_MAX_COPIES = 8
"""How often a call is sent again because the server says that it has never arrived."""

BUSY = "busy"
"""The reason of a response, not of a refusal: the application had no room for the call."""


@attrs.frozen(eq=False, repr=False)
class Cut:
    """The connection of a call was cut, or a request for its rest has failed."""

    reason: str
    wait: float = 0.0
    """Seconds that the server wants the client to wait."""
    is_silent: bool = False
    """True if nothing came for too long on a connection that is open: a proxy may hold the response
    back until it is complete.
    """
    is_final: bool = False
    """True if another attempt would fail in the same way, or the process has ended."""


@attrs.frozen(eq=False, repr=False)
class Unknown:
    """A process does not have the response of the call. ``place`` is None if it has no keys."""

    place: str | None
    never_arrived: bool


@attrs.frozen(eq=False, repr=False)
class Moved:
    """A process has refused the call: it is for another one, or names an old place."""

    place: str


@attrs.frozen(eq=False, repr=False)
class _Answered:
    """What the procedure after a cut is sent."""

    answer: Cut | Unknown
    now: float
    is_alive: bool
    """True if the server knew of the last connection, or has it still: the time for which the call
    runs on without a connection begins now.
    """


Answer: TypeAlias = Cut | Unknown | Moved
Step: TypeAlias = Retry | Restart | Lost


class Next(enum.Enum):
    """What a client sends next for a call."""

    CALL = enum.auto()
    """The call, as a new request with a new key."""
    AGAIN = enum.auto()
    """The call, of which the server has run nothing, with the same id and key: a proxy may hold a
    copy of the request that was refused, and deliver it late.
    """
    REST = enum.auto()
    """The request for its rest."""
    COPY = enum.auto()
    """The call again, with the same id and key."""


FIRST = (Next.CALL, Next.AGAIN)
"""What is sent next while the server has run nothing of a call, as far as is known."""


@attrs.define(eq=False, repr=False)
class CallKey:
    """The key of one request, and how far its response has arrived."""

    place: str
    secret: str
    text: str
    """The member of ``_meta``."""
    id: int
    """The JSON-RPC id of the request."""
    moves: int
    """How many keys of the call have been refused before."""
    next: Next = attrs.field(default=Next.CALL, init=False)
    received: int = attrs.field(default=0, init=False)
    """The number of messages before the response that have arrived."""
    steps: Generator[Step, _Answered, Lost] | None = attrs.field(default=None, init=False)
    """The procedure after a cut; None before the first."""

    @property
    def own(self) -> str:
        """The member of ``_meta``, without the secrets of other calls."""
        return f"{self.place}.{self.secret}"

    @property
    def is_first(self) -> bool:
        """True if the server has run nothing of the call, as far as is known."""
        return self.next in FIRST

    def answer_in(self, refusal: Refusal) -> Answer | None:
        """Return what a refusal means for the key; None if it ends the call, or is no answer."""
        error, is_asking = refusal.error, self.next is Next.REST
        is_again = not self.is_first
        if error is None or error.id != self.id:
            # Not of the server, but of a proxy that has lost it; some of them say 200. Or the
            # connection broke within a refusal about the key.
            is_cut = refusal.leaves_unknown or refusal.status in (200, 203, 409)
            is_lost = is_cut or (is_again and refusal.is_retryable)
            return Cut(refusal.message, refusal.retry_after) if is_lost else None
        data = json.as_object(error.data) or {}
        # No handler's error has this status, whatever its data says: a bridge passes on those of
        # other servers.
        place = place_in(data) if refusal.status == 409 else None
        is_moved = refusal.reason == OTHER_PLACE and not is_asking and self.place != ANY_PLACE
        if place is not None and is_moved:
            # The call itself may still arrive where a copy of it was to go.
            return Unknown(place, never_arrived=False) if is_again else Moved(place)
        if place is not None and refusal.reason == UNKNOWN_KEY:
            return Unknown(place, data.get(NEVER_ARRIVED) is True)
        if is_asking and error.code == METHOD_NOT_FOUND and refusal.status == 404:
            return Unknown(None, never_arrived=False)
        if is_again and refusal.is_retryable and refusal.reason != BUSY:
            return Cut(refusal.message, refusal.retry_after)
        return None


@attrs.define(eq=False, repr=False)
class CallKeys:
    """Makes the keys of one client, and decides what follows a cut."""

    _random_bytes: Callable[[int], bytes] | None
    """None makes no keys."""
    _policy: ReconnectPolicy
    _jitter: Callable[[], float]
    place: str | None = attrs.field(default=None, init=False)
    """The place of new calls; None if the server takes no keys."""
    _seconds: float = attrs.field(default=0.0, init=False)
    """How long a call runs on without a connection."""
    _processes: dict[str, None] = attrs.field(factory=dict[str, None], init=False)
    """The names of the processes that were seen, oldest first."""
    _confirmed: str = attrs.field(default="", init=False)
    """The secrets of calls whose responses have arrived, each after a comma, for the next key."""

    def opened(self, capabilities: Mapping[str, Any]) -> None:
        """Take the declaration of the server, or that there is none."""
        extensions = json.as_object(capabilities.get("extensions")) or {}
        declared = json.as_object(extensions.get(EXTENSION)) or {}
        place, seconds = place_in(declared), declared.get(WAIT)
        if self._random_bytes is None or self._policy.max_attempts < 1 or place is None:
            self.place = None
        elif json.is_finite(seconds):
            self._seconds = seconds
            if self.place is None:
                self.place = place
                self._processes[place.partition(".")[0]] = None
            else:
                self.moved(place)

    def moved(self, place: str) -> None:
        """Send calls for another process from now on, or for any of them."""
        instance = place.partition(".")[0]
        if self.place is None or self.place == ANY_PLACE:
            return
        if instance not in self._processes:
            self._processes[instance] = None
            if len(self._processes) > _MAX_PROCESSES:
                del self._processes[next(iter(self._processes))]
            self.place = place
        else:
            is_same = self.place.partition(".")[0] == instance
            self.place = place if is_same else ANY_PLACE

    def new(self, id: int, before: CallKey | None) -> CallKey:
        """Return a key for a request; ``before`` is the one that the call had."""
        assert self._random_bytes is not None
        assert self.place is not None
        moves = 0 if before is None else before.moves
        place = self.place if moves < _MAX_MOVES else ANY_PLACE
        secret = self._random_bytes(16).hex()
        text, self._confirmed = f"{place}.{secret}{self._confirmed}", ""
        return CallKey(place, secret, text, id, moves)

    def arrived(self, key: CallKey) -> None:
        """Record that the response has arrived, so that the server need not keep it."""
        if len(self._confirmed) < MAX_CONFIRMED * (1 + len(key.secret)):
            self._confirmed += f",{key.secret}"

    def next_step(
        self, key: CallKey, answer: Answer, now: float, *, was_attached: bool, idempotent: bool
    ) -> Step:
        """Return what follows a cut, or an answer that is not the response of the call.

        Retry sends ``key.next`` after its delay, Restart at once.

        Args:
            key: the key of the call.
            answer: the cut, or the answer.
            now: the current time in seconds, on the machine's clock.
            was_attached: True if the last connection had become an event stream, so that the server
                knew of it.
            idempotent: True if the call may be repeated after Lost.
        """
        if not isinstance(answer, Cut) and answer.place is not None:
            self.moved(answer.place)
        if isinstance(answer, Moved):
            return self._move(key)
        is_alive = was_attached or (isinstance(answer, Cut) and answer.is_silent)
        answered = _Answered(answer, now, is_alive)
        try:
            if key.steps is None:
                key.steps = self._reclaim(key, answered, 1 if idempotent else _MAX_ELSEWHERE)
                return next(key.steps)
            return key.steps.send(answered)
        except StopIteration as end:
            lost: Lost = end.value
            return lost

    def _move(self, key: CallKey) -> Step:
        """Send a call that a process has refused for another place, as a new request."""
        key.moves, key.next = key.moves + 1, Next.CALL
        if key.moves == 1:
            return Restart()
        again = key.moves - 1
        return Retry(self._delay(again), again, "the server refuses the call as that of another")

    def _delay(self, attempt: int) -> float:
        return min(self._policy.delay(attempt, 0.0, self._jitter()), _MAX_DELAY)

    def _reclaim(
        self, key: CallKey, answered: _Answered, most: int
    ) -> Generator[Step, _Answered, Lost]:
        """Ask for the rest of a call until it has arrived, or cannot arrive any more.

        ``most``: the answers of other processes after which it is lost, for each known one.
        """
        reason, received, ends = "the server does not have the response", -1, -math.inf
        attempt = elsewhere = copies = 0
        while True:
            answer, now = answered.answer, answered.now
            if isinstance(answer, Unknown) and answer.never_arrived:
                copies += 1
                if copies > _MAX_COPIES:
                    return Lost(f"{reason}; the call was sent {copies} times, and never arrived")
                key.next, received, again = Next.COPY, -1, copies - 1
                answered = yield Retry(self._delay(again), again, reason) if again else Restart()
                continue
            key.next = Next.REST
            if isinstance(answer, Unknown):
                elsewhere += 1
                is_gone = answer.place is None or _is_of(key.place, answer.place)
                known = len(self._processes) if self.place == ANY_PLACE else 1
                if is_gone or elsewhere == most * known:
                    return Lost(f"{reason}; {_why(answer, key.place)}")
                attempt, wait = 0, 0.0
            else:
                reason, wait = answer.reason, answer.wait
                if answer.is_final:
                    return Lost(reason)
            if key.received > received:
                received, ends = key.received, now + self._seconds
                attempt = 0
            elif answered.is_alive:
                ends = now + self._seconds
            attempt += 1
            delay = self._delay(attempt) + wait
            if now + delay > ends:
                return Lost(f"{reason}; the rest could not be had within {self._seconds:g} s")
            answered = yield Retry(delay, attempt, reason)


def cancellation_by(key: CallKey) -> Notification:
    """Return the notification that cancels a call at the server."""
    return Notification(CANCEL, {"_meta": {EXTENSION: key.own}})


def _is_of(place: str, other: str) -> bool:
    """Return True if two places are of one process."""
    return place.partition(".")[0] == other.partition(".")[0]


def _why(unknown: Unknown, place: str) -> str:
    """Return why the response cannot arrive, as text."""
    if unknown.place is None:
        return "the server no longer takes keys of calls (reclaim=True)"
    if _is_of(place, unknown.place):
        return (
            "the server no longer has its response: the client was away for too long "
            "(reclaim_timeout), or too many bytes were kept (max_reclaim_bytes)"
        )
    return "other processes of the server answer, and the one that ran it may have ended"
