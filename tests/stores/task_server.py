"""A server of tasks of its own process: ``python -m tests.stores.task_server STORE RULE WHERE``.

STORE is a file, or the URL of a Redis. RULE is ``restartable`` or ``once``. WHERE is ``stdio``, or
``http`` for a free port, whose URL it says then.

The tool ``work`` never ends in the process that has called it first. The tool ``ask`` asks for a
name.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import sansmcp
import sansmcp_asyncio
from sansmcp import InputRequest, InputRequired
from sansmcp_asyncio import Call
from sansmcp_stores import RedisStore, SqliteStore

LIMITS = sansmcp.Limits(lease_timeout=0.5)
"""A dead process is noticed soon."""

NAME = InputRequest("elicitation/create", {"message": "Name?", "requestedSchema": {}})


async def call_tool(call: Call) -> Any:
    return await work(call) if call.params["name"] == "work" else ask(call)


async def work(call: Call) -> Any:
    """Stop halfway, and say where; be called again in another process, and go on."""
    began = call.saved_state
    if began is None:
        await call.become_task()
        if is_restartable:
            await call.save_progress(os.getpid())
        await call.progress(1, 2, f"half of it, in {os.getpid()}")
        await asyncio.Event().wait()
    return result(began=began)


def ask(call: Call) -> Any:
    """Ask for a name."""
    if not call.input_responses:
        return InputRequired({"name": NAME}, os.getpid())
    return result(began=call.saved_state, name=call.input_responses["name"]["content"]["name"])


def result(**found: Any) -> dict[str, Any]:
    return {"content": [], "structuredContent": {**found, "ended": os.getpid()}}


async def main() -> None:
    app = sansmcp.App("tasks", "1")
    app.handler("tools/call", task=0, restartable=is_restartable)(call_tool)
    store: SqliteStore | RedisStore
    if place.startswith("redis:"):
        store = RedisStore.from_url(place)
    else:
        store = SqliteStore(place, busy_timeout=20)
    how: dict[str, Any] = {"http": ("127.0.0.1", 0)} if where == "http" else {"stdio": True}
    async with sansmcp_asyncio.serve(
        app, store=store, limits=LIMITS, task_poll_interval=0.05, graceful_timeout=0.1, **how
    ) as serving:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.stop)
        if where == "http":
            print(serving.url, flush=True)
        await serving.stopped.wait()


if __name__ == "__main__":
    place, rule, where = sys.argv[1:]
    is_restartable = rule == "restartable"
    asyncio.run(main())
