"""The client of the official Python SDK, and our application under ASGI servers."""

from __future__ import annotations

from typing import Any

import mcp
import pytest

from sansmcp_asgi import asgi_app
from sansmcp_cli import example

from ..asgi.conftest import HOSTS, Host
from . import asking
from .conftest import VERSIONS, FakeUser, exercise_our_server, follow_our_progress, in_versions


@pytest.mark.parametrize("kind", HOSTS)
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_their_client_uses_our_server(kind: str, version: str) -> None:
    mode: Any = "legacy" if version in VERSIONS else "auto"
    with Host(kind).serve(asgi_app(example.app, versions=(version,))) as url:
        async with mcp.Client(f"{url}/mcp", mode=mode) as client:
            assert client.protocol_version == version
            await exercise_our_server(client)


@in_versions
async def test_their_client_follows_our_streams(version: str) -> None:
    """At 2025-11-25 our server lets the client go in the middle; it comes back for the rest."""
    with Host("hypercorn-trio").serve(asgi_app(example.app, versions=(version,))) as url:
        async with mcp.Client(f"{url}/mcp", mode="legacy") as client:
            await follow_our_progress(client)


@pytest.mark.parametrize("kind", HOSTS)
async def test_their_client_answers_our_questions(kind: str) -> None:
    person = FakeUser()
    with Host(kind).serve(asgi_app(asking.app)) as url:
        async with mcp.Client(f"{url}/mcp", mode="legacy", **person.settings) as client:
            await person.converse(client)
