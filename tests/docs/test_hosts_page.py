"""The files that the page on applications shows name servers which start and answer."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import sansmcp_blocking
from sansmcp_local import ConfiguredServer, read_servers

from ..cli.conftest import command, environment
from ..examples.test_examples import start, wait_for
from ..ports import free_port
from .documents import DOCS, blocks

PAGE = DOCS / "hosts.md"
SERVER = blocks(DOCS / "tutorial.md", "python")[0]
FILES = blocks(PAGE, "json")
COMMANDS = "".join(blocks(PAGE, "console")).replace("\\\n    ", "")
PROJECT = "/home/ann/kitchen"
REMOTE = "https://shop.example/mcp"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project of the page, with its environment."""
    programs = {"python": [sys.executable], "sansmcp": command()}
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name, started in programs.items():
        program = tmp_path / ".venv" / "bin" / name
        path = shlex.quote(environment()["PYTHONPATH"])
        program.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {shlex.join(started)} "$@"\n')
        program.chmod(0o755)
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    return tmp_path


@pytest.fixture
def url(project: Path) -> Generator[str, None, None]:
    port = free_port()
    with start(project / "server.py", "--http", f"127.0.0.1:{port}"):
        wait_for(port)
        yield f"http://127.0.0.1:{port}/mcp"


def stock_of(target: str | list[str], settings: Any) -> Any:
    with sansmcp_blocking.connect(target, **settings) as client:
        return client.call_tool("stock")["structuredContent"]


@pytest.mark.parametrize("shown", FILES, ids=range(len(FILES)))
def test_each_server_of_a_file_answers(
    shown: str, project: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "secret")
    file = tmp_path / "mcp.json"
    file.write_text(shown.replace(PROJECT, str(project)).replace(REMOTE, url), encoding="utf-8")
    found = read_servers(file)
    assert (found.failures, found.disabled) == ({}, ())
    assert {*found.servers} <= {"kitchen", "shop"}
    monkeypatch.chdir("/")
    for server in found.servers.values():
        assert is_absolute(server)
        assert stock_of(server.target, server.settings) == {"tea": 3, "coffee": 1}


def is_absolute(server: ConfiguredServer) -> bool:
    return isinstance(server.target, str) or Path(server.target[0]).is_absolute()


def test_both_kinds_of_servers_are_in_each_form() -> None:
    """Claude Code, Cursor and VS Code take a command and a URL."""
    forms = [next(iter(json.loads(shown).values())) for shown in FILES]
    assert [[*form] for form in forms[:4]] == [["kitchen"], *[["kitchen", "shop"]] * 3]


def test_the_commands_that_name_a_server(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Claude Code after ``--``, and of the Inspector as its arguments."""
    lines = re.findall(r"^\$ (?:claude .* --|npx @[\w/]+) (/.*)$", COMMANDS, re.MULTILINE)
    assert len(lines) == 2
    monkeypatch.chdir("/")
    for line in lines:
        target = shlex.split(line.replace(PROJECT, str(project)))
        assert stock_of(target, {}) == {"tea": 3, "coffee": 1}


def test_the_command_to_try_it(project: Path) -> None:
    line, printed = re.findall(r"^\$ (cd / .*)\n(.*)$", COMMANDS, re.MULTILINE)[0]
    done = subprocess.run(
        line.replace(PROJECT, str(project)), shell=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout == f"{printed}\n"


def test_the_messages_are_in_the_log(project: Path, tmp_path: Path) -> None:
    """The last file of the page."""
    (server,) = read_servers(json.loads(FILES[-1].replace(PROJECT, str(project)))).servers.values()
    log = tmp_path / "log"
    words = shlex.join(server.target)
    assert stock_of(["sh", "-c", f"exec {words} 2>{shlex.quote(str(log))}"], {})
    assert "tools/call" in log.read_text(encoding="utf-8")


def test_prints_go_to_standard_error(project: Path, tmp_path: Path) -> None:
    """Those of Python, of C and of a child process, while it serves."""
    script = project / "server.py"
    prints = "    print('one'); os.write(1, b'two\\n'); os.system('echo three')\n    return STOCK\n"
    assert SERVER.count("    return STOCK\n") == 1
    script.write_text(f"import os\n{SERVER.replace('    return STOCK' + chr(10), prints)}", "utf-8")
    log = tmp_path / "log"
    words = shlex.join([str(project / ".venv/bin/python"), str(script)])
    assert stock_of(["sh", "-c", f"exec {words} 2>{shlex.quote(str(log))}"], {})
    assert log.read_text(encoding="utf-8").split() == ["one", "two", "three"]
