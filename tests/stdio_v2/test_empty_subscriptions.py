"""A subscription of which nothing is honoured is completed at once, and is not opened again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import sansmcp_asyncio
import sansmcp_blocking
from sansmcp.trace import Tracer

from .test_conversations import ADAPTERS, command, settings, text_of

pytest.importorskip("h2")
trio = pytest.importorskip("trio")

import sansmcp_trio  # noqa: E402

LISTEN = "subscriptions/listen"
WANTED = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]}}


async def converse(client: Any) -> list[Any]:
    """Subscribe, and make a call; return the results."""
    subscription = await client.call(LISTEN, WANTED)
    return [subscription, await client.call_tool("echo", {"text": "after"})]


async def with_asyncio(server: list[str], options: dict[str, Any]) -> list[Any]:
    async with sansmcp_asyncio.connect(server, **options) as client:
        return await converse(client)


async def with_trio(server: list[str], options: dict[str, Any]) -> list[Any]:
    async with sansmcp_trio.connect(server, **options) as client:
        return await converse(client)


def with_blocking(server: list[str], options: dict[str, Any]) -> list[Any]:
    with sansmcp_blocking.connect(server, **options) as client:
        subscription = client.call(LISTEN, WANTED)
        return [subscription, client.call_tool("echo", {"text": "after"})]


@pytest.mark.parametrize("transport", ["stdio", "stdio-v2"])
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_empty_subscription_ends_once(adapter: str, transport: str) -> None:
    lines: list[str] = []
    options = settings(versions=("2026-07-28",), trace=Tracer("client", lines.append, is_full=True))
    server = command(adapter)
    if transport == "stdio":
        del options["transport"]
        server = command(adapter, "v1")
    if adapter == "asyncio":
        subscription, after = asyncio.run(with_asyncio(server, options))
    elif adapter == "trio":
        subscription, after = trio.run(with_trio, server, options)
    else:
        subscription, after = with_blocking(server, options)
    assert subscription["resultType"] == "complete"
    assert text_of(after) == "after"
    assert sum(f'"method":"{LISTEN}"' in line for line in lines) == 1
    (acknowledged,) = (line for line in lines if "subscriptions/acknowledged" in line)
    assert '"notifications":{}' in acknowledged
