"""``sansmcp call``: the result on stdout, what happens on the way on stderr, errors to act on."""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from .conftest import ADAPTERS, command, failed, run, run_in_process, text_of


def test_the_result_is_text_on_stdout(url: str) -> None:
    called = run("call", url, "echo", '{"text": "Grüße\\nan alle\\n"}')
    assert (called.status, called.out, called.err) == (0, "Grüße\nan alle\n", "")


def test_the_result_is_json_for_a_program(url: str) -> None:
    called = run("call", "--json", url, "echo", '{"text": "Grüße\\n"}')
    assert (called.status, called.err) == (0, "")
    assert called.out.count("\n") == 1
    assert json.loads(called.out)["content"] == [{"type": "text", "text": "Grüße\n"}]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_progress_and_disconnections_are_told_on_stderr(url: str, adapter: str) -> None:
    arguments = ("slow", '{"steps": 3, "delay": 0.05}', "--revision", "2025-11-25")
    called = run_in_process("call", url, *arguments, "--adapter", adapter)
    assert called.status == 0
    assert text_of(called.out) == "3 steps done"
    assert "progress 1 of 3: step 1 of 3\n" in called.err
    assert "disconnected (" in called.err
    assert called.err.count("progress") == 3


def test_a_big_result(url: str) -> None:
    called = run_in_process("call", url, "big", '{"bytes": 3000000}')
    assert len(text_of(called.out)) == 3_000_000


def test_the_trace_shows_the_conversation_and_no_secret(url: str) -> None:
    called = run_in_process(
        "call", url, "echo", '{"text": "a"}', "--trace", "--header", "cookie: sesame"
    )
    assert "client #1 > POST /mcp" in called.err
    assert "sesame" not in called.err
    assert called.status == 0


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_tool_that_fails(url: str, adapter: str) -> None:
    called = run_in_process("call", url, "fail", '{"reason": "no paper"}', "--adapter", adapter)
    assert called.status == 1
    assert text_of(called.out) == "no paper"


@pytest.mark.parametrize(("adapter", "server"), [*zip(ADAPTERS, reversed(ADAPTERS), strict=True)])
def test_a_server_on_stdio(adapter: str, server: str) -> None:
    behind = ("--", *command("serve", "--stdio", "--adapter", server))
    called = run_in_process("call", "add", '{"a": 1, "b": 2}', "--adapter", adapter, *behind)
    assert (called.status, text_of(called.out)) == (0, "3")
    called = run_in_process("call", "nosuch", "--adapter", adapter, *behind)
    assert failed(called).startswith("There is no tool 'nosuch'")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing name of a tool; usage: sansmcp call URL TOOL [NAME=VALUE ...]"),
        (
            ("echo", "{}", "more"),
            "Arguments are NAME=VALUE, or one JSON object in quotes; got 'more'",
        ),
        (("nosuch",), "There is no tool 'nosuch'; there are echo, add, slow, big, ask, fail"),
        (("add", '{"a": 1}'), "add needs b (code -32602)"),
        (("echo", "{"), "The arguments of the tool are not JSON"),
        (("echo", "[]"), "must be a JSON object"),
        (
            ("echo", "{}", "--header", "nonsense"),
            "--header takes 'Name: value'",
        ),
        (("echo", "{}", "--header", "a b: c"), "A header name must be"),
        (("echo", "{}", "--header", "Host: c"), "'host' is set by the client itself"),
        (("echo", "{}", "--header", "a: b\r\nc: d"), "has characters that cannot be sent"),
        (("echo", "{}", "--timeout", "0"), "must be a number of seconds above zero"),
        (("slow", '{"steps": 1, "delay": 9}', "--timeout", "0.2"), " within 0.2 s"),
    ],
)
def test_errors_are_one_line(url: str, arguments: tuple[str, ...], message: str) -> None:
    said = failed(run_in_process("call", url, *arguments))
    assert message in said
    assert "\n" not in said


def test_a_wrong_path_is_told_with_the_servers_own_words(url: str) -> None:
    called = run_in_process("call", url.replace("/mcp", "/other"), "echo")
    assert called.status == 1
    assert "/other was answered with HTTP 404: Nothing is served at this path" in called.err
    assert "the MCP endpoint is /mcp" in called.err


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:1/mcp", "Connection refused"),
        (
            "http://name.invalid/mcp",
            "http://name.invalid/mcp cannot be reached: ",
        ),
        ("ftp://127.0.0.1/", "Not an http or https URL"),
        ("localhost", "Not a URL, nor the name of a server: 'localhost'; write http://localhost"),
        ("https:/localhost/mcp", "'https:/localhost/mcp'; write https://localhost/mcp, or"),
        ("search", "the name of a server: 'search'; put the command that starts a server after --"),
        ("http://user:secret@localhost/", "must not contain a user name"),
    ],
)
def test_what_cannot_be_reached(url: str, message: str) -> None:
    said = failed(run_in_process("call", "--timeout", "1", url, "echo"))
    assert message in said
    assert "\n" not in said
    assert "secret" not in said


def test_a_url_after_the_tool() -> None:
    said = failed(run_in_process("call", "echo", "text=1", "http://user:secret@localhost/mcp"))
    assert said == "The server comes first: write its URL before 'echo', not after it"


def test_what_a_command_prints_that_is_no_server() -> None:
    called = run_in_process("call", "add", "{}", "--", "echo", "hello")
    assert called.status == 1
    assert called.err.splitlines() == [
        "sansmcp: The server process 'echo' has ended with status 0:",
        "  (stdout, not an MCP message) hello",
        "sansmcp: The command must start an MCP server that reads messages from its standard input "
        "and writes nothing else to its standard output",
    ]


def test_what_a_command_prints_that_does_not_end() -> None:
    script = "echo serving on port 8000; echo ready >&2; cat > /dev/null"
    called = run_in_process("call", "--timeout", "5", "add", "{}", "--", "sh", "-c", script)
    assert called.err.splitlines() == [
        "sansmcp: initialize got no response from the server process within 5 s (connect_timeout):",
        "  (stdout, not an MCP message) serving on port 8000",
        "  ready",
    ]


class Denying(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(403 if self.path.startswith("/forbidden") else 401)
        if self.path.endswith("?key"):
            self.send_header("WWW-Authenticate", "ApiKey")
        if self.path.endswith("?realm"):
            self.send_header("WWW-Authenticate", 'Basic realm="mcp"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize(
    ("path", "said", "do"),
    [
        ("/?realm", '(Basic realm="mcp")', "Send credentials with --header '{}: Basic ...'"),
        ("/forbidden?realm", "this", "Send credentials with --header '{}: Basic ...'"),
        (
            "/?key",
            "(ApiKey)",
            "Send a key with --header '{}: ApiKey ...', or in the header that its documentation "
            "names, such as --header 'X-API-Key: ...'",
        ),
        ("/", "authorization", "Or send credentials with --header '{}: Bearer ...'"),
    ],
)
def test_a_server_that_wants_credentials(path: str, said: str, do: str) -> None:
    with HTTPServer(("127.0.0.1", 0), Denying) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            called = run_in_process("call", f"http://127.0.0.1:{server.server_port}{path}", "add")
        finally:
            server.shutdown()
            thread.join()
    assert called.status == 1
    error, *advice = called.err.splitlines()
    assert said in error
    assert advice[-1] == f"sansmcp: {do.format('Authorization')}"
    assert len(advice) == (2 if do.startswith("Or") else 1)


TELLS = """
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {}}
        result["serverInfo"] = {"name": "s", "version": "1"}
    else:
        result = {"content": [], "found": {name: os.environ.get(name) for name in ("A", "OURS")}}
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ((), {"A": None, "OURS": None}),
        (("--env", "A=b=c"), {"A": "b=c", "OURS": None}),
        (("--inherit-env", "--env", "A="), {"A": "", "OURS": "x"}),
    ],
)
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_environment_of_a_server(
    monkeypatch: pytest.MonkeyPatch, adapter: str, options: tuple[str, ...], found: Any
) -> None:
    """A server inherited the whole environment."""
    monkeypatch.setenv("OURS", "x")
    server = ("--", sys.executable, "-IS", "-c", TELLS)
    how = ("--revision", "2025-11-25", "--adapter", adapter)
    called = run_in_process("call", "--json", *how, *options, "tell", *server)
    assert (called.status, called.err) == (0, "")
    assert json.loads(called.out)["found"] == found


@pytest.mark.parametrize("variable", ["secret", "=secret"])
def test_an_environment_that_makes_no_sense(variable: str) -> None:
    said = failed(run_in_process("call", "--env", variable, "tell", "--", "true"))
    assert said == "--env takes NAME=VALUE"
    said = failed(run_in_process("call", "--env", "A=secret", "http://localhost/", "tell"))
    assert said.startswith("--env and --inherit-env are for a command")


def test_a_full_trace_cuts_nothing(url: str) -> None:
    long = "x" * 500
    short = run_in_process("call", "--trace", url, "echo", f"text={long}")
    assert long not in short.err
    full = run_in_process("call", "--trace=full", url, "echo", f"text={long}")
    assert full.err.count(long) >= 2
    assert '"_meta"' in full.err
