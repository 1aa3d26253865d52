"""The programs of ``benchmarks/lines`` do what they say, and ours take few lines.

Those of FastMCP run in the environment that has it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sansmcp
import sansmcp_asyncio
from benchmarks.lines import FOLDER, LIBRARIES, MOST, PROGRAMS, count_lines, program
from sansmcp_tools import Context, Tools

from ..interop.fastmcp_environment import fastmcp_python

with_each = pytest.mark.parametrize("library", LIBRARIES)


def command(name: str, library: str) -> list[str]:
    """The command that runs a program."""
    python = fastmcp_python() if library == "fastmcp" else sys.executable
    return [python, str(program(name, library))]


@pytest.mark.parametrize("name", PROGRAMS)
def test_ours_are_short(name: str) -> None:
    assert count_lines(program(name, "sansmcp")) <= MOST[name]


def test_they_are_formatted() -> None:
    """Otherwise their lines would not be comparable."""
    files = [program(name, library) for name in PROGRAMS for library in LIBRARIES]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--check", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert sorted(files) == sorted(set(FOLDER.glob("*_*.py")) - set(FOLDER.glob("__*.py")))


def test_ours_has_no_async_calls() -> None:
    assert "async" not in program("calls", "sansmcp").read_text().partition('"""\n')[2]


@with_each
def test_the_server(library: str) -> None:
    asked: list[str] = []

    def answer(request: sansmcp.ServerRequest) -> Any:
        asked.append(request.params["message"])
        return {"action": "accept", "content": {"value": 3}}

    async def talk() -> list[str]:
        async with sansmcp_asyncio.connect(
            command("server", library),
            versions=("2025-11-25",),
            capabilities={"elicitation": {}},
            request_handlers={"elicitation/create": answer},
        ) as client:
            tools = (await client.list_tools())["tools"]
            assert [tool["name"] for tool in tools] == ["pages", "print_file"]
            assert tools[0]["inputSchema"]["required"] == ["words"]
            results = [
                await client.call_tool("pages", {"words": 301}),
                await client.call_tool("print_file", {"name": "a.txt"}),
            ]
            assert results[0]["structuredContent"] == {"result": 2}
            return [result["content"][0]["text"] for result in results]

    assert asyncio.run(talk()) == ["2", "3 copies"]
    assert asked == ["How many copies of a.txt?"]


@with_each
def test_the_calls(library: str) -> None:
    """Every tenth call never ends, and the others report twice."""
    tools = Tools("counter")

    @tools.tool
    async def count(number: int, context: Context) -> str:
        if number % 10 == 9:
            await asyncio.Event().wait()
        await context.progress(1, 2)
        await context.progress(2, 2)
        return f"counted {number}"

    async def serve() -> str:
        async with sansmcp_asyncio.serve(tools.app, http=("127.0.0.1", 0)) as serving:
            running = await asyncio.create_subprocess_exec(
                *command("calls", library), serving.url, stdout=subprocess.PIPE
            )
            out, _ = await running.communicate()
            assert running.returncode == 0
            return out.decode()

    expected = ["timed out" if n % 10 == 9 else f"counted {n}" for n in range(50)]
    assert asyncio.run(serve()).splitlines() == [*expected, "90 reports"]


@with_each
def test_the_agent(library: str, tmp_path: Path) -> None:
    servers = {
        name: {"command": sys.executable, "args": [str(program("server", "sansmcp"))]}
        for name in ("red", "green", "blue")
    }
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    model = [
        {"tool": f"{name}_pages", "arguments": {"words": words}}
        for name, words in (("red", 300), ("blue", 301), ("green", 900), ("red", 1000))
    ]
    done = subprocess.run(
        [*command("agent", library), config],
        input="".join(f"{json.dumps(call)}\n" for call in model),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tools, *results = done.stdout.splitlines()
    names = sorted(f"{name}_{tool}" for name in servers for tool in ("pages", "print_file"))
    assert json.loads(tools) == names
    assert results == ["1", "2", "3", "4"]
