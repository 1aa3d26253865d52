"""The configurations of proxies on the page on production, with the real programs."""

from __future__ import annotations

import asyncio
import http.client
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

import sansmcp
import sansmcp_asyncio
from sansmcp_stores import SqliteStore

from ..asyncio.adapter_under_test import AsyncioServers
from ..cli.conftest import started
from ..cli.test_workers import APPLICATION, Fleet, call, open_session, until
from ..ports import free_port
from .documents import DOCS, blocks

Ports: TypeAlias = tuple[int, int, int]
"""Of the proxy, and of two servers."""

PAGE = DOCS / "production.md"


def program(name: str) -> str:
    """The path of a program; the test is skipped without it, or fails where it has to be there."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        reason = f"needs {name}: apt-get install {name}"
        if os.environ.get("SANSMCP_REQUIRE_PROXY") and name == "haproxy":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def configuration(kind: str, ports: Ports) -> str:
    """What the page shows, for ports of this machine: that of the proxy, and those of servers."""
    (text,) = blocks(PAGE, kind)
    for shown, port in (
        ("bind :8000", f"bind 127.0.0.1:{ports[0]}"),
        ("listen 8000", f"listen 127.0.0.1:{ports[0]}"),
        ("10.0.0.1:8001", f"127.0.0.1:{ports[1]}"),
        ("10.0.0.2:8002", f"127.0.0.1:{ports[2]}"),
    ):
        text = text.replace(shown, port)
    return text


def haproxy(file: Path, ports: Ports) -> list[str]:
    command = program("haproxy")
    file.write_text(configuration("haproxy", ports), "utf-8")
    return [command, "-db", "-q", "-f", str(file)]


def nginx(file: Path, ports: Ports) -> list[str]:
    command = program("nginx")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"  {kind}_temp_path {file.parent / kind};\n" for kind in kinds)
    text = configuration("nginx", ports).replace(
        "http {\n", f"http {{\n  access_log off;\n{places}"
    )
    file.write_text(text, "utf-8")
    log = file.parent / "error.log"
    settings = f"daemon off; pid {file.parent / 'pid'}; error_log {log};"
    return [command, "-e", str(log), "-c", str(file), "-g", settings]


PROXIES: dict[str, Callable[[Path, Ports], list[str]]] = {
    "haproxy": haproxy,
    "nginx": nginx,
}


@contextmanager
def serving(
    directory: Path, port: int, *options: str
) -> Generator[subprocess.Popen[str], None, None]:
    """A server at a port."""
    store = ("--store", str(directory / "store.db"))
    options = ("--http", f"127.0.0.1:{port}", *store, "--health-path", "/healthz", *options)
    with started("serve", "pids", *options, cwd=directory) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("http://")
        yield server


def connect(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=30)


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a proxy passes requests on."""
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        assert process.poll() is None
        try:
            with closing(connect(port)) as connection:
                connection.request("GET", "/mcp")
                if connection.getresponse().status == 400:  # of a server: no session is named
                    return
        except OSError:
            pass
        time.sleep(0.02)
    raise AssertionError("the proxy does not pass requests on")


@contextmanager
def calling(port: int) -> Generator[None, None, None]:
    """Clients that call all the time; at the end none has lost a call, or its session."""
    done: list[int] = []
    is_over = threading.Event()

    def call_all_the_time() -> None:
        with closing(connect(port)) as connection:
            session = open_session(connection)
            number = 1
            while not is_over.is_set():
                number += 1
                call(connection, session, number)
            done.append(number)

    threads = [threading.Thread(target=call_all_the_time) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join(60)
    assert len(done) == 3


@contextmanager
def proxying(name: str, directory: Path, ports: Ports) -> Generator[None, None, None]:
    """A proxy with the configuration of the page."""
    command = PROXIES[name](directory / f"{name}.conf", ports)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            wait_for(ports[0], process)
            yield
        finally:
            process.terminate()


def replace(fleet: Fleet) -> None:
    """Replace the workers of a server."""
    before = fleet.pids()
    fleet.parent.send_signal(signal.SIGHUP)
    until(lambda: not before & fleet.pids())


@pytest.mark.parametrize("name", PROXIES)
def test_workers_are_replaced_behind_a_proxy(name: str, tmp_path: Path) -> None:
    (tmp_path / "pids.py").write_text(APPLICATION, "utf-8")
    ports = free_port(), free_port(), free_port()
    with ExitStack() as stack:
        servers = [
            stack.enter_context(serving(tmp_path, port, "--workers", "1")) for port in ports[1:]
        ]
        stack.enter_context(proxying(name, tmp_path, ports))
        stack.enter_context(calling(ports[0]))
        for server in servers:
            fleet = Fleet(server, sansmcp.Url("http", "127.0.0.1", ports[0]))
            replace(fleet)


CANCELLED = """
import asyncio
import pathlib

import sansmcp

app = sansmcp.App("pids", "1")
HERE = pathlib.Path(__file__).parent


@app.handler("tools/call")
async def call_tool(call):
    (HERE / "begun").touch()
    try:
        await asyncio.sleep(1000)
    finally:
        (HERE / "cancelled").touch()
"""


@pytest.mark.parametrize("name", PROXIES)
def test_a_cancelled_call_ends_behind_a_proxy(name: str, tmp_path: Path) -> None:
    """At 2026-07-28 a client cancels by closing its connection, which the proxy has to pass on.

    Otherwise the handler runs until the server sends the next comment, which takes 15 seconds, and
    the proxy closes the connection then, or at the one after that.
    """
    (tmp_path / "pids.py").write_text(CANCELLED, "utf-8")
    ports = free_port(), free_port(), free_port()

    async def main() -> None:
        url = f"http://127.0.0.1:{ports[0]}/mcp"
        async with sansmcp_asyncio.connect(url, versions=("2026-07-28",)) as client:
            call = asyncio.ensure_future(client.call_tool("any"))
            await asyncio.to_thread(until, (tmp_path / "begun").exists)
            call.cancel()
            for _ in range(1000):
                if (tmp_path / "cancelled").exists():
                    return
                await asyncio.sleep(0.01)
            raise AssertionError("the handler runs on")

    with ExitStack() as stack:
        for port in ports[1:]:
            stack.enter_context(serving(tmp_path, port))
        stack.enter_context(proxying(name, tmp_path, ports))
        asyncio.run(main())


@pytest.mark.parametrize("name", PROXIES)
def test_clients_of_http_sse_reach_the_server_of_their_stream(name: str, tmp_path: Path) -> None:
    """Two servers, one store: a message at the other server is answered with 404."""
    app = sansmcp.App("sse", "1")

    @app.handler("tools/call")
    async def call_tool(call: sansmcp_asyncio.Call) -> object:
        return {"content": []}

    async def main(port: int) -> None:
        url = f"http://127.0.0.1:{port}/sse"
        for _ in range(4):
            async with sansmcp_asyncio.connect(url, versions=("2024-11-05",)) as client:
                for _ in range(5):
                    await client.call_tool("any")

    with ExitStack() as stack:
        ports = [free_port()]
        for _ in range(2):
            store = SqliteStore(tmp_path / "store.db")
            stack.callback(store.close)
            server = AsyncioServers("asyncio").serve(
                app, store=store, http_sse="/sse", health_path="/healthz"
            )
            stack.callback(server.stop)
            ports.append(sansmcp.Url.parse(server.url).port)
        one, two, three = ports
        stack.enter_context(proxying(name, tmp_path, (one, two, three)))
        asyncio.run(main(ports[0]))
