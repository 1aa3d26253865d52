"""An environment with fastmcp, which needs other versions than the project has."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

PACKAGES = ("fastmcp==4.1.2", "fastmcp-tasks==4.1.2")
_HOME = Path(sys.prefix) / "peers" / "fastmcp"


def fastmcp_python() -> str:
    """The interpreter of the environment, which is made first.

    Where that fails, the test is skipped, unless it has to be run.
    """
    _HOME.mkdir(parents=True, exist_ok=True)
    python, installed = _HOME / "bin" / "python", _HOME / "installed"
    with (_HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes wait here
        if not installed.exists() or installed.read_text() != str(PACKAGES):
            venv.create(_HOME, with_pip=True)
            command = [str(python), "-m", "pip", "install", "--quiet", *PACKAGES]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = f"fastmcp cannot be installed: {done.stderr[-500:]}"
                if os.environ.get("SANSMCP_REQUIRE_FASTMCP"):
                    pytest.fail(reason)
                pytest.skip(reason)
            installed.write_text(str(PACKAGES))
    return str(python)
