"""Calling a store for an effect, and judging what it returns."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from ..effects import StoreAppend, StoreDrop, StoreEffect, StoreRead, StoreTake
from ..rates import RateStore
from ..store import AsyncStore, Store
from ..types import assert_never


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


def unusable(effect: StoreEffect, store: Store | AsyncStore, result: object) -> str:
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
