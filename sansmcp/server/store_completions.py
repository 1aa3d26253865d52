"""The completions of store effects: how a driver reports their outcome to the machine.

Source: 2025-11-25 basic/transports: Resumability and Redelivery.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from ..effects import StoreAppend, StoreDrop, StoreEffect, StoreRead
from ..events import StoreFailed
from ..store import Page, Store
from ..types import assert_never
from .core import ServerCore


class StoreOperation(Protocol):
    """The part that started a store operation and gets its outcome."""

    def on_append_done(self) -> None:
        """Handle an append that is done: the store has the entries."""

    def on_append_conflict(self) -> None:
        """Handle an append that conflicted: the log has an entry of that number."""

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        """Handle the page that was read; None if the log does not exist."""

    def failed(self, effect: StoreEffect) -> bool:
        """Handle the failure of an operation. Returns False if messages are lost by it."""
        ...


class StoreOperations(Protocol):
    """The store effects in flight, each with the operation that started it."""

    def pop_operation(self, effect: StoreEffect) -> StoreOperation | None:
        """Return the operation of an effect and forget it; None if the effect was reported before.

        Each outcome is handled once, however often a driver reports it.
        """
        ...

    def settle(self, operation: StoreOperation) -> None:
        """Tidy up after a completed effect of this operation."""


class StoreCompletions:
    """The methods of a server for the driver that performs its store effects.

    Report each StoreAppend and StoreRead once, in any order; a second report has no effect. A
    StoreDrop is reported only if it fails.
    """

    _core: ServerCore
    _store_operations: StoreOperations | None
    """None if only 2026-07-28 is served, which stores nothing."""

    @property
    def _operations(self) -> StoreOperations:
        assert self._store_operations is not None, (
            "only streams of the handshake revisions are stored"
        )
        return self._store_operations

    def append_completed(self, effect: StoreAppend, *, now: float) -> None:
        """Report that all entries of a StoreAppend are stored.

        Every later reader must find them, in any process that shares the store.

        Args:
            effect: the effect that was performed.
            now: the current time in seconds.

        Pull the server's effects afterwards, as after every report.
        """
        self._works(effect, now)
        operation = self._operations.pop_operation(effect)
        if operation is not None:
            operation.on_append_done()
            self._operations.settle(operation)

    def append_conflicted(self, effect: StoreAppend, *, now: float) -> None:
        """Report that a StoreAppend appended nothing, because the log has an entry of that number.

        Args:
            effect: the effect that was tried.
            now: the current time in seconds.
        """
        self._works(effect, now)
        operation = self._operations.pop_operation(effect)
        if operation is not None:
            operation.on_append_conflict()
            self._operations.settle(operation)

    def read_completed(self, effect: StoreRead, page: Page | None, *, now: float) -> None:
        """Report the page that a StoreRead got.

        Args:
            effect: the effect that was performed.
            page: the page; None if the log does not exist.
            now: the current time in seconds.
        """
        self._works(effect, now)
        operation = self._operations.pop_operation(effect)
        if operation is not None:
            operation.on_read_done(effect, page)
            self._operations.settle(operation)

    def store_failed(self, effect: StoreEffect, reason: str, *, now: float) -> None:
        """Report that a store effect failed. Do not repeat the effect.

        Report this also if the outcome of an append is unknown, because the reply of the store was
        lost: the machine then assumes that the entries may be stored, in whole or in part.

        Args:
            effect: the effect that failed.
            reason: text for logs; the event StoreFailed has it.
            now: the current time in seconds.
        """
        self._core.now = now
        operation = self._operations.pop_operation(effect)
        is_lost = operation is not None and not operation.failed(effect)
        failure = (type(effect), is_lost)
        self._core.events.append(StoreFailed(reason, is_lost, failure in self._core.failing))
        self._core.failing.add(failure)

    def _works(self, effect: StoreEffect, now: float) -> None:
        self._core.now = now
        if self._core.failing:
            self._core.failing -= {(type(effect), True), (type(effect), False)}

    def perform_store_effect(self, effect: StoreEffect, store: Store, *, now: float) -> None:
        """Perform a store effect on a synchronous store and report the outcome.

        An exception of the store, or a result of another type than ``sansmcp.Store`` defines, is
        reported as a failure.

        Args:
            effect: the effect to perform.
            store: the store to use.
            now: the current time in seconds.
        """
        result: Any = None
        try:
            match effect:
                case StoreAppend():
                    result = store.append(effect.stream, effect.entries, now=now)
                case StoreRead(stream=key, after=after, limit=limit, max_bytes=most):
                    result = store.read(key, after, limit=limit, max_bytes=most)
                case StoreDrop():
                    result = store.drop(effect.principal, effect.session)  # type: ignore[func-returns-value]
                case _ as impossible:
                    assert_never(impossible)
        except Exception as error:
            self.store_failed(effect, f"{type(error).__name__}: {error}", now=now)
            return
        if isinstance(effect, StoreAppend) and isinstance(result, bool):
            (self.append_completed if result else self.append_conflicted)(effect, now=now)
        elif isinstance(effect, StoreRead) and (result is None or isinstance(result, Page)):
            self.read_completed(effect, result, now=now)
        elif not isinstance(effect, StoreDrop) or hasattr(result, "__await__"):
            self.store_failed(effect, _unusable(effect, store, result), now=now)


def _unusable(effect: StoreEffect, store: Store, result: object) -> str:
    """Return why the result of a store cannot be used.

    A coroutine is closed, so that Python does not warn that it was never awaited.
    """
    kind = type(result).__name__
    if isinstance(result, Coroutine):
        result.close()
    name, expected = {
        StoreAppend: ("append", "a bool"),
        StoreRead: ("read", "a Page or None"),
        StoreDrop: ("drop", "None"),
    }[type(effect)]
    return (
        f"{type(store).__name__}.{name}() must return {expected}, got {kind}; "
        "a store must be synchronous"
    )
