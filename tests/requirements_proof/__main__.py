"""Break rules of the protocol, one at a time, and see the tests that are named for them fail.

``python -m tests.requirements_proof`` tries all rules of ``rules.toml``; ``--draw 5`` tries five of
them, by a seed that it prints; a list of rules tries these. First the tests named for them must
pass on the code as it is. Fails unless every rule is guarded, but for at most ten whose patches are
stale: these no longer fit the code.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import secrets
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ..patches import MOST_STALE, PROJECT
from .rules import Finding, command_for, failed_test, patches, prove, read_draw


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all the rules that are tried are guarded, or have a stale patch."""
    parser = argparse.ArgumentParser(prog="requirements_proof", description=__doc__)
    parser.add_argument("rules", nargs="*", help="the rules to try; all of them by default")
    parser.add_argument("--draw", type=int, help="try so many, drawn by --seed")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="trials at a time")
    options = parser.parse_args(arguments)
    known = patches()
    rules: Sequence[str] = options.rules or read_draw().tried
    if unknown := sorted(set(rules) - set(known)):
        parser.error(f"no patch for {', '.join(unknown)}")
    if options.draw is not None:
        print(f"drawn by --seed {options.seed}")
        rules = random.Random(options.seed).sample(rules, options.draw)
    if subprocess.run([sys.executable, *command_for(rules)], cwd=PROJECT).returncode != 0:
        print("The tests named for these rules must pass before anything is broken")
        return 1
    chosen = [known[rule] for rule in rules]
    counts = collections.Counter[Finding]()
    with ThreadPoolExecutor(options.jobs) as pool:
        for patch, (finding, trial) in zip(chosen, pool.map(prove, chosen), strict=True):
            counts[finding] += 1
            print(f"{finding.value:9}  {patch.name}  {trial.seconds:.0f} s  {failed_test(trial)}")
            if finding is not Finding.GUARDED:
                print(f"{patch.about}\n{trial.last_lines()}")
            sys.stdout.flush()
    said = ", ".join(f"{counts[finding]} {finding.value}" for finding in Finding)
    print(f"requirements-proof: {len(rules)} rules, {said}")
    return int(counts[Finding.UNGUARDED] > 0 or counts[Finding.STALE] > MOST_STALE)


if __name__ == "__main__":
    sys.exit(main())
