"""Output of any encoding, output that is closed, and output that is full."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Generator
from typing import Any

import pytest

from .conftest import ROOT, command, environment
from .plain_server import INITIALIZED, plain_server

TEXT = "größe 中文 🛠 done"
TOOLS = {
    "tools": [
        {"name": f"tool_{n}", "description": TEXT, "inputSchema": {"type": "object"}}
        for n in range(400)
    ]
}
BLOB = {"contents": [{"uri": "a:b", "blob": base64.b64encode(b"\0" * 200_000).decode()}]}
ANSWERS: dict[str, Any] = {
    "tools/list": TOOLS,
    "tools/call": {"content": [{"type": "text", "text": TEXT}]},
    "resources/read": BLOB,
}


@pytest.fixture(scope="module")
def url() -> Generator[str, None, None]:
    with plain_server(ANSWERS) as url:
        yield url


def in_shell(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command as ``"$@"`` of a shell."""
    return subprocess.run(
        ["bash", "-c", script, "-", *command(*arguments)],
        cwd=ROOT,
        env={**environment(), "PYTHONUTF8": "0", **variables},
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8:strict", "utf-16-le"])
def test_what_an_encoding_lacks_is_escaped(url: str, encoding: str) -> None:
    name = encoding.partition(":")[0]
    for words in (("call", url, "tool_1", "{}"), ("list", url, "tools")):
        ran = in_shell('exec "$@"', *words, PYTHONIOENCODING=encoding)
        shown = ran.stdout.decode(name)
        assert (ran.returncode, ran.stderr) == (0, b"")
        assert json.loads(f'"{shown.splitlines()[-1]}"').endswith(TEXT)
        assert ("größe" in shown) == (name != "ascii")
    ran = in_shell('exec "$@"', "list", url, "--json", PYTHONIOENCODING=encoding)
    assert json.loads(ran.stdout.decode(name)) == TOOLS
    ran = in_shell('exec "$@"', "call", url, "🛠", PYTHONIOENCODING=encoding)
    assert ran.returncode == 1
    assert b"Traceback" not in ran.stderr


@pytest.mark.parametrize(
    "words",
    [("list", "tools"), ("list", "tools", "--json"), ("call", "tool_1", "{}"), ("read", "a:b")],
)
def test_a_reader_that_leaves_is_no_error(url: str, words: tuple[str, ...]) -> None:
    arguments = (words[0], url, *words[1:])
    ran = in_shell('"$@" | head -c 10 > /dev/null; exit ${PIPESTATUS[0]}', *arguments)
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_from_the_beginning(url: str, closed: str) -> None:
    ran = in_shell(f'exec "$@" {closed}', "list", url, "tools")
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_is_an_error(url: str) -> None:
    for words in (("list", url, "tools"), ("read", url, "a:b")):
        ran = in_shell('exec "$@" > /dev/full', *words)
        assert ran.returncode == 1
        assert ran.stderr.startswith(b"sansmcp: [Errno 28] ")
        assert ran.stderr.count(b"\n") == 1


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def test_json_for_programs_is_json() -> None:
    """Servers in Python send NaN, which a client reads as a float."""
    odd: Any = {"a": [float("nan"), {"b": float("-inf")}, 1.5, "NaN"], "c": float("inf")}
    result: Any = {"content": [], "structuredContent": odd}
    tools = {"tools": [{"name": "t", "inputSchema": {"type": "object", "x": float("nan")}}]}
    initialized: Any = {
        **INITIALIZED,
        "capabilities": {"tools": {"x": float("inf")}},
        "serverInfo": {"name": "plain", "version": "1", "x": float("nan")},
    }
    answers = {"initialize": initialized, "tools/call": result, "tools/list": tools}
    with plain_server(answers) as url:
        for words in (
            ("probe", url, "--json"),
            ("call", url, "t", "{}", "--json"),
            ("raw", url, "tools/call", '{"name": "t"}'),
            ("list", url, "--json"),
        ):
            ran = in_shell('exec "$@"', *words)
            found = json.loads(ran.stdout, parse_constant=_refuse)
            if words[0] == "probe":
                assert found["transports"][0]["server"]["x"] is None
                assert found["transports"][0]["capabilities"] == {"tools": {"x": None}}
            elif words[0] == "list":
                assert found["tools"][0]["inputSchema"] == {"type": "object", "x": None}
            else:
                expected = {"a": [None, {"b": None}, 1.5, "NaN"], "c": None}
                assert found["structuredContent"] == expected
