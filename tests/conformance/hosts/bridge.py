"""The fixtures on asyncio, with a bridge in front of the server."""

from __future__ import annotations

import asyncio

import sansmcp_asyncio
from sansmcp_bridge import Upstream, open_bridge

from ..application import Application
from ..steps import awaiting

LOCAL = "localhost"


def serve(port: int) -> None:
    """Serve the application behind a bridge, and print the URL of the bridge."""
    asyncio.run(_serve(port))


async def _serve(port: int) -> None:
    application = Application(awaiting, lambda call, seconds: asyncio.sleep(seconds))
    async with sansmcp_asyncio.serve(application.app, http=(LOCAL, 0)) as serving:
        application.publish = serving.publish
        upstream = Upstream("fixture", serving.url)
        async with open_bridge([upstream], http=(LOCAL, port)) as bridge:
            print(bridge.url, flush=True)
            await bridge.stopped.wait()
