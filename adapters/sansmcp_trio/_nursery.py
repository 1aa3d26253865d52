"""A nursery whose errors come as they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def plain_nursery() -> AsyncGenerator[trio.Nursery, None]:
    """A nursery out of which one error comes as it is, and an interrupt, too: not in a group."""
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
