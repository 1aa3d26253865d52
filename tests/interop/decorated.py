"""The tools of ``stateless.py`` as functions: ``python -m tests.interop.decorated --stdio``."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

import sansmcp_tools
from sansmcp_tools import Context

tools = sansmcp_tools.Tools("ours", "1")
was_cancelled = asyncio.Event()


class Who(msgspec.Struct):
    name: str


@tools.tool
def region(
    region: Annotated[str, msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})],
) -> str:
    return region


@tools.tool
async def count(steps: int, context: Context) -> str:
    for step in range(1, steps + 1):
        await context.progress(step, steps)
    return "counted"


@tools.tool
async def greet(context: Context) -> str:
    answer = await context.elicit(Who, "name?")
    return f"Hello {answer.value.name}" if isinstance(answer, sansmcp_tools.Accepted) else "Hello"


@tools.tool
async def hang(context: Context) -> None:
    try:
        await context.progress(1)
        await asyncio.sleep(3600)
    finally:
        was_cancelled.set()


@tools.tool
async def cancelled() -> str:
    await was_cancelled.wait()
    return "a call was cancelled"


@tools.tool
def change() -> str:
    tools.tool(name="added")(_added)
    return "changed"


def _added() -> str:
    return "added"


if __name__ == "__main__":
    sansmcp_tools.run(tools)
