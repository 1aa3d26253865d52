"""The programs of the page on tasks run, and its numbers and reasons are those of the code."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import sansmcp
import sansmcp_asyncio
from sansmcp.codecs.jsonrpc import INTERNAL_ERROR
from sansmcp.server import refusals
from sansmcp.server.input_checks import missing_capability
from sansmcp_stores import SqliteStore
from sansmcp_tools import Context, Tools

from ..examples.test_examples import output_of
from .documents import DOCS, blocks, rows

PAGE = DOCS / "tasks.md"
BOTH, PLAIN, RULE, ASKS, RESTARTABLE, RESTARTABLE_TOOL = blocks(PAGE, "python")
ROWS = rows(PAGE)


def test_its_first_program_has_twenty_lines_and_runs(tmp_path: Path) -> None:
    code = [line for line in BOTH.splitlines() if line and not line.startswith(("import", "from"))]
    assert len(code) <= 20
    script = tmp_path / "printer.py"
    script.write_text(BOTH.replace("mcp.db", str(tmp_path / "mcp.db")), encoding="utf-8")
    assert output_of(script) == "printed 3 pages\n"


def names_of(code: str, **names: Any) -> dict[str, Any]:
    """Run a part of the page that registers a handler, and return its names."""
    app = sansmcp.App("printer", "1.0")
    names |= {"sansmcp": sansmcp, "app": app}
    exec(compile(code, PAGE.name, "exec"), names)
    return names


def with_client(
    app: sansmcp.App,
    file: Path,
    use: Callable[[sansmcp_asyncio.Client], Awaitable[Any]],
    serving: dict[str, Any] | None = None,
    **settings: Any,
) -> Any:
    """Return what ``use()`` returns, for a client of a server of the application."""

    async def main() -> Any:
        store = SqliteStore(file)
        options: dict[str, Any] = serving or {}
        server = sansmcp_asyncio.serve(
            app, http=("127.0.0.1", 0), store=store, task_poll_interval=0.05, **options
        )
        async with server as running, sansmcp_asyncio.connect(running.url, **settings) as client:
            return await asyncio.wait_for(use(client), 30)

    return asyncio.run(main())


def text_of(result: Any) -> Any:
    return result["content"][0]["text"]


def test_a_plain_call_is_followed(tmp_path: Path) -> None:
    """The second block is the same program, without the names of tasks."""
    assert "client.call_tool(" in PLAIN
    app = names_of(BOTH.partition("async def main")[0])["app"]
    each: tuple[dict[str, Any], ...] = ({}, {"tasks": False}, {"versions": ("2025-11-25",)})
    results = [
        with_client(app, tmp_path / "mcp.db", lambda client: client.call_tool("print"), **settings)
        for settings in each
    ]
    assert [text_of(result) for result in results] == ["printed 3 pages"] * 3


def test_the_rule_is_a_function(tmp_path: Path) -> None:
    app = names_of(RULE)["app"]

    async def use(client: sansmcp_asyncio.Client) -> list[str]:
        started = [(name, await client.start_task(name)) for name in ("render", "archive", "other")]
        assert {text_of(await task.result()) for _, task in started} == {"done"}
        return [name for name, task in started if task.id is not None]

    assert with_client(app, tmp_path / "mcp.db", use) == ["render", "archive"]


def test_a_required_task_refuses_other_clients(tmp_path: Path) -> None:
    app = names_of(RULE)["app"]
    with pytest.raises(sansmcp.JsonRpcError) as raised:
        with_client(
            app, tmp_path / "mcp.db", lambda client: client.call_tool("archive"), tasks=False
        )
    assert raised.value.code == -32021
    assert raised.value.data["reason"] == "missing_capability"


def test_a_task_asks_for_input(tmp_path: Path) -> None:
    states: list[str] = []

    async def use(client: sansmcp_asyncio.Client) -> Any:
        task = await client.start_task("print")
        assert task.id is not None
        while "input_required" not in states:
            states.append((await client.call("tasks/get", {"taskId": task.id}))["status"])
        return text_of(await task.result())

    def answer(question: Any) -> dict[str, Any]:
        return {"action": "accept", "content": {"copies": 7}}

    settings: dict[str, Any] = {
        "capabilities": {"elicitation": {}},
        "request_handlers": {"elicitation/create": answer},
    }
    app = names_of(ASKS)["app"]
    assert with_client(app, tmp_path / "mcp.db", use, **settings) == "printed 7 times"


@pytest.mark.parametrize("code", [RESTARTABLE, RESTARTABLE_TOOL])
def test_another_instance_goes_on_after_the_last_save(tmp_path: Path, code: str) -> None:
    """The first instance is stopped while it copies the last row."""
    copied: list[int] = []
    reached = asyncio.Event()

    async def copy(row: int) -> None:
        copied.append(row)
        if copied == [0, 1, 2]:
            reached.set()
            await asyncio.Event().wait()

    tools = Tools("printer", "1.0")
    app = names_of(code, copy=copy, tools=tools, Context=Context)["app"]
    if code == RESTARTABLE_TOOL:
        app = tools

    async def use(client: sansmcp_asyncio.Client) -> Any:
        task = await client.start_task("copy_rows_of", {"table": "guests"})
        await reached.wait()
        return task.id

    id = with_client(app, tmp_path / "mcp.db", use, {"graceful_timeout": 0.01})
    result = with_client(app, tmp_path / "mcp.db", lambda client: client.task(id).result())
    assert (text_of(result), copied) == ("copied", [0, 1, 2, 2])


LIMITS = [row for row in ROWS if row[0].startswith("`Limits.")]


@pytest.mark.parametrize("row", LIMITS, ids=lambda row: str(row[0]))
def test_its_limits_are_the_defaults(row: list[str]) -> None:
    name = row[0].strip("`").removeprefix("Limits.")
    number = row[1].removesuffix(" s")
    assert float(number) == getattr(sansmcp.Limits(), name)


def test_its_settings_are_the_defaults() -> None:
    limits, text = sansmcp.Limits(), re.sub(r"\s+", " ", PAGE.read_text("utf-8"))
    assert f"`Limits.lease_timeout` ({limits.lease_timeout:g} seconds)" in text
    options = sansmcp.ServerOptions()
    assert (options.task_after, options.task_poll_interval) == (1, 1)
    assert "`task_after=` of `serve` is one second by default" in text
    assert "| `task_poll_interval` | 1 s |" in text
    client = sansmcp.ClientOptions()
    assert f"| `timeout` ({client.timeout:g} s) |" in text
    assert f"| `total_timeout` ({client.total_timeout:g} s) |" in text


def test_its_reasons_are_those_of_the_code() -> None:
    errors = [
        refusals.TASK_LOST(),
        refusals.TASK_STOPPED(),
        refusals.TASK_TIMED_OUT(limit=1),
        refusals.TOO_MANY_TASKS(limit=1),
        refusals.BAD_TASK_RULE(what=""),
        refusals.UNKNOWN_TASK(),
        refusals.TASK_STORE_FAILED(),
        refusals.RECORD_TOO_NEW(),
        missing_capability({}, 1),
    ]
    reasons = {error.reason: error.jsonrpc_code for error in errors}
    shown: dict[str, int] = {}
    for row in ROWS:
        if (found := re.fullmatch(r"`(\w+)`", row[1])) and row[0].startswith("`JsonRpcError`"):
            shown[found[1]] = INTERNAL_ERROR
            assert row[0].endswith(str(INTERNAL_ERROR))
        elif len(row) == 4 and (found := re.fullmatch(r"`(\w+)`", row[3])):
            shown[found[1]] = int(row[2])
    assert shown == reasons
