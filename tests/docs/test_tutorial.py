"""The programs of the tutorial do what it says, over stdio and over HTTP, and its test passes."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ..examples.test_examples import output_of, start, wait_for
from ..ports import free_port
from .documents import DOCS, blocks

PAGE = DOCS / "tutorial.md"
SERVER, CLIENT, TEST = blocks(PAGE, "python")
_, CALL, _, CLIENTS = blocks(PAGE, "console")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files of the tutorial."""
    files = {"server.py": SERVER, "client.py": CLIENT, "test_server.py": TEST}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_client(folder: Path) -> None:
    shown = "".join(line for line in CLIENTS.splitlines(keepends=True) if line[0] != "$")
    port = free_port()
    with start(folder / "server.py", "--http", f"127.0.0.1:{port}"):
        wait_for(port)
        assert output_of(folder / "client.py", f"http://127.0.0.1:{port}/mcp") == shown
    assert output_of(folder / "client.py", sys.executable, str(folder / "server.py")) == shown


def test_the_command(folder: Path) -> None:
    command, shown = CALL.split("\n", 1)
    name, *arguments = shlex.split(command.removeprefix("$ "))
    assert name == "sansmcp"
    arguments = [sys.executable if each == "python" else each for each in arguments]
    done = subprocess.run(
        [sys.executable, "-m", "sansmcp_cli", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    assert done.stdout == shown


def test_the_test(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=folder,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    assert (done.returncode, done.stdout.splitlines()[-1][:8]) == (0, "1 passed")
