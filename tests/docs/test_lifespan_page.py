"""The programs of the page on resources open a pool, serve, and close it after the last call."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import sansmcp_blocking

from ..cli.conftest import environment
from ..examples.test_examples import wait_for
from ..ports import free_port
from .documents import DOCS, blocks

PLAIN, ASYNC, ASYNCIO, WEB, TRIO, BLOCKING = blocks(DOCS / "lifespan.md", "python")
STAND_INS = Path(__file__).parent / "stand_ins"

(COMMAND,) = blocks(DOCS / "lifespan.md", "console")
UVICORN = ["-m", *COMMAND.removeprefix("$ ").split(), "--log-level", "error", "--port"]


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (PLAIN, ["bar.py", "--http"]),
        (ASYNCIO, ["server.py"]),
        (WEB, UVICORN),
        (TRIO, ["server.py"]),
        (BLOCKING, ["server.py"]),
    ],
    ids=["run", "asyncio", "asgi", "trio", "blocking"],
)
def test_the_pool_is_closed_after_the_last_call(
    code: str, arguments: list[str], tmp_path: Path
) -> None:
    port = free_port()
    shown = code.replace("8000", str(port))
    files = {"bar.py": PLAIN, "async_bar.py": ASYNC, "server.py": shown, "web.py": WEB}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    if arguments[-1].startswith("--"):
        arguments = [*arguments, f"127.0.0.1:{port}" if arguments[-1] == "--http" else str(port)]
    log = tmp_path / "log"
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env={**_environment(tmp_path), "DATABASE": str(log)},
        stdin=subprocess.DEVNULL,
    ) as server:
        try:
            wait_for(port)
            assert _lines(log) == ["opened"]
            url = f"http://127.0.0.1:{port}/mcp"
            with sansmcp_blocking.connect(url, versions=("2026-07-28",)) as client:
                call = client.start_call(
                    "tools/call", {"name": "stock", "arguments": {"drink": "gin"}}
                )
                _wait(lambda: _lines(log) == ["opened", "lent"])
                server.terminate()
                _wait(lambda: _refuses(port))
                assert _lines(log) == ["opened", "lent"]
                log.with_suffix(".go").touch()
                result = call.result()
            server.wait(timeout=20)
        finally:
            server.kill()
    assert result["structuredContent"] == {"result": 3}
    assert _lines(log) == ["opened", "lent", "returned", "closed"]


def test_the_pool_is_closed_while_a_client_is_connected(tmp_path: Path) -> None:
    """The web server waits for the event streams of a client for as long as is shown."""
    port = free_port()
    assert UVICORN[2:4] == ["--timeout-graceful-shutdown", "5"]
    arguments = [*UVICORN[:3], "1", *UVICORN[4:], str(port)]
    stops_soon = WEB.replace("asgi_app(tools)", "asgi_app(tools, graceful_timeout=0.1)")
    for name, text in {"async_bar.py": ASYNC, "web.py": stops_soon}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    log = tmp_path / "log"
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env={**_environment(tmp_path), "DATABASE": str(log)},
        stdin=subprocess.DEVNULL,
    ) as server:
        try:
            wait_for(port)
            url = f"http://127.0.0.1:{port}/mcp"
            with sansmcp_blocking.connect(url, versions=("2025-11-25",)) as client:
                parameters = {"name": "stock", "arguments": {"drink": "gin"}}
                call = client.start_call("tools/call", parameters)
                _wait(lambda: _lines(log) == ["opened", "lent"])
                server.terminate()
                server.wait(timeout=60)
                call.cancel()
        finally:
            server.kill()
    assert _lines(log) == ["opened", "lent", "returned", "closed"]


def test_the_pool_is_closed_at_the_end_of_standard_input(tmp_path: Path) -> None:
    program, log = tmp_path / "bar.py", tmp_path / "log"
    program.write_text(PLAIN, encoding="utf-8")
    log.with_suffix(".go").touch()
    environment = {**_environment(tmp_path), "DATABASE": str(log)}
    with sansmcp_blocking.connect([sys.executable, str(program)], env=environment) as client:
        result = client.call_tool("stock", {"drink": "gin"})
    assert result["structuredContent"] == {"result": 3}
    assert _lines(log) == ["opened", "lent", "returned", "closed"]


def _environment(directory: Path) -> dict[str, str]:
    variables = environment()
    paths = (variables["PYTHONPATH"], str(STAND_INS), str(directory))
    return {**variables, "PYTHONPATH": os.pathsep.join(paths)}


def _lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").splitlines()


def _refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    except OSError:
        return True
    return False


def _wait(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.02)
    pytest.fail("it does not come about")
