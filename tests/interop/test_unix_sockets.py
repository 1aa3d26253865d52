"""Unix sockets with programs of others: curl, uvicorn and httpx, and other users of the machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import sansmcp
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_httpx
from sansmcp_local import connect_unix

from ..asyncio.loops import run

ROOT = Path(__file__).parents[2]

NEEDS_CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
NEEDS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
NOBODY = 65534

INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "curl", "version": "1"},
}


def application() -> sansmcp.App:
    app = sansmcp.App("unix", "1")

    @app.handler("tools/call")
    def call_tool(call: sansmcp_blocking.Call) -> Any:
        call.progress(1)
        return {"content": [], "structuredContent": {"principal": call.principal}}

    return app


@pytest.fixture
def path() -> Generator[str, None, None]:
    """A path in a directory that all users can enter."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        yield os.path.join(directory, "mcp.sock")


def curl(path: str, method: str, params: Any, *headers: str, uid: int | None = None) -> Any:
    """POST a request with curl, as that user; gives the process that has ended."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    words = ["curl", "--silent", "--show-error", "--include", "--unix-socket", path]
    named = ("content-type: application/json", "accept: application/json, text/event-stream")
    for header in (*named, *headers):
        words += ["--header", header]
    words += ["--data", json.dumps(message), "http://localhost/mcp"]
    return subprocess.run(
        words, user=uid, capture_output=True, encoding="utf-8", timeout=60, check=False
    )


def session_of(done: Any) -> str:
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("mcp-session-id")]
    return str(line)


@NEEDS_CURL
def test_curl(path: str) -> None:
    with sansmcp_blocking.serve(application(), unix=path):
        done = curl(path, "initialize", INITIALIZE)
        assert done.stdout.startswith("HTTP/1.1 200"), done
        called = curl(path, "tools/call", {"name": "x"}, session_of(done))
        assert f'"principal":"uid:{os.getuid()}"' in called.stdout
        refused = curl(path, "initialize", INITIALIZE, "host: evil.example")
        assert refused.stdout.startswith("HTTP/1.1 403")


@NEEDS_CURL
@NEEDS_ROOT
def test_other_users(path: str) -> None:
    """They are refused, unless the mode is changed; then they have sessions of their own."""
    with sansmcp_blocking.serve(application(), unix=path) as server:
        refused = curl(path, "initialize", INITIALIZE, uid=NOBODY)
        assert (refused.returncode, refused.stdout) == (7, "")  # it could not connect
        os.chmod(path, 0o666)
        session = session_of(curl(path, "initialize", INITIALIZE, uid=NOBODY))
        theirs = curl(path, "tools/call", {"name": "x"}, session, uid=NOBODY)
        assert f'"principal":"uid:{NOBODY}"' in theirs.stdout
        ours = curl(path, "tools/call", {"name": "x"}, session)
        assert ours.stdout.startswith("HTTP/1.1 404")
        with sansmcp_blocking.connect(server.url) as client:
            found = client.call_tool("x")["structuredContent"]
        assert found == {"principal": "uid:0"}


ASGI = """
import sansmcp
from sansmcp_asgi import asgi_app
from tests.interop.test_unix_sockets import application

app = asgi_app(application())
"""


@contextmanager
def uvicorn(path: str) -> Generator[None, None, None]:
    directory = Path(path).parent
    (directory / "served.py").write_text(ASGI, "utf-8")
    words = [sys.executable, "-m", "uvicorn", "--uds", path, "--log-level", "error", "served:app"]
    paths = os.pathsep.join((str(directory), str(ROOT), str(ROOT / "adapters")))
    with subprocess.Popen(words, cwd=directory, env={**os.environ, "PYTHONPATH": paths}) as process:
        try:
            while True:
                try:
                    connect_unix(path).close()
                    break
                except OSError:
                    assert process.poll() is None
                    time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait(60)


def test_our_clients_and_uvicorn(path: str) -> None:
    url = str(sansmcp.Url.of_socket(path, "/mcp"))

    async def call(version: str) -> Any:
        async with sansmcp_asyncio.connect(url, versions=(version,)) as client:
            return (await client.call_tool("x"))["structuredContent"]

    with uvicorn(path):
        for version in ("2025-11-25", "2026-07-28"):
            # Uvicorn does not tell the user of a client.
            assert run(call(version)) == {"principal": ""}
            with sansmcp_blocking.connect(url, versions=(version,)) as client:
                assert client.call_tool("x")["structuredContent"] == {"principal": ""}


def test_httpx_and_our_server(path: str) -> None:
    async def call() -> Any:
        transport = httpx.AsyncHTTPTransport(uds=path)
        async with (
            httpx.AsyncClient(transport=transport) as http,
            sansmcp_httpx.connect("http://localhost/mcp", http) as client,
        ):
            return (await client.call_tool("x"))["structuredContent"]

    with sansmcp_blocking.serve(application(), unix=path):
        assert run(call()) == {"principal": f"uid:{os.getuid()}"}


def test_httpx_needs_a_transport() -> None:
    with (
        httpx.Client() as http,
        pytest.raises(sansmcp.LocalProtocolError, match=r"uds=PATH.*http://localhost/mcp"),
    ):
        sansmcp_httpx.connect_blocking("http+unix://%2Fs/mcp", http)
