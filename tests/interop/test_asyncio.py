"""Our client and our server on asyncio, and the official Python SDK on the same loop."""

from __future__ import annotations

import asyncio

import mcp
import pytest

import sansmcp_asyncio
from sansmcp_cli import example

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
    in_versions,
)

LOCAL = ("127.0.0.1", 0)


# Our client, their server


@in_versions
def test_our_client_uses_their_server(sdk_url: str, version: str) -> None:
    async def use() -> None:
        async with sansmcp_asyncio.connect(sdk_url, versions=(version,)) as client:
            assert client.connected.version == version
            await exercise_sdk_server(client)

    asyncio.run(use())


@pytest.mark.parametrize("transport", ["streamable-http", "stdio"])
def test_our_client_answers_their_questions(sdk_url: str, transport: str) -> None:
    target = [*SDK_SERVER, "stdio"] if transport == "stdio" else sdk_url

    async def answer() -> None:
        client = await sansmcp_asyncio.connect(
            target, request_handlers=ANSWERS, capabilities=CAPABILITIES, versions=tuple(VERSIONS)
        )
        await answer_sdk_requests(client)
        await client.aclose()

    asyncio.run(answer())


# Their client, our server


@in_versions
def test_their_client_uses_our_server(version: str) -> None:
    async def use() -> None:
        async with (
            sansmcp_asyncio.serve(example.app, http=LOCAL, versions=(version,)) as serving,
            mcp.Client(serving.url, mode="legacy") as client,
        ):
            assert client.protocol_version == version
            await exercise_our_server(client)
            await follow_our_progress(client)

    asyncio.run(use())


def test_their_client_answers_our_questions() -> None:
    person = FakeUser()

    async def converse() -> None:
        async with (
            sansmcp_asyncio.serve(asking.app, http=LOCAL) as serving,
            mcp.Client(serving.url, mode="legacy", **person.settings) as client,
        ):
            await person.converse(client)

    asyncio.run(converse())
