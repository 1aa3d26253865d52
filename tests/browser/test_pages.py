"""Pages of other origins in a real browser, Debian's Chromium: one is listed, one is not."""

from __future__ import annotations

import json
import mimetypes
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from ..ports import free_port
from .server import HOST, ISSUER

PAGE = Path(__file__).with_name("page.html")
KINDS = ("asyncio", "trio", "blocking", "asgi", "wsgi")
PATIENCE = 120
"""Seconds for a browser to start and to do everything, on a busy machine."""


def own_page(path: str) -> bytes:
    """Return the page of this folder, for the root of a site."""
    return PAGE.read_bytes() if path == "/" else b""


class Site:
    """An origin, whose files a function returns; ``results`` is what its pages have seen."""

    def __init__(self, read: Callable[[str], bytes] = own_page) -> None:
        self.results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        results = self.results

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                self._answer(read(path), mimetypes.guess_type(path)[0] or "text/html")

            def do_POST(self) -> None:
                results.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self._answer(b"", "text/html")

            def _answer(self, body: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer((HOST, 0), Handler)
        self.origin = f"http://{HOST}:{self.server.server_port}"

    def page(self, url: str, **more: str) -> str:
        return f"{self.origin}/?{urlencode({'url': url, **more})}"


@contextmanager
def site(read: Callable[[str], bytes] = own_page) -> Generator[Site, None, None]:
    """Serve pages in threads."""
    running = Site(read)
    thread = threading.Thread(target=running.server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield running
    finally:
        running.server.shutdown()
        thread.join()
        running.server.server_close()


def listens(port: int) -> bool:
    """Return whether connections to a port are accepted."""
    with socket.socket() as connecting:
        return connecting.connect_ex((HOST, port)) == 0


@contextmanager
def server(kind: str, origin: str, port: int | None = None) -> Generator[str, None, None]:
    """Run a server in a process, at a free port by default; gives its URL."""
    port = port or free_port()
    words = [sys.executable, "-m", "tests.browser.server", kind, str(port), origin]
    with subprocess.Popen(words) as process:
        try:
            deadline = time.monotonic() + PATIENCE
            while not listens(port):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield f"http://{HOST}:{port}/mcp"
        finally:
            process.kill()


@contextmanager
def browser(url: str, *options: str) -> Generator[None, None, None]:
    """Open a page in Chromium."""
    program = shutil.which("chromium")
    if program is None:
        reason = "needs chromium: apt-get install chromium"
        if os.environ.get("SANSMCP_REQUIRE_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        words = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        words += ["--disable-dev-shm-usage", f"--user-data-dir={profile}"]
        words += [*options, url]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(words, stdout=quiet, stderr=quiet, start_new_session=True) as process:
            try:
                yield
            finally:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("kind", KINDS)
def test_pages_of_other_origins(kind: str) -> None:
    """The one that is listed uses all of a server; the one that is not gets nothing."""
    with (
        site() as listed,
        site() as other,
        server(kind, listed.origin) as url,
        browser(listed.page(url, other=other.page(url))),
    ):
        seen = listed.results.get(timeout=PATIENCE)
        refused = other.results.get(timeout=PATIENCE)
    # What is in front of the other two takes more lines, or refuses heads itself.
    refusal = [431, "head_too_large"]
    too_large = {"many lines": refusal, "a long line": refusal}
    if kind in ("asgi", "wsgi"):
        too_large = {name: seen[name] for name in too_large}
    assert seen == {
        **too_large,
        "401": [401, ISSUER, url],
        "initialize": [200, True, 202],
        "list": [200, True],
        "call": [200, True],
        "stream and resume": ["text/event-stream", 6, True, "6 steps done"],
        "2026-07-28": [200, True],
        "delete": 200,
    }
    assert refused == dict.fromkeys(seen, "TypeError: Failed to fetch")


REBOUND = "rebound.example"
"""The name of a page that leads to another server once the page has been loaded."""


def test_a_page_that_has_rebound_its_name() -> None:
    """To the browser the server is then of the page's own origin; the server sees another name."""
    page = PAGE.with_name("rebound.html").read_bytes()
    with site() as reports, ExitStack() as running:
        with site(lambda path: page if path == "/" else b"") as evil:
            port = evil.server.server_port
            url = f"http://{REBOUND}:{port}/?{urlencode({'reports': reports.origin})}"
            running.enter_context(browser(url, f"--host-resolver-rules=MAP {REBOUND} {HOST}"))
            assert reports.results.get(timeout=PATIENCE) == "loaded"
        running.enter_context(server("asyncio", reports.origin, port))
        seen = reports.results.get(timeout=PATIENCE)
    refusal = [403, "host_not_allowed"]
    assert seen == {"POST": refusal, "GET": refusal, "DELETE": refusal, "OPTIONS": refusal}
