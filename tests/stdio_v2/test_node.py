"""The HTTP/2 of Node.js at either end, so that it is not only our own that understands ours."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import sansmcp_asyncio
from sansmcp import CallError

from ..node import IS_INSTALLED, NODE
from .test_conversations import command, settings, text_of

pytestmark = pytest.mark.skipif(not IS_INSTALLED, reason="needs Node.js")
HERE = Path(__file__).parent


def test_a_client_in_node() -> None:
    words = [NODE, str(HERE / "peer_client.mjs"), *command()]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == {
        "large": True,
        "grown": 2_000_000,
        "many": True,
        "after": "after",
        "status": 0,
    }
    assert "Traceback" not in ran.stderr


def test_a_server_in_node() -> None:
    async def main() -> None:
        target = [NODE, str(HERE / "peer_server.mjs")]
        async with sansmcp_asyncio.connect(target, **settings()) as client:

            async def call(name: str, **arguments: Any) -> str:
                return text_of(await client.call_tool(name, arguments))

            assert client.connected.server_info == {"name": "node", "version": "1"}
            assert await call("authority") == "localhost tools/call"
            large = "ä" * 500_000
            assert await call("echo", text=large) == large
            calls = [call("echo", text=str(number)) for number in range(300)]
            assert await asyncio.gather(*calls) == [str(number) for number in range(300)]
            seen: list[float] = []

            def on_progress(report: Any) -> None:
                seen.append(report.progress)

            await client.call_tool("events", on_progress=on_progress)
            assert seen == [1, 2, 3]
            with pytest.raises(CallError, match="INTERNAL_ERROR"):
                await call("break")
            before = await call("cancelled")
            slow = asyncio.ensure_future(call("wait"))
            await call("echo", text="meanwhile")
            slow.cancel()
            await asyncio.gather(slow, return_exceptions=True)
            codes = [await call("cancelled") for _ in range(20)]  # Node.js tells a little later
            assert codes[-1].removeprefix(before).strip(",") == "8"  # CANCEL

    asyncio.run(main())
