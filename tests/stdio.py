"""Replace standard input and output of this process, for tests of servers that run in it."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def standard_streams() -> Generator[tuple[int, int], None, None]:
    """Make pipes of both for a while; gives the end to write to and the one to read from.

    Both are the caller's, who closes them.
    """
    (input, far_input), (far_output, output) = os.pipe(), os.pipe()
    before = os.dup(0), os.dup(1)
    _replace(input, output)
    try:
        yield far_input, far_output
    finally:
        _replace(*before)


def _replace(*descriptors: int) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
