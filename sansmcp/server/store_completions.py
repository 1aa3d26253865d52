"""The completions of store effects: how a driver reports their outcome to the machine.

A store that fails for some seconds takes nothing away from what runs. A failed operation of a
running call or an open stream is repeated, with the same token, after a growing delay, until
``Limits.store_retry_timeout`` seconds have passed since its first failure. Requests for something
new are refused at once.

Source: 2025-11-25 basic/transports: Resumability and Redelivery.
"""

from __future__ import annotations

import math
from collections.abc import Coroutine
from typing import Any

from ..effects import StoreAppend, StoreDrop, StoreEffect, StoreRead, StoreTake, StoreWatch
from ..events import StoreFailed
from ..rates import RateStore
from ..store import AppendResult, AsyncStore, Page, Store, StreamKey
from ..types import assert_never
from .admission import Admission
from .core import ServerCore
from .logs import Logs, StoreOperation


class StoreCompletions:
    """The methods of a server for the driver that performs its store effects.

    Report each of them once, in any order; a second report has no effect.
    """

    _core: ServerCore
    _logs: Logs
    _admission: Admission | None
    """None if there is no rate limit."""

    def append_completed(self, effect: StoreAppend, result: AppendResult, *, now: float) -> None:
        """Report what the store did with a StoreAppend.

        Args:
            effect: the effect that was performed.
            result: ``STORED`` promises that every later reader finds the entries, in any process
                that shares the store.
            now: the current time in seconds.

        Pull the server's effects afterwards, as after every report.
        """
        user = self._completed(effect, now)
        if user is None:
            return
        match result:
            case AppendResult.STORED:
                user.on_append_done()
            case AppendResult.CONFLICT:
                user.on_append_conflict()
            case AppendResult.BEHIND:
                self._core.events.append(StoreFailed(_BEHIND, lost=False))
                user.on_append_behind()
            case _ as impossible:
                assert_never(impossible)
        user.on_settled()

    def read_completed(self, effect: StoreRead, page: Page | None, *, now: float) -> None:
        """Report the page that a StoreRead got.

        Args:
            effect: the effect that was performed.
            page: the page; None if the log does not exist.
            now: the current time in seconds.
        """
        user = self._completed(effect, now)
        if user is not None:
            user.on_read_done(effect, page)
            user.on_settled()

    def drop_completed(self, effect: StoreDrop, *, now: float) -> None:
        """Report that the logs of a StoreDrop are deleted.

        Args:
            effect: the effect that was performed.
            now: the current time in seconds.
        """
        self._completed(effect, now)

    def take_completed(self, effect: StoreTake, wait: float, *, now: float) -> None:
        """Report what the store said to a StoreTake: the requests are served, or refused.

        Args:
            effect: the effect that was performed.
            wait: 0.0 if the tokens were taken, else the seconds until there are enough.
            now: the current time in seconds.
        """
        self._completed(effect, now)
        assert self._admission is not None, "only a rate limit takes tokens"
        self._admission.on_taken(effect, wait)

    def store_failed(self, effect: StoreEffect, reason: str, *, now: float) -> None:
        """Report that a store effect failed.

        Report this also if the outcome of an append is unknown, because the reply of the store was
        lost. Do not repeat the effect; the server asks for it again if it is worth it.

        Args:
            effect: the effect that failed.
            reason: text for logs; the event StoreFailed has it.
            now: the current time in seconds.
        """
        self._core.now = now
        self._core.store_health.failed(now)
        if isinstance(effect, StoreTake):
            assert self._admission is not None, "only a rate limit takes tokens"
            is_lost = False
            # The bucket of this instance has let the requests pass.
            self._admission.on_taken(effect, 0.0)
        else:
            is_lost = not self._logs.on_failed(effect)
        is_repeated = self._core.store_health.is_repeated(type(effect), is_lost=is_lost)
        self._core.events.append(StoreFailed(reason, is_lost, is_repeated))

    def store_watched(self, effect: StoreWatch, *, now: float) -> None:
        """Report that ``store_changed()`` will be called for changes of the log of a StoreWatch.

        The server then reads that log rarely of its own accord.

        Args:
            effect: the effect that was performed.
            now: the current time in seconds.
        """
        self._core.now = now
        self._logs.on_watched(effect.stream)

    def store_changed(self, stream: StreamKey, *, now: float) -> None:
        """Report that a log may have changed. Calls for a log without a watch do nothing.

        Args:
            stream: the log.
            now: the current time in seconds.
        """
        self._core.now = now
        self._logs.on_changed(stream)

    def _completed(self, effect: StoreEffect, now: float) -> StoreOperation | None:
        """Record that the store works. Returns the part that gets the outcome, if there is one."""
        self._core.now = now
        self._core.store_health.succeeded(type(effect))
        return self._logs.pop_user(effect)

    def perform_store_effect(self, effect: StoreEffect, store: Store, *, now: float) -> None:
        """Perform a store effect on a synchronous store and report the outcome.

        An exception of the store, or a result of another type than ``sansmcp.Store`` defines, is
        reported as a failure.

        Args:
            effect: the effect to perform.
            store: the store to use.
            now: the current time in seconds.
        """
        try:
            result = call_store(effect, store, now=now)
        except Exception as error:
            self.store_failed(effect, f"{type(error).__name__}: {error}", now=now)
        else:
            self.report_store_result(effect, store, result, now=now)

    def report_store_result(
        self, effect: StoreEffect, store: Store | AsyncStore, result: object, *, now: float
    ) -> None:
        """Report what a store has returned for an effect.

        A result of another type than ``sansmcp.Store`` defines is reported as a failure.

        Args:
            effect: the effect that was performed.
            store: the store that performed it; an error names its type.
            result: what its method returned; if that is a coroutine, what the coroutine returned.
            now: the current time in seconds.
        """
        if isinstance(effect, StoreAppend) and isinstance(result, AppendResult):
            self.append_completed(effect, result, now=now)
        elif isinstance(effect, StoreRead) and (result is None or isinstance(result, Page)):
            self.read_completed(effect, result, now=now)
        elif isinstance(effect, StoreDrop) and not hasattr(result, "__await__"):
            self.drop_completed(effect, now=now)
        elif (
            isinstance(effect, StoreTake)
            and isinstance(result, int | float)
            and 0 <= result < math.inf
        ):
            self.take_completed(effect, result, now=now)
        else:
            self.store_failed(effect, _unusable(effect, store, result), now=now)


def call_store(effect: StoreEffect, store: Store | AsyncStore, *, now: float) -> Any:
    """Call the method of a store for an effect, and return what it returns.

    That is an awaitable if the store is asynchronous. Raises what the method raises.
    """
    match effect:
        case StoreAppend():
            return store.append(effect.stream, effect.entries, token=effect.token, now=now)
        case StoreRead(stream=key, after=after, limit=limit, max_bytes=most):
            return store.read(key, after, limit=limit, max_bytes=most)
        case StoreDrop():
            return store.drop(effect.principal, effect.session)
        case StoreTake(bucket=bucket, count=count, limit=rate):
            assert isinstance(store, RateStore), "a driver performs it only with such a store"
            return store.take(bucket, count, rate, now=now)
        case _ as impossible:
            assert_never(impossible)


_BEHIND = (
    "the store has lost entries that it had acknowledged; the stream goes on, and clients cannot "
    "resume it"
)


def _unusable(effect: StoreEffect, store: Store | AsyncStore, result: object) -> str:
    """Return why the result of a store cannot be used.

    A coroutine is closed, so that Python does not warn that it was never awaited.
    """
    kind = type(result).__name__
    if isinstance(result, Coroutine):
        result.close()
    name, expected = {
        StoreAppend: ("append", "an AppendResult"),
        StoreRead: ("read", "a Page or None"),
        StoreDrop: ("drop", "None"),
        StoreTake: ("take", "a finite number from 0 on"),
    }[type(effect)]
    return f"{type(store).__name__}.{name}() must return {expected}, got {kind}"
