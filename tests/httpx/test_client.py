"""The asynchronous client: what is of httpx stays of httpx, on asyncio and on trio."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.middleware.gzip import GZipMiddleware

import sansmcp_httpx
from sansmcp import (
    Disconnected,
    LocalProtocolError,
    RequestCancelled,
    RequestTimeout,
    ServerRequest,
)
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp_local import current_loop

from ..asgi.conftest import Host
from ..asgi.loops import Run, until
from .conftest import FakeWebServer, Token

ASKING: dict[str, Any] = {"versions": HANDSHAKE_VERSIONS, "capabilities": {"elicitation": {}}}


def test_the_settings_of_httpx_hold(run: Run, url: str, web: FakeWebServer) -> None:
    hooked: list[str] = []

    async def hook(request: httpx.Request) -> None:
        hooked.append(request.method)

    async def main() -> None:
        async with httpx.AsyncClient(
            auth=Token(),
            headers={"x-tenant": "acme"},
            cookies={"seen": "before"},
            event_hooks={"request": [hook]},
        ) as http:
            async with sansmcp_httpx.connect(url, http) as client:
                await client.call_tool("any")
            assert not http.is_closed

    web.seen.clear()
    run(main)
    assert hooked.count("POST") >= 2
    for headers in web.seen:
        assert headers["authorization"] == "Bearer token"
        assert (headers["x-tenant"], headers["cookie"]) == ("acme", "seen=before")


def test_progress_and_streams_that_end_early(run: Run, url: str) -> None:
    async def main() -> None:
        reports: list[float] = []
        async with (
            httpx.AsyncClient() as http,
            sansmcp_httpx.connect(url, http, versions=HANDSHAKE_VERSIONS) as client,
        ):
            await client.call_tool("steps", on_progress=lambda each: reports.append(each.progress))
        assert reports == [1, 2, 3]

    run(main)


def test_answers_and_events(run: Run, url: str) -> None:
    async def elicit(request: ServerRequest) -> Any:
        await current_loop().checkpoint()
        return {"action": "decline"}

    async def main() -> None:
        async with httpx.AsyncClient() as http:
            answers = {"elicitation/create": elicit}
            async with sansmcp_httpx.connect(
                url, http, request_handlers=answers, **ASKING
            ) as client:
                events = client.events()
                assert await client.call_tool("ask") == {"said": {"action": "decline"}}
                await client.call_tool("tell")
                event: Any = await anext(events)
                assert event.notification.params["data"] == "look"
                await client.notify("notifications/roots/list_changed")
                await events.aclose()

    run(main)


def test_timeouts_are_those_of_the_call(run: Run, url: str) -> None:
    async def main() -> None:
        async with (
            httpx.AsyncClient(timeout=httpx.Timeout(5, read=0.01)) as http,
            sansmcp_httpx.connect(url, http) as client,
        ):
            result = await client.call_tool("slow", {"seconds": 0.2})
            assert result["arguments"] == {"seconds": 0.2}
            with pytest.raises(RequestTimeout):
                await client.call_tool("slow", {"seconds": 60}, timeout=0.05)

    run(main)


@pytest.mark.parametrize("wait", [0.01, None])
def test_too_few_connections(
    run: Run, url: str, web: FakeWebServer, wait: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        limits = httpx.Limits(max_connections=1)
        async with (
            httpx.AsyncClient(limits=limits) as http,
            sansmcp_httpx.connect(url, http, standalone_stream=False) as client,
        ):

            async def hold() -> None:
                with pytest.raises(RequestCancelled):
                    await client.call_tool("slow", {"seconds": 60})

            web.seen.clear()
            current_loop().spawn(hold)
            await until(lambda: len(web.seen) == 1)
            http.timeout = httpx.Timeout(5, pool=wait)
            monkeypatch.setattr("sansmcp_httpx._http._POOL_TIMEOUT", 0.01)
            with pytest.raises(Disconnected, match="max_connections"):
                await client.call_tool("any")

    run(main)


def test_one_connection_by_http_2(run: Run, url: str) -> None:
    """For a stream that stays open, and one call at a time."""

    async def main() -> None:
        limits = httpx.Limits(max_connections=1)
        async with (
            httpx.AsyncClient(http1=False, http2=True, limits=limits) as http,
            sansmcp_httpx.connect(url, http, versions=HANDSHAKE_VERSIONS) as client,
        ):
            for _ in range(5):
                await client.call_tool("steps")

    run(main)


def test_what_a_hook_raises_ends_the_call(run: Run, url: str) -> None:
    async def hook(response: httpx.Response) -> None:
        raise PermissionError("not today")

    async def main() -> None:
        async with httpx.AsyncClient(event_hooks={"response": [hook]}) as http:
            with pytest.raises(Disconnected, match="PermissionError: not today"):
                async with sansmcp_httpx.connect(url, http, connect_timeout=1.0):
                    raise AssertionError("connected")

    run(main)


def test_nobody_is_there(run: Run) -> None:
    async def main() -> None:
        async with httpx.AsyncClient() as http:
            with pytest.raises(Disconnected, match="ConnectError"):
                async with sansmcp_httpx.connect(
                    "http://127.0.0.1:1/mcp", http, connect_timeout=1.0
                ):
                    raise AssertionError("connected")

    run(main)


def test_an_httpx_client_that_is_closed_too_early(run: Run, url: str) -> None:
    async def main() -> None:
        async with (
            httpx.AsyncClient() as http,
            sansmcp_httpx.connect(url, http, close_timeout=0.1) as client,
        ):
            await http.aclose()
            with pytest.raises(Disconnected, match="closed") as caught:
                await client.call_tool("any")
            assert not caught.value.was_sent

    run(main)


def test_closing_while_calls_run(run: Run, url: str, web: FakeWebServer) -> None:
    async def main() -> None:
        ended: list[Exception] = []

        async def caller() -> None:
            try:
                await client.call_tool("slow", {"seconds": 60})
            except RequestCancelled as error:
                ended.append(error)

        async with (
            httpx.AsyncClient() as http,
            sansmcp_httpx.connect(url, http, standalone_stream=False) as client,
        ):
            web.seen.clear()
            for _ in range(3):
                current_loop().spawn(caller)
            await until(lambda: len(web.seen) == 3)
            await client.aclose()
            await client.aclose()
            with pytest.raises(LocalProtocolError, match="closed"):
                await client.call_tool("any")
        await until(lambda: len(ended) == 3)

    run(main)


def test_a_caller_that_is_cancelled(run: Run, url: str) -> None:
    async def main() -> None:
        loop = current_loop()
        async with httpx.AsyncClient() as http, sansmcp_httpx.connect(url, http) as client:
            assert not await loop.within(0.05, client.call_tool, "slow", {"seconds": 60})
            assert (await client.call_tool("any", {"a": 1}))["arguments"] == {"a": 1}

    run(main)


def test_a_block_that_is_cancelled(run: Run, url: str) -> None:
    async def main() -> None:
        async def block() -> None:
            async with httpx.AsyncClient() as http, sansmcp_httpx.connect(url, http) as client:
                await client.call_tool("slow", {"seconds": 60})

        assert not await current_loop().within(0.3, block)

    run(main)


def test_answers_that_are_compressed(run: Run, web: FakeWebServer) -> None:
    async def main() -> None:
        async with httpx.AsyncClient() as http, sansmcp_httpx.connect(url, http) as client:
            text = "x" * 10_000
            result = await client.call_tool("any", {"text": text})
            assert result["arguments"] == {"text": text}

    with Host("uvicorn").serve(GZipMiddleware(web.mcp)) as place:
        url = f"{place}/mcp"
        run(main)


class Silent(httpx.AsyncBaseTransport):
    """A network that never answers."""

    def __init__(self) -> None:
        self.active = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.active += 1
        try:
            await current_loop().event().wait()
        finally:
            self.active -= 1
        raise AssertionError


def test_nothing_of_httpx_is_used_after_the_end(run: Run) -> None:
    async def main() -> None:
        transport = Silent()
        async with httpx.AsyncClient(transport=transport) as http:
            with pytest.raises(RequestTimeout):
                await sansmcp_httpx.connect(
                    "http://localhost/mcp", http, connect_timeout=0.01, close_timeout=0.01
                )
            assert transport.active == 0

    run(main)


@pytest.mark.parametrize(
    ("url", "http", "said"),
    [
        (["python", "server.py"], httpx.AsyncClient(), "httpx starts no processes"),
        (
            "http://127.0.0.1/",
            httpx.Client(),
            "http must be an httpx.AsyncClient or httpx2.AsyncClient, got ",
        ),
        (
            "http://127.0.0.1/",
            httpx,
            "http must be an httpx.AsyncClient or httpx2.AsyncClient, got ",
        ),
    ],
)
def test_arguments_of_other_kinds(url: Any, http: Any, said: str) -> None:
    with pytest.raises(LocalProtocolError, match=said):
        sansmcp_httpx.connect(url, http)
