"""Durable stores, which several instances of a server can share.

``SqliteStore`` uses one file, for all processes of one machine. It is asynchronous, and works in
every event loop of asyncio or trio. A store of your own is correct if it passes
:func:`sansmcp.testing.check_store` and :func:`sansmcp.testing.check_shared_store`.
"""

from ._sqlite import SqliteStore

__all__ = ["SqliteStore"]
