"""``sansmcp serve``: the URL on stdout once it is true, a clean end, errors to act on."""

from __future__ import annotations

import re
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from .conftest import run, start

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
    return tmp_path


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_and_ends_when_told(ending: signal.Signals) -> None:
    with start("serve", "--http", "127.0.0.1:0", "--path", "/here") as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/here\n", line)
        with pytest.raises(urllib.error.HTTPError) as refused:  # it answers, from the first moment
            urllib.request.urlopen(line.strip(), timeout=10)
        assert refused.value.code == 406
        refused.value.close()
        server.send_signal(ending)
        out, err = server.communicate(timeout=20)
    assert (server.returncode, out, err) == (0, "", "")


def test_an_application_of_the_current_directory(directory: Path) -> None:
    with start("serve", "served:mine", "--http", "127.0.0.1:0", cwd=directory) as server:
        assert server.stdout is not None
        called = run("call", server.stdout.readline().strip(), "hello")
        server.terminate()
        server.communicate(timeout=20)
    assert called.out == '{"content": [], "structuredContent": {"name": "hello"}}\n'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nosuch",), "Cannot load the application 'nosuch': No module named 'nosuch'"),
        (("served",), "has no attribute 'app'"),
        (("served:nope",), "has no attribute 'nope'"),
        (("served:other",), "'served:other' is int, and no sansmcp.App"),
        (("--http", "nonsense"), "Not HOST:PORT: 'nonsense'"),
        (("--http", "127.0.0.1:65536"), "Not HOST:PORT"),
        (("--http", "name.invalid:0"), "Cannot listen on name.invalid:0: "),
        (("--path", "mcp"), "Not a path like '/mcp': 'mcp'"),
    ],
)
def test_errors_are_one_line(directory: Path, arguments: tuple[str, ...], message: str) -> None:
    served = run("serve", *arguments, cwd=directory)
    assert served.status == 1
    assert served.out == ""
    assert served.err.startswith("sansmcp: ")
    assert message in served.err
    assert served.err.count("\n") == 1


def test_a_port_that_is_taken(url: str) -> None:
    address = url.removeprefix("http://").removesuffix("/mcp")
    served = run("serve", "--http", address)
    assert served.status == 1
    assert re.fullmatch(rf"sansmcp: Cannot listen on {address}: .* in use\n", served.err)


def test_hosts_other_than_this_machine_have_to_be_allowed() -> None:
    for options, status in (((), 403), (("--allow-host", "example.org"), 406)):
        with start("serve", "--http", "127.0.0.1:0", *options) as server:
            assert server.stdout is not None
            asked = urllib.request.Request(
                server.stdout.readline().strip(), headers={"host": "example.org"}
            )
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(asked, timeout=10)
            assert refused.value.code == status
            refused.value.close()
            server.terminate()
            server.communicate(timeout=20)
