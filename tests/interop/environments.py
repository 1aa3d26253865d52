"""Environments with packages of PyPI that need other versions than the project has."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest


def python_with(name: str, packages: tuple[str, ...], required_by: str) -> str:
    """Return the interpreter of an environment with ``packages``, which is made first.

    Where that fails, the test is skipped, unless the environment variable ``required_by`` is set.
    """
    home = Path(sys.prefix) / "peers" / name
    home.mkdir(parents=True, exist_ok=True)
    python, installed = home / "bin" / "python", home / "installed"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes wait here
        if not installed.exists() or installed.read_text() != str(packages):
            venv.create(home, with_pip=True)
            command = [str(python), "-m", "pip", "install", "--quiet", *packages]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = f"{packages[0]} cannot be installed: {done.stderr[-500:]}"
                if os.environ.get(required_by):
                    pytest.fail(reason)
                pytest.skip(reason)
            installed.write_text(str(packages))
    return str(python)
