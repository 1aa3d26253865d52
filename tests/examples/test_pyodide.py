"""The machines and the client run in WebAssembly, from wheels, without compiled packages."""

from __future__ import annotations

import asyncio
import subprocess
import zipfile
from importlib.metadata import files
from pathlib import Path

import pytest

import sansmcp
import sansmcp_pyodide

from ..cli.conftest import serving
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
        for place in (ROOT / "sansmcp", *(ROOT / "adapters").iterdir()):
            for file in place.rglob("*.py"):
                wheel.write(file, str(file.relative_to(place.parent)))


def run_in_pyodide(folder: Path, program: str, *arguments: str) -> str:
    """Run an example in Pyodide, and return what it has printed."""
    install_or_skip(FOLDER)
    pack_sansmcp(folder)
    for name in ("attrs", "h11"):
        pack_installed(name, folder)
    command = [NODE, str(FOLDER / "run.mjs"), str(folder), program, *arguments]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.thorough  # Pyodide takes some seconds to start
@pytest.mark.node
def test_the_machines_run_in_webassembly(tmp_path: Path) -> None:
    program = EXAMPLES / "without_io.py"
    # The same as here, where JSON is the work of compiled packages.
    assert run_in_pyodide(tmp_path, str(program)) == output_of(program)


@pytest.mark.thorough
@pytest.mark.node
def test_a_client_on_fetch(tmp_path: Path) -> None:
    """Results, events while a call runs, questions, an abort, and a server that refuses."""
    with serving() as url:
        printed = run_in_pyodide(tmp_path, str(FOLDER / "fetch.py"), url)
    assert printed.splitlines() == [
        "['echo', 'add', 'slow', 'big', 'ask', 'fail']",
        "Grüße",
        "wasm: A stack that no one sees.",
        "3 reports",
        "error -32602",
        "NegotiationFailed",
    ]


def test_elsewhere_it_says_where_it_works() -> None:
    async def connect() -> None:
        sansmcp_pyodide.connect("http://127.0.0.1:1/mcp")

    with pytest.raises(sansmcp.LocalProtocolError, match="works in Pyodide alone"):
        asyncio.run(connect())
