"""One script for every adapter: a generator that yields what has to be waited for.

The methods of a client and of a call return an awaitable in one adapter and a value in another. A
script yields either and gets the value back, so it is written once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias

Script: TypeAlias = Callable[[Any], Generator[Any, Any, Any]]
"""A generator function of a client, or of a call."""


def awaiting(script: Script) -> Callable[[Any], Awaitable[Any]]:
    """The script as an async function."""

    async def run(handle: Any) -> Any:
        steps = script(handle)
        try:
            waiting = steps.send(None)
            while True:
                try:
                    value = await waiting
                except Exception as error:  # as a function would have it
                    waiting = steps.throw(error)
                else:
                    waiting = steps.send(value)
        except StopIteration as end:
            return end.value

    return run


def blocking(script: Script) -> Callable[[Any], Any]:
    """The script as a function."""

    def run(handle: Any) -> Any:
        steps, value = script(handle), None
        try:
            while True:
                value = steps.send(value)
        except StopIteration as end:
            return end.value

    return run
