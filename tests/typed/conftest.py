"""A server of typed tools, and one way to use the clients of all adapters."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

import httpx
import pytest
import trio

import sansmcp
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_httpx
import sansmcp_trio

Use: TypeAlias = Callable[[Any], Any]
"""Uses a client, and returns a value, an awaitable, or an iterator of either kind."""

app = sansmcp.App("typed", "1.0")

RESULTS: dict[str, dict[str, Any]] = {
    "fits": {"content": [], "structuredContent": {"sum": 3, "parts": [1, 2]}},
    "does_not_fit": {"content": [], "structuredContent": {"sum": "three", "parts": [1, 2]}},
    "gives_number": {"content": [], "structuredContent": {"result": 2.5}},
    "gives_union": {"content": [], "structuredContent": {"result": {"sum": 3, "parts": [1]}}},
    "gives_result": {"content": [], "structuredContent": {"result": 1, "more": 2}},
    "many_mistakes": {"content": [], "structuredContent": {"sum": 1, "parts": ["x"] * 5000}},
    "long_mistake": {"content": [], "structuredContent": {"result": "x" * 100_000}},
    "fails": {"content": [{"type": "text", "text": "no such city"}], "isError": True},
    "gives_floats": {"content": [], "structuredContent": {"sum": 3.0, "parts": [1.0, 2]}},
    "gives_half": {"content": [], "structuredContent": {"sum": 3.5, "parts": []}},
    "gives_large": {"content": [], "structuredContent": {"sum": 1e300, "parts": []}},
    "gives_text": {"content": [{"type": "text", "text": "three"}]},
    "gives_texts": {"content": [{"type": "text", "text": "3"}, {"type": "text", "text": "4"}]},
    "gives_image": {"content": [{"type": "image", "data": "", "mimeType": "image/png"}]},
    "gives_nothing": {"content": []},
    "gives_json": {"content": [{"type": "text", "text": '{"sum": 3, "parts": [1, 2.0]}'}]},
    "gives_other_json": {"content": [{"type": "text", "text": '{"parts": []}'}]},
}

LISTS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "tools/list": ("tools", [{"name": f"t{n}", "inputSchema": {}} for n in range(5)]),
    "prompts/list": ("prompts", [{"name": f"p{n}"} for n in range(5)]),
    "resources/list": ("resources", [{"name": "r", "uri": f"memo://{n}"} for n in range(5)]),
    "resources/templates/list": (
        "resourceTemplates",
        [{"name": "x", "uriTemplate": f"memo://{n}/{{id}}"} for n in range(5)],
    ),
}
PAGE = 2


@app.handler("tools/call")
def call_tool(call: sansmcp_blocking.Call) -> dict[str, Any]:
    return RESULTS[call.params["name"]]


for method in LISTS:

    @app.handler(method)
    def list_page(call: sansmcp_blocking.Call, method: str = method) -> dict[str, Any]:
        member, items = LISTS[method]
        start = int(call.params.get("cursor", 0))
        after = {"nextCursor": str(start + PAGE)} if start + PAGE < len(items) else {}
        return {member: items[start : start + PAGE], **after}


@pytest.fixture(scope="session")
def url() -> Generator[str, None, None]:
    with sansmcp_blocking.serve(app, http=("127.0.0.1", 0)) as server:
        assert server.url is not None
        yield server.url


async def _outcome(used: Any) -> Any:
    if inspect.isasyncgen(used):
        return [item async for item in used]
    return await used if inspect.isawaitable(used) else used


def _blocking_outcome(used: Any) -> Any:
    return list(used) if inspect.isgenerator(used) else used


def _with_blocking(url: str, use: Use) -> Any:
    with sansmcp_blocking.connect(url) as client:
        return _blocking_outcome(use(client))


def _with_blocking_httpx(url: str, use: Use) -> Any:
    with httpx.Client() as http, sansmcp_httpx.connect_blocking(url, http) as client:
        return _blocking_outcome(use(client))


def _with_asyncio(url: str, use: Use) -> Any:
    async def main() -> Any:
        async with sansmcp_asyncio.connect(url) as client:
            return await _outcome(use(client))

    return asyncio.run(main())


def _with_httpx(url: str, use: Use) -> Any:
    async def main() -> Any:
        async with httpx.AsyncClient() as http, sansmcp_httpx.connect(url, http) as client:
            return await _outcome(use(client))

    return asyncio.run(main())


def _with_trio(url: str, use: Use) -> Any:
    async def main() -> Any:
        async with sansmcp_trio.connect(url) as client:
            return await _outcome(use(client))

    return trio.run(main)


ADAPTERS = {
    "asyncio": _with_asyncio,
    "blocking": _with_blocking,
    "httpx": _with_httpx,
    "httpx-blocking": _with_blocking_httpx,
    "trio": _with_trio,
}


@pytest.fixture(params=ADAPTERS)
def ask(request: pytest.FixtureRequest, url: str) -> Callable[[Use], Any]:
    """Return what a function gets from a client of one of the adapters."""
    adapter = ADAPTERS[request.param]
    return lambda use: adapter(url, use)
