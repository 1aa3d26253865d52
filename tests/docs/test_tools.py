"""The programs of the page on tools run, and do what it says."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sansmcp_asyncio
import sansmcp_tools
from sansmcp.events import ServerNotified
from sansmcp.revisions import REVISIONS
from sansmcp_pytest import Client, Connect

from .documents import DOCS, blocks

PAGE = DOCS / "tools.md"
FIRST, IMPORTS, BOOK, LOOK, DOOR, ASK, COUNT, NOTE, SHOWN, PLAN, MAIN = blocks(PAGE, "python")
CONSOLE = blocks(PAGE, "console")[0]


def names_of(code: str, **more: Any) -> dict[str, Any]:
    """Run a part of the page, and return its names."""
    names: dict[str, Any] = {
        "tools": sansmcp_tools.Tools("page"),
        "__name__": __name__,
        **more,
    }
    exec(compile(IMPORTS + code, PAGE.name, "exec", dont_inherit=True), names)
    return names


def with_client(mcp_client: Connect, code: str, **more: Any) -> Client:
    """A client of what a part of the page serves."""
    return mcp_client(names_of(code, **more)["tools"].app)


def test_from_an_empty_directory_to_an_answered_call(tmp_path: Path) -> None:
    """Fifteen lines of Python and two commands, of which the first installs."""
    assert len([line for line in FIRST.splitlines() if line]) <= 15
    (tmp_path / "server.py").write_text(FIRST, encoding="utf-8")
    commands = [line[2:] for line in CONSOLE.splitlines() if line.startswith("$ ")]
    assert len(commands) == 2
    assert commands[0].startswith("pip install ")
    command, *arguments = shlex.split(commands[1])
    assert command == "sansmcp"
    arguments = [sys.executable if each == "python" else each for each in arguments]
    done = subprocess.run(
        [sys.executable, "-m", "sansmcp_cli", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == CONSOLE.splitlines()[-1:]


def test_the_first_lines_warn() -> None:
    """What surprises most comes before everything else."""
    _, _, warning, *_ = PAGE.read_text(encoding="utf-8").split("\n\n")
    assert warning.startswith("**At 2026-07-28 a function that asks the user is called again")


def test_arguments(mcp_client: Connect) -> None:
    client = with_client(mcp_client, BOOK)
    arguments = {"day": "2026-07-28", "nights": 2}
    assert text_of(client.call_tool("book", arguments)) == "2 nights from 28 July, sea"
    refused = client.call_tool("book", {**arguments, "nights": 0})
    assert f"`` {text_of(refused)} ``" in PAGE.read_text(encoding="utf-8")


def text_of(result: Any) -> Any:
    return result["content"][0]["text"]


def test_content(mcp_client: Connect) -> None:
    client = with_client(mcp_client, LOOK, camera=str.encode)
    content = client.call_tool("look", {"at": "a tree"})["content"]
    assert [block["type"] for block in content] == ["text", "image"]


def test_errors(mcp_client: Connect) -> None:
    client = with_client(mcp_client, DOOR, DOORS={1, 2})
    assert text_of(client.call_tool("open_door", {"number": 1})) == "open"
    refused = client.call_tool("open_door", {"number": 3})
    assert (refused["isError"], text_of(refused)) == (True, "There is no door 3, but [1, 2]")


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
def test_the_question(mcp_client: Connect, revision: str, action: str) -> None:
    """The comments in the program tell how often each line runs."""
    log: list[str] = []
    app = names_of(ASK, log=log)["tools"].app
    client = mcp_client(
        app,
        versions=(revision,),
        capabilities={"elicitation": {}},
        request_handlers={
            "elicitation/create": lambda request: {
                "action": action,
                "content": {"drink": "tea", "cups": 2},
            }
        },
    )
    text = text_of(client.call_tool("serve_guest", {"name": "Ada"}))
    assert text == ("served" if action == "accept" else "Ada wants nothing")
    arrived = ["Ada has arrived"] * (2 if revision == "2026-07-28" else 1)
    assert log == arrived + ["Ada gets 2 tea"] * (action == "accept")


def test_progress(mcp_client: Connect) -> None:
    reports: list[float] = []
    client = with_client(mcp_client, COUNT)
    client.call_tool("count", {"to": 3}, on_progress=lambda report: reports.append(report.progress))
    assert reports == [1, 2, 3]


def test_resources(mcp_client: Connect) -> None:
    client = with_client(mcp_client, NOTE)
    contents: Any
    (contents,) = client.read_resource("note://2026/a/b?page=2")["contents"]
    assert (contents["text"], contents["mimeType"]) == ("# a/b of 2026, page 2", "text/markdown")


def test_a_tool_that_a_page_shows(mcp_client: Connect) -> None:
    client = with_client(mcp_client, SHOWN)
    tool: Any
    page: Any
    (tool,) = client.list_tools()["tools"]
    (page,) = client.read_resource(tool["_meta"]["ui"]["resourceUri"])["contents"]
    assert (page["mimeType"], page["_meta"]) == ("text/html;profile=mcp-app", {"ui": {"csp": {}}})


def test_prompts(mcp_client: Connect) -> None:
    client = with_client(mcp_client, PLAN)
    first: Any
    first, _ = client.get_prompt("plan", {"town": "Tartu"})["messages"]
    assert first["content"]["text"] == "Plan a quiet day in Tartu"
    for name, begun, values in (("town", "ta", ["Tallinn", "Tartu"]), ("mood", "l", ["lively"])):
        params = {
            "ref": {"type": "ref/prompt", "name": "plan"},
            "argument": {"name": name, "value": begun},
        }
        found = client.call("completion/complete", params)
        assert found["completion"]["values"] == values


def test_changes() -> None:
    """The adapter's publish is connected: a client hears of a new tool."""
    heard: list[str] = []

    async def use(url: str) -> None:
        async with sansmcp_asyncio.connect(url, versions=("2025-11-25",)) as client:
            events = client.events()
            await client.ping()
            tools.tool(name="new")(lambda: None)
            async for event in events:
                if isinstance(event, ServerNotified):
                    heard.append(event.notification.method)
                    break

    names = names_of(MAIN, use=use)
    tools: sansmcp_tools.Tools = names["tools"]
    tools.tool(name="old")(lambda: None)
    asyncio.run(asyncio.wait_for(names["main"](), 60))
    assert heard == ["notifications/tools/list_changed"]
