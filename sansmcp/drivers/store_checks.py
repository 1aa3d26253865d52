"""What the driver of a server has to know of a store before it uses it."""

from __future__ import annotations

from typing import Protocol, TypeGuard

from ..errors import LocalProtocolError, check_type
from ..store import Store

_ASYNC_CODE = 0x80 | 0x200
"""The flags of code that makes a coroutine or an asynchronous generator (CO_COROUTINE and
CO_ASYNC_GENERATOR of the module inspect).
"""


def check_synchronous(store: object) -> None:
    """Raise LocalProtocolError for what is no store, or has methods that would have to be awaited.

    An ``async def`` is found here; a method that returns an awaitable in another way is a failure
    of the store when it is used.
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
    """True if what a store keeps outlives the process; False for a store that does not say."""
    return getattr(store, "is_durable", False) is True


class _HasSecret(Protocol):
    secret: bytes


def has_secret(store: object) -> TypeGuard[_HasSecret]:
    """True if a store brings a key for the seal."""
    return isinstance(getattr(store, "secret", None), bytes)
