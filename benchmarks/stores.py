"""Compare the stores: ``python -m benchmarks.stores [appends]``.

Each store is used on asyncio, as an adapter does. What counts is the processor time of our process,
with all its threads, for an append or a page, and how many there are in a second. Entries have 300
bytes. Each append goes to a log of its own session.

Then another process watches a log, and reads what is new in it: the time from before the append
until it has the entry.

Then a server on asyncio gets small calls of 2025-11-25, from 32 connections with a session each,
and stores every response before it sends it: its handler waits for one turn of the loop, since the
response of a handler that does not wait is JSON, which is not stored.

Last, how long the event loop stalls: how late a timer of 1 ms is while 32 tasks append 500 entries
a second, beside a loop that does nothing else, and while another process locks the file for a
second at a time.

SQLite synchronises each group of appends with the disk of the temporary folder, so its rate is that
of the disk. Redis runs beside us with ``appendfsync everysec``; its own processor time is not
counted.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import selectors
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import sansmcp
import sansmcp_asyncio
from sansmcp import AppendResult, AsyncStore, Entry, Limits, MemoryStore, Store, StreamKey
from sansmcp_stores import RedisStore, SqliteStore

from .measuring import LEGACY, Cost, Skipped, clocks, in_rounds, line_from, skip, started, table
from .requests import handshake, message, post

BYTES = 300
PAGE = 128
AT_ONCE = 32
ALONE, TOGETHER, READ = "append, alone", f"append, {AT_ONCE} at once", f"page of {PAGE}"
LIMITS = Limits(max_stored_bytes=1 << 30, max_stored_entries=10**7)
WATCHED = StreamKey("", "watched", "stream")
STALL_SECONDS, RATE = 5.0, 500
CALL_SECONDS = 3.0


def open_store(place: str) -> Any:
    """Open the store at a URL, in a file, or in memory where nothing is named."""
    if not place:
        return MemoryStore(LIMITS)
    if place.startswith("redis:"):
        return RedisStore.from_url(place, LIMITS)
    return SqliteStore(place, LIMITS)


async def _done(result: Any) -> Any:
    """Wait for a store that is asynchronous."""
    return await result if hasattr(result, "__await__") else result


class Writer:
    """Appends one entry after another to a log."""

    def __init__(self, store: Store | AsyncStore, key: StreamKey) -> None:
        self._store, self._key = store, key
        self._numbers = itertools.count(1)

    async def append(self, data: bytes = b"x" * BYTES) -> None:
        """Append the next entry."""
        seq = next(self._numbers)
        entry = Entry(seq, data)
        appending = self._store.append(self._key, (entry,), token=f"{self._key}{seq}", now=0.0)
        if await _done(appending) is not AppendResult.STORED:
            raise Skipped("an append was refused")


class Contestant:
    """A store that is open in this process."""

    def __init__(self, place: str, count: int) -> None:
        self.place = place
        self._store = open_store(place)
        self._count = count
        self._sessions = itertools.count()

    def close(self) -> None:
        """Close the store."""
        if hasattr(self._store, "close"):
            self._store.close()

    def measures(self) -> Mapping[str, Callable[[], Cost]]:
        """What is measured, by its column."""
        return {
            ALONE: partial(self._measured, self._append, 1),
            TOGETHER: partial(self._measured, self._append, AT_ONCE),
            READ: partial(self._measured, self._read, 1),
        }

    def _measured(self, work: Callable[[Writer, StreamKey, int], Any], tasks: int) -> Cost:
        return asyncio.run(self._cost(work, tasks))

    async def _cost(self, work: Callable[[Writer, StreamKey, int], Any], tasks: int) -> Cost:
        keys = [StreamKey("", f"session {next(self._sessions)}", "stream") for _ in range(tasks)]
        writers = [Writer(self._store, key) for key in keys]
        await asyncio.gather(*(writer.append() for writer in writers))
        if work == self._read:
            for _ in range(PAGE - 1):
                await writers[0].append()
        each = max(self._count // tasks, 1)
        start, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(work(w, k, each) for w, k in zip(writers, keys, strict=True)))
        count = each * tasks
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        for key in keys:
            await _done(self._store.drop(key.principal, key.session))
        return Cost(seconds / count, cpu / count)

    async def _append(self, writer: Writer, key: StreamKey, count: int) -> None:
        for _ in range(count):
            await writer.append()

    async def _read(self, writer: Writer, key: StreamKey, count: int) -> None:
        for _ in range(count):
            page = await _done(self._store.read(key, 0, limit=PAGE, max_bytes=1 << 20))
            if len(page.entries) != PAGE:
                raise Skipped("a page is not whole")

    def wake_up(self) -> str:
        """Append entries that another process watches. Gives what it has found."""
        with started("stores", "watch", self.place, str(self._count // 10)) as process:
            if line_from(process) != "ready":
                raise Skipped("the other process does not watch")
            asyncio.run(self._append_slowly())
            return line_from(process)

    async def _append_slowly(self) -> None:
        writer = Writer(self._store, WATCHED)
        for _ in range(self._count // 10):
            await asyncio.sleep(0.01)
            await writer.append(b"%d" % time.monotonic_ns())

    def stalls(self, appends: bool) -> str:
        """Append at a fixed rate, or not at all. Gives how late a timer is."""
        return asyncio.run(self._stalls(appends))

    async def _stalls(self, appends: bool) -> str:
        keys = [StreamKey("", f"stall {number}", "stream") for number in range(AT_ONCE)]
        end = time.perf_counter() + STALL_SECONDS
        tasks = [asyncio.create_task(self._append_until(end, Writer(self._store, k))) for k in keys]
        if not appends:
            for task in tasks:
                task.cancel()
        late: list[float] = []
        while (before := time.perf_counter()) < end:
            await asyncio.sleep(0.001)
            late.append((time.perf_counter() - before) * 1e3 - 1)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        done = sum(each for each in outcomes if isinstance(each, int))
        for key in keys:
            await _done(self._store.drop(key.principal, key.session))
        centiles = statistics.quantiles(late, n=100)
        rate = done / STALL_SECONDS
        return f"{rate:.0f} | {centiles[49]:.2f} | {centiles[98]:.2f} | {max(late):.1f}"

    async def _append_until(self, end: float, writer: Writer) -> int:
        """Append entries at a fixed rate. Returns how many were appended."""
        count = 0
        while time.perf_counter() < end:
            await asyncio.sleep(AT_ONCE / RATE)
            with suppress(Exception):  # the file is locked for longer than an append waits
                await writer.append()
                count += 1
        return count


async def serve(place: str) -> None:
    """Serve a small call until this process is ended; ``none`` stores nothing."""
    app = sansmcp.App("stores", "1")

    @app.handler("tools/call")
    async def echo(call: sansmcp_asyncio.Call) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"content": [{"type": "text", "text": "hello"}]}

    if place == "none":
        serving = sansmcp_asyncio.serve(app, http=("127.0.0.1", 0), limits=LIMITS, resumable=False)
    else:
        serving = sansmcp_asyncio.serve(
            app, http=("127.0.0.1", 0), limits=LIMITS, store=open_store(place)
        )
    async with serving as server:
        print(urlsplit(server.url).port, flush=True)
        await server.stopped.wait()


def calls(place: str) -> Cost:
    """Let 32 connections call for some seconds."""
    with started("stores", "serve", place) as process, ExitStack() as stack:
        port, count = int(line_from(process)), 0
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(AT_ONCE):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            session = _open_session(connection, port)
            params = {"name": "echo", "arguments": {"text": "hello"}}
            request = post(message("tools/call", params, LEGACY), port, LEGACY, session)
            connection.sendall(request)
            selector.register(connection, selectors.EVENT_READ, (connection, request, bytearray()))
        end = time.perf_counter() + CALL_SECONDS
        with clocks(process) as cost:
            while time.perf_counter() < end:
                for key, _ in selector.select(1):
                    connection, request, received = key.data
                    received += connection.recv(65536)
                    if _is_complete(received):
                        received.clear()
                        count += 1
                        connection.sendall(request)
            return cost(count)


def _open_session(connection: socket.socket, port: int) -> str:
    initialize, initialized = handshake()
    connection.sendall(post(initialize, port, LEGACY))
    head = _response(connection).partition(b"\r\n\r\n")[0].decode()
    lines = (line.partition(":") for line in head.splitlines())
    session = next(value.strip() for name, _, value in lines if name.lower() == "mcp-session-id")
    connection.sendall(post(initialized, port, LEGACY, session))
    _response(connection)
    return session


def _response(connection: socket.socket) -> bytes:
    received = bytearray()
    while not _is_complete(received):
        received += connection.recv(65536)
    return bytes(received)


def _is_complete(response: bytearray) -> bool:
    """Whether a response is there. Raises Skipped for an error."""
    head, blank, body = response.partition(b"\r\n\r\n")
    if not blank:
        return False
    if not head.startswith(b"HTTP/1.1 20"):
        raise Skipped(f"wrong: {response[:100]!r}")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return len(body) == int(length) if length else body.endswith(b"\r\n0\r\n\r\n")


@contextmanager
def locked_file(path: str) -> Generator[None]:
    """Let another process lock the file of a SqliteStore again and again, for a second each."""
    with started("stores", "lock", path) as process:
        if line_from(process) != "ready":
            raise Skipped("the other process does not lock the file")
        yield


def lock(path: str) -> None:
    """Lock a file again and again, until this process is ended."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    print("ready", flush=True)
    while True:
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(1)
        connection.execute("COMMIT")
        time.sleep(0.1)


async def watch(place: str, count: int) -> None:
    """Watch a log until it has so many entries, and print how long each took to arrive."""
    store = open_store(place)
    loop = asyncio.get_running_loop()
    has_changed = asyncio.Event()
    end = store.watch(WATCHED, partial(loop.call_soon_threadsafe, has_changed.set))
    await has_changed.wait()
    print("ready", flush=True)
    found: list[float] = []
    cpu = time.process_time()
    while len(found) < count:
        await has_changed.wait()
        has_changed.clear()
        page = await store.read(WATCHED, len(found), limit=PAGE, max_bytes=1 << 20)
        now = time.monotonic_ns()
        found += [(now - int(entry.data)) / 1e6 for entry in (page.entries if page else ())]
    cpu = (time.process_time() - cpu) / count * 1e6
    end()
    store.close()
    centiles = statistics.quantiles(found, n=20)
    print(f"{centiles[9]:.2f} | {centiles[18]:.2f} | {cpu:.0f}", flush=True)


@contextmanager
def redis_server(directory: Path) -> Generator[str]:
    """Run Redis. Gives its URL.

    Raises:
        Skipped: it is not installed, or does not start.
    """
    program = shutil.which("redis-server")
    if program is None:
        raise Skipped("needs redis-server")
    try:
        import redis
    except ImportError as error:
        raise Skipped(str(error)) from error
    port = 20_000 + os.getpid() % 10_000
    where = ("--port", f"{port}", "--bind", "127.0.0.1", "--dir", str(directory))
    keeping = ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec")
    command = [program, *where, *keeping]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            client: Any = redis.Redis(port=port)
            while process.poll() is None:
                with suppress(redis.ConnectionError):
                    client.ping()
                    break
                time.sleep(0.01)
            else:
                raise Skipped("redis-server does not start")
            client.close()
            yield f"redis://127.0.0.1:{port}"
        finally:
            process.terminate()


def places(stack: ExitStack, directory: Path) -> Iterator[tuple[str, str]]:
    """The stores that can be opened here, and where each is."""
    yield "memory", ""
    yield "SQLite", str(directory / "store.db")
    try:
        yield "Redis", stack.enter_context(redis_server(directory))
    except Skipped as reason:
        skip("Redis", reason)


def main(count: int = 2000) -> None:
    """Measure all, and print four tables."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contestants = {
            name: stack.enter_context(closing(Contestant(place, count)))
            for name, place in places(stack, directory)
        }
        measures = {
            f"{name}: {column}": measure
            for name, contestant in contestants.items()
            for column, measure in contestant.measures().items()
        }
        print(table("store", in_rounds(measures), (ALONE, TOGETHER, READ)))
        print("\n| store | wake-up p50, ms | p95, ms | processor time of the reader, µs |")
        print("|---|---|---|---|")
        for name, contestant in contestants.items():
            if not contestant.place:
                continue
            try:
                print(f"| {name} | {contestant.wake_up()} |", flush=True)
            except Skipped as reason:
                skip(name, reason)
        print("\n| store | calls/s | processor time of the server for a call, µs |\n|---|---|---|")
        for name, place in (("none", "none"), *((n, c.place) for n, c in contestants.items())):
            cost = calls(place)
            print(
                f"| {name} | {1 / cost.seconds:,.0f} | {cost.cpu_seconds * 1e6:.0f} |", flush=True
            )
        print("\n| store | appends/s | timer of 1 ms late by, p50, ms | p99 | longest |")
        print("|---|---|---|---|---|")
        print(f"| none | {contestants['memory'].stalls(appends=False)} |")
        for name, contestant in contestants.items():
            print(f"| {name} | {contestant.stalls(appends=True)} |", flush=True)
        sqlite = contestants["SQLite"]
        with locked_file(sqlite.place):
            print(f"| SQLite, locked by others | {sqlite.stalls(appends=True)} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["watch"]:
        asyncio.run(watch(sys.argv[2], int(sys.argv[3])))
    elif sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(sys.argv[2]))
    elif sys.argv[1:2] == ["lock"]:
        lock(sys.argv[2])
    else:
        main(*map(int, sys.argv[1:]))
