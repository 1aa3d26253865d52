"""What has to hold before a release: ``make release-check``.

Both distributions are built from what is committed and checked, the README is rendered as PyPI does
it, and the wheel is installed in an empty environment on each Python at hand, where examples run.
The documentation is built in an environment that has only its extra. At the end the distributions
are in ``build/dist``, unless setup.cfg names no publisher, without whom nothing is released.

``--tag v1.0.0`` checks that the commit has this version, too. ``--quick`` leaves out the publisher
and the documentation, which tests build: CI runs that for each commit, none of which is a release.
"""

from __future__ import annotations

import argparse
import configparser
import email
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]

VERSIONS = ("3.10", "3.11", "3.12", "3.13")
"""Those of the classifiers, which CI runs."""

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


_TARGET = re.compile(r'\b(?:href|src)="([^"]*)"')


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
        if hasattr(tarfile, "data_filter"):
            opened.extractall(tree, filter="data")
        else:  # Python before 3.11.4, such as that of Debian 12; the archive is our own
            opened.extractall(tree)
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
    if "<h1" not in page_of(wheel):
        sys.exit("The README is not rendered")


def page_of(wheel: Path) -> str:
    """Return the page of the project, rendered as PyPI does it."""
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (each for each in opened.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(opened.read(name))
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "README.md")
        text.write_text(str(metadata.get_payload()), encoding="utf-8")
        return run(sys.executable, "-m", "readme_renderer", text, cwd=Path(folder))


def targets(page: str) -> list[str]:
    """Return where the links and images of a page lead, outside of that page."""
    return [each for each in _TARGET.findall(page) if each[0] != "#"]


def check_publisher(config: Mapping[str, str]) -> None:
    """Refuse a release without a publisher.

    Raises:
        SystemExit: the text names what setup.cfg lacks.
    """
    if missing := [name for name, value in config.items() if not value]:
        sys.exit(f"Nothing is released without a publisher: set {', '.join(missing)} in setup.cfg")
    for name in ("repository", "security"):
        if not config[name].startswith("https://"):
            sys.exit(f"{name} in setup.cfg must be a URL that begins with https://")


def check_tag(tag: str, tree: Path) -> None:
    """Compare the tag, if there is one, with the version."""
    text = (tree / "sansmcp" / "__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if tag not in ("", f"v{version}"):
        sys.exit(f"The tag {tag} is not that of version {version}")


def build_docs(python: str, tree: Path, folder: Path) -> None:
    """Build the documentation in an environment that has only its extra."""
    run(python, "-m", "venv", folder / "docs", cwd=folder)
    bin = folder / "docs" / "bin"
    run(bin / "python", "-m", "pip", "install", "--quiet", f"{tree}[docs]", cwd=folder)
    run(bin / "python", "-m", "mkdocs", "build", "--strict", cwd=tree)


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
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--tag", default="", help="the tag of the release, such as v1.0.0")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="no publisher and no documentation; writes no distributions",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        wheel, tree = build(folder)
        check(wheel, tree)
        check_tag(options.tag, tree)
        print(f"{wheel.name}: built and checked", flush=True)
        if not options.quick:
            build_docs(sys.executable, tree, folder)
            print("documentation: built with the extra docs alone", flush=True)
        for version, python in pythons():
            try_out(python, wheel, tree, folder / version)
            print(f"Python {version}: installed, an example run", flush=True)
        if options.quick:
            return
        config = configparser.ConfigParser()
        config.read(tree / "setup.cfg", encoding="utf-8")
        check_publisher(config["publisher"])
        shutil.rmtree(ROOT / "build" / "dist", ignore_errors=True)
        shutil.copytree(wheel.parent, ROOT / "build" / "dist")


if __name__ == "__main__":
    main()
