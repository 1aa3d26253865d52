"""A server that dies under load, behind a bridge: which of its results are lost?

None: what the process has written to its output before it died reaches the client.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import sansmcp_asyncio
from sansmcp import CallError, LocalProtocolError
from sansmcp_bridge import Upstream, open_bridge

from ..asyncio.loops import PATIENCE, run
from ..cli.conftest import ROOT

LOCAL = ("127.0.0.1", 0)
RATE = 100
TIMEOUT = 60.0
"""Seconds for a call, which waits for the next process if there is none."""


async def load(client: sansmcp_asyncio.Client, seconds: float) -> tuple[int, set[str], int]:
    """Make 100 calls a second; return their number, the results, and the number of errors."""
    results: set[str] = set()
    errors = 0

    async def call(number: int) -> None:
        nonlocal errors
        try:
            result = await client.call_tool("number", {"number": number}, timeout=TIMEOUT)
        except CallError:
            errors += 1
        except LocalProtocolError as error:  # of a busy machine: nothing has been sent
            assert "max_pending_calls" in str(error)
            errors += 1
        else:
            assert result["content"][0]["text"] == str(number)
            results.add(str(number))

    loop = asyncio.get_running_loop()
    started = loop.time()
    calls: list[asyncio.Task[None]] = []
    while (passed := loop.time() - started) < seconds:
        while len(calls) < passed * RATE:
            calls.append(asyncio.create_task(call(len(calls))))
        await asyncio.sleep(1 / RATE)
    await asyncio.gather(*calls)
    return len(calls), results, errors


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("dies_after", "seconds"),
    [(0.2, 1.5), pytest.param(5.0, 21.0, marks=pytest.mark.thorough)],
)
def test_no_result_is_lost(
    version: str, shared: bool, dies_after: float, seconds: float, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    program = [sys.executable, "-m", "tests.bridge.dying_server", str(dies_after), str(record)]

    async def main() -> tuple[int, set[str], int]:
        upstream = Upstream("dying", program, {"cwd": str(ROOT)})
        async with (
            open_bridge([upstream], shared=shared, http=LOCAL) as bridge,
            sansmcp_asyncio.connect(bridge.url, versions=(version,)) as client,
        ):
            return await load(client, seconds)

    calls, results, errors = run(main(), patience=PATIENCE + seconds + TIMEOUT)
    written = set(record.read_text("utf-8").split())
    print(f"{calls} calls, {len(written)} results written, {len(results)} received")
    assert results
    assert written <= results  # it may die between a result and its record
    assert len(results) + errors == calls
