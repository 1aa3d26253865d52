"""From a world that fails to the smallest one that fails in the same way."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from .simulator import World


def kind_of(problem: str) -> str:
    """What went wrong, without the names and numbers of one world."""
    return re.sub(r"\d+|'[^']*'", "#", problem.split("(of ")[0])[:60]


def shrink(
    seed: int,
    *,
    seconds: float,
    kind: str | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> World:
    """Leave out accidents, features, calls and clients for as long as the same thing goes wrong.

    Returns the run of what is left, with its story.
    """
    ends_at = clock() + seconds
    first = World(seed, kind=kind).run()
    assert first.problem is not None, "this seed does not fail"
    wanted = kind_of(first.problem)
    without: frozenset[str] = frozenset()
    candidates = list(dict.fromkeys(first.fates.struck))
    size = max(len(candidates) // 2, 1)
    while size and clock() < ends_at:
        position = 0
        while position < len(candidates) and clock() < ends_at:
            chunk = candidates[position : position + size]
            tried = World(seed, without | frozenset(chunk), kind=kind).run()
            if tried.problem is not None and kind_of(tried.problem) == wanted:
                without |= frozenset(chunk)
                struck = set(tried.fates.struck)
                candidates = [name for name in candidates if name in struck]
            else:
                position += size
        size //= 2
    return World(seed, without, kind=kind, story=True).run()
