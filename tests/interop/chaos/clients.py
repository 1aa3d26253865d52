"""Clients that make calls one after the other and print what came of each, as a line of JSON.

``python clients.py LIBRARY ERA CALLS PREFIX``. It prints a line when its library is imported, and
is sent one then, with the URL of the server and a time. A call gets the library's own timeout, and
is given up as hung where it has not ended long after that. After two failures in a row the client
is closed and another one opened. At that time the network is well again: the client that is
open then makes one more call.

What the client in ``../node/chaos_client.mjs`` does is the same.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import anyio
from anyio.abc import TaskGroup

TIMEOUT = 10.0
"""What each library is told, in seconds."""
HUNG = 25.0
"""Seconds after which a call that has not ended is given up."""
OPENINGS = 5
"""Attempts to open a client before the calls that are left are not made."""

Call: TypeAlias = Callable[[dict[str, Any]], Awaitable[str]]
Opened: TypeAlias = AbstractAsyncContextManager["tuple[str, Call]"]
Open: TypeAlias = Callable[[str, str], Opened]


@asynccontextmanager
async def open_sansmcp(url: str, era: str) -> AsyncGenerator[tuple[str, Call], None]:
    """Open a client of sansmcp on asyncio."""
    import sansmcp_asyncio

    def ignore(report: object) -> None:
        pass

    settings: dict[str, Any] = {} if era == "2026-07-28" else {"versions": (era,)}
    async with sansmcp_asyncio.connect(url, timeout=TIMEOUT, **settings) as client:

        async def call(arguments: dict[str, Any]) -> str:
            result = await client.call_tool("work", arguments, on_progress=ignore)
            text: str = result["content"][0]["text"]
            return text

        yield client.connected.version, call


@asynccontextmanager
async def open_mcp(url: str, era: str) -> AsyncGenerator[tuple[str, Call], None]:
    """Open a client of the official SDK for Python."""
    module = importlib.import_module("mcp")
    mode = "auto" if era == "2026-07-28" else "legacy"
    async with module.Client(url, mode=mode, read_timeout_seconds=TIMEOUT) as client:

        async def call(arguments: dict[str, Any]) -> str:
            result = await client.call_tool("work", arguments, progress_callback=_ignore)
            return _text(result)

        yield client.protocol_version, call


@asynccontextmanager
async def open_fastmcp(url: str, era: str) -> AsyncGenerator[tuple[str, Call], None]:
    """Open a client of FastMCP."""
    module = importlib.import_module("fastmcp")
    mode = "auto" if era == "2026-07-28" else "legacy"
    async with module.Client(url, mode=mode, timeout=TIMEOUT) as client:

        async def call(arguments: dict[str, Any]) -> str:
            result = await client.call_tool("work", arguments, progress_handler=_ignore)
            return _text(result)

        yield str(getattr(client, "protocol_version", era)), call


async def _ignore(progress: float, total: float | None, message: str | None) -> None:
    pass


def _text(result: Any) -> str:
    text: str = result.content[0].text
    return text


CLIENTS: dict[str, Open] = {"sansmcp": open_sansmcp, "mcp": open_mcp, "fastmcp": open_fastmcp}


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


class Held:
    """A client that is kept open by a task of its own."""

    def __init__(self) -> None:
        self.call: Call | None = None
        self.revision = self.error = ""
        self._scope = anyio.CancelScope()
        self._ready, self._closing, self._closed = anyio.Event(), anyio.Event(), anyio.Event()

    async def hold(self, opened: Opened) -> None:
        """Open the client, and keep it open until it is closed."""
        with self._scope:
            try:
                async with opened as (self.revision, self.call):
                    self._ready.set()
                    await self._closing.wait()
            except Exception as error:
                self.error = _name(error)
        self._ready.set()
        self._closed.set()

    async def open(self) -> bool:
        """Wait until it is open. Returns False if it hangs or has failed."""
        with anyio.move_on_after(HUNG):
            await self._ready.wait()
        if self.call is None:
            self.error = self.error or "hung"
            self._scope.cancel()
        return self.call is not None

    async def close(self) -> None:
        """Close it, by force if it hangs."""
        self._closing.set()
        with anyio.move_on_after(HUNG):
            await self._closed.wait()
            return
        say(closing="hung")
        self._scope.cancel()


class Caller:
    """Opens clients, and makes calls with the one that is open."""

    def __init__(self, tasks: TaskGroup, open_client: Open, url: str, era: str) -> None:
        self._tasks, self._open, self._url, self._era = tasks, open_client, url, era
        self._client: Held | None = None

    async def open(self) -> bool:
        """Close the client that is open, and open another one. Returns False if that fails."""
        await self.close()
        for _ in range(OPENINGS):
            began = time.monotonic()
            client = Held()
            self._tasks.start_soon(client.hold, self._open(self._url, self._era))
            if await client.open():
                say(revision=client.revision)
                self._client = client
                return True
            say(opening=client.error, seconds=round(time.monotonic() - began, 1))
        return False

    async def call(self, marker: str, number: int) -> bool:
        """Make a call, and print what came of it. Returns True if it was completed."""
        assert self._client is not None
        assert self._client.call is not None
        steps, size = (0, 200) if number % 2 else (5, 1000)
        arguments = {"marker": marker, "steps": steps, "size": size}
        began, outcome, why = time.monotonic(), "hung", ""
        with anyio.move_on_after(HUNG):
            try:
                text = await self._client.call(arguments)
                outcome = "completed" if text == f"{marker} {size * 'x'}" else "wrong"
            except Exception as error:
                outcome, why = "error", _name(error)
        seconds = round(time.monotonic() - began, 1)
        say(marker=marker, outcome=outcome, why=why, seconds=seconds)
        return outcome == "completed"

    async def close(self) -> None:
        """Close the client that is open."""
        if self._client is not None:
            await self._client.close()


def _name(error: BaseException) -> str:
    inner: tuple[BaseException, ...]
    while inner := getattr(error, "exceptions", ()):  # of an exception group
        error = inner[0]
    return f"{type(error).__name__}: {error}"[:200]


async def main(library: str, url: str, era: str, calls: int, prefix: str, quiet_at: float) -> None:
    """Make the calls."""
    async with anyio.create_task_group() as tasks:
        caller = Caller(tasks, CLIENTS[library], url, era)
        failures = 2
        for number in range(1, calls + 1):
            if failures == 2:
                failures = 0
                if not await caller.open():
                    return
            failures = 0 if await caller.call(f"{prefix}-{number}", number) else failures + 1
        await anyio.sleep(max(quiet_at - time.time(), 0))
        await caller.call(f"{prefix}-after", 0)
        await caller.close()


if __name__ == "__main__":
    _, LIBRARY, ERA, CALLS, PREFIX = sys.argv
    MODULE = importlib.import_module("sansmcp_asyncio" if LIBRARY == "sansmcp" else LIBRARY)
    # Some import the most of it when this is first used.
    say(ready=str(MODULE.connect if LIBRARY == "sansmcp" else MODULE.Client))
    URL, QUIET_AT = sys.stdin.readline().split()
    anyio.run(main, LIBRARY, URL, ERA, int(CALLS), PREFIX, float(QUIET_AT))
