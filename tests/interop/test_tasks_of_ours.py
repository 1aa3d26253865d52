"""Clients of others follow the tasks of a server of ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import trio

from ..cli.conftest import ROOT, environment
from ..node import NODE, install_or_skip
from .fastmcp_environment import fastmcp_python
from .task_tools import FOUND, served

FOLDER = Path(__file__).parent
OURS = [sys.executable, "-m", "tests.interop.task_tools"]


@pytest.fixture(
    params=[
        pytest.param("ext-tasks", marks=pytest.mark.node),
        pytest.param("fastmcp-tasks", marks=pytest.mark.thorough),
    ]
)
def theirs(request: pytest.FixtureRequest) -> list[str]:
    """The command of their client."""
    if request.param == "ext-tasks":
        install_or_skip(FOLDER / "node")
        return [NODE, str(FOLDER / "node" / "tasks_client.mjs")]
    return [fastmcp_python(), str(FOLDER / "fastmcp_tasks_client.py")]


async def test_on_http(theirs: list[str]) -> None:
    async with served(http=("127.0.0.1", 0)) as serving:
        await use_ours([*theirs, serving.url])


async def test_on_stdio(theirs: list[str]) -> None:
    await use_ours([*theirs, *OURS])


async def use_ours(command: list[str]) -> None:
    """Let their client use all our tools."""
    with trio.fail_after(60):
        done = await trio.run_process(command, capture_stdout=True, env=environment(), cwd=ROOT)
    assert json.loads(done.stdout) == FOUND
