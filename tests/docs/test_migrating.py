"""The programs on the page on migrating do the same as their translations."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sansmcp
import sansmcp_blocking

from ..interop.environments import python_with
from ..interop.fastmcp_environment import fastmcp_python
from .documents import DOCS, blocks

PAGE = DOCS / "migrating.md"
DECORATED, OUR_DECORATED, CLIENT_1, CLIENT_2, OUR_CLIENT, THEIR_SERVER, OUR_SERVER = blocks(
    PAGE, "python"
)

MCP_1 = ("mcp==1.30.0",)


def mcp_1_python() -> str:
    """The interpreter of an environment with the official SDK before version 2."""
    return python_with("mcp-1", MCP_1, "SANSMCP_REQUIRE_FASTMCP")


@pytest.mark.parametrize("server", [THEIR_SERVER, OUR_SERVER], ids=["their-server", "our-server"])
@pytest.mark.parametrize("client", [CLIENT_1, CLIENT_2, OUR_CLIENT], ids=["mcp 1", "mcp 2", "ours"])
def test_clients_and_low_level_servers_do_the_same(
    client: str, server: str, tmp_path: Path
) -> None:
    programs = tmp_path / "client.py", tmp_path / "server.py"
    for program, code in zip(programs, (client, server), strict=True):
        program.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [mcp_1_python() if client is CLIENT_1 else sys.executable, *programs_of(programs)],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    assert done.stdout == "1 of 2\n3\n-32602 There is no tool 'subtract'\n"


def programs_of(programs: tuple[Path, Path]) -> list[str]:
    """The arguments of a client: its program, and the command of the server."""
    client, server = programs
    return [str(client), sys.executable, str(server)]


_MCP_2 = (
    (
        "from mcp.server.fastmcp import Context, FastMCP, Image",
        "from mcp.server.mcpserver import Context, Image, MCPServer",
    ),
    (
        "from mcp.server.fastmcp.exceptions import ToolError",
        "from mcp.server.mcpserver.exceptions import ToolError",
    ),
    ('FastMCP("kitchen")', 'MCPServer("kitchen")'),
)

_FASTMCP = (
    (
        "from mcp.server.fastmcp import Context, FastMCP, Image",
        "from fastmcp import Context, FastMCP\nfrom fastmcp.utilities.types import Image",
    ),
    (
        "from mcp.server.fastmcp.exceptions import ToolError",
        "from fastmcp.exceptions import ToolError",
    ),
    ('ctx.elicit("Sugar?", Answer)', 'ctx.elicit("Sugar?", response_type=Answer)'),
)


def changed(program: str, table: tuple[tuple[str, str], ...]) -> str:
    """The program with the lines that the page names."""
    page = PAGE.read_text(encoding="utf-8")
    for old, new in table:
        assert old in program
        assert all(f"`{line}`" in page for line in new.splitlines())
        program = program.replace(old, new)
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
        seen.append(sorted(tool["name"] for tool in client.tools()))
        for name, arguments in (
            ("fill", {"cup": {"drink": "tea"}}),
            ("brew", {}),
            ("ask", {}),
            ("photo", {}),
        ):
            result = client.call_tool(
                name, arguments, on_progress=lambda report: seen.append(report.progress)
            )
            (content,) = result["content"]
            text = content.get("text", "")
            seen.append(json.loads(text) if text[:1] == "{" else text or content["data"])
            assert not result.get("isError")
        failed = client.call_tool("fail")
        seen.append((failed["isError"], failed["content"][0]["text"][-7:]))
        seen.append(client.call_tool("fill", {"cup": {"drink": "tea", "size": 0}})["isError"])
        seen.append(client.read_resource("note://7")["contents"][0].get("text"))
        (message,) = client.get_prompt("plan", {"cups": "3"})["messages"]
        seen.append(message["content"].get("text"))
    return seen


SEEN: list[Any] = [
    ["ask", "brew", "fail", "fill", "photo"],
    {"drink": "tea", "size": 1},
    1,
    "ready",
    "Sugar?",
    "True",
    base64.b64encode(b"pixels").decode(),
    (True, "no milk"),
    True,
    "note 7",
    "Plan 3 cups",
]


def test_our_decorated_functions(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(OUR_DECORATED, encoding="utf-8")
    assert results_of(sys.executable, program) == SEEN


@pytest.mark.thorough
@pytest.mark.parametrize("library", ["mcp 1", "mcp 2", "FastMCP"])
def test_their_decorated_functions_do_the_same(library: str, tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    python, code = {
        "mcp 1": (mcp_1_python, DECORATED),
        "mcp 2": (lambda: sys.executable, changed(DECORATED, _MCP_2)),
        "FastMCP": (fastmcp_python, changed(DECORATED, _FASTMCP)),
    }[library]
    program.write_text(code, encoding="utf-8")
    assert results_of(python(), program) == SEEN
