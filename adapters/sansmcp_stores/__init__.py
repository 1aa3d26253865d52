"""Durable stores, which several instances of a server can share.

``SqliteStore`` uses one file, for all processes of one machine. ``RedisStore`` uses Redis, for
processes on any number of machines; it needs the extra ``redis``. A store of your own is correct if
it passes :func:`sansmcp.testing.check_store` and :func:`sansmcp.testing.check_shared_store`;
``docs/stores.md`` has a complete one.
"""

from typing import TYPE_CHECKING

from sansmcp import _lazy

if TYPE_CHECKING:
    from ._redis import RedisStore
    from ._sqlite import SqliteStore
else:
    __getattr__, __dir__ = _lazy.names(
        globals(), {"._redis": ("RedisStore",), "._sqlite": ("SqliteStore",)}
    )

__all__ = ["RedisStore", "SqliteStore"]
