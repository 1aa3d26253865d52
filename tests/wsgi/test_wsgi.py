"""MCP under WSGI servers, as users see it: streaming, mounting, and what the gateway tells us."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import flask
import pytest
from werkzeug.middleware.dispatcher import DispatcherMiddleware

import sansmcp
import sansmcp_blocking
from sansmcp import Limits, LocalProtocolError, RequestTimeout
from sansmcp.events import StandaloneStreamClosed
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp_wsgi import Call, WsgiApp

from ..blocking.conftest import PATIENCE, ToolApp, wait_for_event
from ..trio.programs import outside
from .conftest import Host

# Conversations


@pytest.mark.parametrize("version", sansmcp.REVISIONS)
def test_calls_at_every_revision(host: Host, world: ToolApp, version: str) -> None:
    @world.tool
    def count(call: Call) -> Any:
        for step in range(1, 4):
            call.progress(step, 3)
        return {"counted": True}

    seen: list[float] = []
    with (
        host.serve(WsgiApp(world.app)) as url,
        sansmcp_blocking.connect(f"{url}/mcp", versions=(version,)) as client,
    ):
        assert client.call_tool("echo", {"a": "ä"})["echo"] == {"a": "ä"}
        result = client.call_tool("count", on_progress=lambda report: seen.append(report.progress))
        assert (result["counted"], seen) == (True, [1, 2, 3])


def test_it_streams_asks_and_lets_go(host: Host, world: ToolApp) -> None:
    reported = threading.Event()

    @world.tool
    def work(call: Call) -> Any:
        call.progress(1)
        wait_for_event(reported)  # so it was not kept until the end
        answer = call.ask("elicitation/create", {})
        call.disconnect(retry=0.01)
        call.progress(2)
        return answer

    with (
        host.serve(WsgiApp(world.app)) as url,
        sansmcp_blocking.connect(
            f"{url}/mcp",
            versions=("2025-11-25",),
            capabilities={"elicitation": {}},
            request_handlers={"elicitation/create": lambda params: {"action": "decline"}},
        ) as client,
    ):
        result = client.call_tool("work", on_progress=lambda report: reported.set())
        assert result == {"action": "decline"}


def give_up_hanging(client: sansmcp_blocking.Client, begun: threading.Event) -> None:
    """Call the tool until it has begun in time, which it may not on a busy machine."""
    timeout = 0.05
    while not begun.is_set():
        with pytest.raises(RequestTimeout):
            client.call_tool("hang", timeout=timeout)
        timeout *= 2


def test_a_call_that_times_out_is_cancelled(host: Host, world: ToolApp) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    @world.tool
    def hang(call: Call) -> Any:
        begun.set()
        wait_for_event(call.cancelled)
        cancelled.set()

    with (
        host.serve(WsgiApp(world.app)) as url,
        sansmcp_blocking.connect(f"{url}/mcp", versions=HANDSHAKE_VERSIONS) as client,
    ):
        give_up_hanging(client, begun)
        wait_for_event(cancelled)


def test_a_client_that_leaves_is_noticed_when_something_is_sent(host: Host, world: ToolApp) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    @world.tool
    def hang(call: Call) -> Any:
        begun.set()
        wait_for_event(call.cancelled)
        cancelled.set()

    app = WsgiApp(world.app, limits=Limits(stream_comment_interval=0.02))
    with (
        host.serve(app) as url,
        sansmcp_blocking.connect(f"{url}/mcp", versions=("2026-07-28",)) as client,
    ):
        give_up_hanging(client, begun)  # at this revision to leave is to cancel
        wait_for_event(cancelled)


# Mounting, and what the gateway tells


def test_mounted_in_flask(host: Host, world: ToolApp) -> None:
    web = flask.Flask("tests")
    web.add_url_rule("/hello", view_func=lambda: "hello")
    limits = Limits(stream_comment_interval=0.02)
    tools = WsgiApp(world.app, http_sse="/sse", limits=limits)
    whole = WsgiApp(world.app, path="/")
    mounted = DispatcherMiddleware(web.wsgi_app, {"/tools": tools, "/at/all": whole})
    with host.serve(mounted) as url:
        for target in (f"{url}/tools/mcp", f"{url}/at/all"):
            with sansmcp_blocking.connect(target) as client:
                assert client.call_tool("echo")["echo"] == {}
        with sansmcp_blocking.connect(f"{url}/tools/sse", versions=("2024-11-05",)) as client:
            assert client.connected.transport == "http+sse"
            assert client.call_tool("echo")["echo"] == {}


def test_the_principal_is_who_the_gateway_says(host: Host, world: ToolApp) -> None:
    @world.tool
    def who(call: Call) -> Any:
        return {"name": call.peer.principal}

    app = WsgiApp(world.app, authenticate=lambda _, connection: connection.environ["HTTP_X_USER"])
    with host.serve(app) as url:
        for name in (b"ada", b"bob"):
            headers = ((b"x-user", name),)
            with sansmcp_blocking.connect(f"{url}/mcp", headers=headers) as client:
                assert client.call_tool("who")["name"] == name.decode()


@pytest.mark.parametrize("host", ["werkzeug", "waitress"], indirect=True)
def test_a_request_in_chunks(host: Host, world: ToolApp) -> None:
    with host.serve(WsgiApp(world.app)) as url:
        answer = exchange(
            url,
            b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"accept: application/json, text/event-stream\r\ntransfer-encoding: chunked\r\n"
            b"connection: close\r\n\r\n"
            b'18\r\n{"jsonrpc":"2.0","id":1,\r\nf\r\n"method":"ping"\r\n1\r\n}\r\n0\r\n\r\n',
        )
        assert b'"session_required"' in answer  # it was read


def exchange(url: str, request: bytes) -> bytes:
    port = sansmcp.Url.parse(url).port
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as peer:
        peer.sendall(request)
        return b"".join(iter(lambda: peer.recv(65536), b""))


# The interface itself


def ask(app: Callable[..., Any], body: io.BytesIO | None = None, **environ: Any) -> tuple[str, Any]:
    """The status of an answer, and the iterator of its body."""
    statuses: list[str] = []

    def start_response(status: str, headers: list[tuple[str, str]], info: Any = None) -> Any:
        statuses.append(status)

    given = {"SCRIPT_NAME": "", "PATH_INFO": "/mcp", "wsgi.input": body or io.BytesIO(), **environ}
    setup_testing_defaults(given)
    pieces = app({**given, "HTTP_HOST": "localhost"}, start_response)
    return statuses[0], pieces


def test_the_interface_is_kept(world: ToolApp) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    status, pieces = ask(
        validator(WsgiApp(world.app)),
        io.BytesIO(body),
        REQUEST_METHOD="POST",
        CONTENT_LENGTH=str(len(body)),
        CONTENT_TYPE="application/json",
        HTTP_ACCEPT="application/json, text/event-stream",
        QUERY_STRING="a=b",
    )
    assert status.startswith("400 ")
    assert b"session_required" in b"".join(pieces)
    pieces.close()


def test_a_body_that_is_too_large_is_not_read(world: ToolApp) -> None:
    body = io.BytesIO(b"x" * 1_000_000)
    status, _ = ask(
        WsgiApp(world.app, limits=Limits(max_message_bytes=1000)),
        body,
        REQUEST_METHOD="POST",
        CONTENT_LENGTH="1000000",
        CONTENT_TYPE="application/json",
        HTTP_ACCEPT="application/json, text/event-stream",
    )
    assert status.startswith("413 ")
    assert body.tell() < 200_000


def test_a_client_that_leaves_while_it_asks(world: ToolApp) -> None:
    with pytest.raises(ConnectionAbortedError):
        ask(
            WsgiApp(world.app),
            io.BytesIO(b"{"),
            REQUEST_METHOD="POST",
            CONTENT_LENGTH="100",
            CONTENT_TYPE="application/json",
            HTTP_ACCEPT="application/json, text/event-stream",
        )


def test_settings_that_make_no_sense(world: ToolApp) -> None:
    with pytest.raises(LocalProtocolError):
        WsgiApp(world.app, path="mcp")


def test_no_stream_holds_a_thread_unless_it_is_wanted(host: Host, world: ToolApp) -> None:
    with (
        host.serve(WsgiApp(world.app)) as url,
        sansmcp_blocking.connect(f"{url}/mcp", versions=HANDSHAKE_VERSIONS) as client,
    ):
        assert isinstance(next(client.events(PATIENCE)), StandaloneStreamClosed)


FORKS = """
import os, sys, threading
from sansmcp_local._threads import _thread_pool

_thread_pool._IDLE_THREAD_TIMEOUT = 3600.0
workers = _thread_pool.ThreadPool(1)

def work():
    done = threading.Event()
    workers.submit(done.set)
    assert done.wait(30)

work()
if os.fork() == 0:
    work()
    work()
    os._exit(0)
_, status = os.wait()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_process_that_is_forked_has_threads_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORKS], env=outside(), check=True, timeout=2 * PATIENCE)


def test_under_gunicorn(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import sansmcp, sansmcp_wsgi\n"
        "app = sansmcp.App('gunicorn')\n"
        "@app.handler('tools/call')\n"
        "def call_tool(call):\n"
        "    call.progress(1)\n"
        "    return {'echo': call.params['arguments']}\n"
        "mcp = sansmcp_wsgi.WsgiApp(app)\n"
    )
    command = [sys.executable, "-m", "gunicorn", "--threads=4", "--graceful-timeout=1"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        process = subprocess.Popen(
            [*command, f"--bind=fd://{listener.fileno()}", "program:mcp"],
            cwd=tmp_path,
            env=outside(),
            pass_fds=[listener.fileno()],
            stderr=subprocess.DEVNULL,
        )
        with process:
            try:
                with sansmcp_blocking.connect(f"http://{place}/mcp", probe_timeout=20) as client:
                    seen: list[float] = []
                    result = client.call_tool(
                        "echo", {"a": 1}, on_progress=lambda report: seen.append(report.progress)
                    )
                    assert (result["echo"], seen) == ({"a": 1}, [1])
            finally:
                process.terminate()
