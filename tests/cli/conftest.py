"""The command, run as a person runs it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import attrs
import pytest

from sansmcp_cli import main

ROOT = Path(__file__).parents[2]

ADAPTERS = ("asyncio", "blocking", "trio")


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No login of the user counts, and no browser opens; returns where logins are stored."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("APPDATA", str(tmp_path))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "sansmcp" / "credentials"


@attrs.frozen
class CompletedCommand:
    """What came of a command."""

    status: int
    out: str
    err: str


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sansmcp_cli", *arguments]


def run(
    *arguments: str, cwd: Path = ROOT, input: str = "", encoding: str = "utf-8"
) -> CompletedCommand:
    """Run the command to its end."""
    done = subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=environment(),
        input=input,
        capture_output=True,
        timeout=60,
        encoding=encoding,
        check=False,
    )
    return CompletedCommand(done.returncode, done.stdout, done.stderr)


def run_in_process(*arguments: str) -> CompletedCommand:
    """Run the command in this process: sooner done, where it makes no difference."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(list(arguments))
    return CompletedCommand(status, out.getvalue(), err.getvalue())


def environment() -> dict[str, str]:
    """The package is found in the tree, from every directory."""
    paths = [*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT), str(ROOT / "adapters")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUTF8": "1"}


@contextmanager
def started(
    *arguments: str, cwd: Path = ROOT, stdin: int = subprocess.DEVNULL
) -> Generator[subprocess.Popen[str], None, None]:
    """Start the command, to be talked to while it runs, which is in this block at most."""
    with subprocess.Popen(
        command(*arguments),
        cwd=cwd,
        env=environment(),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def serving(*arguments: str, cwd: Path = ROOT) -> Generator[str, None, None]:
    """Serve on a free port with these options; gives the URL."""
    with started("serve", "--http", "127.0.0.1:0", *arguments, cwd=cwd) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()
        server.wait(timeout=20)


@pytest.fixture(scope="session")
def url() -> Generator[str, None, None]:
    """Where a server with the example application is."""
    with serving() as url:
        yield url


def text_of(output: str) -> str:
    """The text of the result that ``sansmcp call`` has printed as plain text."""
    return output.removesuffix("\n")


def failed(ran: CompletedCommand) -> str:
    """What a command says that could not do what it was told: one line and nothing else."""
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("sansmcp: ")
    assert ran.err.endswith("\n")
    return ran.err.removeprefix("sansmcp: ")[:-1]
