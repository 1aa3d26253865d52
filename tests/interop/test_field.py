"""Ten servers that people use: what they offer arrives as a client of a few lines sees it.

They are started as commands, by pinned versions of npm and PyPI. None of them needs an account or
the network: what they would fetch comes from an HTTP server of the test, and the browser that one
of them would start does not exist.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Generator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias, cast

import attrs
import pytest

import sansmcp_blocking

from ..bridge.processes import running
from ..cli.conftest import CompletedCommand, run_in_process
from ..node import NODE, install_or_skip
from .environments import python_with

pytestmark = pytest.mark.node

FOLDER = Path(__file__).with_name("field")

REVISION = "2025-11-25"
"""All of them speak it. The command speaks the newest that they know, which is newer with some."""

_NEWER_MEMBERS = ("resultType", "_meta", "ttlMs", "cacheScope")
"""Those that 2026-07-28 has added to results."""

_PATIENCE = 300
"""The seconds that a server may take to start, beside other tests."""

JsonObject: TypeAlias = "dict[str, Any]"


@attrs.frozen
class FieldServer:
    """A server, a call that needs no network, and a text that its result has.

    In its arguments, environment and call, ``{work}`` is a directory with a git repository in
    ``repository``, and ``{web}`` is the URL of the test's HTTP server.
    """

    command: tuple[str, ...]
    tool: str
    arguments: Mapping[str, Any]
    text: str
    env: Mapping[str, str] = attrs.Factory(dict[str, str])
    resource: str | None = None
    """One that it has; None if it has none."""
    packages: tuple[str, ...] = ()
    """Of PyPI; else the command is a file of a package of npm."""


SERVERS = {
    "everything": FieldServer(
        ("@modelcontextprotocol/server-everything/dist/index.js",),
        "get-structured-content",
        {"location": "Chicago"},
        "temperature",
        resource="demo://resource/static/document/architecture.md",
    ),
    "filesystem": FieldServer(
        ("@modelcontextprotocol/server-filesystem/dist/index.js", "{work}"),
        "read_text_file",
        {"path": "{work}/hällo.txt"},
        "a file of the test",
    ),
    "memory": FieldServer(
        ("@modelcontextprotocol/server-memory/dist/index.js",),
        "read_graph",
        {},
        "Ada",
        {"MEMORY_FILE_PATH": "{work}/memory.jsonl"},
        "memory://knowledge-graph",
    ),
    "sequential-thinking": FieldServer(
        ("@modelcontextprotocol/server-sequential-thinking/dist/index.js",),
        "sequentialthinking",
        {"thought": "a", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
        "totalThoughts",
    ),
    "playwright": FieldServer(
        ("@playwright/mcp/cli.js", "--headless", "--executable-path", "{work}/no-browser"),
        "browser_navigate",
        {"url": "{web}"},
        "no-browser",
    ),
    "context7": FieldServer(
        ("@upstash/context7-mcp/dist/index.js",),
        "resolve-library-id",
        {"query": "how to route", "libraryName": "flask"},
        "/pallets/flask",
        {"CONTEXT7_API_URL": "{web}"},
    ),
    "fetch": FieldServer(
        ("mcp-server-fetch", "--allow-private-ips", "--ignore-robots-txt"),
        "fetch",
        {"url": "{web}/page"},
        "A page of the test",
        {"PATH": "{work}"},  # where it finds npm, its first call installs packages of npm
        packages=("mcp-server-fetch==2026.10.24", "mcp==2.3.0"),
    ),
    "git": FieldServer(
        ("mcp-server-git",),
        "git_log",
        {"repo_path": "{work}/repository"},
        "the first commit",
        packages=("mcp-server-git==2026.10.19", "mcp==2.3.0"),
    ),
    "time": FieldServer(
        ("mcp-server-time", "--local-timezone", "Etc/UTC"),
        "convert_time",
        {"source_timezone": "Etc/UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
        "T21:00:00+09:00",
        packages=("mcp-server-time==2026.10.19", "mcp==2.3.0"),
    ),
    "sqlite": FieldServer(  # made with the SDK before its second version
        ("mcp-server-sqlite", "--db-path", "{work}/some.db"),
        "list_tables",
        {},
        "[]",
        resource="memo://insights",
        packages=("mcp-server-sqlite==2025.4.25", "mcp==1.30.0"),
    ),
}


class Web(BaseHTTPRequestHandler):
    """The network, as far as these servers see it: a page, and a search for libraries."""

    def do_GET(self) -> None:
        if self.path.startswith("/v2/libs/search"):
            found = {"id": "/pallets/flask", "title": "Flask", "description": "Of the test"}
            body, kind = json.dumps({"results": [found]}), "application/json"
        else:
            body, kind = "<html><body><p>A page of the test</p></body></html>", "text/html"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """No lines on stderr."""


@pytest.fixture(scope="module")
def web() -> Generator[str, None, None]:
    """The URL of the network."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Web) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@attrs.frozen
class Prepared:
    """A server that is installed, with a directory that it can work in."""

    server: FieldServer
    command: list[str]
    env: dict[str, str]
    arguments: str
    """Of the call, as JSON."""

    @property
    def options(self) -> list[str]:
        """What our command is told of the environment."""
        return [word for name, value in self.env.items() for word in ("--env", f"{name}={value}")]


@pytest.fixture(params=SERVERS)
def prepared(request: pytest.FixtureRequest, tmp_path: Path, web: str) -> Prepared:
    """Each of the servers."""
    server = SERVERS[request.param]
    (tmp_path / "hällo.txt").write_text("a file of the test\u2028", encoding="utf-8")
    entity = {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["counts"]}
    (tmp_path / "memory.jsonl").write_text(json.dumps(entity), encoding="utf-8")
    repository = tmp_path / "repository"
    repository.mkdir()
    author = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "the first commit"]):
        subprocess.run(["git", *author, *words], cwd=repository, check=True)

    def filled(text: str) -> str:
        return text.replace("{work}", str(tmp_path)).replace("{web}", web)

    words = [filled(word) for word in server.command]
    if server.packages:
        name = f"field-{server.packages[-1]}"
        same = dict.fromkeys(
            package
            for one in SERVERS.values()
            if one.packages[-1:] == server.packages[-1:]
            for package in one.packages
        )
        python = python_with(name, tuple(same), "SANSMCP_REQUIRE_NODE")
        command = [str(Path(python).with_name(words[0])), *words[1:]]
    else:
        install_or_skip(FOLDER)
        command = [NODE, str(FOLDER / "node_modules" / words[0]), *words[1:]]
    env = {name: filled(value) for name, value in server.env.items()}
    return Prepared(server, command, env, filled(json.dumps(server.arguments)))


class RawClient:
    """A client of a few lines, at REVISION, which reads no more than it has to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._requests = 0
        client = {"name": "raw", "version": "1"}
        self.initialized = self.ask(
            "initialize",
            {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": client},
        )
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, params: Mapping[str, Any]) -> JsonObject:
        self._requests += 1
        id = self._requests
        self._send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("id") == id and "result" in message:
                return cast(JsonObject, message["result"])
            assert "method" in message, line
        pytest.fail("The server has ended")

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()


@attrs.frozen
class Seen:
    """What a client has received from a server."""

    server_info: Any
    tools: Any
    called: Any
    read: Any
    """The result; the list of resources if there is none to read."""


def seen_raw(prepared: Prepared) -> Seen:
    """What a raw client sees."""
    server = prepared.server
    with subprocess.Popen(
        prepared.command,
        env={**{name: os.environ[name] for name in ("HOME", "PATH")}, **prepared.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    ) as process:
        try:
            client = RawClient(process)
            listed = client.ask("tools/list", {})
            assert "nextCursor" not in listed
            call = {"name": server.tool, "arguments": json.loads(prepared.arguments)}
            called = client.ask("tools/call", call)
            if server.resource is None:
                is_offered = "resources" in client.initialized["capabilities"]
                read: Any = client.ask("resources/list", {})["resources"] if is_offered else []
                assert not read, "one of them can be read here"
            else:
                read = client.ask("resources/read", {"uri": server.resource})
        finally:
            process.kill()
    return Seen(client.initialized["serverInfo"], listed["tools"], called, read)


def seen_by_command(prepared: Prepared, *words: str, **settings: Any) -> Seen:
    """What ``sansmcp`` and a client of ours see; ``words`` is a URL, or nothing for the command."""
    target = words[0] if words else prepared.command
    at_end = () if words else ("--", *prepared.command)

    def run(subcommand: str, *asked: str) -> CompletedCommand:
        options = ("--json", "--timeout", str(_PATIENCE), *(() if words else prepared.options))
        return run_in_process(subcommand, *options, *words, *asked, *at_end)

    def shown(subcommand: str, *asked: str) -> Any:
        done = run(subcommand, *asked)
        assert done.out, done.err
        result = json.loads(done.out)
        return {name: value for name, value in result.items() if name not in _NEWER_MEMBERS}

    server = prepared.server
    tools = shown("list", "tools")["tools"]
    called = shown("call", server.tool, prepared.arguments)
    if server.resource is None:
        read: Any = shown("list", "resources")["resources"]
        refused = run("read", "any://resource")
        assert (refused.status, refused.out) == (1, "")
        assert "sansmcp: " in refused.err.splitlines()[-1]
    else:
        read = shown("read", server.resource)
    env = None if words else prepared.env
    with sansmcp_blocking.connect(
        target, env=env, versions=(REVISION,), connect_timeout=_PATIENCE
    ) as client:
        return Seen(client.connected.server_info, tools, called, read)


def test_what_it_offers_arrives_as_it_is(prepared: Prepared) -> None:
    expected = seen_raw(prepared)
    assert prepared.server.text in str(expected.called["content"])
    assert seen_by_command(prepared) == expected
    with running("bridge", "--shared", *prepared.options, "--", *prepared.command) as url:
        bridged = seen_by_command(prepared, url)
    # A shared connection declares all that a client may be asked; "everything" has tools that ask.
    names = [tool["name"] for tool in expected.tools]
    assert [tool for tool in bridged.tools if tool["name"] in names] == expected.tools
    assert attrs.evolve(bridged, tools=expected.tools) == expected
