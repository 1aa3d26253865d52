"""Make failing inputs smaller."""

from __future__ import annotations

import traceback
from collections.abc import Callable


def failure_of(target: Callable[[bytes], None], data: bytes) -> str | None:
    """Return the error of an input and its place in the code; None if it raises nothing."""
    try:
        target(data)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {frame.filename}:{frame.lineno}"
    return None


def shrunk(target: Callable[[bytes], None], data: bytes) -> bytes:
    """Return the input without the pieces that it does not need to fail at the same place."""
    failure = failure_of(target, data)
    size = len(data) // 2
    while size:
        start = 2  # the seed stays
        while start < len(data):
            shorter = data[:start] + data[start + size :]
            if failure_of(target, shorter) == failure:
                data = shorter
            else:
                start += size
        size //= 2
    return data
