"""Fifty calls at once, with progress and timeouts: FastMCP."""

# mypy: disable-error-code=no-any-return
# pyright: basic
import asyncio
import sys

from fastmcp import Client  # type: ignore[import-not-found]
from mcp import MCPError

reports: list[float] = []


async def report(progress: float, total: float | None, message: str | None) -> None:
    reports.append(progress)


async def call(client: Client, number: int) -> str:
    try:
        result = await client.call_tool(
            "count", {"number": number}, timeout=5, progress_handler=report
        )
    except MCPError:
        return "timed out"
    return result.content[0].text


async def main() -> None:
    async with Client(sys.argv[1]) as client:
        for text in await asyncio.gather(*(call(client, number) for number in range(50))):
            print(text)
    print(len(reports), "reports")


asyncio.run(main())
