"""Our clients on httpx, and a server made with the official Python SDK."""

from __future__ import annotations

import time

import httpx

from sansmcp.events import ProgressReceived
from sansmcp_httpx import connect, connect_blocking

from .conftest import (
    ANSWERS,
    CAPABILITIES,
    answer_sdk_requests,
    exercise_sdk_server,
    in_versions,
    text,
)


@in_versions
async def test_our_client_uses_their_server(sdk_url: str, version: str) -> None:
    async with (
        httpx.AsyncClient() as http,
        connect(sdk_url, http, versions=(version,)) as client,
    ):
        assert client.connected.version == version
        await exercise_sdk_server(client)


async def test_our_client_answers_their_questions(sdk_url: str) -> None:
    async with (
        httpx.AsyncClient() as http,
        connect(
            sdk_url,
            http,
            versions=("2025-11-25",),
            request_handlers=ANSWERS,
            capabilities=CAPABILITIES,
        ) as client,
    ):
        await answer_sdk_requests(client)


@in_versions
def test_our_blocking_client_uses_their_server(sdk_url: str, version: str) -> None:
    reports: list[ProgressReceived] = []
    began = time.monotonic()
    with httpx.Client() as http, connect_blocking(sdk_url, http, versions=(version,)) as client:
        assert text(client.call_tool("echo", {"text": "hällo\u2028"})) == "hällo\u2028"
        assert client.call_tool("fail")["isError"] is True
        result = client.call_tool("slow", {"steps": 6}, on_progress=reports.append)
    assert text(result) == "done"
    assert [report.progress for report in reports] == [1, 2, 3, 4, 5, 6]
    assert time.monotonic() - began < 20  # their resumed streams do not end with the answer
