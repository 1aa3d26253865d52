"""``sansmcp serve``: the URL on stdout once it is true, a clean end, errors to act on."""

from __future__ import annotations

import io
import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

import sansmcp
from sansmcp_cli._advice import advice
from sansmcp_cli._output import print_wrapped

from .conftest import ADAPTERS, failed, run, run_in_process, serving, started, text_of

APPLICATION = """
import sansmcp

mine = sansmcp.App("mine", "1")

@mine.handler("tools/call")
def call_tool(call):
    return {"content": [], "structuredContent": {"name": call.params["name"]}}

other = 1
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "served.py").write_text(APPLICATION, encoding="utf-8")
    broken = "import sansmcp\nmine = sansmcp.App('mine', '1')\n@mine.tool\ndef add(): ..."
    (tmp_path / "broken.py").write_text(broken, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_and_ends_when_told(ending: signal.Signals, adapter: str) -> None:
    options = ("--http", "127.0.0.1:0", "--path", "/here", "--adapter", adapter)
    with started("serve", *options) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/here\n", line)
        with pytest.raises(urllib.error.HTTPError) as refused:  # it answers, from the first moment
            urllib.request.urlopen(line.strip(), timeout=30)
        assert refused.value.code == 400
        refused.value.close()
        server.send_signal(ending)
        out, err = server.communicate(timeout=20)
    assert (server.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize(
    ("options", "adapter"),
    [((), "asyncio"), ((), "blocking"), ((), "trio"), (("--dual",), "blocking")],
)
def test_it_ends_with_who_has_started_it_if_that_is_wanted(
    options: tuple[str, ...], adapter: str
) -> None:
    options = ("--http", "127.0.0.1:0", "--adapter", adapter, "--stop-on-stdin-eof", *options)
    with started("serve", *options, stdin=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        told = server.stderr if "--dual" in options else server.stdout
        assert told.readline().startswith("http://")
        out, err = server.communicate(timeout=20)  # closes standard input
    assert (server.returncode, out, err) == (0, "", "")


def test_an_application_of_the_current_directory(directory: Path) -> None:
    with serving("served:mine", cwd=directory) as url:
        called = run_in_process("call", "--json", url, "hello")
    assert json.loads(called.out)["structuredContent"] == {"name": "hello"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nosuch",), "Cannot load the application 'nosuch': No module named 'nosuch'"),
        (("nosuch:mine",), "; modules are looked for in "),
        (("served",), "has no attribute 'app'; write MODULE:APP, here served:mine"),
        (("json:tool.nope",), "; write MODULE:APP; json has no App"),
        (("served:nope",), "has no attribute 'nope'"),
        (
            ("served:other",),
            "'served:other' is int; an App or Tools is wanted: write MODULE:APP, here ",
        ),
        (("broken",), "'App' object has no attribute 'tool' (/"),
        (("broken:mine",), "/broken.py, line 3)"),
        (("nosuch:mine",), "No module named 'nosuch'; modules"),
        ((":",), "Not MODULE:APP: ':'"),
        (("./served.py:mine",), "Not MODULE:APP: './served.py:mine'"),
    ],
)
def test_applications_that_are_none(
    directory: Path, arguments: tuple[str, ...], message: str
) -> None:
    said = failed(run("serve", *arguments, cwd=directory))
    assert message in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--http", "nonsense"), "--http takes HOST:PORT, got 'nonsense'; write 127.0.0.1:8000"),
        (("--http", "127.0.0.1:65536"), "ports end at 65535"),
        (("--http", "name.invalid:0"), "Cannot serve at name.invalid:0: "),
        (("--path", "mcp"), "path must be a path like '/mcp', got 'mcp'"),
        (("--http-sse", "sse"), "http_sse must be a path like '/mcp', got 'sse'"),
        (("--http", "127.0.0.1:8010-8000"), "A range of ports must not be empty"),
        (("--http", "127.0.0.1:8000-"), "--http takes HOST:PORT, got '127.0.0.1:8000-'"),
        (("--http", "127.0.0.1:8000-65536"), "ports end at 65535"),
    ],
)
def test_addresses_that_are_none(arguments: tuple[str, ...], message: str) -> None:
    said = failed(run_in_process("serve", *arguments))
    assert message in said
    assert "\n" not in said


@pytest.fixture
def taken() -> Generator[int, None, None]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("ports", ["{0}", "{0}-{0}"])
def test_a_port_that_is_taken(taken: int, ports: str, adapter: str) -> None:
    address = f"127.0.0.1:{ports.format(taken)}"
    said = failed(run_in_process("serve", "--http", address, "--adapter", adapter))
    assert re.fullmatch(
        rf"Cannot serve at {address}: .* in use.*\. Stop the other program, or .*", said
    )


def test_the_first_free_port_of_a_range(taken: int) -> None:
    with serving("--http", f"127.0.0.1:{taken}-{taken + 20}") as url:
        assert taken < sansmcp.Url.parse(url).port <= taken + 20
        assert run_in_process("call", url, "echo", '{"text": "a"}').status == 0


@pytest.mark.parametrize(
    ("options", "path"), [((), "/sse"), (("/events",), "/events"), (("/mcp",), "/mcp")]
)
def test_http_sse_is_served_too(options: tuple[str, ...], path: str) -> None:
    with serving("--http-sse", *options) as url:
        stream_url = url.replace("/mcp", path)
        asked = urllib.request.Request(stream_url, headers={"accept": "text/event-stream"})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            assert answer.readline() == b"event: endpoint\n"
        called = run_in_process("call", stream_url, "echo", '{"text": "over either"}')
    assert text_of(called.out) == "over either"


def test_hosts_other_than_this_machine_have_to_be_allowed() -> None:
    for options, status in (((), 403), (("--allow-host", "example.org"), 400)):
        with serving(*options) as url:
            asked = urllib.request.Request(url, headers={"host": "example.org"})
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(asked, timeout=30)
            assert refused.value.code == status
            refused.value.close()


@pytest.mark.parametrize("options", [(), ("--workers", "1")])
def test_the_url_of_all_addresses_can_be_opened(options: tuple[str, ...]) -> None:
    with started("serve", "--http", "0.0.0.0:0", *options) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        url = server.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        called = run_in_process("call", url, "echo", "text=here")
        server.terminate()
        server.wait(timeout=20)
        assert "at all other addresses of this machine" in server.stderr.read()
    assert text_of(called.out) == "here"


def test_what_to_do_about_a_host_that_is_refused() -> None:
    refused = sansmcp.RequestRefused(
        "This Host is not served here",
        status=403,
        http_method="POST",
        url="http://example.org/mcp",
        reason="host_not_allowed",
        body=b"",
        method="initialize",
        request_id=1,
    )
    (sentence,) = advice(refused)
    assert "--allow-host NAME" in sentence


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_browsers_give_the_responses_to_pages_of_an_origin(adapter: str) -> None:
    origins = ("https://app.example.com", "https://b.example.com")
    options = (option for origin in origins for option in ("--cors", origin))
    with serving("--adapter", adapter, *options) as url:
        address = sansmcp.Url.parse(url)
        connection = HTTPConnection(address.host, address.port, timeout=20)
        connection.connect()
        connection.auto_open = 0  # all requests have to come over this one

        def ask(method: str, **headers: str) -> tuple[int, list[str] | None]:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, address.target, headers=given)
            response = connection.getresponse()
            response.read()
            assert response.headers.get_all("vary") == ["Origin"]
            return response.status, response.headers.get_all("access-control-allow-origin")

        with closing(connection):
            for origin in origins:
                preflight = ask("OPTIONS", origin=origin, access_control_request_method="POST")
                assert preflight == (200, [origin])
                for _ in range(2):  # the second one has the head of the first, and fewer checks
                    assert ask("GET", origin=origin, accept="text/plain") == (406, [origin])
            other = "https://c.example.com"
            assert ask("GET", origin=other) == (403, None)


def test_an_origin_that_is_none() -> None:
    said = failed(run_in_process("serve", "--cors", "https://app.example.com/"))
    assert "without a slash at the end; got 'https://app.example.com/'" in said


@pytest.mark.parametrize(
    ("options", "origin", "is_allowed"),
    [
        ((), "http://localhost:3000", True),
        ((), "https://app.example.com", False),
        (("--allow-origin", "https://app.example.com"), "https://app.example.com", True),
        (("--allow-origin", "https://app.example.com"), "https://b.example.com", False),
        (("--allow-origin", "*"), "https://b.example.com", True),
    ],
)
def test_pages_of_other_origins_can_be_allowed(
    options: tuple[str, ...], origin: str, is_allowed: bool
) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {
        "Origin": origin,
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    with serving(*options) as url:
        request = urllib.request.Request(url, json.dumps(message).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                status = response.status
        except urllib.error.HTTPError as error:
            status = error.code
    assert (status != 403) is is_allowed


def test_what_to_do_about_a_question_that_gets_no_answer() -> None:
    missing = sansmcp.JsonRpcError(-32021, "This needs a client with the capability elicitation")
    (sentence,) = advice(missing)
    assert "--answer NAME=VALUE" in sentence


def test_no_part_of_a_url_acts_in_the_shell_to_which_the_advice_is_copied() -> None:
    url = "http://h/mcp;$(reboot)'"
    lacking = sansmcp.AuthorizationFailed(
        "Further scopes", reason="insufficient_scope", url=url, scopes=("a", "$(reboot)")
    )
    (sentence,) = advice(lacking)
    words = shlex.split(sentence.partition("with: ")[2])
    assert words == ["sansmcp", "login", "--scope", "a", "--scope", "$(reboot)", url]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", range(20, 200, 7))
def test_no_line_break_ends_a_command_that_is_copied_to_a_shell(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scopes = ("x" * 26, "npx", "q", "/" * 90 + "usr/bin/reboot")
    lacking = sansmcp.AuthorizationFailed(
        "Further scopes", reason="insufficient_scope", url="http://h/mcp", scopes=scopes
    )
    (sentence,) = advice(lacking)
    shown = _Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("COLUMNS", str(width))
    print_wrapped(f"sansmcp: {sentence}")
    command = f"sansmcp login {' '.join(f'--scope {each}' for each in scopes)} http://h/mcp\n"
    assert shown.getvalue().endswith(command)
    assert " ".join(shown.getvalue().split()) == f"sansmcp: {sentence}"
