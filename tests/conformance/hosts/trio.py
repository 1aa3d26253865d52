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


def talk(url: str, script: Script, **settings: Any) -> None:
    """Connect, and run a script."""
    trio.run(_talk, url, script, settings)


async def _serve(port: int) -> None:
    application = Application(awaiting, lambda call, seconds: trio.sleep(seconds))
    serve = partial(sansmcp_trio.serve, application.app, http=("localhost", port))
    async with trio.open_nursery() as nursery:
        serving: sansmcp_trio.RunningServer = await nursery.start(serve)
        application.publish = serving.publish
        print(serving.url, flush=True)


async def _talk(url: str, script: Script, settings: dict[str, Any]) -> None:
    settings["request_handlers"] = {"elicitation/create": accept}
    async with sansmcp_trio.connect(url, capabilities=CAPABILITIES, **settings) as client:
        await awaiting(script)(client)
