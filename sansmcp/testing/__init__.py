"""Test programs that use sansmcp without sockets, clocks and sleeping.

A :class:`Pair` connects a client and a server machine through a :class:`Link` that can delay,
fragment and cut every connection at any byte, in the time of a :class:`VirtualClock`. All
randomness comes from functions that you pass, so that a run can be repeated.

:func:`check_store` and :func:`check_shared_store` check a store against its contract.
"""

from .clock import VirtualClock
from .pair import Link, Pair, sequential_tokens
from .stores import check_shared_store, check_store

__all__ = [
    "Link",
    "Pair",
    "VirtualClock",
    "check_shared_store",
    "check_store",
    "sequential_tokens",
]
