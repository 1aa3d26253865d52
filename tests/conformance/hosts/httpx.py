"""The client on an httpx client, under asyncio."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

import sansmcp_httpx

from ..scripts import CAPABILITIES, accept
from ..steps import Script, awaiting


def talk(url: str, script: Script, **settings: Any) -> None:
    """Connect, and run a script."""
    asyncio.run(_talk(url, script, settings))


async def _talk(url: str, script: Script, settings: dict[str, Any]) -> None:
    settings["request_handlers"] = {"elicitation/create": accept}
    async with (
        httpx.AsyncClient() as http,
        sansmcp_httpx.connect(url, http, capabilities=CAPABILITIES, **settings) as client,
    ):
        await awaiting(script)(client)
