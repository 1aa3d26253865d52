"""Restartable tools: another instance goes on after the last save, and loses nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import sansmcp
import sansmcp_asyncio
from sansmcp_pytest import Connect
from sansmcp_stores import SqliteStore
from sansmcp_tools import Context, ThreadContext, Tools

from .conftest import accept, connect, in_revisions, text_of


class Work:
    """What the tools have done, and the step at which the first instance stands still."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.reached = threading.Event()
        self.may_end = threading.Event()

    def copy(self, row: int) -> bool:
        """Do a step; return True where the first instance is to stand still."""
        self.done.append(f"copied {row}")
        is_there = row == 2 and not self.reached.is_set()
        if is_there:
            self.reached.set()
        return is_there


@pytest.fixture
def work(tools: Tools) -> Work:
    """Two tools that copy rows and ask before and between, and one that is not restartable."""
    work = Work()

    @tools.tool(task=0, restartable=True)
    async def copy_rows(context: Context) -> str:
        state = context.saved_state
        if state is None:
            state = (repr(await context.elicit(int, "Which?")), 0)
        answer, begin = state
        for row in range(begin, 4):
            if row == 1:
                work.done.append(repr(await context.elicit(int, "Go on?")))
            if work.copy(row):
                await asyncio.Event().wait()
            await context.save_progress([answer, row + 1])
        return f"{answer} copied"

    @tools.tool(task=0, restartable=True)
    def copy_in_thread(context: ThreadContext) -> str:
        state = context.saved_state
        if state is None:
            state = (repr(context.elicit(int, "Which?")), 0)
        answer, begin = state
        for row in range(begin, 4):
            if work.copy(row):
                work.may_end.wait(30)
            context.save_progress([answer, row + 1])
        return f"{answer} copied"

    @tools.tool(task=0)
    async def copy_once(context: Context) -> str:
        work.copy(2)
        await asyncio.Event().wait()
        return "copied"

    return work


async def with_client(
    tools: Tools, file: Path, use: Callable[[sansmcp_asyncio.Client], Awaitable[Any]]
) -> Any:
    """Return what ``use()`` returns, for a client of an instance that ends afterwards."""
    server = sansmcp_asyncio.serve(
        tools,
        http=("127.0.0.1", 0),
        store=SqliteStore(file),
        task_poll_interval=0.05,
        graceful_timeout=0.01,
    )
    answers = {"elicitation/create": accept(value=7)}
    async with (
        server as running,
        sansmcp_asyncio.connect(
            running.url, capabilities={"elicitation": {}}, request_handlers=answers
        ) as client,
    ):
        return await asyncio.wait_for(use(client), 30)


def stopped_and_resumed(tools: Tools, work: Work, file: Path, name: str) -> Any:
    """Return the result of a tool whose first instance is stopped while it works."""

    async def begin(client: sansmcp_asyncio.Client) -> Any:
        task = await client.start_task(name)
        following = asyncio.ensure_future(task.result())  # it answers the questions
        await asyncio.to_thread(work.reached.wait, 30)
        following.cancel()
        return task.id

    async def main() -> Any:
        id = await with_client(tools, file, begin)
        return await with_client(tools, file, lambda client: client.task(id).result())

    try:
        return asyncio.run(main())
    finally:
        work.may_end.set()


@pytest.mark.parametrize("name", ["copy_rows", "copy_in_thread"])
def test_another_instance_goes_on_with_a_tool(
    tools: Tools, work: Work, tmp_path: Path, name: str
) -> None:
    result = stopped_and_resumed(tools, work, tmp_path / "mcp.db", name)
    assert text_of(result) == "Accepted(value=7) copied"
    copied = ["copied 0", "copied 1", "copied 2", "copied 2", "copied 3"]
    if name == "copy_rows":
        copied.insert(1, "Accepted(value=7)")
    assert work.done == copied


def test_a_tool_beside_it_is_not_called_again(tools: Tools, work: Work, tmp_path: Path) -> None:
    """One handler serves all tools, and only some of them are restartable."""
    with pytest.raises(sansmcp.JsonRpcError) as raised:
        stopped_and_resumed(tools, work, tmp_path / "mcp.db", "copy_once")
    assert raised.value.data["reason"] == "shutting_down"
    assert work.done == ["copied 2"]


@in_revisions
def test_a_call_that_is_no_task_goes_on_after_its_questions(
    mcp_client: Connect, tools: Tools, revision: str
) -> None:
    done: list[str] = []

    @tools.tool(task="never", restartable=True)
    async def pack(context: Context) -> str:
        if context.saved_state is None:
            done.append(repr(await context.elicit(int, "Which?")))
            await context.save_progress("packed")
        done.append(repr(await context.elicit(int, "Send it?")))
        await context.save_progress("sent")
        return str(context.saved_state)

    client = connect(mcp_client, tools, revision, {"elicitation/create": accept(value=7)})
    assert text_of(client.call_tool("pack")) == "sent"
    assert done == ["Accepted(value=7)"] * 2


def test_a_function_that_has_asked_saves_nothing_more(mcp_client: Connect, tools: Tools) -> None:
    """What it saves would stand for the question that is still open."""
    failed: list[str] = []

    @tools.tool(restartable=True)
    def ask_twice(context: ThreadContext) -> str:
        try:
            return repr(context.elicit(int, "Which?"))
        finally:
            try:
                context.save_progress(1)
            except sansmcp.LocalProtocolError as error:
                failed.append(str(error))

    answers = {"elicitation/create": accept(value=7)}
    client = connect(mcp_client, tools, answers=answers)
    assert text_of(client.call_tool("ask_twice")) == "Accepted(value=7)"
    (reason,) = failed
    assert "ends with a question" in reason


def test_only_a_restartable_tool_saves_progress(mcp_client: Connect, tools: Tools) -> None:
    @tools.tool(restartable=True)
    def restartable(context: ThreadContext) -> str:
        context.save_progress({"step": 1})
        return repr(context.saved_state)

    @tools.tool
    def plain(context: ThreadContext) -> str:
        with pytest.raises(sansmcp.LocalProtocolError) as raised:
            context.save_progress({"step": 1})
        return f"{context.saved_state}: {raised.value}"

    client = connect(mcp_client, tools)
    assert text_of(client.call_tool("restartable")) == "{'step': 1}"
    assert text_of(client.call_tool("plain")).startswith("None: save_progress() needs")
