"""Plant bugs, one at a time, and see whether the simulator finds them.

python -m tests.planted                           # all of them: make planted
python -m tests.planted final-entry-not-marked    # some, by name
python -m tests.planted --draw 3 --seed 7         # three of them, drawn by a seed

Exits with 0 if each was found within ``--seconds``. The bugs are the patches beside this file.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from ..patches import Ending, Patch, Trial, attempt, read_patches

BUGS = Path(__file__).parent
_FAILURE = re.compile(r"^seed (?P<seed>\d+): (?P<problem>.*)$", re.MULTILINE)
"""What the simulator prints of the first world that fails."""
_CHECKER = re.compile(r"^checker: (?P<checker>.*)$", re.MULTILINE)
_STARTING = 60.0
"""Seconds that the simulator has for more than running worlds: to start, and to shrink."""


@attrs.frozen(kw_only=True)
class Row:
    """What came of one bug, as it is printed."""

    trial: Trial
    checker: str = ""
    seed: str = ""

    def __str__(self) -> str:
        name, ending = self.trial.patch.name, self.trial.ending
        took = f"{self.trial.seconds:5.1f} s"
        if ending is Ending.FOUND:
            return f"{name:42} | {self.checker:42} | {took} | {self.seed}"
        said = self.trial.output if ending is Ending.STALE else ""
        return f"{name:42} | {ending.value.upper():42} | {took} | {said}".rstrip()


def main() -> int:
    """Try what was asked for; 0 if all was found."""
    options = _options()
    bugs = _chosen(options)
    endings: list[Ending] = []
    seconds: list[float] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(lambda bug: _try(bug, options.seconds), bugs):
            print(row, flush=True)
            endings.append(row.trial.ending)
            if row.trial.ending is Ending.FOUND:
                seconds.append(row.trial.seconds)
    missed = endings.count(Ending.MISSED) + endings.count(Ending.HUNG)
    stale = endings.count(Ending.STALE)
    mean = sum(seconds) / len(seconds) if seconds else 0.0
    print(
        f"planted: {len(bugs)} bugs, {len(seconds)} found, {missed} missed, {stale} stale, "
        f"mean {mean:.1f} s"
    )
    return int(len(seconds) < len(bugs))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.planted")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which bugs; default: all")
    parser.add_argument("--draw", type=int, metavar="N", help="only so many of them")
    parser.add_argument("--seed", type=int, help="of the draw; default: a fresh one")
    parser.add_argument("--seconds", type=float, default=60.0, help="of simulation for each")
    parser.add_argument("--jobs", type=int, default=1, help="bugs at a time")
    return parser.parse_args()


def _chosen(options: argparse.Namespace) -> Sequence[Patch]:
    bugs = read_patches(BUGS)
    unknown = set(options.names) - {bug.name for bug in bugs}
    if unknown:
        sys.exit(f"Unknown bugs: {', '.join(sorted(unknown))}; they are files in {BUGS}")
    chosen = [bug for bug in bugs if not options.names or bug.name in options.names]
    if options.draw is None:
        return chosen
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"drawn by --seed {seed}")
    return random.Random(seed).sample(chosen, min(options.draw, len(chosen)))


def _try(bug: Patch, seconds: float) -> Row:
    command = ("-m", "tests.simulation", "--seconds", f"{seconds:g}")
    trial = attempt(bug, command, time_limit=seconds + _STARTING)
    if trial.ending is not Ending.FOUND:
        return Row(trial=trial)
    failure = _FAILURE.search(trial.output)
    if failure is None:
        raise RuntimeError(f"The simulator failed without a seed:\n{trial.last_lines()}")
    checker = _CHECKER.search(trial.output)
    return Row(trial=trial, checker=checker["checker"] if checker else "", seed=failure["seed"])


if __name__ == "__main__":
    sys.exit(main())
