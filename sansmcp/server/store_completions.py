"""The completions of store effects: what the machine is told about its store.

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
    """Who has asked for a use of the store, and is told what comes of it."""

    def on_append_done(self) -> None:
        """The store has what it was given."""

    def on_append_conflict(self) -> None:
        """It has not, for the log has gone on meanwhile."""

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        """A page has come; None where there is no such log."""

    def failed(self, effect: StoreEffect) -> bool:
        """The store could not do what it was asked. Returns False if messages are lost by that."""
        ...


class StoreOperations(Protocol):
    """The store effects that are under way, and who has asked for each."""

    def pop_operation(self, effect: StoreEffect) -> StoreOperation | None:
        """Return who has asked for an effect; None for one that was reported before."""
        ...

    def settle(self, user: StoreOperation) -> None:
        """Do what is to be done when an effect of this user is completed."""


class StoreCompletions:
    """The part of a server that those talk to who perform its store effects."""

    _core: ServerCore
    _store_users: StoreOperations | None
    """None where only revisions without streams are served: nothing of these is stored."""

    @property
    def _users(self) -> StoreOperations:
        assert self._store_users is not None, "only streams of the handshake revisions are stored"
        return self._store_users

    def append_completed(self, effect: StoreAppend, *, now: float) -> None:
        """A StoreAppend is done."""
        self._works(effect, now)
        user = self._users.pop_operation(effect)
        if user is not None:
            user.on_append_done()
            self._users.settle(user)

    def append_conflicted(self, effect: StoreAppend, *, now: float) -> None:
        """A StoreAppend was not done, for the log has gone on meanwhile."""
        self._works(effect, now)
        user = self._users.pop_operation(effect)
        if user is not None:
            user.on_append_conflict()
            self._users.settle(user)

    def read_completed(self, effect: StoreRead, page: Page | None, *, now: float) -> None:
        """A StoreRead is done. ``page`` is None where the store knows no such log."""
        self._works(effect, now)
        user = self._users.pop_operation(effect)
        if user is not None:
            user.on_read_done(effect, page)
            self._users.settle(user)

    def store_failed(self, effect: StoreEffect, reason: str, *, now: float) -> None:
        """A store effect could not be performed, and will not be.

        An append may have been performed all the same, in whole or in part, if its reply got lost.
        """
        self._core.now = now
        user = self._users.pop_operation(effect)
        is_lost = user is not None and not user.failed(effect)
        failure = (type(effect), is_lost)
        self._core.events.append(StoreFailed(reason, is_lost, failure in self._core.failing))
        self._core.failing.add(failure)

    def _works(self, effect: StoreEffect, now: float) -> None:
        self._core.now = now
        if self._core.failing:
            self._core.failing -= {(type(effect), True), (type(effect), False)}

    def perform_store_effect(self, effect: StoreEffect, store: Store, *, now: float) -> None:
        """Perform a store effect on a store that works at once, and complete it.

        What such a store raises is a failure of the effect, and so is a result of another kind
        than :class:`sansmcp.Store` says: nothing counts as stored by it.
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
    """Why the result of a store cannot be used. A coroutine is closed: it will not be awaited."""
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
