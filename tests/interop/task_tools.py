"""Our application of tasks, for clients of others.

``fastmcp_tasks_client.py`` and ``node/tasks_client.mjs`` use its tools in the same way.
``python -m tests.interop.task_tools`` serves it on stdio.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

import sansmcp
import sansmcp_trio
from sansmcp import InputRequest, InputRequired, JsonRpcError
from sansmcp.app import TaskRule
from sansmcp_trio import Call

from .stateless import MODERN, SEAL

RULES: dict[str, TaskRule] = {
    "now": "never",
    "work": 0,
    "refuse": "required",
    "fail": 0,
    "greet": 0,
    "ask_before": "optional",
    "hang": 0,
    "cancelled": "never",
}
"""The tools, and when calls of them become tasks."""

FOUND = {
    "version": MODERN,
    "now": "now",
    "work": "done",
    "refuse": "no such scene",
    "fail": "the stage is closed",
    "greet": "Hello Ada Lovelace",
    "ask_before": "Hello Ada",
    "hang": "cancelled",
    "cancelled": "a task was cancelled",
    "unknown": -32602,
}
"""What a client finds that uses all tools, cancels ``hang``, and asks for an unknown task."""


class TaskTools:
    """The application."""

    def __init__(self) -> None:
        self._is_cancelled = trio.Event()
        self.app = sansmcp.App("ours", "1")
        self.app.handler("tools/list")(_list_tools)
        self.app.handler("tools/call", task=_rule)(self._call_tool)

    async def _call_tool(self, call: Call) -> Any:
        match call.params["name"]:
            case "now":
                return _text("now")
            case "work":
                await call.progress(1, 2, "half of it")
                return _text("done")
            case "refuse":
                return {**_text("no such scene"), "isError": True}
            case "fail":
                raise JsonRpcError(-32004, "the stage is closed")
            case "greet":
                return _greet(call, "first", "last")
            case "ask_before":
                if call.input_responses:
                    await call.become_task()
                return _greet(call, "first")
            case "hang":
                await self._hang()
            case "cancelled":
                await self._is_cancelled.wait()
                return _text("a task was cancelled")
            case name:
                raise JsonRpcError(-32602, f"There is no tool {name!r}")

    async def _hang(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self._is_cancelled.set()


def _greet(call: Call, *asked: str) -> Any:
    """Ask for each name, or greet the person who has them."""
    if call.input_responses:
        names = [call.input_responses[each]["content"]["name"] for each in asked]
        return _text(" ".join(["Hello", *names]))
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    requests = {
        each: InputRequest("elicitation/create", {"message": each, "requestedSchema": schema})
        for each in asked
    }
    return InputRequired(requests)


def _rule(call: sansmcp.ServerCall) -> TaskRule:
    return RULES.get(str((call.request.params or {}).get("name")), "never")


def _list_tools(call: Call) -> Any:
    return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in RULES]}


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


@asynccontextmanager
async def served(**settings: Any) -> AsyncGenerator[sansmcp_trio.RunningServer, None]:
    """Serve the application; it is stopped at the end of the block, unless it has been before."""
    async with trio.open_nursery() as nursery:
        serve = partial(
            sansmcp_trio.serve,
            TaskTools().app,
            versions=(MODERN,),
            state_signer=SEAL,
            task_poll_interval=0.05,
            **settings,
        )
        serving: sansmcp_trio.RunningServer = await nursery.start(serve)
        yield serving
        serving.stop()


async def _main() -> None:
    async with served(stdio=True) as serving:
        await serving.stopped.wait()


if __name__ == "__main__":
    trio.run(_main)
