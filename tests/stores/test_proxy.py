"""Real processes that share a store, behind a proxy as it is used in production (HAProxy)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .conftest import TEXT, WAYS, Server, ask, connect, poem, topic

CONFIGURATION = """
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s

frontend clients
    bind fd@{listener}
    log stdout format raw daemon
    log-format %s
    default_backend servers

backend servers
    balance roundrobin
"""
"""Each request to the next server, whatever session it names; the log says which it was."""


def haproxy() -> str:
    """The program; the test is skipped without it, or fails where it has to be there."""
    program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        reason = "needs HAProxy: apt-get install haproxy"
        if os.environ.get("SANSMCP_REQUIRE_PROXY"):
            pytest.fail(reason)
        pytest.skip(reason)
    return program


@contextmanager
def proxying(servers: list[Server], directory: Path) -> Generator[str, None, None]:
    """A proxy in front of these servers; gives the URL behind it."""
    program, file, log = haproxy(), directory / "haproxy.cfg", directory / "haproxy.log"
    with socket.create_server(("127.0.0.1", 0)) as listener, log.open("wb") as output:
        lines = [
            f"    server number-{number} 127.0.0.1:{server.port}\n"
            for number, server in enumerate(servers)
        ]
        configuration = CONFIGURATION.format(listener=listener.fileno())
        file.write_text(configuration + "".join(lines), "utf-8")
        with subprocess.Popen(
            [program, "-db", "-f", str(file)],
            pass_fds=(listener.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process:
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            finally:
                process.terminate()  # at once, it waits for nobody
                process.wait(timeout=20)


@pytest.mark.parametrize("way", WAYS)
async def test_any_request_may_be_sent_anywhere(
    way: str, servers: list[Server], tmp_path: Path
) -> None:
    answers = {"elicitation/create": topic, "sampling/createMessage": poem}
    with proxying(servers, tmp_path) as url:
        async with connect(url, way, answers) as client:
            for _ in range(2 * len(servers)):
                assert await ask(client) == TEXT
    used = (tmp_path / "haproxy.log").read_text("utf-8").split()
    for number in range(len(servers)):
        assert used.count(f"number-{number}") > 2
