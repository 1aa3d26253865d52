"""``sansmcp bridge``, run as a person runs it."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pytest

import sansmcp
from sansmcp.httptools_parser import HTTP11
from sansmcp_cli._bridge import fast_http11

from ..cli.conftest import command, run, started
from ..cli.conftest import config as config
from ..ports import free_port
from .processes import STDIO, running


def echoed(*words: str) -> str:
    done = run(words[0], "--json", *words[1:])
    assert done.status == 0, done.err
    text: str = json.loads(done.out)["content"][0]["text"]
    return text


ECHO = ("echo", '{"text": "hi"}')


def test_a_command_is_served_over_http_and_comes_back_on_stdio() -> None:
    with running("bridge", "--", *STDIO) as url:
        assert url.startswith("http://127.0.0.1:")
        assert echoed("call", url, *ECHO) == "hi"
        for revision in ("2024-11-05", "2025-11-25", "2026-07-28"):
            back = command("bridge", url)
            assert echoed("call", "--revision", revision, *ECHO, "--", *back) == "hi"


def test_the_deprecated_transport() -> None:
    with running("bridge", "--to", "http-sse", "--", *STDIO) as url:
        assert echoed("call", url.replace("/mcp", "/sse"), *ECHO) == "hi"
        probed = run("probe", url.replace("/mcp", "/sse"))
        assert "http+sse         yes" in probed.out


def test_unix_sockets_on_both_sides() -> None:
    with tempfile.TemporaryDirectory() as directory:
        near, far = f"{directory}/near", f"{directory}/far"
        with started("serve", "--unix", far) as server:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            with started("bridge", "--unix", near, url) as bridge:
                assert bridge.stdout is not None
                here = bridge.stdout.readline().strip()
                assert here == str(sansmcp.Url.of_socket(near, "/mcp"))
                for revision in ("2025-11-25", "2026-07-28"):
                    assert echoed("call", "--revision", revision, here, *ECHO) == "hi"
            for place in (("--unix", near), ("--http", "127.0.0.1:0")):
                done = run("bridge", "--to", "stdio", *place, url)
                assert (done.status, done.out) == (1, "")
                assert f"leave out {place[0]}, or write --to http" in done.err
            with running("bridge", "--http", "127.0.0.1:0", url) as here:
                assert echoed("call", here, *ECHO) == "hi"


def test_several_servers_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    program = command("serve", "--stdio")
    one = {"command": program[0], "args": program[1:], "env": {"A": "${HOME}"}}
    with running("bridge", "--", *STDIO) as url:
        two = {"url": url, "headers": {"X-Home": "${HOME}"}}
        file.write_text(json.dumps({"mcpServers": {"one": one, "two": two}}), "utf-8")
        with running("bridge", "--config", str(file), "--deny-tool", "two_*") as both:
            assert echoed("call", both, "one_echo", '{"text": "hi"}') == "hi"
            done = run("call", both, "two_echo", '{"text": "hi"}')
            assert done.status == 1
            assert "Unknown tool: two_echo" in done.err


def test_a_client_that_leaves_at_once() -> None:
    done = run("bridge", "--to", "stdio", "--", *STDIO)
    assert (done.status, done.out) == (0, "")


def test_the_trace_names_both_sides() -> None:
    ping = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n'
    done = run("bridge", "--to", "stdio", "--trace", "--", *STDIO, input=ping)
    assert "clients < " in done.err
    assert "upstream > starts " in done.err


def test_the_trace_shows_no_secret_of_a_command() -> None:
    ping = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n'
    secret = ("--api-key", "hunter2", "--header", "Authorization: Bearer abc", "db://me:pass@h")
    for level in ("--trace", "--trace=full"):
        done = run("bridge", "--to", "stdio", level, "--", "./nosuch", *secret, input=ping)
        assert "upstream > starts ./nosuch --api-key ... --header ... ...@h" in done.err
        assert not any(word in done.err for word in ("hunter2", "Bearer", "pass@"))


PING = '{"jsonrpc":"2.0","id":"a","method":"ping"}\n{"jsonrpc":"2.0","method":"x"}\n{\n'


@pytest.mark.parametrize("server", ["dead", "away"])
def test_a_client_whose_upstream_server_cannot_be_reached_gets_an_error(server: str) -> None:
    """It gets it soon after it has closed its end, although the server is still tried."""
    words = ("--", "false") if server == "dead" else (f"http://127.0.0.1:{free_port()}/mcp",)
    done = run("bridge", "--to", "stdio", *words, input=PING)
    assert done.status == 1
    (line,) = done.out.splitlines()
    answer = json.loads(line)
    assert (answer["id"], answer["error"]["code"]) == ("a", -32603)
    assert answer["error"]["message"].startswith("The upstream server cannot be reached: ")


def test_a_client_that_speaks_no_json() -> None:
    done = run("bridge", "--to", "stdio", "--", *STDIO, input="hello\n")
    assert done.status == 0
    assert "-32700" in done.out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "Which server?"),
        (("http://a/mcp", "b"), "what is 'b'?"),
        (("http://a/mcp", "--config", "x"), "Either --config or one server"),
        (("--config", "x", "--header", "Authorization: y"), "would go to all servers"),
        (("--config", "missing.json"), "Cannot read missing.json"),
        (("--to", "http", "--", "false"), "The server process"),
    ],
    ids=str,
)
def test_wrong_usage(words: tuple[str, ...], error: str) -> None:
    done = run("bridge", *words)
    assert done.status == 1
    assert error in done.err


@pytest.mark.parametrize(
    ("servers", "error"),
    [
        ({}, "has no servers"),
        ({"a": {}}, 'a needs either a "url" or a "command"'),
        ({"a": {"command": "x", "cwd": [1]}}, 'a: "cwd" must be a text'),
        ({"a": {"command": "x", "disabled": True}}, "has no servers to be used"),
        (
            {"a": {"command": "x", "env": {"B": "${SANSMCP_NOT_SET}"}}},
            'a: "env.B" needs the environment variable SANSMCP_NOT_SET, which is not set',
        ),
    ],
    ids=str,
)
def test_wrong_files(servers: object, error: str, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}), "utf-8")
    done = run("bridge", "--config", str(file))
    assert done.status == 1
    assert error in done.err


def test_a_port_in_use() -> None:
    with running("bridge", "--", *STDIO) as url:
        port = url.rpartition(":")[2].partition("/")[0]
        done = run("bridge", "--http", f"127.0.0.1:{port}", "--", sys.executable, *STDIO[1:])
        assert done.status == 1
        assert "Cannot serve at" in done.err


def test_heads_are_parsed_by_httptools_if_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fast_http11() is HTTP11
    monkeypatch.setitem(sys.modules, "sansmcp.httptools_parser", None)
    assert fast_http11() is None
