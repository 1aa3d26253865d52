"""Fuzzing by coverage: ``python -m tests.fuzz [TARGET]... [--seconds SECONDS] [--seed SEED]``.

Each target runs in a process of its own, two at a time on two cores, from the inputs of the
repository and those that earlier runs have found (in ``build/fuzz``). An input that raises is made
smaller and written to ``build/fuzz/findings``; add it to ``tests/fuzz/corpus`` with the fix. The
same seed and the same corpus try the same inputs in the same order, as many as the time allows.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from .inputs import CORPUS
from .shrinking import failure_of, shrunk
from .targets import TARGETS

BUILD = Path("build/fuzz")
OPTIONS = ("-print_final_stats=1", "-timeout=120", "-rss_limit_mb=2048", "-max_len=5000")

_EXECUTIONS = re.compile(r"stat::number_of_executed_units: (\d+)")
_COVERAGE = re.compile(r"cov: (\d+) ft: (\d+)")


@attrs.frozen
class CompletedCommand:
    """The result of fuzzing one target."""

    target: str
    executions: int
    edges: int
    features: int
    finding: str
    """Empty if nothing was found."""

    def __str__(self) -> str:
        text = f"{self.target}: {self.executions} executions, {self.edges} edges, "
        return "\n".join(filter(None, (f"{text}{self.features} features", self.finding)))


def fuzz(target: str, seconds: float, seed: int) -> CompletedCommand:
    """Fuzz one target for ``seconds``, or until an input raises. A seed of 0 is a random one."""
    grown, findings, log = BUILD / "corpus" / target, BUILD / "findings", BUILD / f"{target}.log"
    for folder in (grown, findings):
        folder.mkdir(parents=True, exist_ok=True)
    command = (sys.executable, "-m", "tests.fuzz.under_atheris", target, *OPTIONS)
    artifacts = findings / f"{target}-"
    before = set(findings.iterdir())
    with log.open("w") as output:
        done = subprocess.run(
            [
                *command,
                f"-seed={seed % 2**32}",
                f"-max_total_time={max(1, round(seconds))}",
                f"-artifact_prefix={artifacts}",
                str(grown),
                str(CORPUS / target),
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONHASHSEED": "0"} if seed else None,
            check=False,
        )
    printed = log.read_text(errors="replace")
    executions = _EXECUTIONS.findall(printed) or ["0"]
    edges, features = (_COVERAGE.findall(printed) or [("0", "0")])[-1]
    finding = ""
    if done.returncode:
        inputs = sorted(set(findings.iterdir()) - before)
        finding = "\n".join(_explained(target, path) for path in inputs)
        finding = finding or f"ended with status {done.returncode}; see {log}"
    return CompletedCommand(target, int(executions[-1]), int(edges), int(features), finding)


def _explained(target: str, path: Path) -> str:
    """Make the input in a file smaller, and return a line about its failure."""
    data = path.read_bytes()
    failure = failure_of(TARGETS[target], data)
    if failure is None:
        return f"{path}: too slow, too large, or it does not raise again"
    path.write_bytes(shrunk(TARGETS[target], data))
    return f"{path}: {failure}"


def main(arguments: Sequence[str]) -> int:
    """Fuzz, print the results, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=120.0, help="for all together")
    parser.add_argument("--seed", type=int, default=0, help="0 (the default) for a random one")
    options = parser.parse_args(arguments)
    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; targets are {', '.join(TARGETS)}")
    if importlib.util.find_spec("atheris") is None:
        print(
            "fuzz: atheris is not installed for "
            f"{platform.python_implementation()} {platform.python_version()}. It is there for "
            "CPython 3.11 to 3.14 on Linux x86-64: make fuzz PYTHON=python3.11",
            file=sys.stderr,
        )
        return 1
    names: list[str] = options.targets or list(TARGETS)
    workers = min(os.cpu_count() or 1, len(names))
    share = options.seconds * workers / len(names)
    with ThreadPoolExecutor(workers) as pool:
        results = list(pool.map(fuzz, names, [share] * len(names), [options.seed] * len(names)))
    for result in results:
        print(result)
    findings = sum(bool(result.finding) for result in results)
    executions, edges = (
        sum(each.executions for each in results),
        sum(each.edges for each in results),
    )
    print(
        f"fuzz: {len(results)} targets, {executions} executions, {edges} edges, {findings} findings"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
