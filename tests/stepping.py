"""Run coroutines step by step on any event loop, with an action wherever one waits."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from itertools import count, takewhile
from typing import Any, TypeVar

import pytest

from .thorough import always

_Result = TypeVar("_Result")

Step = Callable[[int, Any], object]
"""Is called when the coroutine waits, with the number of the wait, from 1, and its object."""


@types.coroutine
def run_with_steps(work: Coroutine[Any, Any, _Result], step: Step) -> Generator[Any, Any, _Result]:
    """Await something, and call the function each time that it waits."""
    waits = 0
    go_on: Callable[[], Any] = partial(work.send, None)
    while True:
        try:
            awaited = go_on()
        except StopIteration as ended:
            result: _Result = ended.value
            return result
        waits += 1
        step(waits, awaited)
        try:
            go_on = partial(work.send, (yield awaited))
        except BaseException as error:
            go_on = partial(work.throw, error)


_SHARES = 3
in_shares = pytest.mark.parametrize("share", always(range(_SHARES), lambda share: share == 0))
"""The first of three steps is always disturbed, the others by thorough tests only."""


def wherever(happens: Callable[[int], bool], share: int | None = None, every: int = 1) -> int:
    """Let something happen at the first step, at the second, and so on, as long as there is one.

    Takes a function that says whether anything has happened, and returns how often it did.
    ``share``: take every third step only, from this one on; see :data:`in_shares`.
    ``every``: leave steps out, all but the first of so many.
    """
    steps = count(1, every) if share is None else count(1 + share * every, _SHARES * every)
    return sum(1 for _ in takewhile(happens, steps))
