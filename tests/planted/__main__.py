"""Plant bugs, one at a time, and see whether the simulator finds them.

python -m tests.planted                           # all of them: make planted
python -m tests.planted final-entry-not-marked    # some, by name
python -m tests.planted --draw 3 --seed 7         # three of them, drawn by a seed

A bug is found if a world fails within ``--seconds``, and does not fail without the bug. Exits with
0 if all are found, but for at most ten that are stale: that no longer fit the code. The bugs are
the patches beside this file. A patch can name the kind of worlds that has its bug ("Kind: ..."):
only these are run then. Where the simulator has not found one yet, its patch says what is missing
("Not found: ..."), and it is not drawn; nor is one of which it says that finding it takes long
("Slow to find: ...").
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import attrs

from ..patches import MOST_STALE, Ending, Patch, attempt, read_patches

BUGS = Path(__file__).parent
_NONE = Patch(name="none", about="", hunks=())
_FAILURE = re.compile(
    r"^seed (?P<seed>\d+) fails after (?P<seconds>[\d.]+) s: .*\nchecker: (?P<checker>.*)$",
    re.MULTILINE,
)
"""What the simulator prints of the first world that fails."""
_KIND = re.compile("\n\nKind: (?P<kind>.*)\\.")
_NOT_DRAWN = ("\n\nNot found: ", "\n\nSlow to find: ")
_LONGEST = 4
"""How often a trial may take what starting, and ending the worlds under way, was measured to take.
"""


@attrs.frozen(kw_only=True)
class Row:
    """What came of one bug, as it is printed."""

    name: str
    ending: Ending
    said: str
    """Which checker has found it, or why it was not found."""
    seconds: float
    seed: str = ""

    def __str__(self) -> str:
        what = self.said if self.ending is Ending.FOUND else self.ending.value.upper()
        more = self.seed if self.ending is Ending.FOUND else self.said
        return f"{self.name:40} | {what:14} | {self.seconds:5.1f} s | {more}".rstrip(" |")


def main() -> int:
    """Try what was asked for; 0 if all was found."""
    options = _options()
    bugs = _chosen(options)
    rows: list[Row] = []
    starting = _measure_starting()
    with ThreadPoolExecutor(options.jobs) as pool:
        first = None if options.seed is None else options.seed * 1000
        for row in pool.map(
            partial(_try, seconds=options.seconds, first=first, starting=starting), bugs
        ):
            print(row, flush=True)
            rows.append(row)
    found = [row.seconds for row in rows if row.ending is Ending.FOUND]
    stale = [row for row in rows if row.ending is Ending.STALE]
    missed = len(rows) - len(found) - len(stale)
    print(
        f"planted: {len(rows)} bugs, {len(found)} found, {missed} missed, "
        f"{len(stale)} stale, mean {sum(found) / max(len(found), 1):.1f} s"
    )
    return int(missed > 0 or len(stale) > MOST_STALE)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.planted")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which bugs; default: all")
    parser.add_argument("--draw", type=int, metavar="N", help="only so many of them")
    parser.add_argument("--seed", type=int, help="of the draw and worlds; default: fresh")
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
    chosen = [bug for bug in chosen if not any(mark in bug.about for mark in _NOT_DRAWN)]
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"drawn by --seed {seed}", flush=True)
    return random.Random(seed).sample(chosen, min(options.draw, len(chosen)))


def _measure_starting() -> float:
    """Return how many seconds a trial may take, on this machine as it is now, beside its worlds.

    Raises:
        RuntimeError: a world fails without any bug.
    """
    trial = attempt(_NONE, ("-m", "tests.simulation", "--seconds", "1"), time_limit=3600.0)
    if trial.ending is not Ending.MISSED:
        raise RuntimeError(f"The simulator fails without a bug:\n{trial.last_lines()}")
    return _LONGEST * trial.seconds


def _try(bug: Patch, *, seconds: float, first: int | None, starting: float) -> Row:
    """Try a bug in worlds of fresh seeds, or of those from ``first`` on."""
    kind = _KIND.search(bug.about)
    simulate: tuple[str, ...] = ("-m", "tests.simulation", "--shrink", "0")
    if kind is not None:
        simulate += ("--kind", kind["kind"])
    seeds = () if first is None else ("--from", f"{first}")
    command = (*simulate, "--seconds", f"{seconds:g}", *seeds)
    trial = attempt(bug, command, time_limit=seconds + starting)
    if trial.ending is not Ending.FOUND:
        said = trial.output if trial.ending is Ending.STALE else ""
        return Row(name=bug.name, ending=trial.ending, said=said, seconds=trial.seconds)
    failure = _FAILURE.search(trial.output)
    if failure is None:
        raise RuntimeError(f"The simulator failed without a seed:\n{trial.last_lines()}")
    seed = failure["seed"]
    control = attempt(_NONE, (*simulate, "--seed", seed), time_limit=starting)
    if control.ending is not Ending.MISSED:
        said = f"seed {seed} fails without the bug, too"
        return Row(name=bug.name, ending=Ending.MISSED, said=said, seconds=trial.seconds)
    return Row(
        name=bug.name,
        ending=Ending.FOUND,
        said=failure["checker"],
        seconds=float(failure["seconds"]),
        seed=seed,
    )


if __name__ == "__main__":
    sys.exit(main())
