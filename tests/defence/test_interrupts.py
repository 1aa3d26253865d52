"""What is meant to end the program does: it is no exception that a connection is charged with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import sansmcp
from sansmcp_pytest._checks.raw_client import RawPeer
from sansmcp_pytest._checks.servers import MODERN

from ..asyncio.loops import LOOPS


def call_it(url: str) -> None:
    with RawPeer(url, MODERN) as peer:
        peer.connect().send(peer.tool("any"))
        threading.Event().wait(0.5)


def app_that_raises(kind: type[BaseException]) -> sansmcp.App:
    app = sansmcp.App("ends", "1")

    @app.handler("tools/call")
    async def end(_: Any) -> Any:
        raise kind

    return app


def with_trio(app: sansmcp.App) -> None:
    import trio

    import sansmcp_trio

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            serve: Callable[..., Any] = sansmcp_trio.serve
            serving = await nursery.start(partial(serve, app, http=("127.0.0.1", 0)))
            await trio.to_thread.run_sync(call_it, serving.url, abandon_on_cancel=True)
            await trio.sleep(20)

    trio.run(main)


def with_asyncio(app: sansmcp.App) -> None:
    import asyncio

    import sansmcp_asyncio

    loop = LOOPS["asyncio"]()

    async def main() -> None:
        async with sansmcp_asyncio.serve(app, http=("127.0.0.1", 0)) as serving:
            await asyncio.to_thread(call_it, serving.url)
            await asyncio.sleep(20)

    try:
        loop.run_until_complete(main())
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.5))
        loop.close()


@pytest.mark.parametrize("run", [with_trio, with_asyncio])
def test_an_interrupt_in_a_handler_ends_the_program(run: Callable[[sansmcp.App], None]) -> None:
    """Swallowing it would not be noticed elsewhere; ``sys.exit()`` ends a call only."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        run(app_that_raises(KeyboardInterrupt))
    found: BaseException = caught.value
    while inner := getattr(found, "exceptions", ()):
        found = inner[0]
    assert isinstance(found, KeyboardInterrupt)
