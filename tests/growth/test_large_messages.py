"""One large message costs a few times its size, on every way through the library."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from benchmarks.large import LARGE, PIECE

from .work import tracing

SIZE = 8 * 1024 * 1024
MOST = 2.0
"""Times its size: the message as it came, and what is made of it."""

MORE = {"result as an event, by a server": 1.0}
"""There it exists three times: the value of the handler, its JSON, and the event."""

RESERVED = 1.1
"""What ``msgspec`` asks for and does not touch, so that it takes no memory: up to half of what it
writes, where it writes a message twice; and the reserve of buffers.
"""


@pytest.mark.parametrize(("name", "carry"), LARGE.items(), ids=LARGE)
def test_a_large_message_takes_twice_its_size(name: str, carry: Callable[[int], object]) -> None:
    carry(len(PIECE))  # what is done only once
    with tracing():
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        held = carry(SIZE)
        peak = tracemalloc.get_traced_memory()[1] - before
    assert held is not None
    assert peak < (MOST + MORE.get(name, 0.0) + RESERVED) * SIZE
