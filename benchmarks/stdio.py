"""Compare servers on stdio: ``python -m benchmarks.stdio [calls]``.

Each server is a process. It gets the same small call again and again, the next one when it has
answered, or as many at once as there are callers. What counts is the processor time that it takes
for a call.

    python -m benchmarks.stdio NAME     # serves
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_trio

from . import plot
from .contestants import TEXT, application
from .measuring import (
    LEGACY,
    MODERN,
    Cost,
    Costs,
    Process,
    Skipped,
    check_time,
    clocks,
    column_of,
    in_rounds,
    last_words,
    skip,
    started_command,
    table,
    wanted,
)
from .requests import handshake, message

CALLERS = 32
COLUMNS = {"1 caller": 1, f"{CALLERS} callers": CALLERS}


# Servers


def ours_on_asyncio() -> None:
    """The adapter for asyncio."""

    async def main() -> None:
        await sansmcp_asyncio.serve(application(), stdio=True)

    asyncio.run(main())


def ours_on_trio() -> None:
    """The adapter for trio."""
    trio.run(partial(sansmcp_trio.serve, application(), stdio=True))


def ours_blocking() -> None:
    """The adapter with threads."""
    sansmcp_blocking.serve(application(), stdio=True).wait()


def official() -> None:
    """The official SDK."""
    from .official import serve_stdio

    serve_stdio()


def answers(lines: Sequence[bytes]) -> bytes:
    """What a bare server says to calls."""
    found = [{"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": TEXT} for line in lines]
    return b"".join(json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in found)


def bare_on_asyncio() -> None:
    """A loop of asyncio."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
        while line := await reader.readline():
            transport.write(answers([line]))

    asyncio.run(main())


def bare_on_trio() -> None:
    """A loop of trio."""

    async def main() -> None:
        reader, writer = trio.lowlevel.FdStream(0), trio.lowlevel.FdStream(1)
        rest = b""
        async for data in reader:
            *lines, rest = (rest + data).split(b"\n")
            await writer.send_all(answers(lines))

    trio.run(main)


def bare_blocking() -> None:
    """A loop without an event loop."""
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(answers([line]))
        sys.stdout.buffer.flush()


@attrs.frozen
class Contestant:
    """A server, and what it is asked."""

    serve: Callable[[], None]
    versions: tuple[str, ...] = (MODERN, LEGACY)
    command: tuple[str, ...] = ()
    """How it is started, if not by this module."""
    tool: str = "echo"
    argument: str = "text"


SERVERS: dict[str, Contestant] = {
    "sansmcp, asyncio": Contestant(ours_on_asyncio),
    "sansmcp, trio": Contestant(ours_on_trio),
    "sansmcp, blocking": Contestant(ours_blocking),
    "bare asyncio": Contestant(bare_on_asyncio, (MODERN,)),
    "bare trio": Contestant(bare_on_trio, (MODERN,)),
    "bare blocking": Contestant(bare_blocking, (MODERN,)),
    "mcp": Contestant(official),
}


def with_node() -> dict[str, Contestant]:
    """The server of the TypeScript SDK, where the tests have installed Node."""
    try:
        from tests import node

        folder = Path(node.__file__).parent / "interop" / "node"
        node.install(folder)
    except (ImportError, OSError, RuntimeError) as reason:
        skip("TypeScript SDK", reason)
        return {}
    command = (node.NODE, str(folder / "server.mjs"), "stdio")
    return {"TypeScript SDK": Contestant(ours_on_asyncio, (MODERN,), command, "region", "region")}


# Measuring


class Caller:
    """The other end of a server's pipes."""

    def __init__(self, process: Process, contestant: Contestant, version: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._in, self._out = process.stdin.fileno(), process.stdout.fileno()
        params = {"name": contestant.tool, "arguments": {contestant.argument: "hello"}}
        self._line = line_of(message("tools/call", params, version, id=0))
        if version == LEGACY:
            initialize, initialized = handshake()
            os.write(self._in, line_of(initialize))
            self._read()
            os.write(self._in, line_of(initialized))

    def call(self, callers: int, calls: int) -> Cost:
        """What a call takes, of so many at once."""
        self._press(callers, max(calls // 4, callers))
        with clocks(self._process) as cost:
            self._press(callers, calls)
            return cost(calls)

    def _press(self, callers: int, calls: int) -> None:
        os.write(self._in, self._lines(range(callers)))
        asked, answered = callers, 0
        while answered < calls:
            found = self._read()
            more = min(found, calls - asked)
            answered += found
            os.write(self._in, self._lines(range(asked, asked + more)))
            asked += more

    def _lines(self, ids: range) -> bytes:
        return b"".join(self._line.replace(b'"id": 0', b'"id": %d' % id) for id in ids)

    def _read(self) -> int:
        """How many lines come next. Raises Skipped for an error, and at the end."""
        data = b""
        while not data.endswith(b"\n"):
            more = os.read(self._out, 65536)
            if not more:
                raise Skipped(last_words(self._process))
            data += more
            if b'"error"' in data:
                raise Skipped(f"wrong: {data[:100]!r}")
        return data.count(b"\n")


def line_of(message: dict[str, Any]) -> bytes:
    """A message as a line."""
    return json.dumps(message).encode() + b"\n"


def measure(calls: int) -> dict[str, Costs]:
    """The costs of each server, by ``"row: column"``."""
    with ExitStack() as stack:
        measures: dict[str, Callable[[], Cost]] = {}
        contestants = {**SERVERS, **with_node()}
        for name in wanted(contestants):
            contestant = contestants[name]
            own = [sys.executable, "-m", "benchmarks.stdio", name]
            for version in contestant.versions:
                row = f"{name}, {version}" if len(contestant.versions) > 1 else name
                try:
                    check_time()
                    process = stack.enter_context(started_command(contestant.command or own))
                    caller = Caller(process, contestant, version)
                except (Skipped, OSError) as reason:
                    skip(row, reason)
                    continue
                for column, callers in COLUMNS.items():
                    measures[f"{row}: {column}"] = partial(caller.call, callers, calls)
        return in_rounds(measures)


def main(calls: int) -> None:
    """Measure, print what came out, and plot it."""
    costs = measure(calls)
    print(table("server on stdio: µs, least / median / spread (rate)", costs, tuple(COLUMNS)))
    micros = column_of(costs, f"{CALLERS} callers")
    plot.write("stdio", "A small call on stdio", "µs of the server's processor", micros, "sansmcp")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in SERVERS:
        SERVERS[sys.argv[1]].serve()
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
