"""Run the suite and print the verdicts.

python -m tests.conformance                                # every adapter
python -m tests.conformance --adapter trio --leg client    # one side of one adapter
python -m tests.conformance --draw 2 --seed 7              # all on trio, half of them on each other
python -m tests.conformance --other NAME --url URL --command COMMAND    # somebody else's
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import attrs

from .peers import ADAPTERS, BOTH, CANNOT, Peer, adapter
from .suite import OLDER, REVISIONS, Scenario, Verdict, judge, scenarios


def main() -> int:
    """Run what was asked for; 0 if everything has passed."""
    options = _options()
    try:
        known = scenarios()
    except RuntimeError as error:
        sys.exit(f"conformance: {error}")
    chosen = [
        scenario
        for scenario in known
        if scenario.leg in (options.leg or BOTH)
        and scenario.revision in (options.revision or (*OLDER, *REVISIONS))
        and (not options.scenario or scenario.name in options.scenario)
    ]
    verdicts: dict[str, list[Verdict]] = {}
    for examined in _peers(options):
        with examined as peer:
            share = _drawn(chosen, peer.name, options)
            verdicts[peer.name] = list(_examine(peer, share, options.jobs))
        print("\n".join(_table(peer.name, verdicts[peer.name])), flush=True)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        by_peer = {name: [attrs.asdict(one) for one in all] for name, all in verdicts.items()}
        options.json.write_text(json.dumps(by_peer, indent=2))
    return int(any(verdict.problems for all in verdicts.values() for verdict in all))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("--adapter", action="append", choices=ADAPTERS, help="default: all")
    parser.add_argument("--leg", action="append", choices=BOTH)
    parser.add_argument("--revision", action="append", choices=(*OLDER, *REVISIONS))
    parser.add_argument("--scenario", action="append", help="by name; default: all")
    parser.add_argument("--jobs", type=int, default=2, help="scenarios at a time")
    parser.add_argument(
        "--draw",
        type=int,
        default=1,
        metavar="N",
        help="try one of N scenarios, drawn for each adapter but the first, which has them all",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts there, too")
    other = parser.add_argument_group("somebody else's software, instead of our adapters")
    other.add_argument("--other", metavar="NAME")
    other.add_argument("--url", help="of a server that runs")
    other.add_argument("--command", help="of a client; begin it with exec")
    return parser.parse_args()


def _peers(options: argparse.Namespace) -> Iterator[AbstractContextManager[Peer]]:
    if options.other is not None:
        yield nullcontext(Peer(options.other, options.url, options.command))
        return
    for name in options.adapter or ADAPTERS:
        yield adapter(name)


def _drawn(chosen: list[Scenario], name: str, options: argparse.Namespace) -> list[Scenario]:
    if options.draw == 1 or name == next(iter(ADAPTERS)):
        return chosen
    drawn = random.Random(f"{options.seed} {name}")
    return [scenario for scenario in chosen if drawn.randrange(options.draw) == 0]


def _examine(peer: Peer, chosen: list[Scenario], jobs: int) -> Iterator[Verdict]:
    with ThreadPoolExecutor(jobs) as pool:
        running = [
            pool.submit(partial(judge, scenario, reached))
            for scenario in chosen
            if (reached := peer.reached(scenario.leg)) is not None
            and scenario.name not in CANNOT.get(peer.name, ())
        ]
        for future in running:
            yield future.result()


def _table(name: str, verdicts: list[Verdict]) -> Iterator[str]:
    for leg in BOTH:
        for revision in (*OLDER, *REVISIONS):
            here = [v for v in verdicts if (v.scenario.leg, v.scenario.revision) == (leg, revision)]
            if here:
                required = _count([v for v in here if v.scenario.is_required])
                others = _count([v for v in here if not v.scenario.is_required])
                seconds = sum(verdict.seconds for verdict in here)
                yield (
                    f"{name:12} {leg}  {revision}  required {required}  others {others}"
                    f"  {seconds:5.1f} s"
                )
                yield from _failures(here)


def _count(verdicts: list[Verdict]) -> str:
    passed = sum(not verdict.problems for verdict in verdicts)
    return f"{passed:2}/{len(verdicts):2}"


def _failures(verdicts: list[Verdict]) -> Iterator[str]:
    for verdict in verdicts:
        for problem in verdict.problems:
            yield f"    {verdict.scenario.name}: {problem}"


if __name__ == "__main__":
    sys.exit(main())
