"""The commands on the page about the command print what it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from ..cli.conftest import command, environment, serving
from .documents import DOCS, blocks

PAGE = DOCS / "command.md"
URL = "http://127.0.0.1:8000/mcp"
# What is recorded at a terminal has a test of its own.
_MARKED = re.compile(r"<!-- recorded -->\n\n```console\n(.*?)^```$", re.M | re.S)
_RECORDED = _MARKED.findall(PAGE.read_text(encoding="utf-8"))
SESSIONS = [block for block in blocks(PAGE, "console") if block not in _RECORDED]


@pytest.fixture(scope="module")
def url() -> Generator[str, None, None]:
    with serving() as url:
        yield url


@pytest.fixture
def variables(url: str, tmp_path: Path) -> dict[str, str]:
    """The environment: the configuration of the page, and the command itself."""
    (toml,) = blocks(PAGE, "toml")
    folder = tmp_path / "sansmcp"
    folder.mkdir()
    (folder / "config.toml").write_text(toml.replace(URL, url))
    program = tmp_path / "bin" / "sansmcp"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n')
    program.chmod(0o755)
    return {
        **environment(),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "SHOP_KEY": "secret",
        "XDG_CONFIG_HOME": str(tmp_path),
    }


def commands(session: str) -> list[tuple[str, str]]:
    """Each command of a session, and what it prints."""
    _, *parts = re.split(r"^\$ ", session, flags=re.MULTILINE)
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts]


@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: commands(session)[-1][0])
def test_it_prints_what_the_page_says(
    session: str, url: str, variables: dict[str, str], tmp_path: Path
) -> None:
    for line, printed in commands(session):
        env = variables
        if "-- sansmcp" in line or " local " in line:  # the server finds the package, too
            env = {**variables}
            line = line.replace("call ", f"call --env PYTHONPATH={env['PYTHONPATH']} ")
        done = subprocess.run(
            line.replace(URL, url),
            shell=True,
            cwd=tmp_path,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        said = printed.replace(URL, url).removesuffix("\n")
        expected = re.escape(said).replace(r"\.\.\.", r"(?s:.*)")
        assert re.fullmatch(expected, done.stdout.removesuffix("\n")), done.stdout


def test_the_exit_statuses_are_those_of_the_help() -> None:
    done = subprocess.run(
        command("--help"), env=environment(), stdout=subprocess.PIPE, text=True, check=True
    )
    listed = re.findall(r"^\| (\d+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    told = re.findall(r"^  (\d+) ", done.stdout, re.MULTILINE)
    assert listed == told == ["0", "1", "2", "130"]
