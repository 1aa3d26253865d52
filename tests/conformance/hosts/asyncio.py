"""The fixtures on asyncio."""

from __future__ import annotations

import asyncio
from typing import Any

import sansmcp_asyncio

from ..application import Application
from ..scripts import CAPABILITIES, accept
from ..steps import Script, awaiting


def serve(port: int) -> None:
    """Serve the application, and print its URL."""
    asyncio.run(_serve(port))


def talk(url: str, script: Script, **settings: Any) -> None:
    """Connect, and run a script."""
    asyncio.run(_talk(url, script, settings))


async def _serve(port: int) -> None:
    application = Application(awaiting, lambda call, seconds: asyncio.sleep(seconds))
    async with sansmcp_asyncio.serve(application.app, http=("localhost", port)) as serving:
        application.publish = serving.publish
        print(serving.url, flush=True)
        await serving.stopped.wait()


async def _talk(url: str, script: Script, settings: dict[str, Any]) -> None:
    settings["request_handlers"] = {"elicitation/create": accept}
    async with sansmcp_asyncio.connect(url, capabilities=CAPABILITIES, **settings) as client:
        await awaiting(script)(client)
