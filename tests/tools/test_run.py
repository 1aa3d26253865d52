"""``run()`` serves over the transports that the command line and the environment choose."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_tools
import sansmcp_trio
from sansmcp import App, SecurityPolicy
from sansmcp.events import ServerNotified
from sansmcp_tools._run import HTTP_VARIABLE, chosen_settings

from ..ports import free_port
from .conftest import accept, in_revisions, text_of

SERVER = '''
import sys

import sansmcp_tools
from sansmcp_tools import Accepted, Context

tools = sansmcp_tools.Tools("script")


@tools.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tools.tool
def grow(name: str) -> None:
    """Add a tool."""
    tools.tool(name=name)(lambda: None)


@tools.tool
async def ask(context: Context) -> str:
    """Ask for a number."""
    print("a line on standard output, which is no message")
    answer = await context.elicit(int, "How many?")
    return f"{answer.value}" if isinstance(answer, Accepted) else "none"


sansmcp_tools.run(tools)
'''

ELICITATION: dict[str, Any] = {
    "capabilities": {"elicitation": {}},
    "request_handlers": {"elicitation/create": accept(value=7)},
}


@pytest.fixture
def script(tmp_path: Path) -> list[str]:
    """The command of a server."""
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    return [sys.executable, str(file)]


def started(command: Sequence[str], **settings: Any) -> subprocess.Popen[str]:
    """A server that has printed that it serves."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **settings)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("sansmcp: serving MCP at http://127.0.0.1:")
    return process


def stop(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Stop a server by a signal, and see it end in peace."""
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


@in_revisions
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_questions_on_real_transports(script: list[str], revision: str, transport: str) -> None:
    if transport == "stdio":
        with sansmcp_blocking.connect(script, versions=(revision,), **ELICITATION) as client:
            assert client.connected.version == revision
            assert text_of(client.call_tool("ask")) == "7"
        return
    port = free_port()
    process = started([*script, "--http", f"127.0.0.1:{port}"])
    url = f"http://127.0.0.1:{port}/mcp"
    with sansmcp_blocking.connect(url, versions=(revision,), **ELICITATION) as client:
        assert text_of(client.call_tool("ask")) == "7"
    stop(process, signal.SIGTERM)


def test_a_terminal_gets_http(script: list[str]) -> None:
    """Without arguments, and with the address of the environment."""
    port = free_port()
    own, other = pty.openpty()
    environment = {**os.environ, HTTP_VARIABLE: f"127.0.0.1:{port}"}
    process = started(script, stdin=other, env=environment)
    with sansmcp_blocking.connect(f"http://127.0.0.1:{port}/mcp") as client:
        assert text_of(client.call_tool("add", {"a": 1, "b": 2})) == "3"
    stop(process, signal.SIGINT)
    os.close(own)
    os.close(other)


def test_a_port_that_is_in_use(script: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = subprocess.run(
            [*script, "--http", address], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("Cannot serve: [Errno ")
    assert address.rpartition(":")[2] in line
    assert line.endswith("Stop the other program, or choose another port: 0 is a free one")


def test_both_at_once(script: list[str]) -> None:
    port = free_port()
    command = [*script, "--stdio", "--http", f"127.0.0.1:{port}"]
    with (
        sansmcp_blocking.connect(command) as by_pipe,
        sansmcp_blocking.connect(f"http://127.0.0.1:{port}/mcp") as by_http,
    ):
        for client in (by_pipe, by_http):
            assert text_of(client.call_tool("add", {"a": 1, "b": 2})) == "3"


def test_a_function_in_a_thread_may_add_a_tool(script: list[str]) -> None:
    heard: list[str] = []

    async def hear(client: sansmcp_asyncio.Client) -> None:
        async for event in client.events():
            if isinstance(event, ServerNotified):
                heard.append(event.notification.method)
                return

    async def main() -> None:
        async with sansmcp_asyncio.connect(script, versions=("2025-11-25",)) as client:
            hearing = asyncio.create_task(hear(client))
            await asyncio.sleep(0)  # the events are those from now on
            await client.call_tool("grow", {"name": "new"})
            await asyncio.wait_for(hearing, 60)

    asyncio.run(main())
    assert heard == ["notifications/tools/list_changed"]


DEFAULT = {"http": ("127.0.0.1", 8000)}


@pytest.mark.parametrize(
    ("arguments", "environment", "has_input", "chosen"),
    [
        ([], "", True, {"stdio": True}),
        ([], "", False, DEFAULT),
        ([], "127.0.0.1:9000", True, {"http": ("127.0.0.1", 9000)}),
        (["--stdio"], "127.0.0.1:9000", False, {"stdio": True}),
        (["--http"], "127.0.0.1:9000", True, DEFAULT),
        (["--http", ":80"], "", True, {"http": ("127.0.0.1", 80)}),
        (["--http", "[::1]:0"], "", True, {"http": ("::1", 0)}),
        (["--stdio", "--http"], "", False, {"stdio": True, "http": ("127.0.0.1", 8000)}),
        (["--unix", "a.sock"], "127.0.0.1:9000", True, {"unix": "a.sock"}),
        (["--unix", "a.sock", "--http"], "", True, {"unix": "a.sock", **DEFAULT}),
    ],
)
def test_what_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    environment: str,
    has_input: bool,
    chosen: dict[str, Any],
) -> None:
    monkeypatch.setenv(HTTP_VARIABLE, environment)
    own, other = os.pipe()
    with open(own if has_input else os.devnull) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert chosen_settings(arguments) == chosen
    os.close(other)
    if not has_input:
        os.close(own)


def test_pages_of_an_origin_are_served() -> None:
    origins = ["--cors", "https://a.example", "--cors", "https://b.example"]
    chosen = chosen_settings(["--http", *origins], SecurityPolicy(allowed_hosts=("mcp.example",)))
    assert chosen.get("policy") == SecurityPolicy(
        allowed_hosts=("mcp.example",),
        allowed_origins=("https://a.example", "https://b.example"),
        cors=True,
    )


def test_run_keeps_the_hosts_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []

    async def serve(app: App, settings: Any) -> None:
        served.append(settings["policy"])

    monkeypatch.setattr("sansmcp_tools._run._serve", serve)
    sansmcp_tools.run(
        App("t"),
        arguments=["--http", "--cors", "https://a.example"],
        policy=SecurityPolicy(allowed_hosts=("mcp.example",)),
    )
    assert served == [
        SecurityPolicy(
            allowed_hosts=("mcp.example",), allowed_origins=("https://a.example",), cors=True
        )
    ]


def test_a_page_of_no_origin(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        chosen_settings(["--http", "--cors", "null"])
    assert "'null' cannot be among allowed_origins" in capsys.readouterr().err


def test_without_standard_input_there_is_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HTTP_VARIABLE, raising=False)
    monkeypatch.setattr("sys.stdin", None)
    assert chosen_settings([]) == DEFAULT


@pytest.mark.parametrize("address", ["8000", "host:", "host:x"])
def test_a_wrong_address_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sansmcp_tools.run(App("t"), arguments=["--http", address])
    assert f"Write the address as HOST:PORT, not '{address}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--http", "127.0.0.1:65536"], "The port of '127.0.0.1:65536' is too large; ports end at"),
        (["--htpp"], "unrecognized arguments: --htpp; did you mean --http?"),
        (["--uinx=a", "x"], "unrecognized arguments: --uinx=a x; did you mean --unix?"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        sansmcp_tools.run(App("t"), arguments=arguments)
    assert said in capsys.readouterr().err


def test_settings_choose_instead(script: list[str], tmp_path: Path) -> None:
    """With an App as well, which has no changes to tell."""
    port = free_port()
    file = tmp_path / "settings.py"
    code = f"run(tools.app, http=('127.0.0.1', {port}), path='/other')"
    file.write_text(SERVER.replace("run(tools)", code))
    process = started([sys.executable, str(file), "--not-an-argument-of-run"])
    with sansmcp_blocking.connect(f"http://127.0.0.1:{port}/other") as client:
        assert text_of(client.call_tool("add", {"a": 1, "b": 2})) == "3"
    stop(process, signal.SIGTERM)


def test_a_loop_that_runs_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook the command line is that of its kernel, and was refused instead."""
    monkeypatch.setattr(sys, "argv", ["ipykernel_launcher.py", "-f", "kernel.json"])

    async def cell() -> None:
        sansmcp_tools.run(App("t"))

    with pytest.raises(RuntimeError, match=r"use sansmcp_asyncio\.serve\(\) with await"):
        asyncio.run(cell())


async def test_the_app_is_one_for_every_adapter() -> None:
    """Here on trio, with functions that await and that block."""
    import trio

    tools = sansmcp_tools.Tools("trio")

    @tools.tool
    async def wait() -> str:
        await trio.sleep(0)
        return "waited"

    @tools.tool
    def block(context: sansmcp_tools.ThreadContext) -> str:
        context.progress(1)
        return repr(context.elicit(int))

    async with trio.open_nursery() as nursery:
        start = partial(sansmcp_trio.serve, tools.app, http=("127.0.0.1", 0))
        serving: sansmcp_trio.RunningServer = await nursery.start(start)
        async with sansmcp_trio.connect(serving.url, **ELICITATION) as client:
            assert text_of(await client.call_tool("wait")) == "waited"
            assert text_of(await client.call_tool("block")) == "Accepted(value=7)"
        serving.stop()


def test_threads_serve_plain_functions() -> None:
    """Without an event loop async functions are refused, and the error is in the log."""
    tools = sansmcp_tools.Tools("threads")
    tools.tool(name="plain")(lambda: "plain")

    @tools.tool
    def ask(context: sansmcp_tools.ThreadContext) -> str:
        return repr(context.elicit(int))

    with (
        sansmcp_blocking.serve(tools.app, http=("127.0.0.1", 0)) as serving,
        sansmcp_blocking.connect(serving.url, **ELICITATION) as client,
    ):
        assert text_of(client.call_tool("plain")) == "plain"
        assert text_of(client.call_tool("ask")) == "Accepted(value=7)"
