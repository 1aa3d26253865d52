"""Checks of a store, for the driver of a server."""

from __future__ import annotations

from typing import Protocol, TypeGuard

from ..store import AsyncStore, Store

_ASYNC_CODE = 0x80 | 0x200
"""The flags of code that makes a coroutine or an asynchronous generator (CO_COROUTINE and
CO_ASYNC_GENERATOR of the module inspect).
"""

_METHODS = ("append", "read", "drop")


def is_async_store(store: Store | AsyncStore) -> TypeGuard[AsyncStore]:
    """Return True for a store whose methods are ``async def``, False for one with plain methods.

    A plain method that returns an awaitable is found only when it is used: its effect fails.

    Raises:
        TypeError: the object is not a store, or has methods of both kinds.
    """
    if isinstance(store, type):
        raise TypeError(f"store must be an object, and {store.__name__} is a class")
    missing = [name for name in _METHODS if not callable(getattr(store, name, None))]
    if missing:
        raise TypeError(
            f"store must have the methods of sansmcp.Store or sansmcp.AsyncStore, and "
            f"{type(store).__name__} has no {missing[0]}()"
        )
    kinds = {name: _is_async(getattr(store, name)) for name in _METHODS}
    if len(set(kinds.values())) > 1:
        plain = next(name for name in _METHODS if not kinds[name])
        other = next(name for name in _METHODS if kinds[name])
        raise TypeError(
            f"store must have plain methods only (sansmcp.Store) or async ones only "
            f"(sansmcp.AsyncStore); {type(store).__name__}.{plain} is plain, and {other} is async"
        )
    return kinds["append"]


def _is_async(method: object) -> bool:
    code = getattr(method, "__code__", None)
    return bool(getattr(code, "co_flags", 0) & _ASYNC_CODE)


def is_durable(store: object) -> bool:
    """True if the store declares that its content outlives the process (``is_durable``)."""
    return getattr(store, "is_durable", False) is True


class _HasSecret(Protocol):
    secret: bytes


class _HasStateKeys(Protocol):
    def state_keys(self) -> tuple[bytes, ...]: ...


def has_secret(store: object) -> TypeGuard[_HasSecret]:
    """True if a store has a ``secret``, the default key of the StateSigner."""
    return isinstance(getattr(store, "secret", None), bytes)


def has_state_keys(store: object) -> TypeGuard[_HasStateKeys]:
    """True if the keys of the StateSigner of a store can change while it is used."""
    return callable(getattr(store, "state_keys", None))
