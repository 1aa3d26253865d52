"""The page about files of servers lists each member that is known, and its example can be read."""

from __future__ import annotations

import json
import os
import pathlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import sansmcp
import sansmcp_asyncio
import sansmcp_blocking
from sansmcp_local import read_servers
from sansmcp_local._server_files import HARMLESS, READ, TRANSPORTS

from ..cli.conftest import environment
from .documents import DOCS, blocks, tables

PAGE = DOCS / "servers.md"
PROGRAM, ADDED = blocks(PAGE, "python")
FILE, BRIDGED = map(json.loads, blocks(PAGE, "json"))

MORTAL = """
import os
import sansmcp_tools

tools = sansmcp_tools.Tools("mortal")


@tools.tool
def die() -> None:
    os._exit(1)


@tools.tool
def alive() -> str:
    return "yes"


sansmcp_tools.run(tools)
"""


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_each_member_is_on_the_page() -> None:
    members, *_ = tables(PAGE)
    listed = {word: here for member, _, here in members[1:] for word in words(member)}
    assert {*listed} >= READ | HARMLESS
    silent = {word for word, here in listed.items() if here.startswith("ignored")}
    silent -= {word for word, here in listed.items() if "warning" in here}
    assert silent == HARMLESS


def test_each_word_for_a_transport_is_on_the_page() -> None:
    text = PAGE.read_text("utf-8")
    spelled = {name for name in TRANSPORTS if f"`{name}`" in text}
    assert {*TRANSPORTS} - spelled == {"streamable_http", "streamablehttp", "http+sse"}


def test_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("SHOP_TOKEN", "t")
    monkeypatch.delenv("LEVEL", raising=False)
    found = read_servers(FILE)
    assert found.failures == {}
    assert found.servers["files"].target[-1] == "/home/ann/notes"
    assert found.servers["files"].env == {"LOG_LEVEL": "warn"}
    assert found.servers["shop"].headers == [("Authorization", "Bearer t")]


def test_a_server_beside_those_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    entry = {"command": "python", "args": ["server.py"]}
    Path("servers.json").write_text(json.dumps({"mcpServers": {"own": entry}}), encoding="utf-8")
    names: Any = {"json": json, "pathlib": pathlib, "sansmcp_asyncio": sansmcp_asyncio}
    exec(compile(ADDED, PAGE.name, "exec"), names)
    assert [server.name for server in names["group"].servers] == ["own", "tea"]


@pytest.mark.parametrize("is_bridged", [True, False])
def test_a_server_that_ends(tmp_path: Path, *, is_bridged: bool) -> None:
    """Behind the bridge it is started again, and a later call is answered."""
    (tmp_path / "server.py").write_text(MORTAL, encoding="utf-8")
    (entry,) = BRIDGED["mcpServers"].values()
    *options, program, file = entry["args"]
    assert (entry["command"], program, file) == ("sansmcp", "python", "server.py")
    file = str(tmp_path / file)
    bridge = ["-m", "sansmcp_cli", *options, sys.executable]
    arguments = [*bridge, file] if is_bridged else [file]
    variables = {"PYTHONPATH": environment()["PYTHONPATH"], "PATH": os.environ["PATH"]}
    servers = {"shop": {"command": sys.executable, "args": arguments, "env": variables}}
    with sansmcp_blocking.ClientGroup(servers) as group:
        with pytest.raises(sansmcp.CallError):
            group.call_tool("die")
        if is_bridged:
            assert group.call_tool("alive")["content"][0]["text"] == "yes"
        else:
            with pytest.raises(sansmcp.LocalProtocolError, match="has ended"):
                group.call_tool("alive")
