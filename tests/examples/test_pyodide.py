"""The machines run in WebAssembly, from wheels, without the compiled packages."""

from __future__ import annotations

import subprocess
import zipfile
from importlib.metadata import files
from pathlib import Path

import pytest

from ..node import NODE, install_or_skip
from .test_examples import EXAMPLES, ROOT, output_of

FOLDER = EXAMPLES / "pyodide"


def pack_installed(name: str, folder: Path) -> None:
    """Make a wheel of an installed package that is not compiled."""
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as wheel:
        for file in files(name) or ():
            if file.suffix != ".pyc":
                wheel.write(str(file.locate()), str(file))


def pack_sansmcp(folder: Path) -> None:
    with zipfile.ZipFile(folder / "sansmcp-1-py3-none-any.whl", "w") as wheel:
        for file in (ROOT / "sansmcp").rglob("*.py"):
            wheel.write(file, str(file.relative_to(ROOT)))


@pytest.mark.thorough  # Pyodide takes some seconds to start
@pytest.mark.node
def test_the_machines_run_in_webassembly(tmp_path: Path) -> None:
    install_or_skip(FOLDER)
    pack_sansmcp(tmp_path)
    for name in ("attrs", "h11"):
        pack_installed(name, tmp_path)
    program = EXAMPLES / "without_io.py"
    command = [NODE, str(FOLDER / "run.mjs"), str(tmp_path), str(program)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=300)
    # The same as here, where JSON is the work of compiled packages.
    assert (done.returncode, done.stdout) == (0, output_of(program)), done.stderr[-2000:]
