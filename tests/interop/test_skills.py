"""Skills between ours and others: FastMCP, and the official TypeScript SDK.

Both have the extension, at 2026-07-28. The official Python SDK has not, and its client reads ours
as resources.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import mcp
import pytest
from mcp.client.stdio import StdioServerParameters

import sansmcp
import sansmcp_asyncio

from ..cli.conftest import ROOT, environment
from ..node import NODE, install_or_skip
from .fastmcp_environment import fastmcp_python

FOLDER = Path(__file__).parent
URI = "skill://git-workflow/SKILL.md"
MANIFEST = (
    "---\nname: git-workflow\ndescription: How we commit.\n---\n\nSee references/branches.md.\n"
)
GUIDE = "Name a branch after its issue.\n"
OURS = """
import sys, sansmcp_tools
tools = sansmcp_tools.Tools("ours")
tools.skills(sys.argv.pop())
sansmcp_tools.run(tools)
"""


@pytest.fixture
def skills(tmp_path: Path) -> str:
    """A folder with a skill."""
    guide = tmp_path / "git-workflow" / "references" / "branches.md"
    guide.parent.mkdir(parents=True)
    guide.write_text(GUIDE)
    (tmp_path / "git-workflow" / "SKILL.md").write_text(MANIFEST)
    return str(tmp_path)


@pytest.fixture(params=["typescript", pytest.param("fastmcp", marks=pytest.mark.thorough)])
def theirs(request: pytest.FixtureRequest) -> list[str]:
    """The command of their program."""
    if request.param == "typescript":
        install_or_skip(FOLDER / "node")
        return [NODE, str(FOLDER / "node" / "skills.mjs")]
    return [fastmcp_python(), str(FOLDER / "fastmcp_skills.py")]


def ours(folder: str) -> list[str]:
    return [sys.executable, "-c", OURS, folder]


def test_our_client_reads_their_skills(theirs: list[str], skills: str) -> None:
    async def main() -> None:
        async with sansmcp_asyncio.connect(
            [*theirs, "serve", skills],
            versions=("2026-07-28",),
            probe_timeout=60,
            connect_timeout=120,
        ) as client:
            (listed,) = [each async for each in client.skills()]
            assert listed.problem is None
            assert (listed.uri, listed.name) == (URI, "git-workflow")
            skill = await client.get_skill(URI)
            assert skill == listed
            assert await client.read_skill(skill) == MANIFEST
            assert await client.read_skill(skill, "references/branches.md") == GUIDE

    asyncio.run(main())


def test_their_client_reads_our_skills(theirs: list[str], skills: str) -> None:
    done = subprocess.run(
        [*theirs, "read", *ours(skills)],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "uris": [URI],
        "texts": [MANIFEST, GUIDE],
        "frontmatter": {"name": "git-workflow", "description": "How we commit."},
    }


async def test_a_client_without_skills_reads_them_as_resources(skills: str) -> None:
    command, *arguments = ours(skills)
    parameters = StdioServerParameters(
        command=command, args=arguments, env=environment(), cwd=str(ROOT)
    )
    async with mcp.Client(parameters) as client:
        listed: Any = await client.list_resources()
        assert [str(each.uri) for each in listed.resources] == [URI]
        found: Any = await client.read_resource("skill://git-workflow/references/branches.md")
        assert found.contents[0].text == GUIDE


def test_a_server_without_skills_is_known_as_such() -> None:
    async def main() -> None:
        program = str(FOLDER / "sdk_server.py")
        async with sansmcp_asyncio.connect([sys.executable, program, "stdio"]) as client:
            with pytest.raises(sansmcp.LocalProtocolError, match="declares no skills"):
                _ = [each async for each in client.skills()]
            assert "io.modelcontextprotocol/skills" not in client.connected.capabilities

    asyncio.run(main())
