"""A server on stdio-v2, on the adapter of the first argument; the rest changes what it does."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from typing import Any

import sansmcp


def echo(call: Any) -> Any:
    arguments = call.params["arguments"]
    match call.params["name"]:
        case "echo":
            text = arguments["text"]
        case "large":
            text = "x" * arguments["size"]
        case "die":
            sys.stderr.write("the end is near\n")
            sys.stderr.flush()
            os._exit(3)
        case "print":
            print("printed by a handler")
            text = "printed"
        case "write":
            os.write(call_output(), b"Hello from below\n")
            text = "written"
        case _:
            time.sleep(arguments["seconds"])
            text = "slept"
    return {"content": [{"type": "text", "text": text}]}


_output = -1


def call_output() -> int:
    """A copy of the real standard output, as a library in C would have."""
    return _output


def kill_after(count: int) -> None:
    """Put something between this process and its output that kills it after so many bytes."""
    source, sink = os.pipe()
    output = os.dup(1)
    os.dup2(sink, 1)

    def copy() -> None:
        left = count
        while left > 0:
            left -= os.write(output, os.read(source, min(left, 1000)))
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=copy, daemon=True).start()


def main() -> None:
    global _output
    adapter, *options = sys.argv[1:]
    _output = os.dup(1)
    for option in options:
        if option.isdigit():
            kill_after(int(option))
    app = sansmcp.App("v2", "1", capabilities={"tools": {}})
    app.handler("tools/call")(echo)
    settings: dict[str, Any] = {"stdio": True if "v1" in options else "v2"}
    if "prints" in options:
        os.write(1, b"Welcome to the server\n")
    if adapter == "asyncio":
        import sansmcp_asyncio

        asyncio.run(sansmcp_asyncio.serve(app, **settings))
    elif adapter == "trio":
        import trio

        import sansmcp_trio

        async def run() -> None:
            await sansmcp_trio.serve(app, **settings)

        trio.run(run)
    else:
        import sansmcp_blocking

        with sansmcp_blocking.serve(app, **settings) as server:
            server.wait()


if __name__ == "__main__":
    main()
