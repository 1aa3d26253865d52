"""What is lost behind bridges: when connections are cut, and when the server dies again and again.

A call is lost if the server has answered it, as the server itself notes in a file, and the caller
has no result. A call hangs if it has neither a result nor an error after ``TIMEOUT`` seconds.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import attrs

import sansmcp
import sansmcp_asyncio
from sansmcp_cli._fault_proxy import CUTS as CUT
from sansmcp_cli._fault_proxy import FaultProxy, relaying
from sansmcp_cli._fault_proxy import Link as Carried
from sansmcp_cli._faults import Faults, Mean, SeededFate

from .bridge_contestants import BRIDGES, serving_http
from .measuring import LEGACY, Skipped, line_from, skip, started

CUTS = 1000
FAULTS = Faults(cut=Mean(3000, is_time=False))
"""Each connection is cut after so many bytes of either direction, drawn from an exponential
distribution; half of the cuts are resets."""
CALLERS = 8
TIMEOUT = 10.0
LIMIT = 90.0
"""Seconds after which a bridge gets no more cuts."""
DIES_AFTER = 5.0
RATE = 100
"""Calls a second to the server that dies."""
SECONDS = 40.0
_PEER = (sys.executable, "-m", "benchmarks.bridge_peers")


@attrs.define
class Callers:
    """Calls by one client, which connects again where it has to."""

    target: str | Sequence[str]
    asked: int = 0
    failed: int = 0
    hung: int = 0
    connections: int = 0
    got: set[str] = attrs.field(factory=lambda: set[str]())
    """The texts of the calls with a result."""
    _client: sansmcp_asyncio.Client | None = None
    _lock: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    _numbers: itertools.count[int] = attrs.field(factory=itertools.count)

    async def call(self) -> None:
        """Call once, and note what has become of it."""
        try:
            client = await self.connect()
        except (sansmcp.CallError, asyncio.TimeoutError):
            await asyncio.sleep(0.2)
            return
        text = str(next(self._numbers))
        self.asked += 1
        try:
            await client.call_tool("echo", {"text": text}, timeout=TIMEOUT)
        except sansmcp.RequestTimeout:
            self.hung += 1
        except sansmcp.CallError:
            self.failed += 1
        else:
            self.got.add(text)

    async def connect(self) -> sansmcp_asyncio.Client:
        """The client. Raises CallError or TimeoutError."""
        async with self._lock:
            if self._client is not None and self._client.is_closed:
                await self.aclose()
            if self._client is None:
                client = sansmcp_asyncio.connect(self.target, versions=(LEGACY,))
                self._client = await asyncio.wait_for(client, 30)
                self.connections += 1
            return self._client

    async def aclose(self) -> None:
        """Close the client."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(sansmcp.CallError):
                await client.aclose()

    def row(self, answered: Path) -> str:
        """Cells of a table; ``answered`` is the file of the server."""
        texts = set(answered.read_text().split()) if answered.exists() else set[str]()
        lost, of_all = len(texts - self.got), max(len(texts), 1)
        others = (self.hung, self.failed, self.connections)
        counts = " | ".join(f"{each:,}" for each in others)
        return (
            f"{self.asked:,} | {len(texts):,} | {lost:,} ({100 * lost / of_all:.1f} %) | {counts}"
        )


_COLUMNS = "calls | answered by the server | lost of these | hung | failed | connected"


@asynccontextmanager
async def _calling(target: str | Sequence[str]) -> AsyncGenerator[Callers]:
    callers = Callers(target)
    try:
        await callers.connect()
        yield callers
    except (sansmcp.CallError, asyncio.TimeoutError) as error:
        raise Skipped(f"{type(error).__name__}: {error}") from error
    finally:
        await callers.aclose()


async def compare_cuts(
    cuts: int = CUTS, names: Iterable[str] = BRIDGES, limit: float = LIMIT
) -> str:
    """What each bridge loses when its connections are cut.

    From stdio to HTTP those with its client are cut, from HTTP to stdio those with the server. That
    one is ours, so that event streams can be resumed.
    """
    lines = [f"| way | bridge | cuts | {_COLUMNS} |", "|" + "---|" * 9]
    for way in ("stdio to HTTP", "HTTP to stdio"):
        for name in names:
            try:
                lines.append(f"| {way} | {name} | {await _cut(way, name, cuts, limit)} |")
            except Skipped as reason:
                skip(f"{name}, {way}", reason)
    return "\n".join(lines)


async def _cut(way: str, name: str, cuts: int, limit: float) -> str:
    bridge, ended = BRIDGES[name], 0

    def note(link: Carried) -> None:
        nonlocal ended
        ended += link.ending in CUT

    async with AsyncExitStack() as stack:
        answered = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "answered"
        if way == "stdio to HTTP":
            if isinstance(bridge.to_http, str):
                raise Skipped(bridge.to_http)
            server = [*_PEER, "stdio", str(answered)]
            _, url = stack.enter_context(serving_http(bridge.to_http, server))
        else:
            if isinstance(bridge.to_stdio, str):
                raise Skipped(bridge.to_stdio)
            server_process = started("bridge_peers", "ours-old", str(answered))
            url = line_from(stack.enter_context(server_process))
        address = urlsplit(url).hostname, urlsplit(url).port
        proxy = FaultProxy(
            lambda: address, lambda number: SeededFate(FAULTS, 1, number), note, is_quiet=True
        )
        cut_url = stack.enter_context(relaying(proxy))
        target = cut_url if isinstance(bridge.to_stdio, str) else bridge.to_stdio(cut_url)
        target = cut_url if way == "stdio to HTTP" else target
        callers = await stack.enter_async_context(_calling(target))
        end = time.monotonic() + limit
        proxy.is_quiet = False

        async def work() -> None:
            while ended < cuts and time.monotonic() < end:
                await callers.call()
            proxy.is_quiet = True

        await asyncio.gather(*[work() for _ in range(CALLERS)])
        return f"{ended:,} | {callers.row(answered)}"


async def count_deaths(seconds: float = SECONDS, names: Iterable[str] = BRIDGES) -> str:
    """What each bridge loses whose server on stdio is killed again and again."""
    lines = [
        f"| server killed every {DIES_AFTER:g} s for {seconds:g} s | {_COLUMNS} |",
        "|" + "---|" * 7,
    ]
    for name in names:
        try:
            lines.append(f"| {name} | {await _with_deaths(name, seconds)} |")
        except Skipped as reason:
            skip(f"{name}, deaths", reason)
    return "\n".join(lines)


async def _with_deaths(name: str, seconds: float) -> str:
    to_http = BRIDGES[name].to_http
    if isinstance(to_http, str):
        raise Skipped(to_http)
    async with AsyncExitStack() as stack:
        answered = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "answered"
        server = [*_PEER, "stdio", os.fspath(answered), str(DIES_AFTER)]
        _, url = stack.enter_context(serving_http(to_http, server))
        callers = await stack.enter_async_context(_calling(url))
        loop = asyncio.get_running_loop()
        start, calls = loop.time(), set[asyncio.Task[None]]()
        for number in range(int(seconds * RATE)):
            await asyncio.sleep(start + number / RATE - loop.time())
            call = loop.create_task(callers.call())
            calls.add(call)
            call.add_done_callback(calls.discard)
        await asyncio.gather(*calls)
        return callers.row(answered)
