"""The official Python SDK, our blocking client, and our servers with threads."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import mcp
import pytest

import sansmcp
import sansmcp_blocking
from sansmcp.events import ClientEvent, ProgressReceived
from sansmcp_cli import example
from sansmcp_wsgi import WsgiApp

from ..wsgi.conftest import Host
from . import asking
from .conftest import (
    ANSWERS,
    CAPABILITIES,
    SDK_SERVER,
    VERSIONS,
    FakeUser,
    answer_sdk_requests,
    exercise_our_server,
    exercise_sdk_server,
    follow_our_progress,
    receive_sdk_notifications,
    sdk_server,
    text,
)

HOSTS = ["blocking", "waitress"]


def served(host: str, app: sansmcp.App, **settings: Any) -> AbstractContextManager[Any]:
    """Serve an application of ours on a free port."""
    if host == "blocking":
        return sansmcp_blocking.serve(app, http=("127.0.0.1", 0), **settings)
    return Host(host).serve(WsgiApp(app, standalone_streams=True, **settings))


def mcp_url(started: Any) -> str:
    return f"{started}/mcp" if isinstance(started, str) else started.url


# Their client, our server


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("version", ["2025-03-26", "2025-11-25", "2026-07-28"])
async def test_their_client_uses_our_server(host: str, version: str) -> None:
    mode: Any = "legacy" if version in VERSIONS else "auto"
    with served(host, example.blocking_app, versions=(version,)) as started:
        async with mcp.Client(mcp_url(started), mode=mode) as client:
            assert client.protocol_version == version
            await exercise_our_server(client)


@pytest.mark.parametrize("host", HOSTS)
async def test_their_client_follows_our_streams(host: str) -> None:
    with served(host, example.blocking_app, versions=("2025-11-25",)) as started:
        async with mcp.Client(mcp_url(started), mode="legacy") as client:
            await follow_our_progress(client)


@pytest.mark.parametrize("host", HOSTS)
async def test_their_client_answers_our_questions(host: str) -> None:
    person = FakeUser()
    with served(host, asking.blocking_app) as started:
        async with mcp.Client(mcp_url(started), mode="legacy", **person.settings) as client:
            await person.converse(client)


# Our client, their server


class AsIfAsync:
    """The blocking client, with the methods of the others: it has waited when it is awaited."""

    def __init__(self, client: sansmcp_blocking.Client) -> None:
        self._client = client
        self.connected = client.connected

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*arguments: Any, **options: Any) -> Any:
            return getattr(self._client, name)(*arguments, **options)

        return call

    def events(self) -> AsyncGenerator[ClientEvent, None]:
        kept = self._client.events(30)

        async def take() -> AsyncGenerator[ClientEvent, None]:
            for event in kept:
                yield event

        return take()


def at_once(answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An async function that never has to wait, as a function."""

    def run(request: sansmcp.ServerRequest) -> Any:
        steps = answer(request)
        assert inspect.iscoroutine(steps)
        with pytest.raises(StopIteration) as end:
            steps.send(None)
        return end.value.value

    return run


SETTINGS: dict[str, Any] = {
    "request_handlers": {method: at_once(answer) for method, answer in ANSWERS.items()},
    "capabilities": CAPABILITIES,
}
OLD: Any = {**SETTINGS, "versions": ("2025-11-25",)}


@pytest.fixture(scope="module", params=["streamable-http", "sse", "stdio"])
def target(request: pytest.FixtureRequest) -> Iterator[str | list[str]]:
    """A server made with the SDK: its URL, or its command."""
    if request.param == "stdio":
        yield [*SDK_SERVER, "stdio"]
    else:
        with sdk_server(request.param) as url:
            yield url


async def test_our_client_uses_their_server(target: str | list[str]) -> None:
    reports: list[ProgressReceived] = []
    with sansmcp_blocking.connect(target, **OLD) as client:
        shown: Any = AsIfAsync(client)
        await exercise_sdk_server(shown)
        await answer_sdk_requests(shown)
        result = client.call_tool("slow", {"steps": 6}, on_progress=reports.append)
        assert text(result) == "done"
        assert [report.progress for report in reports] == [1, 2, 3, 4, 5, 6]
        with pytest.raises(sansmcp.RequestTimeout):  # the tool sleeps longer than that
            client.call_tool("slow", {"steps": 2, "pause": 10}, timeout=0.02)
        pending = [
            client.start_call("tools/call", {"name": "echo", "arguments": {"text": str(number)}})
            for number in range(10)
        ]
        assert [text(each.result()) for each in pending] == [str(number) for number in range(10)]


async def test_our_client_hears_their_announcements(target: str | list[str]) -> None:
    with sansmcp_blocking.connect(target, **OLD) as client:
        shown: Any = AsIfAsync(client)
        await receive_sdk_notifications(shown)
