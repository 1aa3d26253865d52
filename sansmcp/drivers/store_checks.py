"""Checks of a store, for the driver of a server."""

from __future__ import annotations

from typing import Protocol, TypeGuard

from ..errors import LocalProtocolError, check_type
from ..store import Store

_ASYNC_CODE = 0x80 | 0x200
"""The flags of code that makes a coroutine or an asynchronous generator (CO_COROUTINE and
CO_ASYNC_GENERATOR of the module inspect).
"""


def check_synchronous(store: object) -> None:
    """Raise LocalProtocolError if an object is not a store, or has ``async def`` methods.

    A plain method that returns an awaitable is found only when it is used: its effect fails.
    """
    check_type(Store, store=store)
    for name in ("append", "read", "drop"):
        method = getattr(store, name)
        code = getattr(method, "__code__", None)
        if getattr(code, "co_flags", 0) & _ASYNC_CODE:
            raise LocalProtocolError(
                f"store must be synchronous, and {type(store).__name__}.{name} is an async "
                "function; make it a plain one, or drive the machine yourself and perform its "
                "store effects"
            )


def is_durable(store: object) -> bool:
    """True if the store declares that its content outlives the process (``is_durable``)."""
    return getattr(store, "is_durable", False) is True


class _HasSecret(Protocol):
    secret: bytes


def has_secret(store: object) -> TypeGuard[_HasSecret]:
    """True if a store has a ``secret``, the default key of the StateSigner."""
    return isinstance(getattr(store, "secret", None), bytes)
