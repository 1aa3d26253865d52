"""Real processes that share a store, behind a relay that sends each connection to another one."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from sansmcp import ServerRequest

from .conftest import ONE_REQUEST_EACH, TEXT, WAYS, Server, ask, connect, poem, topic
from .relay import Relay, relaying

requirement = pytest.mark.requirement

CALLS = 34
"""In each of the three ways: a hundred in all."""


def to_each(servers: list[Server]) -> Relay:
    """One connection to each, in turn."""
    turns = itertools.count()
    return Relay(lambda: servers[next(turns) % len(servers)].port)


@requirement("MTURN-S-009", "MTURN-B-001")
async def test_every_request_may_go_to_another_process(servers: list[Server]) -> None:
    answers = {"elicitation/create": topic, "sampling/createMessage": poem}
    async with relaying(to_each(servers)) as relay:
        for way in WAYS:
            async with connect(relay.url, way, answers, ONE_REQUEST_EACH) as client:
                for _ in range(CALLS):
                    assert await ask(client) == TEXT


@pytest.mark.parametrize("way", WAYS)
async def test_processes_are_killed_between_the_rounds(way: str, servers: list[Server]) -> None:
    """One before each answer, until one is left."""
    alive = list(servers)

    def kill() -> None:
        victim = alive.pop(0)
        victim.process.kill()
        victim.process.wait(timeout=20)

    async def topic_and_kill(request: ServerRequest) -> dict[str, Any]:
        kill()
        return await topic(request)

    async def poem_and_kill(request: ServerRequest) -> dict[str, Any]:
        kill()
        return await poem(request)

    answers = {"elicitation/create": topic_and_kill, "sampling/createMessage": poem_and_kill}
    async with (
        relaying(to_each(servers)) as relay,
        connect(relay.url, way, answers, ONE_REQUEST_EACH) as client,
    ):
        result = await client.call_tool("ask", timeout=30, idempotent=True)
        assert result["content"][0]["text"] == TEXT
    assert len(alive) == 1
