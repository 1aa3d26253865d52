"""A program whose user types Ctrl-C while it waits: ``python -m tests.windows.interrupted KIND``.

It opens a console, and Ctrl-C is an event of that console, as it is on Windows: it comes in a
thread of its own, and ends no wait of the main thread. All processes of the console get it.
"""

from __future__ import annotations

import ctypes
import http.client
import os
import signal
import sys
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import sansmcp
import sansmcp_blocking
import sansmcp_local

PROMPT = 10.0
"""Seconds; a wait that Ctrl-C does not end lasts some forty, until a timeout of its client."""

app = sansmcp.App("waits", "1")
typed: list[float] = []


def open_console() -> None:
    if sys.platform == "win32":
        ctypes.windll.kernel32.FreeConsole()
        assert ctypes.windll.kernel32.AllocConsole()


def type_ctrl_c() -> None:
    typed.append(time.monotonic())
    if sys.platform == "win32":
        assert ctypes.windll.kernel32.GenerateConsoleCtrlEvent(0, 0)


@app.handler("tools/call")
def wait(call: sansmcp_blocking.Call) -> Any:
    """Wait until the call is cancelled."""
    call.progress(1)
    call.cancelled.wait()
    return {"content": []}


def fetch(method: str, url: str, headers: list[tuple[str, str]], body: bytes | None) -> Any:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc)
    connection.request(method, place.path, body, dict(headers))
    response = connection.getresponse()
    return response.status, response.getheaders(), iter(lambda: response.read1(65536), b"")


def interrupt(client: sansmcp_local.ConcurrentClient) -> None:
    """Wait for a call that does not end, and use the client after Ctrl-C."""
    try:
        # A thread, so that the main thread waits when Ctrl-C comes.
        client.call_tool(
            "wait", on_progress=lambda report: threading.Thread(target=type_ctrl_c).start()
        )
    except KeyboardInterrupt:
        print_interrupted()
    client.ping()
    print("still connected", flush=True)


def print_interrupted() -> None:
    late = time.monotonic() - typed[0] > PROMPT
    print("interrupted late" if late else "interrupted", flush=True)


def main(kind: str) -> None:
    if kind == "stdio":
        program = "from tests.windows.interrupted import *; serve_on_stdio()"
        with sansmcp_blocking.connect(
            [sys.executable, "-c", program], connect_timeout=120
        ) as client:
            interrupt(client)
            try:
                client.call_tool("wait", timeout=1)
            except sansmcp.RequestTimeout:
                print("the server runs", flush=True)
        return
    quiet = sansmcp.Limits(stream_comment_interval=3600)  # a comment would end the wait
    with sansmcp_blocking.serve(app, http=("127.0.0.1", 0), limits=quiet) as server:
        if kind == "server":
            threading.Thread(target=type_ctrl_c).start()
            try:
                server.wait()
            except KeyboardInterrupt:
                print_interrupted()
        elif kind == "threads":
            with sansmcp_local.connect_fetch(server.url, fetch, standalone_stream=False) as client:
                interrupt(client)
        else:
            with sansmcp_blocking.connect(server.url, standalone_stream=False) as client:
                interrupt(client)


def serve_on_stdio() -> None:
    """Serve until standard input ends, or a Ctrl-C that is for another process."""
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(3))
    with sansmcp_blocking.serve(app, stdio=True, http=None) as serving:
        serving.wait()


if __name__ == "__main__":
    open_console()
    main(sys.argv[1])
