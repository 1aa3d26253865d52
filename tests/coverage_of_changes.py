"""Which branches of the core's changed files does no test of their folders take?

``make coverage`` runs the tests of the folders of ``sansmcp`` that differ from a commit (the one
where this branch left ``main``, or ``HEAD`` on ``main`` itself), and prints the lines and branches
of the changed files that they leave out. Exits with 1 if there are any. ``.ci/run`` measures the
whole core with all of its tests, some of which take branches of other folders.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]

TESTS = {
    "auth": ("auth", "client/test_authorization.py"),
    "client": ("client", "relay"),
    "codecs": ("codecs", "typed"),
    "drivers": ("vocabulary", "loop/test_async_stores.py"),
    "h11_parser": ("http11",),
    "http11": ("http11", "client", "server"),
    "http2": ("http2",),
    "httptools_parser": ("http11",),
    "server": ("server", "stores/test_stores.py", "loop/test_async_stores.py"),
    "testing": ("vocabulary", "stores/test_stores.py"),
    "tokens": ("tokens",),
}
"""The tests that take the branches of a folder; those of files beside the folders are below."""
_OTHERS = ("vocabulary", "relay", "typed", "stores/test_stores.py", "loop/test_async_stores.py")


def changed_files(base: str | None) -> list[str]:
    """Return the files of the core that differ from ``base``, committed or not."""
    if base is None:
        base = _git("merge-base", "main", "HEAD")[0]
    names = _git("diff", "--name-only", "--diff-filter=d", base, "--", "sansmcp")
    names += _git("ls-files", "--others", "--exclude-standard", "--", "sansmcp")
    return sorted({name for name in names if name.endswith(".py")})


def tests_of(files: Iterable[str]) -> list[str]:
    """Return the folders and files of tests for files of the core."""
    found: set[str] = set()
    for name in files:
        found |= set(TESTS.get(Path(name).parts[1], _OTHERS))
    return sorted(f"tests/{name}" for name in found)


def main() -> int:
    """Run them, and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage_of_changes")
    parser.add_argument("base", nargs="?", help="the commit to compare with")
    files = changed_files(parser.parse_args().base)
    if not files:
        print("coverage: no file of sansmcp/ has changed")
        return 0
    workers = str(os.cpu_count() or 1)
    command = ["pytest", "-q", "-n", workers, "--cov", "--cov-report=", "--cov-fail-under=0"]
    tested = _python(*command, *tests_of(files), SANSMCP_EXAMPLES="5")
    return tested or _python("coverage", "report", f"--include={','.join(files)}")


def _python(*arguments: str, **environment: str) -> int:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}).returncode


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode().splitlines()


if __name__ == "__main__":
    sys.exit(main())
