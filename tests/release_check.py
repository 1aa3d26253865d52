"""What has to hold before a release: ``make release-check``.

Both distributions are built from what is committed and checked, the README is rendered as PyPI does
it, and the wheel is installed in an empty environment on each Python at hand, where examples run.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")

_EXAMPLE = "without_io.py"
"""An example that needs neither arguments nor a peer."""

_SERVER = """
import sansmcp_tools

tools = sansmcp_tools.Tools("adder")


@tools.tool
def add(a: int, b: int = 1) -> int:
    return a + b


sansmcp_tools.run(tools)
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command, and return what it prints; end with that if it fails."""
    done = subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    if done.returncode:
        sys.exit(f"{' '.join(str(each) for each in command)}\n{done.stdout}")
    return done.stdout


def pythons() -> Iterator[tuple[str, str]]:
    """The versions of Python that are at hand, and where."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in VERSIONS:
        found = sorted(str(path) for path in versions.glob(f"{version}.*/bin/python"))
        if python := found[-1] if found else shutil.which(f"python{version}"):
            yield version, python
        else:
            print(f"Python {version}: not at hand")


def build(folder: Path) -> tuple[Path, Path]:
    """Build both distributions of the commit, and return the wheel and the tree it is made of."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
    tree = folder / "tree"
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as opened:
        opened.extractall(tree, filter="data")
    run(sys.executable, "-m", "build", "--no-isolation", cwd=tree)
    (wheel,) = (tree / "dist").glob("*.whl")
    return wheel, tree


def check(wheel: Path, tree: Path) -> None:
    """Check both distributions, and render the README."""
    files = sorted(wheel.parent.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=tree)
    tops = sorted(path.name for path in (tree / "adapters").iterdir() if path.is_dir())
    top = ",".join(["sansmcp", *tops])
    run(
        sys.executable,
        "-m",
        "check_wheel_contents",
        "--no-config",
        "--toplevel",
        top,
        wheel,
        cwd=tree,
    )
    page = run(sys.executable, "-m", "readme_renderer", "README.md", cwd=tree)
    if "<h1" not in page:
        sys.exit("The README is not rendered")


def try_out(python: str, wheel: Path, tree: Path, folder: Path) -> None:
    """Install the wheel alone, run an example, and call a tool from the command line."""
    folder.mkdir()
    run(python, "-m", "venv", folder / "venv", cwd=folder)
    bin = folder / "venv" / "bin"
    run(bin / "python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    run(bin / "python", tree / "examples" / _EXAMPLE, cwd=folder)
    (folder / "server.py").write_text(_SERVER, encoding="utf-8")
    call = ("call", "add", '{"a": 1, "b": 2}', "--", bin / "python", "server.py")
    printed = run(bin / "sansmcp", *call, cwd=folder)
    if "3" not in printed:
        sys.exit(f"{python}: {printed}")


def main() -> None:
    """Check everything, and end with an error at the first thing that is wrong."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        wheel, tree = build(folder)
        check(wheel, tree)
        print(f"{wheel.name}: built and checked")
        for version, python in pythons():
            try_out(python, wheel, tree, folder / version)
            print(f"Python {version}: installed, an example run", flush=True)


if __name__ == "__main__":
    main()
