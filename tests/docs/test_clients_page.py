"""The program of the page on clients that hears of changes ends in silence, in each way."""

from __future__ import annotations

import asyncio
import builtins
import gc
from typing import Any

import pytest

import sansmcp
import sansmcp_asyncio
import sansmcp_tools

from .documents import DOCS, blocks

(HEAR,) = [code for code in blocks(DOCS / "clients.md", "python") if "print_changes" in code]


@pytest.mark.parametrize("way", ["the task is cancelled", "the client closes", "the server stops"])
def test_to_hear_of_changes(way: str) -> None:
    printed: list[str] = []
    complaints: list[Any] = []
    tools = sansmcp_tools.Tools("changing")
    tools.tool(name="old")(lambda: None)

    async def main() -> None:
        heard = asyncio.Event()

        def print(method: str, params: Any) -> None:
            printed.append(method)
            heard.set()

        async def hear() -> None:
            await heard.wait()
            heard.clear()

        names: Any = {**vars(builtins), "asyncio": asyncio, "sansmcp": sansmcp, "print": print}
        exec(compile(HEAR, "clients.md", "exec"), names)
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: complaints.append(context)
        )
        async with sansmcp_asyncio.serve(tools, http=("127.0.0.1", 0)) as serving:
            tools.attach(serving.publish)
            client = await sansmcp_asyncio.connect(serving.url)
            changes = asyncio.create_task(names["print_changes"](client))
            await hear()
            tools.tool(name="new")(lambda: None)
            await hear()
            match way:
                case "the task is cancelled":
                    changes.cancel()
                case "the client closes":
                    await client.aclose()
                case _:
                    serving.stop()
            await asyncio.wait([changes])
            assert changes.cancelled() or changes.result() is None
            del changes
            await client.aclose()
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(main())
    assert complaints == []
    assert printed == [
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
    ]
