"""Look for tests that sometimes fail: ``python -m tests.flakes --runs 20``.

It runs the tests with sockets, processes and threads again and again, several runs at a time, so
that each of them has a busy machine. It lists what failed, by test and count; the output of a run
that failed is in ``build/flakes``. ``python -m tests.flakes --runs 200 tests/loop`` runs a part.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "build" / "flakes"

_PURE = frozenset(
    (
        *("auth", "client", "codecs", "fuzz", "growth", "house", "http11", "http2", "planted"),
        *("relay", "requirements_proof", "schemas", "server", "simulation", "skills", "tokens"),
        "vocabulary",
    )
)
"""The folders whose tests use no sockets or threads, but for the files named in ``PART``."""

PART = (
    *sorted(
        each.name
        for each in (ROOT / "tests").iterdir()
        if (each / "__init__.py").exists() and each.name not in _PURE
    ),
    *("fuzz/test_running_servers.py", "growth/test_benchmarks_run.py", "planted/test_patches.py"),
)
"""Where the tests are that use sockets, processes or threads."""

_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_COUNT = re.compile(r"(\d+) (passed|failed|errors?)\b")


@attrs.frozen
class Run:
    """The result of running the tests once."""

    number: int
    status: int
    failed: tuple[str, ...]
    tests: int
    """How many tests have ended."""


def run_once(number: int, tests: Sequence[str]) -> Run:
    """Run the tests; keep the output if not all of them pass."""
    command = (sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=short", "--color=no")
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-m", "not thorough", *tests],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode:
        OUTPUT.mkdir(parents=True, exist_ok=True)
        (OUTPUT / f"run-{number}.txt").write_text(done.stdout, "utf-8")
    last = done.stdout.rstrip().rpartition("\n")[2]
    tests_run = sum(int(count) for count, _ in _COUNT.findall(last))
    return Run(number, done.returncode, tuple(_FAILED.findall(done.stdout)), tests_run)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if no test failed in any run."""
    parser = argparse.ArgumentParser(prog="flakes", description=__doc__)
    parser.add_argument("tests", nargs="*", default=[f"tests/{each}" for each in PART])
    parser.add_argument("--runs", type=int, default=20)
    cores = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=2 * cores, help="runs at a time")
    options = parser.parse_args(arguments)
    where: list[str] = options.tests
    failures = Counter[str]()
    tests = broken = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        numbers = range(1, options.runs + 1)
        for run in pool.map(run_once, numbers, itertools.repeat(where)):
            tests += run.tests
            broken += run.status != 0
            failures.update(run.failed or (["a run that did not end"] if run.status else []))
            print(f"run {run.number}: {run.tests} tests, {', '.join(run.failed) or run.status}")
            sys.stdout.flush()
    for test, count in failures.most_common():
        print(f"{count} of {options.runs}  {test}")
    print(f"flakes: {options.runs} runs, {tests} tests, {broken} runs with failures")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
