"""Signals to a program that is all of it one call of serve(), and to others, on each loop."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from typing import Any

import pytest

import sansmcp
import sansmcp_blocking

from ..trio.programs import outside

ON_ASYNCIO = """
import asyncio, signal, sys, sansmcp, sansmcp_asyncio

app = sansmcp.App("program", "1")

@app.handler("tools/call")
async def wait(call):
    print("called", flush=True)
    await asyncio.sleep(0.1 if "quick" in sys.argv else 1000)
    return {"content": []}

serving = sansmcp_asyncio.serve(app, http=("127.0.0.1", 0), graceful_timeout=1000.0)

async def main():
    other = asyncio.ensure_future(asyncio.sleep(1000))
    print("ready", flush=True)
    try:
        await serving
    finally:
        print("its own", flush=True)
        other.cancel()

if "own" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: print("its own", flush=True))
try:
    asyncio.run(main() if "task" in sys.argv else serving)
except KeyboardInterrupt:
    print("interrupted")
else:
    print("stopped")
"""

ON_TRIO = """
import signal, sys, trio, sansmcp, sansmcp_trio
from functools import partial

app = sansmcp.App("program", "1")

@app.handler("tools/call")
async def wait(call):
    print("called", flush=True)
    await trio.sleep(0.1 if "quick" in sys.argv else 1000)
    return {"content": []}

serve = partial(sansmcp_trio.serve, app, http=("127.0.0.1", 0), graceful_timeout=1000.0)

async def main():
    async with trio.open_nursery() as nursery:
        await nursery.start(serve)
        try:
            print("ready", flush=True)
            await trio.sleep_forever()
        finally:
            print("its own", flush=True)

if "own" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: print("its own", flush=True))
try:
    run = main if "task" in sys.argv else serve
    trio.run(run, restrict_keyboard_interrupt_to_checkpoints=True)
except BaseException:  # KeyboardInterrupt, or a group of it
    print("interrupted")
else:
    print("stopped")
"""

PATIENCE = 120


on_each_loop = pytest.mark.parametrize(
    "program", [pytest.param(ON_ASYNCIO, id="asyncio"), pytest.param(ON_TRIO, id="trio")]
)


@contextlib.contextmanager
def started(program: str, *arguments: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """The program, and its URL."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env=outside(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stderr is not None
            line = running.stderr.readline()
            assert line.startswith("sansmcp: serving MCP at http://127.0.0.1:")
            yield running, line.split()[-1]
        finally:
            running.kill()


def call(url: str, results: list[Any]) -> None:
    with (
        sansmcp_blocking.connect(url, versions=("2026-07-28",), reclaim=False) as client,
        contextlib.suppress(sansmcp.CallError),
    ):
        results.append(client.call_tool("wait")["content"])


@contextlib.contextmanager
def calling(running: subprocess.Popen[str], url: str) -> Generator[list[Any]]:
    """A call that runs at the beginning of the block, and its result at the end."""
    results: list[Any] = []
    thread = threading.Thread(target=call, args=(url, results))
    thread.start()
    assert running.stdout is not None
    assert running.stdout.readline() == "called\n"
    yield results
    thread.join(PATIENCE)


@on_each_loop
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_runs_until_a_signal(number: signal.Signals, program: str) -> None:
    """It ends in peace: without a traceback, and when its calls have ended."""
    with started(program, "quick") as (running, url):
        with calling(running, url) as results:
            running.send_signal(number)
        said, more = running.communicate(timeout=PATIENCE)
    assert results == [[]]
    assert (running.returncode, said, more) == (0, "stopped\n", "")


@on_each_loop
def test_a_second_interrupt_ends_it(program: str) -> None:
    with started(program) as (running, url), calling(running, url) as results:
        while running.poll() is None:  # it may have to handle the first one before the second
            running.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(0.05)
    assert results == []


@on_each_loop
def test_an_application_that_handles_a_signal_itself(program: str) -> None:
    with started(program, "own") as (running, _):
        running.send_signal(signal.SIGTERM)
        assert running.stdout is not None
        assert running.stdout.readline() == "its own\n"
        running.send_signal(signal.SIGINT)
        said, more = running.communicate(timeout=PATIENCE)
    assert (said, more) == ("stopped\n", "")


@on_each_loop
def test_a_program_with_other_tasks_gets_its_signals(program: str) -> None:
    with started(program, "task") as (running, _):
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        said, more = running.communicate(timeout=PATIENCE)
    assert (said, more) == ("its own\ninterrupted\n", "")
