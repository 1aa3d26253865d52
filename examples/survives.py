"""Two calls that outlive their connections, and one of them also its server (docs/tasks.md).

python examples/survives.py          # takes about ten seconds

Each call becomes a task at once. From then on a proxy breaks connections, every other one in the
middle of a response. During the second call the server is killed, too, and another one started.
The tool appends to a file what it does; the lines of that file are counted at the end.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sansmcp
import sansmcp_asyncio
from sansmcp_stores import SqliteStore

STEPS = 8


async def serve(directory: Path, *, restartable: bool) -> None:
    """Serve a tool that takes a while, in a process of its own, until it is killed."""
    app = sansmcp.App("worker", "1.0")

    def note(what: str) -> None:
        with (directory / "done").open("a", encoding="utf-8") as file:
            file.write(f"{what}\n")

    @app.handler("tools/call", restartable=restartable)
    async def call_tool(call: sansmcp_asyncio.Call) -> dict[str, Any]:
        note("called")
        for step in range(call.saved_state or 0, STEPS):
            await asyncio.sleep(0.25)
            note(f"step {step}")
            if restartable:
                await call.save_progress(step + 1)
        return {"content": [{"type": "text", "text": f"{STEPS} steps are done"}]}

    serving = sansmcp_asyncio.serve(
        app,
        http=("127.0.0.1", 0),
        store=SqliteStore(directory / "store.db"),
        task_after=0,
        task_poll_interval=0.2,
        limits=sansmcp.Limits(lease_timeout=2.0),  # how soon a dead server is noticed
    )
    async with serving as running:
        print(sansmcp.Url.parse(running.url).port, flush=True)
        await asyncio.Event().wait()


class Proxy:
    """Passes connections on to a server, and breaks them once the client has the id of a task."""

    def __init__(self) -> None:
        self.port = 0
        self.cuts = 0
        self.has_cut = asyncio.Event()
        self._breaks = itertools.cycle((True, False))

    async def relay(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Pass on one connection."""
        with suppress(OSError):
            server, to_server = await asyncio.open_connection("127.0.0.1", self.port)
            requests = asyncio.create_task(copy(client, to_server))
            while data := await server.read(65536):
                is_broken = self.has_cut.is_set() and next(self._breaks)
                to_client.write(data[: len(data) // 2] if is_broken else data)
                await to_client.drain()
                if is_broken or b'"resultType":"task"' in data:
                    self.cuts += 1
                    self.has_cut.set()
                    break
            requests.cancel()
            to_server.close()
        to_client.close()


async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Pass on what the client sends."""
    with suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)


async def start_server(directory: Path, *, restartable: bool) -> tuple[Process, int]:
    """Start a server process; returns it and its port."""
    options = ("restartable",) if restartable else ()
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, str(directory), *options, stdout=PIPE
    )
    assert process.stdout is not None
    return process, int(await process.stdout.readline())


async def call(directory: Path, *, restartable: bool) -> bool:
    """Make a call; returns True if the handler ran as often as the page on tasks says.

    ``restartable``: also kill the server meanwhile, and start another one.
    """
    done = directory / "done"
    proxy = Proxy()
    process, proxy.port = await start_server(directory, restartable=restartable)
    listener = await asyncio.start_server(proxy.relay, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        async with sansmcp_asyncio.connect(f"http://127.0.0.1:{port}/mcp") as client:
            calling = asyncio.ensure_future(client.call_tool("work", timeout=30))
            if restartable:
                await proxy.has_cut.wait()
                while not done.exists() or "step 2" not in done.read_text(encoding="utf-8"):
                    await asyncio.sleep(0.01)
                process.kill()
                await process.wait()
                process, proxy.port = await start_server(directory, restartable=restartable)
            result = await calling
    finally:
        listener.close()
        process.kill()
        await process.wait()
    counts = Counter(done.read_text(encoding="utf-8").splitlines())
    calls, steps = counts.pop("called"), counts.values()
    servers = 2 if restartable else 1
    cut = "cut, and the server killed" if restartable else "cut"
    print(f"{proxy.cuts} connections {cut}: {result['content'][0]['text']}")
    print(
        f"  handler called: {calls}, steps: {len(counts)}, done twice: {sum(steps) - len(counts)}"
    )
    return calls == servers and len(counts) == STEPS and sum(steps) < STEPS + servers


async def main() -> int:
    """Make both calls. The exit status is 1 if anything was lost, or done too often."""
    are_right: list[bool] = []
    for restartable in (False, True):
        with TemporaryDirectory() as directory:
            are_right.append(await call(Path(directory), restartable=restartable))
    return 0 if all(are_right) else 1


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        if len(sys.argv) == 1:
            sys.exit(asyncio.run(main()))
        asyncio.run(serve(Path(sys.argv[1]), restartable=len(sys.argv) > 2))
