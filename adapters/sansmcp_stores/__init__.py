"""Stores that outlive a process: what one instance of a server writes, the others read.

``SqliteStore`` keeps everything in one file, for all processes of one machine. A store of your own
is right if it passes :func:`sansmcp.testing.check_store` and
:func:`sansmcp.testing.check_shared_store`.
"""

from ._sqlite import SqliteStore

__all__ = ["SqliteStore"]
