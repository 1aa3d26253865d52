"""The programs on the page on migrating do the same, each client with each server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import sansmcp
import sansmcp_blocking

from ..examples.test_examples import output_of
from ..interop.fastmcp_environment import fastmcp_python
from .documents import DOCS, blocks

THEIR_SERVER, OUR_SERVER, THEIR_CLIENT, OUR_CLIENT = blocks(DOCS / "migrating.md", "python")


@pytest.mark.parametrize("server", [THEIR_SERVER, OUR_SERVER], ids=["their-server", "our-server"])
@pytest.mark.parametrize("client", [THEIR_CLIENT, OUR_CLIENT], ids=["their-client", "our-client"])
def test_they_do_the_same(client: str, server: str, tmp_path: Path) -> None:
    programs = tmp_path / "client.py", tmp_path / "server.py"
    for program, code in zip(programs, (client, server), strict=True):
        program.write_text(code, encoding="utf-8")
    printed = output_of(programs[0], sys.executable, str(programs[1]))
    assert printed == "1 of 2\n3\n-32602 There is no tool 'subtract'\n"


THEIR_TOOLS = """
from typing import Annotated

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from pydantic import BaseModel, Field

mcp = FastMCP("kitchen")


class Cup(BaseModel):
    drink: str
    size: int = 1


@mcp.tool
def add(a: Annotated[int, Field(ge=1)], b: int = 1) -> int:
    return a + b


@mcp.tool
def fill(cup: Cup) -> Cup:
    return cup


@mcp.tool
async def work(ctx: Context) -> str:
    await ctx.report_progress(1, 2)
    await ctx.info("text")
    return "done"


@mcp.tool
async def ask(ctx: Context) -> str:
    return type(await ctx.elicit("Sure?", response_type=bool)).__name__[:8]


@mcp.tool
def fail() -> str:
    raise ToolError("told")


@mcp.resource("note://{id}")
def note(id: str) -> str:
    return f"note {id}"


@mcp.prompt
def plan(hours: int = 8) -> str:
    return f"Plan {hours} hours"


if __name__ == "__main__":
    assert add(1, 2) == 3
    mcp.run(transport="stdio", show_banner=False)
"""

_TRANSLATED = (
    ("from fastmcp import Context, FastMCP", "import sansmcp_tools"),
    ("from fastmcp.exceptions import ToolError", "from sansmcp_tools import Context, ToolError"),
    ('FastMCP("kitchen")', 'sansmcp_tools.Tools("kitchen")'),
    ("ctx.report_progress(1, 2)", "ctx.progress(1, 2)"),
    ('ctx.info("text")', 'ctx.log("info", "text")'),
    ('ctx.elicit("Sure?", response_type=bool)', 'ctx.elicit(bool, "Sure?")'),
    ('mcp.run(transport="stdio", show_banner=False)', "sansmcp_tools.run(mcp, stdio=True)"),
)
"""What the table on decorated functions says."""


def translated(program: str) -> str:
    for theirs, ours in _TRANSLATED:
        assert theirs in program
        program = program.replace(theirs, ours)
    return program


def results_of(python: str, program: Path) -> list[Any]:
    """What a client sees of the server."""
    seen: list[Any] = []

    def answer(request: sansmcp.ServerRequest) -> dict[str, Any]:
        seen.append(request.params["message"])
        return {"action": "accept", "content": {"value": True}}

    with sansmcp_blocking.connect(
        [python, str(program)],
        inherit_env=True,
        versions=("2025-11-25",),
        capabilities={"elicitation": {}},
        request_handlers={"elicitation/create": answer},
        connect_timeout=120,
    ) as client:
        for name, arguments in (
            ("add", {"a": 1}),
            ("fill", {"cup": {"drink": "tea"}}),
            ("work", {}),
            ("ask", {}),
            ("fail", {}),
        ):
            result = client.call_tool(
                name, arguments, on_progress=lambda report: seen.append(report.progress)
            )
            seen.append((result["content"][0]["text"], bool(result.get("isError"))))
            if isinstance(result.get("structuredContent"), dict) and name in ("add", "fill"):
                seen.append(result["structuredContent"])
        seen.append(client.call_tool("add", {"a": 0})["isError"])
        seen.append(client.read_resource("note://7")["contents"][0]["text"])
        seen.append(client.get_prompt("plan", {"hours": "3"})["messages"][0]["content"]["text"])
    return seen


@pytest.mark.thorough
def test_decorated_functions_do_the_same(tmp_path: Path) -> None:
    """The server of FastMCP and its translation by the table."""
    programs = tmp_path / "theirs.py", tmp_path / "ours.py"
    for program, code in zip(programs, (THEIR_TOOLS, translated(THEIR_TOOLS)), strict=True):
        program.write_text(code, encoding="utf-8")
    ours = results_of(sys.executable, programs[1])
    assert ours == [
        ("2", False),
        {"result": 2},
        ('{"drink":"tea","size":1}', False),
        {"drink": "tea", "size": 1},
        1,
        ("done", False),
        "Sure?",
        ("Accepted", False),
        ("told", True),
        True,
        "note 7",
        "Plan 3 hours",
    ]
    assert results_of(fastmcp_python(), programs[0]) == ours
