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


def talk(url: str, script: Script, *, listen: bool) -> None:
    """Connect, and run a script."""
    asyncio.run(_talk(url, script, listen))


async def _serve(port: int) -> None:
    application = Application(awaiting)
    async with sansmcp_asyncio.serve(application.app, http=("localhost", port)) as serving:
        application.publish = serving.publish
        print(serving.url, flush=True)
        await serving.stopped.wait()


async def _talk(url: str, script: Script, listen: bool) -> None:
    settings: Any = {
        "request_handlers": {"elicitation/create": accept},
        "capabilities": CAPABILITIES,
    }
    async with sansmcp_asyncio.connect(url, standalone_stream=listen, **settings) as client:
        await awaiting(script)(client)
