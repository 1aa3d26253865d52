"""``ClientGroup``: several servers of a file, and their tools by names that are unique."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_trio
from sansmcp import CallError, LocalProtocolError
from sansmcp_local import ServerGroup

TOOLS = ["one_add", "two_add", "t0"]

SERVER = """
import sansmcp, sansmcp_blocking, os, sys
app = sansmcp.App("calculator", "1.0")

@app.handler("tools/list")
def tools(call):
    names = sys.argv[1:]
    return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}

@app.handler("tools/call")
def call_tool(call):
    told = {"tool": call.params["name"], "who": os.environ["WHO"]}
    return {"content": [], "structuredContent": told}

with sansmcp_blocking.serve(app, stdio=True) as server:
    server.wait()
"""


async def use_async(group: Any) -> dict[str, Any]:
    async with group:
        tools = group.tools()
        assert type(tools) is type(group.clients["one"].tools())
        listed = [tool["name"] async for tool in tools]
        called = await group.call_tool("two_add")
        with pytest.raises(LocalProtocolError, match="'add'"):
            await group.call_tool("add")
    return {"listed": listed, "called": called, "failures": list(group.failures)}


def use_blocking(file: Any, **options: Any) -> dict[str, Any]:
    with sansmcp_blocking.ClientGroup(file, **options) as group:
        called: Any = group.call_tool("two_add", result_type=dict[str, Any])
        tools = group.tools()
        assert type(tools) is type(group.clients["one"].tools())
        listed = [tool["name"] for tool in tools]
    return {
        "listed": listed,
        "called": {"structuredContent": called},
        "failures": list(group.failures),
    }


def in_asyncio(use: Callable[[Any], Any], file: Any, **options: Any) -> Any:
    return asyncio.run(use(sansmcp_asyncio.ClientGroup(file, **options)))


def in_trio(use: Callable[[Any], Any], file: Any, **options: Any) -> Any:
    return trio.run(use, sansmcp_trio.ClientGroup(file, **options))


use_asyncio = partial(in_asyncio, use_async)
use_trio = partial(in_trio, use_async)


USES = [use_asyncio, use_blocking, use_trio]


BROKEN = {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}


@pytest.fixture
def file(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two servers that have a tool of the same name, one over HTTP, and a broken one."""
    monkeypatch.setenv("GROUP_SECOND", "the second")
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "server.py"
    script.write_text(SERVER, "utf-8")
    servers: dict[str, Any] = {
        "one": {"command": sys.executable, "args": [str(script), "add"], "env": {"WHO": "x"}},
        "broken": BROKEN,
        "two": {
            "command": sys.executable,
            "args": [str(script), "add"],
            "env": {"WHO": "${GROUP_SECOND}"},
        },
        "http": {"url": url, "headers": {"x-tenant": "acme"}},
        "off": {
            "command": sys.executable,
            "args": ["-c", "open('started', 'w')"],
            "disabled": True,
        },
        "unset": {"command": "x", "env": {"A": "${GROUP_NOT_SET}"}},
    }
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": servers}), "utf-8")
    return file


def test_a_group_shows_its_servers(file: Path) -> None:
    group = sansmcp_blocking.ClientGroup(file)
    assert repr(group) == "<ClientGroup not connected; left out: unset>"
    with group:
        assert repr(group) == "<ClientGroup one, two, http; left out: unset, broken>"
    assert repr(sansmcp_asyncio.ClientGroup({"a": {"command": "b"}})) == (
        "<ClientGroup not connected>"
    )


def test_a_tool_that_no_server_has(file: Path) -> None:
    with (
        sansmcp_blocking.ClientGroup(file) as group,
        pytest.raises(LocalProtocolError) as raised,
    ):
        group.call_tool("tow_add")
    assert str(raised.value) == (
        "No server of the group has a tool 'tow_add'; did you mean two_add or one_add? It has the "
        "tools of one, two, http; left out are unset, broken (the reasons are in failures)"
    )


@pytest.mark.parametrize("use", USES, ids=["asyncio", "blocking", "trio"])
def test_tools_of_all_servers(use: Callable[..., Any], file: Path) -> None:
    pytest.importorskip("msgspec")
    found = use(file)
    assert found["listed"][:3] == TOOLS
    assert found["called"]["structuredContent"] == {"tool": "add", "who": "the second"}
    assert found["failures"] == ["unset", "broken"]
    assert not Path("started").exists()


@pytest.mark.parametrize("use", USES, ids=["asyncio", "blocking", "trio"])
def test_a_mapping_is_taken_like_a_file(use: Callable[..., Any], file: Path) -> None:
    pytest.importorskip("msgspec")
    assert use(json.loads(file.read_text("utf-8")))["listed"][:3] == TOOLS


@pytest.mark.parametrize("use", USES, ids=["asyncio", "blocking", "trio"])
def test_an_entry_that_is_wrong_can_raise(use: Callable[..., Any]) -> None:
    with pytest.raises(LocalProtocolError, match="GROUP_NOT_SET"):
        use({"it": {"command": "${GROUP_NOT_SET}"}}, raises=True)


@pytest.mark.parametrize("use", USES, ids=["asyncio", "blocking", "trio"])
def test_a_broken_server_can_raise(use: Callable[..., Any]) -> None:
    with pytest.raises(CallError):
        use({"it": BROKEN}, raises=True)


@pytest.mark.parametrize("use", USES, ids=["asyncio", "blocking", "trio"])
def test_a_file_that_is_none_is_refused(use: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match="Cannot read"):
        use(tmp_path / "none.json")
    for nothing in ({}, {"mcpServers": {"it": {"command": "x", "disabled": True}}}):
        with pytest.raises(LocalProtocolError, match="no servers to be used"):
            use(nothing)


WAITING_SERVER = """
import pathlib, sys, time
import sansmcp, sansmcp_blocking
mine, others = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
mine.touch()
while not others.exists():
    time.sleep(0.01)
with sansmcp_blocking.serve(sansmcp.App("waiting", "1.0"), stdio=True) as server:
    server.wait()
mine.with_suffix(".ended").touch()
"""


@pytest.mark.parametrize("run", [in_asyncio, in_trio])
def test_servers_are_started_together_and_ended_properly(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    """Each of two servers waits for the other one, and both reach their end after an exception."""
    script = tmp_path / "server.py"
    script.write_text(WAITING_SERVER, "utf-8")
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    commands = {
        name: {"command": sys.executable, "args": [str(script), *order]}
        for name, order in (("one", paths), ("two", paths[::-1]))
    }
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": commands}), "utf-8")

    async def fail(group: Any) -> None:
        async with group:
            assert list(group.clients) == ["one", "two"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(fail, file)
    assert all(Path(path).with_suffix(".ended").exists() for path in paths)


class _Listing(ServerGroup[Any]):
    """A group that connects to nothing."""


_needs_msgspec = pytest.mark.skipif(
    importlib.util.find_spec("msgspec") is None, reason="needs msgspec, which compares with types"
)


@pytest.mark.parametrize(
    "tool",
    [
        {"inputSchema": {}},
        {"name": None, "inputSchema": {}},
        {"name": 5, "inputSchema": {}},
        {"name": ["add"], "inputSchema": {}},
        pytest.param({"name": "odd"}, marks=_needs_msgspec),
        pytest.param({"name": "odd", "inputSchema": 5}, marks=_needs_msgspec),
        pytest.param({"name": "odd", "inputSchema": {}, "description": {}}, marks=_needs_msgspec),
        pytest.param(
            {"name": "odd", "inputSchema": {}, "annotations": {"title": 5}}, marks=_needs_msgspec
        ),
    ],
    ids=str,
)
def test_a_broken_tool_takes_no_other_along(tool: Any, caplog: pytest.LogCaptureFixture) -> None:
    group = _Listing({"good": {"command": "x"}, "evil": {"command": "y"}})
    fine: Any = {"name": "add", "inputSchema": {}, "description": None}
    found = group.set_tools({"evil": [tool, *[tool] * 20], "good": [fine]})
    assert found == [fine]
    (line,) = caplog.messages
    assert line.startswith("evil: 21 tools are left out: ")
    assert len(line) < 2000
