"""The fixtures on trio."""

from __future__ import annotations

from functools import partial
from typing import Any

import trio

import sansmcp_trio

from ..application import Application
from ..scripts import CAPABILITIES, accept
from ..steps import Script, awaiting


def serve(port: int) -> None:
    """Serve the application, and print its URL."""
    trio.run(_serve, port)


def talk(url: str, script: Script, *, listen: bool) -> None:
    """Connect, and run a script."""
    trio.run(_talk, url, script, listen)


async def _serve(port: int) -> None:
    application = Application(awaiting)
    serve = partial(sansmcp_trio.serve, application.app, http=("localhost", port))
    async with trio.open_nursery() as nursery:
        serving: sansmcp_trio.RunningServer = await nursery.start(serve)
        application.publish = serving.publish
        print(serving.url, flush=True)


async def _talk(url: str, script: Script, listen: bool) -> None:
    settings: Any = {
        "request_handlers": {"elicitation/create": accept},
        "capabilities": CAPABILITIES,
    }
    async with sansmcp_trio.connect(url, standalone_stream=listen, **settings) as client:
        await awaiting(script)(client)
