"""``run()`` serves where its module is the program, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sansmcp_blocking

from .conftest import text_of

SERVER = """
import sansmcp_tools

tools = sansmcp_tools.Tools("adder")

@tools.tool
def add(a: int, b: int) -> int:
    return a + b

"""
AT_IMPORT = SERVER + "sansmcp_tools.run(tools)\n"
IN_A_FUNCTION = SERVER + "def main():\n    sansmcp_tools.run(tools)\n"
SAID = "sansmcp_tools.run() serves nothing while the module server is imported"


def _added(command: list[str], directory: Path) -> str:
    with sansmcp_blocking.connect(command, cwd=directory) as client:
        return text_of(client.call_tool("add", {"a": 1, "b": 2}))


def test_the_command_serves_a_module_without_a_guard(tmp_path: Path) -> None:
    """Its ``run()`` would take the arguments of the command for its own."""
    (tmp_path / "server.py").write_text(AT_IMPORT)
    command = [sys.executable, "-m", "sansmcp_cli", "serve", "server:tools", "--stdio"]
    assert _added([*command, "--adapter", "trio"], tmp_path) == "3"


@pytest.mark.parametrize(
    "text", [AT_IMPORT, f"{IN_A_FUNCTION}main()\n"], ids=["at import", "in a function at import"]
)
def test_an_import_serves_nothing_and_says_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "server.py").write_text(text)
    code = "import server; print(server.tools.name)"
    command = [sys.executable, "-c", code, "--http", "nonsense"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "adder\n")
    assert SAID in ended.stderr
    assert 'if __name__ == "__main__":' in ended.stderr


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (AT_IMPORT, ["server.py"]),
        (AT_IMPORT, ["-m", "server"]),
        (IN_A_FUNCTION, ["-c", "import server; server.main()"]),
        (AT_IMPORT, ["-c", "exec(open('server.py').read(), {'__name__': 'other'})"]),
    ],
    ids=["program", "module", "entry point", "code that is run"],
)
def test_a_program_serves(tmp_path: Path, text: str, command: list[str]) -> None:
    (tmp_path / "server.py").write_text(text)
    assert _added([sys.executable, *command], tmp_path) == "3"
