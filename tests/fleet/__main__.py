"""Kill the processes of a fleet while calls run: ``python -m tests.fleet --seconds 60``.

Ends with status 1 if a call was lost silently, executed twice or otherwise wrong, and prints the
folder with the logs.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from .clients import Crowd
from .journal import read_journal
from .plans import VERSIONS
from .processes import Fleet, running_fleet
from .verdict import DISORDER, FALSE, LOST, OTHER, TWICE, Figures, judge

EARLIER = "dbbf655c"
"""The first commit whose records others may add members to."""

_SHOWN = 5
"""Problems of each kind that are printed; all are in the folder."""


def main() -> int:
    """Run the test."""
    options = _options()
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    fault = f" --fault {options.fault}" if options.fault else ""
    mixed = f" --mixed {options.mixed}" if options.mixed else ""
    print(
        f"--seed {seed} --store {options.store} --calls {options.calls}{fault}{mixed}", flush=True
    )
    folder = Path(tempfile.mkdtemp(prefix="fleet-"))
    began = time.monotonic()
    pace = options.pace or max(0.3, options.calls / 100)
    with running_fleet(
        folder,
        servers=options.servers,
        mixed=options.mixed,
        calls=options.calls,
        store=options.store,
        lease=options.lease,
        seed=seed,
        cut=options.cut,
        trace=options.trace,
        has_small_disk=options.fault == "full",
    ) as fleet:
        crowd = Crowd(seed, pace, folder / "trace" if options.trace else None)
        asyncio.run(_run(options, crowd, fleet))
        figures = judge(crowd.outcomes.values(), read_journal(folder / "journal"), fleet.deaths)
    _write_problems(folder, figures, crowd)
    kinds = ", ".join(f"{figures.count(kind)} {kind}" for kind in (LOST, TWICE, DISORDER, FALSE))
    print(
        f"{options.store}, {time.monotonic() - began:.0f} s: {figures.calls} calls, "
        f"{figures.executions} executions, {figures.results} results, {figures.cancelled} "
        f"cancelled, {figures.told} told "
        f"({figures.delay(0.5):.1f} s later, at most {figures.delay(1):.1f}), "
        f"{figures.disconnected.total()} disconnected ({_by_version(figures)}), "
        f"{figures.refused} refused, {figures.reports} progress reports, "
        f"{figures.answers} answers, {len(fleet.deaths)} kills, {kinds}, "
        f"{figures.count(OTHER)} {OTHER}"
    )
    if figures.problems:
        print(f"The logs are in {folder}; --seed {seed}")
        return 1
    if options.keep:
        print(f"The logs are in {folder}")
    else:
        shutil.rmtree(folder)
    return 0


def _by_version(figures: Figures) -> str:
    return ", ".join(f"{count} of {version}" for version, count in figures.disconnected.items())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long new calls begin")
    parser.add_argument("--calls", type=int, default=100, help="calls in flight")
    parser.add_argument("--seed", type=int, help="repeat the same plans and faults")
    parser.add_argument("--store", choices=("redis", "sqlite"), default="redis")
    parser.add_argument(
        "--fault",
        choices=("full", "stop"),
        help="instead of kills and breaks: the disk, or the memory of Redis, is full for longer "
        "than a lease; or a process stands still for longer than a lease (SIGSTOP)",
    )
    parser.add_argument("--servers", type=int, default=4, help="server processes")
    parser.add_argument(
        "--mixed",
        nargs="?",
        const=EARLIER,
        default="",
        metavar="COMMIT",
        help="half of the processes run this commit, and one adds members to all that it stores; "
        f"without COMMIT it is {EARLIER}",
    )
    parser.add_argument("--versions", default=",".join(VERSIONS), help="revisions of the clients")
    parser.add_argument("--lease", type=float, default=3, help="Limits.lease_timeout")
    parser.add_argument("--kill", type=float, default=2, help="seconds between kills; 0: none")
    parser.add_argument("--cut", type=float, default=4, help="mean life of every 2nd connection")
    parser.add_argument("--pace", type=float, help="mean of a pause of a handler, in seconds")
    parser.add_argument("--trace", action="store_true", help="write all that is sent to a file")
    parser.add_argument("--keep", action="store_true", help="keep the logs of a run without fault")
    return parser.parse_args()


async def _run(options: argparse.Namespace, crowd: Crowd, fleet: Fleet) -> None:
    """Run the clients and the faults, and let everything end."""
    versions = options.versions.split(",")
    count = max(2 * len(versions), options.calls // 16)
    calls = [options.calls * (n + 1) // count - options.calls * n // count for n in range(count)]
    clients = [
        asyncio.ensure_future(
            crowd.run_client(
                f"c{number}",
                fleet.cut_url if options.cut and number // len(versions) % 2 else fleet.url,
                versions[number % len(versions)],
                calls[number],
            )
        )
        for number in range(count)
    ]
    faults = [asyncio.ensure_future(_supervise(fleet))]
    draws = random.Random(f"{crowd.seed}/kill")
    if options.fault == "full":
        faults.append(asyncio.ensure_future(_fill(2.5 * options.lease, fleet)))
    elif options.fault == "stop":
        faults.append(asyncio.ensure_future(_stop(draws, 2.5 * options.lease, fleet)))
    else:
        faults.append(asyncio.ensure_future(_break_redis(options.seconds, fleet)))
    if options.kill and not options.fault:
        faults.append(asyncio.ensure_future(_kill(draws, options.kill, fleet)))
    await asyncio.sleep(options.seconds)
    crowd.is_over = True
    for each in faults[1:]:
        each.cancel()
    _, pending = await asyncio.wait(clients, timeout=150)
    for each in (*pending, *faults):
        each.cancel()
    for error in await asyncio.gather(*clients, *faults, return_exceptions=True):
        if isinstance(error, Exception):
            raise error
    await asyncio.sleep(3 * crowd.pace)  # handlers whose clients have gone


async def _supervise(fleet: Fleet) -> None:
    while True:
        await asyncio.sleep(0.2)
        fleet.start_ended()


async def _kill(draws: random.Random, seconds: float, fleet: Fleet) -> None:
    while True:
        await asyncio.sleep(seconds * draws.uniform(0.7, 1.3))
        fleet.kill_one(draws)


async def _fill(seconds: float, fleet: Fleet) -> None:
    """Let the store refuse writes for some seconds, again and again."""
    try:
        while True:
            await asyncio.sleep(seconds)
            fleet.refuse_writes()
            await asyncio.sleep(seconds)
            fleet.take_writes()
    finally:
        fleet.take_writes()


async def _stop(draws: random.Random, seconds: float, fleet: Fleet) -> None:
    """Let one process after the other stand still for some seconds."""
    while True:
        await asyncio.sleep(seconds * draws.uniform(0.2, 0.5))
        server = fleet.stop_one(draws)
        try:
            await asyncio.sleep(seconds)
        finally:
            server.process.send_signal(signal.SIGCONT)


async def _break_redis(seconds: float, fleet: Fleet) -> None:
    """Stop Redis for 3 s, kill it and start it again, and cut it off for 5 s."""
    if (redis := fleet.redis) is None:
        return
    try:
        await asyncio.sleep(seconds * 0.25)
        redis.stop()
        await asyncio.sleep(min(3, seconds / 10))
        redis.go_on()
        await asyncio.sleep(seconds * 0.2)
        redis.kill()
        await asyncio.sleep(0.5)
        redis.start()
        await asyncio.sleep(seconds * 0.2)
        fleet.cut_redis_off()
        await asyncio.sleep(min(5, seconds / 6))
    finally:
        redis.go_on()
        fleet.connect_redis()


def _write_problems(folder: Path, figures: Figures, crowd: Crowd) -> None:
    with (folder / "problems").open("w", encoding="utf-8") as file:
        for kind, problems in figures.problems.items():
            for number, text in enumerate(problems):
                print(f"{kind}: {text}", file=file)
                if number < _SHOWN:
                    print(f"{kind}: {text}", file=sys.stderr)
        print("", *figures.details, sep="\n", file=file)
        for text, count in crowd.problems.items():
            print(f"a client could not connect, {count} times: {text}", file=file)


if __name__ == "__main__":
    sys.exit(main())
