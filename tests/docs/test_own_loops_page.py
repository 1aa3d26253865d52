"""The programs of the page on loops that are not ours: each runs as its host would run it."""

from __future__ import annotations

import ast
import asyncio
import importlib.metadata
import inspect
import os
import runpy
import shutil
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from packaging.requirements import Requirement

import sansmcp_blocking

from ..cli.conftest import environment
from ..examples.test_examples import start, wait_for
from ..ports import free_port
from .documents import DOCS, blocks

BLENDER, TKINTER, AIOHTTP, *CELLS, STREAMLIT = blocks(DOCS / "own-loops.md", "python")
SERVER = blocks(DOCS / "tutorial.md", "python")[0]
STAND_INS = Path(__file__).parent / "stand_ins"
STOCK = {"tea": 3, "coffee": 1}


@pytest.fixture
def url(tmp_path: Path) -> Generator[str, None, None]:
    """The server of the tutorial."""
    script, port = tmp_path / "server.py", free_port()
    script.write_text(SERVER, encoding="utf-8")
    with start(script, "--http", f"127.0.0.1:{port}"):
        wait_for(port)
        yield f"http://127.0.0.1:{port}/mcp"


def surroundings() -> dict[str, str]:
    found = environment()
    return {**found, "PYTHONPATH": os.pathsep.join((found["PYTHONPATH"], str(STAND_INS)))}


def run(code: str, *arguments: str, before: tuple[str, ...] = ()) -> str:
    done = subprocess.run(
        [*before, sys.executable, "-c", code, *arguments],
        env=surroundings(),
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_timer(tmp_path: Path) -> None:
    """Blender's thread runs everything; a client in another process calls it."""
    port = free_port()
    program = f"{BLENDER.replace('8765', str(port))}\nbpy.run()\n"
    with subprocess.Popen([sys.executable, "-c", program], env=surroundings()) as host:
        try:
            wait_for(port)
            with sansmcp_blocking.connect(f"http://127.0.0.1:{port}/mcp") as client:
                called = client.call_tool("list_objects")
                assert called["structuredContent"] == {"result": ["Camera", "Cube"]}
        finally:
            host.kill()


def test_the_timer_ends_with_the_server() -> None:
    program = f"{BLENDER.replace('8765', '0')}\nserver.stop()\nbpy.run()\nprint('over')\n"
    assert run(program) == "over\n"


def test_after_of_tkinter(url: str) -> None:
    if "SANSMCP_REQUIRE_HOSTS" not in os.environ:
        pytest.importorskip("tkinter")
    before: tuple[str, ...] = ()
    if "DISPLAY" not in os.environ:
        if shutil.which("xvfb-run") is None and "SANSMCP_REQUIRE_HOSTS" not in os.environ:
            pytest.skip("there is no display, and no Xvfb")
        before = ("xvfb-run", "--auto-servernum")
    assert run(TKINTER, url, before=before) == f"in stock: {STOCK}\n"


def test_an_asyncio_loop_that_runs_already() -> None:
    pytest.importorskip("aiohttp")
    assert run(AIOHTTP) == "{'kitchen': True}\n"


@pytest.mark.parametrize(
    ("attrs", "h11", "is_allowed"),
    [("25.1.0", "0.14.0", False), ("25.4.0", "0.16.0", True), ("26.1.0", "0.16.0", True)],
)
def test_what_home_assistant_pins(attrs: str, h11: str, *, is_allowed: bool) -> None:
    """By the wheels of 2025.4.4, 2026.2.3 and 2026.11.0."""
    given = [Requirement(each) for each in importlib.metadata.requires("sansmcp") or ()]
    needed = {each.name: each.specifier for each in given if each.marker is None}
    allowed = needed["attrs"].contains(attrs) and needed["h11"].contains(h11)
    assert allowed is is_allowed


def test_the_cells_of_a_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    """Compiled as IPython does: a cell with ``await`` is a coroutine in the loop of the kernel.

    Each is in a task of its own: what one enters, another closes.
    """
    names: dict[str, Any] = {"__name__": "__main__"}

    async def kernel() -> None:
        for cell in CELLS:
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            code: CodeType = compile(cell, "cell", "exec", flags=flags)
            result: Any = eval(code, names)
            if inspect.isawaitable(result):
                await asyncio.ensure_future(result)

    asyncio.run(kernel())
    assert capsys.readouterr().out == "{'result': 3}\n"


def test_streamlit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The script of a session runs again, in another thread, with the same client.

    The last two runs are at the same time, as after an interaction while a tool is waited for.
    """
    monkeypatch.setattr(sys, "path", [str(STAND_INS), *sys.path])
    server, script, port = tmp_path / "server.py", tmp_path / "page.py", free_port()
    assert SERVER.count("    return STOCK\n") == 1
    slow = "    import time; time.sleep(1)\n    return STOCK\n"
    server.write_text(SERVER.replace("    return STOCK\n", slow), encoding="utf-8")
    script.write_text(STREAMLIT.replace("8000", str(port)), encoding="utf-8")
    with start(server, "--http", f"127.0.0.1:{port}"):
        wait_for(port)
        for at_once in (1, 2):
            threads = [
                threading.Thread(target=runpy.run_path, args=(str(script),)) for _ in range(at_once)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        streamlit = sys.modules.pop("streamlit")
        streamlit.session_state["mcp"].close()
    assert streamlit.written == [STOCK] * 3
