"""Tools for testing what is built on sansmcp, without sockets, clocks and sleeping.

A :class:`Pair` connects a client and a server machine through a :class:`Link` that can delay,
fragment and cut every connection at any byte, in the time of a :class:`VirtualClock`. Everything is
decided by what is passed in, so a run with the same seed is the same run.
"""

from .clock import VirtualClock
from .pair import Link, Pair, counting_tokens

__all__ = ["Link", "Pair", "VirtualClock", "counting_tokens"]
