"""Fifty calls at once, with progress and timeouts: the official SDK."""

# mypy: disable-error-code=union-attr
# pyright: basic, reportAttributeAccessIssue=false
import asyncio
import sys

from mcp import Client, MCPError

reports: list[float] = []


async def report(progress: float, total: float | None, message: str | None) -> None:
    reports.append(progress)


async def call(client: Client, number: int) -> str:
    try:
        result = await client.call_tool(
            "count", {"number": number}, read_timeout_seconds=5, progress_callback=report
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
