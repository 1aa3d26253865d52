"""``sansmcp probe``: what a server speaks, why it does not speak the rest, and what it offers."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from sansmcp_pytest._checks.fake_server import Exchange, FakeServer

from .conftest import CompletedCommand, command, environment, failed, run, run_in_process, serving
from .plain_server import plain_server

OLD = "2025-11-25 2025-06-18 2025-03-26 2024-11-05"
ALL = f"2026-07-28 {OLD}"
OFFERS = [
    "    server              sansmcp-example 1.0",
    "    capabilities        tools, resources, prompts",
    "    tools               6",
    "    resources           1",
    "    prompts             1",
]
ON_HTTP_SSE = [
    OFFERS[0],
    "    capabilities        tools, resources, prompts, extensions",
    *OFFERS[2:],
]
WITH_GET_STREAM = [OFFERS[0], "    GET stream     yes", *ON_HTTP_SSE[1:]]


def shown(ran: CompletedCommand, status: int = 0) -> list[str]:
    """The lines of a table."""
    assert (ran.status, ran.err) == (status, "")
    return ran.out.splitlines()


def found(ran: CompletedCommand, status: int = 0) -> dict[str, Any]:
    """What was found out about each transport."""
    assert (ran.status, ran.err) == (status, "")
    assert ran.out.count("\n") == 1
    return {one["transport"]: one for one in json.loads(ran.out)["transports"]}


# Our own servers


def test_a_server_on_stdio() -> None:
    server = command("serve", "--stdio")
    assert shown(run("probe", "--", *server)) == [
        " ".join(server),
        f"  stdio            yes  {ALL}",
        *OFFERS,
    ]


def test_a_server_of_streamable_http(url: str) -> None:
    assert shown(run_in_process("probe", url)) == [
        url,
        f"  streamable-http  yes  {ALL}",
        *WITH_GET_STREAM,
        f"  http+sse         no   opening the event stream was refused: GET {url} was answered "
        "with HTTP 400: No Mcp-Session-Id: POST initialize to this URL first, then GET with the id "
        "it returns. The HTTP+SSE transport is not served on this URL (session_required)",
    ]


def test_the_event_stream_of_a_server_of_both() -> None:
    with serving("--http-sse") as mcp_url:
        url = mcp_url.replace("/mcp", "/sse")
        lines = shown(run_in_process("probe", url))
    assert lines == [
        url,
        f"  streamable-http  no   initialize was refused: POST {url} was answered with HTTP 405: "
        "This is the event stream of the deprecated HTTP+SSE transport, opened by GET; Streamable "
        "HTTP is served at /mcp (http_sse_stream_url)",
        f"  http+sse         yes  {OLD}",
        *ON_HTTP_SSE,
    ]


def test_a_server_of_both_on_one_path() -> None:
    with serving("--http-sse", "/mcp") as url:
        lines = shown(run_in_process("probe", url))
    assert lines == [
        url,
        f"  streamable-http  yes  {ALL}",
        *WITH_GET_STREAM,
        f"  http+sse         yes  {OLD}",
        *ON_HTTP_SSE,
    ]


def test_json_for_programs(url: str) -> None:
    transports = found(run_in_process("probe", "--json", url))
    assert list(transports) == ["streamable-http", "http+sse"]
    extensions = transports["streamable-http"]["capabilities"].pop("extensions")
    assert extensions.keys() == {"sansmcp/reclaim"}
    assert transports["streamable-http"] == {
        "works": True,
        "transport": "streamable-http",
        "revisions": dict.fromkeys(ALL.split()),
        "server": {"name": "sansmcp-example", "version": "1.0"},
        "capabilities": {"tools": {}, "resources": {"subscribe": True}, "prompts": {}},
        "standalone_stream": None,
        "offers": {"tools": 6, "resources": 1, "prompts": 1},
    }
    other = transports["http+sse"]
    assert other["works"] is False
    assert "session_required" in other["revisions"]["2025-11-25"]


LIMITED = """
import functools, sys, trio
import sansmcp, sansmcp_trio

app = sansmcp.App("limited")

@app.handler("tools/list")
def list_tools(call):
    page = int(call.params.get("cursor", 0))
    if page == 3:
        raise sansmcp.JsonRpcError(-32000, "no more today")
    tools = [{"name": f"tool-{page}", "inputSchema": {"type": "object"}}]
    return {"tools": tools, **({"nextCursor": str(page + 1)} if page < LAST else {})}

async def main():
    async with trio.open_nursery() as nursery:
        serve = functools.partial(sansmcp_trio.serve, app, SETTINGS)
        serving = await nursery.start(serve)
        print(serving.url, file=sys.stderr, flush=True)

trio.run(main)
"""


def limited(directory: Path, settings: str, last: int = 2) -> tuple[str, ...]:
    """The command of a server with these settings, whose tools are on that many pages."""
    script = directory / "limited.py"
    script.write_text(LIMITED.replace("SETTINGS", settings).replace("LAST", str(last)))
    return (sys.executable, str(script))


def test_a_server_that_speaks_some_revisions_and_offers_little(tmp_path: Path) -> None:
    server = limited(tmp_path, "stdio=True, versions=('2024-11-05', '2025-03-26')")
    refused = "The server speaks protocol version '2025-03-26', and not "
    assert shown(run_in_process("probe", "--", *server)) == [
        " ".join(server),
        "  stdio            yes  2025-03-26 2024-11-05",
        "    2026-07-28     no   The server speaks 2025-03-26, 2024-11-05, and not 2026-07-28",
        f"    2025-11-25     no   {refused}2025-11-25",
        f"    2025-06-18     no   {refused}2025-06-18",
        "    server              limited 0",
        "    capabilities        tools",
        "    tools               3",
    ]


def test_a_list_that_cannot_be_had(tmp_path: Path) -> None:
    server = limited(tmp_path, "stdio=True", last=9)
    assert shown(run_in_process("probe", "--", *server))[-1] == (
        "    tools               no more today (code -32000)"
    )


def test_a_server_without_a_standalone_stream(tmp_path: Path) -> None:
    server = limited(tmp_path, "http=('127.0.0.1', 0), standalone_streams=False")
    with subprocess.Popen(
        server, env=environment(), stderr=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stderr is not None
        try:
            url = process.stderr.readline().split()[-1]  # the log line of the server
            lines = shown(run_in_process("probe", url))
            works = found(run_in_process("probe", "--json", url))["streamable-http"]
        finally:
            process.kill()
    streams = works["standalone_stream"]
    assert streams == (
        f"GET {url} was answered with HTTP 405: No standalone event stream is offered here "
        "(method_not_allowed)"
    )
    assert f"    GET stream     no   {streams}" in lines


@pytest.mark.parametrize("status", [500, 502, 503, 400])
def test_a_server_that_fails_at_what_it_does_not_know(status: int) -> None:
    """It was said to speak nothing, though ``initialize`` works."""
    scripts: dict[str, Callable[[Exchange], None]] = {
        "server/discover": lambda exchange: exchange.reply(status),
        "tools/list": lambda exchange: exchange.result({"tools": []}),
    }
    with FakeServer(scripts) as server:
        works = found(run_in_process("probe", "--json", server.url))["streamable-http"]
    assert works["works"]
    spoken = [revision for revision, why in works["revisions"].items() if why is None]
    assert " ".join(spoken) == OLD
    assert f"HTTP {status}" in works["revisions"]["2026-07-28"]


# What is no MCP server


class Website(BaseHTTPRequestHandler):
    """Has a page for everybody, and wants a password for everything else."""

    def do_GET(self) -> None:
        self._answer(200, b"<html>\n  <h1>Welcome</h1>\n</html>")

    def do_POST(self) -> None:
        self._answer(401, b"Log in first")

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self, status: int, page: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)


@pytest.fixture
def website() -> Generator[str, None, None]:
    with HTTPServer(("127.0.0.1", 0), Website) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_a_website(website: str) -> None:
    assert shown(run_in_process("probe", website), status=1) == [
        website,
        f"  streamable-http  no   server/discover was refused: POST {website} was answered with "
        "HTTP 401: Log in first; the server requires authorization",
        "  http+sse         no   opening the event stream got a web page instead of a response: "
        f"GET {website} was answered with HTTP 200: text/html instead of JSON or an event stream: "
        "<html> <h1>Welcome</h1> </html>",
        f"Log in with: sansmcp login {website}",
        "Or send credentials with --header 'Authorization: Bearer ...'",
    ]
    transports = found(run_in_process("probe", "--json", website), status=1)
    assert [one["works"] for one in transports.values()] == [False, False]


def test_a_port_on_which_nobody_listens() -> None:
    lines = shown(run_in_process("probe", "http://127.0.0.1:1/mcp"), status=1)
    assert lines[0] == "http://127.0.0.1:1/mcp"
    assert [line[:24] for line in lines[1:]] == [
        "  streamable-http  no   ",
        "  http+sse         no   ",
    ]
    assert all("Connection refused" in line for line in lines[1:])


NO_SERVER = (
    "The command must start an MCP server that reads messages from its standard input and writes "
    "nothing else to its standard output"
)


def test_a_url_beside_the_endpoint(url: str) -> None:
    """The usual paths are tried, and no line speaks of the probe itself."""
    lines = shown(run_in_process("probe", url.replace("/mcp", "/")), status=1)
    assert lines[-1] == f"{url} speaks MCP; try: sansmcp probe {url}"
    assert not any("this client" in line or "does without" in line for line in lines)


def test_a_url_beside_an_event_stream() -> None:
    with serving("--http-sse", "/sse", "--path", "/elsewhere") as url:
        lines = shown(run_in_process("probe", url.replace("/elsewhere", "/nothing")), status=1)
        url = url.replace("/elsewhere", "/sse")
    assert lines[-1] == f"{url} speaks MCP; try: sansmcp probe {url}"


def test_a_server_without_an_endpoint_at_the_usual_paths() -> None:
    with serving("--path", "/elsewhere") as url:
        wrong, there = url.replace("elsewhere", "mcp"), url.replace("elsewhere", "sse")
        lines = shown(run_in_process("probe", wrong), status=1)
    assert lines[-1].startswith(f"No MCP endpoint here, nor at {there}; ")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            "echo hello",
            [
                "The server process 'sh' has ended with status 0:",
                "                        (stdout, not an MCP message) hello",
                NO_SERVER,
            ],
        ),
        ("exit 3", ["The server process 'sh' has ended with status 3"]),
        (
            "echo wrong >&2; echo key >&2; exit 1",
            [
                "The server process 'sh' has ended with status 1:",
                "                        wrong",
                "                        key",
            ],
        ),
    ],
)
def test_a_command_that_is_no_server(script: str, why: list[str]) -> None:
    lines = shown(run_in_process("probe", "--", "sh", "-c", script), status=1)
    assert lines == [f"sh -c {script}", f"  stdio            no   {why[0]}", *why[1:]]


def test_a_command_that_says_nothing() -> None:
    server = ("sh", "-c", "cat > /dev/null")
    lines = shown(run_in_process("probe", "--timeout", "0.2", "--", *server), status=1)
    why = "initialize got no response from the server process within 0.2 s (connect_timeout)"
    assert lines[1:] == [f"  stdio            no   {why}"]


def test_a_command_that_does_not_exist() -> None:
    lines = shown(run_in_process("probe", "--", "./nosuch"), status=1)
    assert lines[1].startswith("  stdio            no   './nosuch' could not be started: ")
    assert len(lines) == 2


# Options


def test_headers_go_along_and_the_trace_shows_everything(url: str) -> None:
    probed = run_in_process("probe", url, "--trace", "--header", "cookie: sesame")
    assert probed.status == 0
    assert "client #1 > POST /mcp" in probed.err
    assert "sesame" not in probed.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Which server? Name a URL, --state-file FILE, or -- COMMAND ARGS"),
        (("--",), "Which server? Name a URL, --state-file FILE, or -- COMMAND ARGS"),
        (("http://a/", "b", "c"), "One server at a time; what is 'b c'?"),
        (("http://a/", "--", "true"), "One server at a time; what is 'http://a/'?"),
        (
            ("--state-file", "nosuch"),
            "No running server with a URL in the state file 'nosuch'; start one with: "
            "sansmcp serve --state-file nosuch",
        ),
        (("--state-file", "f", "--", "true"), "Either a command or --state-file, not both"),
        (
            ("localhost",),
            "Not a URL, nor the name of a server: 'localhost'; write http://localhost, or put the "
            "command that starts a server after --",
        ),
        (
            ("http://a/", "--header", "nonsense"),
            "--header takes 'Name: value', and this has no name or no colon",
        ),
        (
            ("http://a/", "--timeout", "0"),
            "A duration must be a number of seconds above zero, got 0.0; use math.inf for no limit",
        ),
    ],
)
def test_wrong_usage_is_explained_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    assert failed(run_in_process("probe", *arguments)) == said


LISTS: list[Any] = [None, 5, "tools", [1], {}, {"tools": None}, {"tools": 5}, {"tools": [1]}]


@pytest.mark.parametrize("result", LISTS, ids=str)
def test_a_list_that_is_none_is_told(result: Any) -> None:
    with plain_server({"tools/list": result}) as url:
        lines = shown(run_in_process("probe", url))
    (line,) = (each for each in lines if each.startswith("    tools"))
    assert "breaks the protocol" in line or "Not a valid list" in line
