"""Coroutines step by step, on any event loop: something can be done wherever one waits."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from itertools import count, takewhile
from typing import Any, TypeVar

_Result = TypeVar("_Result")

Step = Callable[[int, Any], object]
"""Is told that something waits: for the how many-th time, from 1, and for what."""


@types.coroutine
def stepping(work: Coroutine[Any, Any, _Result], step: Step) -> Generator[Any, Any, _Result]:
    """Await something, and tell each time that it waits."""
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


def wherever(happens: Callable[[int], bool], every: int = 1) -> int:
    """Let something happen at the first step, at the second, and so on, as long as there is one.

    Takes a function that says whether anything has happened, and returns how often it did.
    ``every``: leave steps out, all but the first of so many.
    """
    return sum(1 for _ in takewhile(happens, count(1, every)))
