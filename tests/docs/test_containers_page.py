"""The commands of the page on containers serve, are healthy, and stop at SIGTERM.

Images are not built here: the commands run as processes of this machine.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

import sansmcp
import sansmcp_blocking
from sansmcp.types import Self
from sansmcp_local import read_servers

from ..cli.conftest import command, environment
from ..examples.test_examples import wait_for
from ..ports import free_port
from ..stores.redis_server import RedisServer
from .documents import DOCS, blocks

PAGE = DOCS / "containers.md"
SERVER = blocks(DOCS / "tutorial.md", "python")[0]
IMAGE, TCP_CHECK = blocks(PAGE, "dockerfile")
(COMPOSE,) = blocks(PAGE, "yaml")
COMMANDS = [
    json.loads(found) for found in re.findall(r"^ +command: (\[[^]]*\])$", COMPOSE, re.MULTILINE)
]

WAITING = """
import asyncio

@tools.tool
async def wait(context: Context) -> str:
    await context.progress(1)
    await asyncio.sleep(0.3)
    return "done"
"""


def words_of(instruction: str, image: str = IMAGE) -> list[str]:
    """The words of the last such instruction, in the form that needs no shell."""
    *_, words = re.findall(
        rf"^ *{instruction} +(\[.*\])$", image.replace(", \\\n", ", "), re.MULTILINE
    )
    parsed: list[str] = json.loads(words)
    return parsed


class Container:
    """The command of an image, at a port of this machine."""

    def __init__(
        self, directory: Path, *arguments: str, image: str = IMAGE, server: str = SERVER
    ) -> None:
        self.port = free_port()
        (directory / "server.py").write_text(
            server.replace("\nif __name", f"{WAITING}\n\nif __name").replace(
                '("0.0.0.0", 8000)', f'("0.0.0.0", {self.port})'
            )
        )
        program, *words = words_of("ENTRYPOINT", image)
        words = [word.replace("0.0.0.0:8000", f"0.0.0.0:{self.port}") for word in words]
        start = {"sansmcp": command(), "python": [sys.executable]}[program]
        self.process = subprocess.Popen(
            [*start, *words, *arguments],
            cwd=directory,
            env={**environment(), "API_KEY": "key"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        wait_for(self.port)
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.process.kill()
        self.process.communicate()

    def check(self, words: list[str]) -> int:
        """The status of a health check."""
        program, *arguments = [word.replace("8000", str(self.port)) for word in words]
        assert program == "python"
        return subprocess.run(
            [sys.executable, *arguments], stderr=subprocess.DEVNULL, check=False
        ).returncode

    def status_for(self, host: str, path: str = "/mcp") -> int:
        url = f"http://127.0.0.1:{self.port}{path}"
        return httpx.get(url, headers={"host": host, "accept": "text/event-stream"}).status_code


def test_it_serves_and_finishes_a_call_at_sigterm(tmp_path: Path) -> None:
    assert f"\nSTOPSIGNAL {signal.SIGTERM.name}\n" in IMAGE
    with Container(tmp_path) as container:
        with sansmcp_blocking.connect(container.url, versions=("2026-07-28",)) as client:
            stop = container.process.terminate
            result = client.call_tool("wait", on_progress=lambda report: stop())
        assert container.process.wait(timeout=20) == 0
    assert result["content"][0]["text"] == "done"


@pytest.mark.parametrize("words", [words_of("CMD"), words_of("HEALTHCHECK CMD", TCP_CHECK)])
def test_the_health_check(words: list[str], tmp_path: Path) -> None:
    with Container(tmp_path) as container:
        assert container.check(words) == 0
        container.process.terminate()
        container.process.wait(timeout=20)
        assert container.check(words) != 0


def test_a_server_that_is_about_to_stop_is_unhealthy(tmp_path: Path) -> None:
    with Container(tmp_path, "--lame-duck-timeout", "60") as container:
        container.process.terminate()
        while container.status_for("localhost", "/healthz") == 200:
            time.sleep(0.02)
        assert container.check(words_of("CMD")) != 0


def test_settings_in_python(tmp_path: Path) -> None:
    """A program in place of the command: as healthy, and it knows who calls."""
    (entrypoint,) = re.findall(r"`(ENTRYPOINT .*?)`", PAGE.read_text("utf-8"))
    (code,) = blocks(PAGE, "python")
    imports = "import os\nimport sansmcp\n"
    server = imports + SERVER[: SERVER.index("\nif __name")] + code
    with Container(tmp_path, image=entrypoint, server=server) as container:
        assert container.check(words_of("CMD")) == 0
        with pytest.raises(sansmcp.CallError, match="X-Api-Key"):
            sansmcp_blocking.connect(container.url)
        settings: Any = {"headers": {"X-Api-Key": "key"}, "versions": ("2026-07-28",)}
        with sansmcp_blocking.connect(container.url, **settings) as client:
            stop = container.process.terminate
            result = client.call_tool("wait", on_progress=lambda report: stop())
        assert container.process.wait(timeout=20) == 0
    assert result["content"][0]["text"] == "done"


def test_the_line_of_the_requirements() -> None:
    page = PAGE.read_text("utf-8")
    assert f"`sansmcp-{sansmcp.__version__}-py3-none-any.whl[redis]`" in page
    assert "\nCOPY requirements.txt *.whl ./\n" in IMAGE


def test_names_of_hosts(tmp_path: Path) -> None:
    name = "mcp.example.com"
    with Container(tmp_path) as container:
        assert container.status_for(name) == 403
        assert container.status_for("localhost:8000") != 403
        assert container.status_for("10.1.2.3", "/healthz") == 200
    with Container(tmp_path, "--allow-host", name) as container:
        assert container.status_for(name) != 403
        assert container.status_for("localhost:8000") != 403


def test_the_containers_share_redis(tmp_path: Path) -> None:
    """A session that one has opened goes on at the other."""
    arguments, (program, *settings) = COMMANDS
    assert program == "redis-server"
    server = RedisServer(tmp_path, *settings)
    try:
        url = f"redis://127.0.0.1:{server.port}/0"
        words = [word.replace("redis://redis:6379/0", url) for word in arguments]
        assert url in words
        with Container(tmp_path, *words) as one, Container(tmp_path, *words) as other:
            assert one.status_for("mcp:8000") != 403
            first = initialize(one.url)
            listed = request(other.url, "tools/list", first.headers["mcp-session-id"])
            assert listed.status_code == 200
            assert "brew" in listed.text
    finally:
        server.kill()


def initialize(url: str) -> httpx.Response:
    client = {"name": "test", "version": "0"}
    return request(url, "initialize", None, capabilities={}, clientInfo=client)


def request(url: str, method: str, session: str | None, **params: Any) -> httpx.Response:
    version = "2025-11-25"
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": version}
    if session is None:
        params["protocolVersion"] = version
    else:
        headers["mcp-session-id"] = session
    return httpx.post(url, json=message, headers=headers)


def test_the_grace_is_longer_than_that_of_the_calls() -> None:
    words = words_of("ENTRYPOINT")
    graceful = int(words[words.index("--graceful-timeout") + 1])
    (period,) = re.findall(r"stop_grace_period: (\w+)", COMPOSE)
    stops = re.findall(r"--stop-timeout (\d+)", PAGE.read_text(encoding="utf-8"))
    assert {f"{graceful + 10}s", *(f"{stop}s" for stop in stops)} == {period}


def test_the_file_for_stdio(tmp_path: Path) -> None:
    """What follows the image is a command that serves."""
    (server,) = read_servers(json.loads(blocks(PAGE, "json")[0])).servers.values()
    entrypoint = server.target.index("--entrypoint") + 1
    assert [*server.target[entrypoint : entrypoint + 2]] == ["sansmcp", "kitchen"]
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    words = command(*server.target[entrypoint + 2 :])
    settings: Any = {"cwd": str(tmp_path), "env": environment()}
    with sansmcp_blocking.connect(words, **settings) as client:
        assert client.call_tool("stock")["structuredContent"] == {"tea": 3, "coffee": 1}


def test_the_policy_in_python() -> None:
    (code,) = re.findall(r"`policy=(sansmcp\.SecurityPolicy\(.*?\))`", PAGE.read_text("utf-8"))
    policy = eval(code, {"sansmcp": sansmcp})
    assert "mcp.example.com" in policy.allowed_hosts
