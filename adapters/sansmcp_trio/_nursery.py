"""A nursery that raises a single error without an exception group."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def plain_nursery() -> AsyncGenerator[trio.Nursery, None]:
    """Open a nursery that raises a single error, or a KeyboardInterrupt, without a group."""
    alone: BaseException | None = None
    try:
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            yield nursery
    except BaseException as error:
        errors: list[BaseException] = list(getattr(error, "exceptions", ()))
        interrupts = [each for each in errors if isinstance(each, KeyboardInterrupt)]
        if len(errors) != 1 and not interrupts:
            raise
        alone = (interrupts or errors)[-1]
    if alone is not None:
        raise alone
