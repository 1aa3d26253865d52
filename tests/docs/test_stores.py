"""The store of the page on stores is right, and its command says what the page shows."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import sansmcp
import sansmcp_asyncio

from ..cli.conftest import run
from .documents import DOCS, blocks
from .test_testing import run as run_pytest

PAGE = DOCS / "stores.md"
STORE, SERVE, FACTORY, TEST = blocks(PAGE, "python")


def test_its_test_passes(tmp_path: Path) -> None:
    file = tmp_path / "test_file_store.py"
    file.write_text(STORE + TEST, encoding="utf-8")
    done = run_pytest(file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_its_test_finds_a_mistake(tmp_path: Path) -> None:
    """It compares nothing outside the lock."""
    assert "if first > last + 1:" in STORE
    file = tmp_path / "test_file_store.py"
    file.write_text(STORE.replace("if first > last + 1:", "if False:") + TEST, encoding="utf-8")
    assert run_pytest(file).returncode == 1


def test_its_command_says_what_the_page_shows(tmp_path: Path) -> None:
    (tmp_path / "file_store.py").write_text(STORE + FACTORY, encoding="utf-8")
    (console,) = blocks(PAGE, "console")
    command, _, shown = console.partition("\n")
    words = command.removeprefix("$ sansmcp ").split()
    done = run(*words, cwd=tmp_path)
    assert (done.status, done.out) == (0, shown)


def test_its_promises_are_those_of_the_checks() -> None:
    """The table compares what is checked with and without ``single``."""
    text = re.sub(r"\s+", " ", PAGE.read_text("utf-8"))
    limits = sansmcp.Limits()
    assert f"`Limits.store_poll_interval` seconds ({limits.store_poll_interval})" in text
    assert f"`Limits.store_check_interval` seconds ({limits.store_check_interval:g})" in text


app = sansmcp.App("files", "1")


@app.handler("tools/call")
async def call_tool(call: sansmcp_asyncio.Call) -> dict[str, Any]:
    await call.progress(1)
    return {"content": []}


def test_a_server_uses_it(tmp_path: Path) -> None:
    """Two servers at the same time."""
    names: dict[str, Any] = {"__name__": "file_store"}
    exec(compile(STORE, PAGE, "exec"), names)

    async def main() -> None:
        first, second = (
            sansmcp_asyncio.serve(app, http=("127.0.0.1", 0), store=names["FileStore"](tmp_path))
            for _ in range(2)
        )
        async with first as one, second as two:
            assert [await call(serving.url) for serving in (one, two)] == [[1], [1]]

    asyncio.run(main())


async def call(url: str) -> list[float]:
    """The progress of a call."""
    seen: list[float] = []
    async with sansmcp_asyncio.connect(url, versions=("2025-11-25",)) as client:
        await client.call_tool("a", timeout=30, on_progress=lambda p: seen.append(p.progress))
    return seen
