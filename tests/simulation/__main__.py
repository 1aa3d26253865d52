"""Run worlds of fresh seeds for a time: ``python -m tests.simulation --seconds 60``.

Ends with status 1 at the first seed that fails, and shows the smallest world that fails in the same
way. ``--seed N`` runs that seed again.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator

import attrs

from .kinds import KINDS, OFF
from .shrinking import shrink
from .simulator import SOMETIMES, World

_KINDS = ("fleet", "tasks", "protected", *(name for name in KINDS if name not in OFF))
"""What is counted."""
_CHUNK = 20
"""Seeds that a process runs before it reports."""


@attrs.define
class Tally:
    """What many worlds have come to."""

    runs: int = 0
    steps: int = 0
    states: set[int] = attrs.field(factory=set[int])
    schedules: set[int] = attrs.field(factory=set[int])
    reached: Counter[str] = attrs.field(factory=Counter[str])
    kinds: Counter[str] = attrs.field(factory=Counter[str])
    """How many worlds there were of each kind."""
    failures: list[tuple[int, str, str]] = attrs.field(factory=list[tuple[int, str, str]])

    def add(self, other: Tally) -> None:
        """Count what another has counted."""
        self.runs += other.runs
        self.steps += other.steps
        self.states |= other.states
        self.schedules |= other.schedules
        self.reached += other.reached
        self.kinds += other.kinds
        self.failures += other.failures


def run_seeds(first: int, kind: str | None = None) -> Tally:
    """Run some worlds, up to the first that fails."""
    tally = Tally()
    for seed in range(first, first + _CHUNK):
        world = World(seed, kind=kind).run()
        tally.runs += 1
        tally.kinds.update(world.features & {*_KINDS})
        tally.steps += world.steps
        tally.states |= world.states
        tally.schedules.add(world.schedule)
        tally.reached.update(world.reached)
        if world.problem is not None:
            tally.failures.append((seed, world.problem, world.checker))
            break
    return tally


def _tallies(first: int, kind: str | None, processes: int, ends_at: float) -> Iterator[Tally]:
    """Run worlds in several processes until the time is over."""

    def firsts() -> Iterator[int]:
        start = first
        while time.monotonic() < ends_at:
            yield start
            start += _CHUNK

    if processes == 1:
        yield from (run_seeds(start, kind) for start in firsts())
        return
    with multiprocessing.Pool(processes) as pool:
        source = firsts()
        starts = itertools.islice(source, 2 * processes)
        under_way = deque(pool.apply_async(run_seeds, (start, kind)) for start in starts)
        while under_way:
            yield under_way.popleft().get()
            for start in itertools.islice(source, 1):
                under_way.append(pool.apply_async(run_seeds, (start, kind)))


def show_failure(seed: int, kind: str | None, seconds: float) -> None:
    """Print the smallest world that fails as this seed does: what it has, and what happens."""
    world = shrink(seed, kind=kind, seconds=seconds)
    print(f"the smallest world that fails in this way, without {len(world.fates.without)} choices:")
    for customer in world.customers:
        print(f"  {customer.name}: {customer.transport} {customer.version}")
    settings = {name: value for name, value in world.settings.items() if name != "limits"}
    print(f"  servers: {len(world.instances)}, {settings}")
    print(f"  accidents: {', '.join(world.fates.struck)}")
    print("what happens:")
    for line in list(world.story or ())[-120:]:
        print(f"  {line}")
    print(f"problem: {world.problem}")


def main() -> int:
    """Run worlds; 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, help="run this seed only")
    parser.add_argument("--from", type=int, dest="first", help="the first seed; else a fresh one")
    parser.add_argument("--kind", choices=KINDS, help="worlds of this kind only; else all")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--shrink", type=float, default=15.0, help="seconds for that; 0: do not")
    options = parser.parse_args()
    began = time.monotonic()
    if options.seed is not None:
        world = World(options.seed, kind=options.kind).run()
        print(f"seed {options.seed}: {world.problem or 'no failure'}")
        if world.problem is not None:
            print(f"checker: {world.checker}", flush=True)
            show_failure(options.seed, options.kind, options.shrink)
        return int(world.problem is not None)
    first = int.from_bytes(os.urandom(4), "big") * 1000 if options.first is None else options.first
    print(f"seeds from {first}", flush=True)
    total = Tally()
    ends_at = began + options.seconds
    for tally in _tallies(first, options.kind, options.processes, ends_at):
        total.add(tally)
        if total.failures:
            break
    for seed, problem, checker in total.failures[:1]:
        print(f"seed {seed} fails after {time.monotonic() - began:.1f} s: {problem}")
        print(f"checker: {checker}")
        of_kind = "" if options.kind is None else f" --kind {options.kind!r}"
        print(f"run it again: python -m tests.simulation --seed {seed}{of_kind}", flush=True)
        if options.shrink:
            show_failure(seed, options.kind, options.shrink)
    missed = [name for name in SOMETIMES if name not in total.reached]
    for name in SOMETIMES:
        print(f"  {total.reached[name]:7}  {name}")
    print("worlds: " + ", ".join(f"{total.kinds[name]} {name}" for name in _KINDS))
    print(
        f"simulation: {total.runs} runs, {len(total.states)} states, "
        f"{len(total.schedules)} schedules, {len(SOMETIMES) - len(missed)} sometimes of "
        f"{len(SOMETIMES)}, {len(total.failures)} failures (seeds {first}-{first + total.runs - 1})"
    )
    return int(bool(total.failures))


if __name__ == "__main__":
    sys.exit(main())
