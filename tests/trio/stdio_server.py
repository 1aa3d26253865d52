"""A server on stdio for the tests: ``python stdio_server.py SETTINGS``, as JSON, of serve()."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import trio

import sansmcp
import sansmcp_trio
from sansmcp_trio import Call

app = sansmcp.App("stdio-tests", "1")
_tools: dict[str, Callable[[Call, dict[str, Any]], Awaitable[Any]]] = {}
_met: list[str] = []
_all_met = trio.Event()


@app.handler("tools/call")
async def call_tool(call: Call) -> Any:
    return await _tools[call.params["name"]](call, call.params["arguments"])


@app.handler("tools/list")
def list_tools(call: Call) -> Any:
    return {"tools": [{"name": name} for name in _tools]}


def tool(function: Callable[[Call, dict[str, Any]], Awaitable[Any]]) -> None:
    _tools[function.__name__.rstrip("_")] = function


@tool
async def echo(call: Call, arguments: dict[str, Any]) -> Any:
    return arguments


@tool
async def work(call: Call, arguments: dict[str, Any]) -> Any:
    await call.progress(1, 2, "half")
    await call.notify("notifications/message", {"level": "info", "data": "working"})
    await call.progress(2, 2)
    return {"done": True}


@tool
async def ask(call: Call, arguments: dict[str, Any]) -> Any:
    return await call.ask("elicitation/create", arguments)


@tool
async def nap(call: Call, arguments: dict[str, Any]) -> Any:
    await trio.sleep(arguments["seconds"])
    return {"slept": True}


@tool
async def hang(call: Call, arguments: dict[str, Any]) -> Any:
    say("hanging")
    try:
        await trio.sleep_forever()
    finally:
        say("cancelled")


@tool
async def meet(call: Call, arguments: dict[str, Any]) -> Any:
    """Comes back when as many as are expected have come."""
    _met.append(arguments["name"])
    if len(_met) == arguments["expected"]:
        _all_met.set()
    await _all_met.wait()
    return {"met": sorted(_met)}


@tool
async def disturb(call: Call, arguments: dict[str, Any]) -> Any:
    """Do all to standard input and output that a handler must not do."""
    print("printed")
    os.write(1, b"written\n")
    found = [sys.stdin.read()]
    program = "import sys; print('by a child'); print(repr(sys.stdin.read()), file=sys.stderr)"
    child = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, check=True)
    return {"found": [*found, child.stderr.decode().strip()]}


@tool
async def exit_(call: Call, arguments: dict[str, Any]) -> Any:
    say("out of\nmemory")
    os._exit(arguments["status"])


@tool
async def about(call: Call, arguments: dict[str, Any]) -> Any:
    status = Path("/proc/self/status")
    peak = re.search(r"VmHWM:\s+(\d+)", status.read_text()) if status.exists() else None
    return {"pid": os.getpid(), "peak": int(peak[1]) * 1024 if peak is not None else None}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def main(settings: dict[str, Any]) -> None:
    if "limits" in settings:
        settings["limits"] = sansmcp.Limits(**settings["limits"])
    await sansmcp_trio.serve(app, stdio=True, **settings)


if __name__ == "__main__":
    trio.run(partial(main, json.loads(sys.argv[1])))
