"""Runs each example in an environment of its own: ``python -m tests.frameworks [NAME...]``."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import sansmcp_blocking
import sansmcp_tools

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "frameworks"
ENVIRONMENTS = ROOT / ".venv-frameworks"

PACKAGES = {
    "langchain": "langchain-core",
    "smolagents": "smolagents",
    "pydantic_ai": "pydantic-ai-slim",
    "openai_agents": "openai-agents",
}
"""What each example needs, by its name."""

PRINTED = {
    "langchain": "add\nsuccess 3\nerror The arguments of add are not valid: "
    "Expected `int`, got `str` - at `a`\n",
    "smolagents": "add\nIt is 3\n",
    "pydantic_ai": "add\nIt is 3\n",
    "openai_agents": "add\nIt is 3\n",
}
"""What each example prints."""

tools = sansmcp_tools.Tools("adder")


@tools.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: the first number
        b: the second number
    """
    return a + b


def environment(package: str) -> Path:
    """The interpreter of an environment that has a package, and this project."""
    home = ENVIRONMENTS / package
    python, installed = home / "bin" / "python", home / "installed"
    if not installed.exists():
        venv.create(home, with_pip=True)
        options = ("--quiet", "--disable-pip-version-check", "--editable", str(ROOT))
        subprocess.run([python, "-m", "pip", "install", *options, package], check=True)
        installed.touch()
    return python


def main(names: list[str]) -> int:
    """Run the examples, print what differs, and return the exit status."""
    failed = 0
    with sansmcp_blocking.serve(tools.app, http=("127.0.0.1", 0)) as serving:
        for name in names or PACKAGES:
            python, program = environment(PACKAGES[name]), EXAMPLES / f"{name}_tools.py"
            command = [str(python), str(program), serving.url]
            done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=300)
            right = (done.returncode, done.stdout) == (0, PRINTED[name])
            failed += not right
            print(f"{name}: {'as expected' if right else done.stdout + done.stderr}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
