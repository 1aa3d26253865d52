"""Measures of work and memory, and what it means for them to grow in step with the input.

Lines of Python that run and bytes that are allocated are the same on every machine. What C code
does inside one call neither of them sees, so there is a third measure, processor time; it is only
ever compared with itself, at sizes so far apart that no busy machine can blur the answer.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

FAR = 16
"""How many times larger the larger input is where time is taken."""

_ROUNDS = 6
_LARGE_ROUNDS = 24
"""Tries until one was not disturbed; a function that is linear needs one on a quiet machine."""


def steps(pieces: Iterable[object]) -> int:
    """Lines of Python that run, and functions of C that they call."""
    count = 0

    def on_line(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += 1
        return on_line

    def on_call(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "c_call"

    tracer, profiler = sys.gettrace(), sys.getprofile()
    with _no_collector():
        sys.settrace(on_line)
        sys.setprofile(on_call)
        try:
            run(pieces)
        finally:
            sys.settrace(tracer)
            sys.setprofile(profiler)
    return count


def allocated(pieces: Iterable[object]) -> int:
    """Bytes that are taken, for a moment or for good: the most in each piece of the work.

    A copy of all that was received, made again for each piece, shows here at once.
    """
    total = 0
    with tracing(), _no_collector():
        before = tracemalloc.get_traced_memory()[0]
        for _ in pieces:
            now, most = tracemalloc.get_traced_memory()
            total += most - before
            before = now
            tracemalloc.reset_peak()
    return total


def seconds(pieces: Iterable[object]) -> float:
    """Processor time of this thread: others of the process may belong to stores of other tests."""
    with _no_collector():
        start = time.thread_time()
        run(pieces)
        return time.thread_time() - start


NOISE = 64 * 1024
"""Bytes by which the memory that is held may differ for reasons of the interpreter.

CPython keeps freed objects to use them again, and caches how attributes were found: in 3.11 with a
string of its own for each ``case`` with a class that was tried.
"""


def held() -> int:
    """Bytes that are in use, while :func:`tracing`."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@contextmanager
def tracing() -> Generator[None]:
    """Let Python keep account of its memory."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def run(pieces: Iterable[object]) -> None:
    """Do all the work."""
    for _ in pieces:
        pass


def growth(cost: Callable[[int], int], size: int) -> float:
    """How many times as much it costs to go from 4 to 16 times the size as from 1 to 4 times.

    4 where the cost is linear, 16 where it is quadratic, whatever it costs to begin.
    """
    cost(size)  # what is done only once, such as filling caches
    small, middle, large = (cost(size * factor) for factor in (1, 4, 16))
    # What is added is little, and makes it 4 where the cost does not depend on the size.
    return (large - middle + 2000) / (middle - small + 500)


def is_linear_in_time(
    prepare: Callable[[int], Iterable[object]], size: int, *, tries: int = _LARGE_ROUNDS
) -> bool:
    """Whether an input that is FAR times larger takes about FAR times longer, in one of the tries.

    A quadratic function takes FAR times longer than that; the line is drawn in the middle. A step,
    where the larger input no longer fits a cache that others use, too, is no growth. So both inputs
    are tried four times as large if the line is crossed.
    """
    return any(_is_linear_from(prepare, each, tries) for each in (size, 4 * size))


def _is_linear_from(prepare: Callable[[int], Iterable[object]], size: int, tries: int) -> bool:
    """Compare two sizes.

    Only the fastest of several runs counts, since others may have been disturbed; the smaller
    input, which a disturbance makes look much larger, is taken more often.
    """
    small: list[float] = []
    large: list[float] = []
    for _ in range(tries):
        small += [seconds(prepare(size)) for _ in range(_ROUNDS)]
        large.append(seconds(prepare(FAR * size)))
        if min(large) < FAR**1.5 * min(small):
            return True
    return False


def pieces_of(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    """Cut an input into pieces of these sizes, and the rest."""
    start = 0
    for size in sizes:
        if start + size >= len(data):
            break
        yield data[start : start + size]
        start += size
    yield data[start:]


@contextmanager
def _no_collector() -> Generator[None]:
    """Without garbage collection, which comes when it likes."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
