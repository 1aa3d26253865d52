"""A server in its own process.

``python -m tests.guarantees.server ADAPTER JOURNAL KEPT FILE TASK`` prints its port, then serves
one tool until it is killed. The tool appends to the journal when it starts, reports progress if
asked to (as a task, if TASK is not "never"), waits until the file named in its arguments exists,
and appends again when it ends or is cancelled.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sansmcp
from sansmcp_stores import SqliteStore

from .journal import CANCELLED, ENDED, STARTED, Journal

# Each process imports the adapter that it uses, and no other one: many are started.

if TYPE_CHECKING:
    from sansmcp_local import ThreadCall

_POLL_INTERVAL = 0.02
"""Seconds between two looks for the file that ends a tool."""


def _async_app(
    journal: Journal, options: dict[str, Any], sleep: Callable[[float], Any]
) -> sansmcp.App:
    app = sansmcp.App("guarantees")

    @app.handler("tools/call", **options)
    async def call_tool(call: sansmcp.BaseCall[Any, Any]) -> dict[str, Any]:
        arguments: dict[str, Any] = call.params["arguments"]
        journal.write(arguments["call"], STARTED)
        step = CANCELLED
        try:
            if arguments["reports"]:
                await call.become_task()
                await call.progress(1)
            while not Path(arguments["until"]).exists():
                await sleep(_POLL_INTERVAL)
            step = ENDED
        finally:
            journal.write(arguments["call"], step)
        return {"content": [{"type": "text", "text": arguments["call"]}]}

    return app


def _blocking_app(journal: Journal, options: dict[str, Any]) -> sansmcp.App:
    app = sansmcp.App("guarantees")

    @app.handler("tools/call", **options)
    def call_tool(call: ThreadCall) -> dict[str, Any]:
        arguments: dict[str, Any] = call.params["arguments"]
        journal.write(arguments["call"], STARTED)
        step = CANCELLED
        try:
            if arguments["reports"]:
                call.become_task()
                call.progress(1)
            while not (call.cancelled.is_set() or Path(arguments["until"]).exists()):
                time.sleep(_POLL_INTERVAL)
            step = CANCELLED if call.cancelled.is_set() else ENDED
        finally:
            journal.write(arguments["call"], step)
        return {"content": [{"type": "text", "text": arguments["call"]}]}

    return app


def _say(url: str) -> None:
    print(sansmcp.Url.parse(url).port, flush=True)


def _serve_on_asyncio(journal: Journal, options: dict[str, Any], settings: dict[str, Any]) -> None:
    import asyncio

    import sansmcp_asyncio

    async def main() -> None:
        app = _async_app(journal, options, asyncio.sleep)
        async with sansmcp_asyncio.serve(app, **settings) as serving:
            _say(serving.url)
            await asyncio.Event().wait()

    asyncio.run(main())


def _serve_on_trio(journal: Journal, options: dict[str, Any], settings: dict[str, Any]) -> None:
    import trio

    import sansmcp_trio

    async def main() -> None:
        async with trio.open_nursery() as nursery:

            async def serve(task_status: trio.TaskStatus[Any]) -> None:
                app = _async_app(journal, options, trio.sleep)
                await sansmcp_trio.serve(app, task_status=task_status, **settings)

            serving = await nursery.start(serve)
            _say(serving.url)

    trio.run(main)


def _serve_blocking(journal: Journal, options: dict[str, Any], settings: dict[str, Any]) -> None:
    import sansmcp_blocking

    with sansmcp_blocking.serve(_blocking_app(journal, options), **settings) as serving:
        _say(serving.url)
        serving.wait()


_SERVE = {"asyncio": _serve_on_asyncio, "trio": _serve_on_trio, "blocking": _serve_blocking}


def main() -> None:
    """Serve as the arguments say."""
    adapter, path, kept, file, task = sys.argv[1:]
    journal = Journal(Path(path))
    settings: dict[str, Any] = {
        "http": ("127.0.0.1", 0),
        "http_sse": "/sse",
        "limits": sansmcp.Limits(
            stream_comment_interval=0.1, store_poll_interval=0.05, lease_timeout=2.0
        ),
        "resumable": kept != "nothing",
        "task_after": None,
        "task_poll_interval": 0.05,
    }
    options: dict[str, Any] = {"task": "never"}
    if task != "never":
        options = {"task": "optional", "restartable": task == "restartable"}
    if kept in ("file", "keys"):
        settings["store"] = SqliteStore(file)
        settings["shared_store"] = True
        settings["state_signer"] = sansmcp.StateSigner(keys=(b"one key for all.",), clock=time.time)
    if kept == "keys":
        settings["reclaim"] = "store"
    _SERVE[adapter](journal, options, settings)


if __name__ == "__main__":
    main()
