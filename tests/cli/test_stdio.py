"""``sansmcp serve --stdio`` and ``--dual``: stdout belongs to the protocol, and to nothing else."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import run, run_in_process, started, text_of

TALKATIVE = """
import os, sys
import sansmcp

app = sansmcp.App("talkative")

@app.handler("tools/call")
def call_tool(call):
    print("from print")
    os.system("echo from a child")
    sys.stdout.write("from stdout\\n")
    return {"content": [{"type": "text", "text": repr(sys.stdin.read())}]}
"""

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    },
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call_of(name: str, **arguments: Any) -> dict[str, Any]:
    """The request that calls a tool."""
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def lines_of(*messages: Any) -> str:
    return "".join(json.dumps(message) + "\n" for message in messages)


def answers_in(output: str) -> dict[Any, Any]:
    """The messages on stdout by their ids; raises for anything else there."""
    messages = [json.loads(line) for line in output.split("\n")[:-1]]
    return {message.get("id"): message for message in messages}


def say_to(server: subprocess.Popen[str], *messages: Any) -> dict[Any, Any]:
    """Send messages, and take one answer."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(lines_of(*messages))
    server.stdin.flush()
    return answers_in(server.stdout.readline())


def test_it_answers_all_that_was_asked_and_ends_with_its_input() -> None:
    slow = {**call_of("slow", steps=2, delay=0.1), "id": "later"}
    asked = lines_of(INITIALIZE, INITIALIZED, slow, call_of("echo", text="Grüße\u2028"))
    served = run("serve", "--stdio", input=asked)
    assert (served.status, served.err) == (0, "")
    answers = answers_in(served.out)
    assert answers.keys() == {0, 1, "later"}
    assert answers[0]["result"]["serverInfo"]["name"] == "sansmcp-example"
    assert answers[1]["result"]["content"][0]["text"] == "Grüße\u2028"
    assert answers["later"]["result"]["content"][0]["text"] == "2 steps done"


def test_no_input_at_all() -> None:
    served = run("serve", "--stdio")
    assert (served.status, served.out, served.err) == (0, "", "")


def test_input_from_a_file(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    asked.write_text(lines_of(INITIALIZE, INITIALIZED, call_of("add", a=1, b=2)))
    with asked.open() as file, started("serve", "--stdio", stdin=file.fileno()) as server:
        out, err = server.communicate(timeout=20)
    assert (server.returncode, err) == (0, "")
    assert answers_in(out)[1]["result"]["content"][0]["text"] == "3"


def test_what_is_no_message_gets_an_error_and_the_next_line_an_answer() -> None:
    served = run("serve", "--stdio", input="hello?\n" + lines_of(INITIALIZE))
    answers = answers_in(served.out)
    assert list(answers) == [None, 0]
    assert answers[None]["error"]["code"] == -32700


def test_nothing_that_is_printed_gets_into_the_conversation(tmp_path: Path) -> None:
    (tmp_path / "talkative.py").write_text(TALKATIVE)
    asked = lines_of(INITIALIZE, INITIALIZED, call_of("any"))
    served = run("serve", "--stdio", "talkative", cwd=tmp_path, input=asked)
    assert list(answers_in(served.out)) == [0, 1]
    assert answers_in(served.out)[1]["result"]["content"][0]["text"] == "''"
    assert sorted(served.err.splitlines()) == ["from a child", "from print", "from stdout"]


def test_the_trace_goes_to_stderr() -> None:
    served = run("serve", "--stdio", "--trace", input=lines_of(INITIALIZE))
    assert list(answers_in(served.out)) == [0]
    assert served.err.startswith('server < {"jsonrpc": "2.0", "id": 0, "method": "initialize"')


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_told(ending: signal.Signals) -> None:
    with started("serve", "--stdio", stdin=subprocess.PIPE) as server:
        assert list(say_to(server, INITIALIZE)) == [0]
        server.send_signal(ending)
        assert server.wait(timeout=20) == 0
        assert server.stderr is not None
        assert server.stderr.read() == ""


# Both


def test_dual_serves_both_and_says_where_on_stderr() -> None:
    with started("serve", "--dual", "--http", "127.0.0.1:0", stdin=subprocess.PIPE) as server:
        assert server.stderr is not None
        url = server.stderr.readline().strip()
        assert list(say_to(server, INITIALIZE)) == [0]
        over_http = run_in_process("call", url, "echo", '{"text": "over HTTP"}')
        assert text_of(over_http.out) == "over HTTP"
        on_stdio = say_to(server, INITIALIZED, call_of("echo", text="on stdio"))
        assert on_stdio[1]["result"]["content"][0]["text"] == "on stdio"
        server.terminate()
        out, err = server.communicate(timeout=20)
    assert (server.returncode, out, err) == (0, "", "")


def test_dual_outlives_its_input() -> None:
    with started("serve", "--dual", "--http", "127.0.0.1:0") as server:
        assert server.stderr is not None
        url = server.stderr.readline().strip()
        for _ in range(2):
            assert run_in_process("call", url, "echo", '{"text": "a"}').status == 0
        server.terminate()
        out, err = server.communicate(timeout=20)
    assert (server.returncode, out, err) == (0, "", "")


def test_dual_with_all_transports() -> None:
    options = ("--dual", "--http-sse", "--http", "127.0.0.1:0")
    with started("serve", *options, stdin=subprocess.PIPE) as server:
        assert server.stderr is not None
        url = server.stderr.readline().strip()
        assert list(say_to(server, INITIALIZE)) == [0]
        for one in (url, url.replace("/mcp", "/sse")):
            assert run_in_process("call", one, "echo", '{"text": "a"}').status == 0
        server.terminate()
