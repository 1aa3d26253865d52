"""One large message costs a few times its size, on every way through the library."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from benchmarks.large import LARGE, PIECE

from .work import tracing

SIZE = 8 * 1024 * 1024
MOST = 3.0
"""Times its size: the message as it came, the message as a document, and what is made of it."""

RESERVED = 1.1
"""What ``msgspec`` asks for and does not touch, so that it takes no memory: up to half of what it
writes, where it writes a message twice; and the reserve of buffers.
"""


@pytest.mark.parametrize("carry", LARGE.values(), ids=LARGE)
def test_a_large_message_takes_three_times_its_size(carry: Callable[[int], object]) -> None:
    carry(len(PIECE))  # what is done only once
    with tracing():
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        held = carry(SIZE)
        peak = tracemalloc.get_traced_memory()[1] - before
    assert held is not None
    assert peak < (MOST + RESERVED) * SIZE
