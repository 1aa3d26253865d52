"""The event loops, for tests that run in each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import trio

from sansmcp_loop import current_loop

PATIENCE = 10.0
"""Seconds for what takes a moment, on a machine that has much else to do."""

Main: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]


def run_asyncio(main: Main) -> None:
    """Run an async function on asyncio."""
    asyncio.run(asyncio.wait_for(main(), PATIENCE), debug=True)


def run_trio(main: Main) -> None:
    """Run an async function on trio."""

    async def limited() -> None:
        with trio.fail_after(PATIENCE):
            await main()

    trio.run(limited)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread, or another task, does."""
    while not condition():
        await current_loop().checkpoint()


RUNS: tuple[Run, ...] = (run_asyncio, run_trio)
