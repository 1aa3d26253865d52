"""The command, run as a person runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[2]


@attrs.frozen
class Ran:
    """What came of a command."""

    status: int
    out: str
    err: str


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sansmcp_cli", *arguments]


def run(*arguments: str, cwd: Path = ROOT) -> Ran:
    """Run the command to its end."""
    done = subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        encoding="utf-8",
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def environment() -> dict[str, str]:
    """The package is found in the tree, from every directory."""
    paths = os.pathsep.join((str(ROOT), str(ROOT / "adapters")))
    return {**os.environ, "PYTHONPATH": paths, "PYTHONUTF8": "1"}


def start(*arguments: str, cwd: Path = ROOT) -> subprocess.Popen[str]:
    """Start the command, to be talked to while it runs."""
    return subprocess.Popen(
        command(*arguments),
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Where a server with the example application is."""
    with start("serve", "--http", "127.0.0.1:0") as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()
        server.communicate(timeout=20)
