"""Clients and servers of several libraries with ``sansmcp chaos`` between them: what is left.

    python -m tests.interop.chaos --fastmcp /path/to/venv/bin/python --write docs/testing.md

Runs from a checkout, with the extra ``dev`` and packages of npm (which it installs). FastMCP has
requirements of its own, so it is used from an environment that has it, and left out without
``--fastmcp``. Each run has one server, one chaos and one client, which makes its calls one after
the other. Every tool writes down that it runs, so executions are counted beside outcomes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

import attrs

from tests.node import NODE, install
from tests.ports import free_port

HERE = Path(__file__).parent
NODE_FOLDER = HERE.parent / "node"

ERAS = ("2026-07-28", "2025-11-25")
FAULTS = {
    "cut": ("--cut", "4000", "--delay", "0.01"),
    "silence": ("--silence", "8000", "--delay", "0.01"),
}
LIBRARIES = ("sansmcp", "mcp", "TypeScript", "FastMCP")
PAIRS = (
    *((library, library) for library in LIBRARIES),
    *((library, "sansmcp") for library in LIBRARIES[1:]),
    *(("sansmcp", library) for library in LIBRARIES[1:]),
)
QUIET_AFTER = 60
"""Seconds after which a run has no further faults."""
LONGEST = 300
"""Seconds after which a client is killed."""
STARTED_WITHIN = 240


@attrs.frozen
class Run:
    """One server, one chaos, one client."""

    client: str
    server: str
    era: str
    faults: str
    seed: int

    def __str__(self) -> str:
        pair = f"{self.client} to {self.server}"
        return f"{pair}, {self.era}, {self.faults}, seed {self.seed}"


@attrs.define
class Found:
    """What came of the calls of some runs."""

    outcomes: Counter[str] = attrs.field(factory=Counter[str])
    twice: int = 0
    """Calls whose tool ran more than once."""
    lost: int = 0
    """Calls whose tool ran, and whose result did not come."""
    afterwards: int = 0
    """Runs whose client completed a call after the faults had stopped."""
    openings: int = 0
    """Clients that had to be opened."""
    failed_openings: int = 0
    breaks: int = 0
    """Connections that were cut, or fell silent."""
    runs: int = 0
    examples: list[str] = attrs.field(factory=list[str])

    def add(self, other: Found) -> None:
        """Count what another one has found, too."""
        self.outcomes += other.outcomes
        self.twice += other.twice
        self.lost += other.lost
        self.afterwards += other.afterwards
        self.openings += other.openings
        self.failed_openings += other.failed_openings
        self.breaks += other.breaks
        self.runs += other.runs
        self.examples += other.examples


class Bench:
    """Runs what it is told, with the interpreters that the libraries need."""

    def __init__(self, fastmcp: str | None, calls: int) -> None:
        self._fastmcp, self._calls = fastmcp, calls

    def run(self, run: Run) -> Found:
        """Make the calls of a run, and count."""
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            log = Path(folder) / "executions"
            log.touch()
            environment = {**os.environ, "CHAOS_LOG": str(log)}
            port = free_port()
            stack.enter_context(_started(self._server(run.server, port), environment))
            _wait_for(port)
            arguments = (run.era, str(self._calls), f"{run.seed}")
            client = stack.enter_context(_started(self._client(run.client, arguments), environment))
            assert client.stdout is not None
            assert client.stdin is not None
            client.stdout.readline()  # it is ready
            url = f"http://127.0.0.1:{port}/mcp"
            command = ("--listen", "127.0.0.1:0", "--upstream", url, "--seed", str(run.seed))
            chaos = stack.enter_context(
                _started(
                    (
                        *(sys.executable, "-m", "sansmcp_cli", "chaos", *command),
                        *(*FAULTS[run.faults], "--quiet-after", str(QUIET_AFTER)),
                    ),
                    environment,
                )
            )
            assert chaos.stdout is not None
            here, quiet_at = chaos.stdout.readline().strip(), time.time() + QUIET_AFTER + 1
            client.stdin.write(f"{here} {quiet_at}\n")
            client.stdin.flush()
            lines = _lines_of(client)
            chaos.send_signal(signal.SIGINT)
            network = chaos.stdout.read()
            return self._count(run, lines, log.read_text(encoding="utf-8").split(), network)

    def _server(self, library: str, port: int) -> Sequence[str]:
        if library == "TypeScript":
            return (NODE, str(NODE_FOLDER / "chaos_server.mjs"), str(port))
        return (self._python(library), str(HERE / "servers.py"), library.lower(), str(port))

    def _client(self, library: str, arguments: Sequence[str]) -> Sequence[str]:
        if library == "TypeScript":
            return (NODE, str(NODE_FOLDER / "chaos_client.mjs"), *arguments)
        return (self._python(library), str(HERE / "clients.py"), library.lower(), *arguments)

    def _python(self, library: str) -> str:
        if library == "FastMCP":
            assert self._fastmcp is not None
            return self._fastmcp
        return sys.executable

    def _count(self, run: Run, lines: list[str], ran: list[str], network: str) -> Found:
        found, executions = Found(runs=1), Counter(ran)
        told = [json.loads(line) for line in lines if line.startswith("{")]
        calls = {line["marker"]: line for line in told if "marker" in line}
        found.openings = sum("revision" in line for line in told)
        found.failed_openings = sum("opening" in line for line in told)
        found.breaks = len(re.findall(r"  (?:cut: |fell silent)", network))
        found.afterwards = int(calls.get(f"{run.seed}-after", {}).get("outcome") == "completed")
        for number in range(1, self._calls + 1):
            marker = f"{run.seed}-{number}"
            call = calls.get(marker, {"outcome": "not made", "why": "", "seconds": 0})
            found.outcomes[call["outcome"]] += 1
            found.twice += executions[marker] > 1
            found.lost += bool(executions[marker]) and call["outcome"] != "completed"
            if call["outcome"] != "completed" or executions[marker] > 1:
                what = f"{call['outcome']} after {call['seconds']} s, {executions[marker]} runs"
                found.examples.append(f"{run}: {marker}: {what}: {call['why']}")
        for line in told:
            if not {"marker", "revision"} & line.keys():
                found.examples.append(f"{run}: {line}")
        if not found.afterwards:
            found.examples.append(f"{run}: afterwards: {calls.get(f'{run.seed}-after')}")
        return found


@contextmanager
def _started(
    command: Sequence[str], environment: dict[str, str]
) -> Generator[subprocess.Popen[str], None, None]:
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _wait_for(port: int) -> None:
    end = time.monotonic() + STARTED_WITHIN
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def _lines_of(client: subprocess.Popen[str]) -> list[str]:
    """What it prints until it ends, or has to be killed."""
    killing = threading.Timer(LONGEST, client.kill)
    killing.start()
    assert client.stdout is not None
    lines = client.stdout.read().splitlines()
    killing.cancel()
    return lines


COLUMNS = (
    *("client", "server", "revision", "faults", "broken", "completed", "error", "hung", "wrong"),
    *("ran twice", "ran, no result", "clients opened", "well afterwards"),
)


def _table(found: dict[tuple[str, ...], Found], calls: int) -> Iterator[str]:
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|" + " --- |" * len(COLUMNS)
    for row, of in found.items():
        outcomes = [of.outcomes[name] for name in ("completed", "error", "hung", "wrong")]
        opened = f"{of.openings}" + (f" (+{of.failed_openings} failed)" * (of.failed_openings > 0))
        values = (*row, of.breaks, *outcomes, of.twice, of.lost, opened)
        yield f"| {' | '.join(map(str, values))} | {of.afterwards} of {of.runs} |"
        assert sum(of.outcomes.values()) == calls * of.runs


def _versions(fastmcp: str | None) -> str:
    text = (NODE_FOLDER / "package.json").read_text(encoding="utf-8")
    packages = json.loads(text)["dependencies"]
    names = {
        "sansmcp": version("sansmcp"),
        "mcp": version("mcp"),
        "TypeScript client": packages["@modelcontextprotocol/client"],
        "TypeScript server": packages["@modelcontextprotocol/server"],
    }
    if fastmcp is not None:
        code = "import importlib.metadata as m; print(m.version('fastmcp'))"
        names["FastMCP"] = subprocess.check_output([fastmcp, "-c", code], text=True).strip()
    return ", ".join(f"{name} {number}" for name, number in names.items())


def main() -> None:
    """Run the matrix."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fastmcp", metavar="PYTHON", help="a Python that has FastMCP")
    parser.add_argument("--calls", type=int, default=15, help="calls of each run (default: 15)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2], help="default: 1 2")
    parser.add_argument("--jobs", type=int, default=4, help="runs at a time (default: 4)")
    parser.add_argument("--only", default="", help="only pairs and eras whose names match this")
    parser.add_argument("--write", type=Path, metavar="FILE", help="replace the table in this file")
    options = parser.parse_args()
    install(NODE_FOLDER)
    seeds: list[int] = options.seeds
    bench = Bench(options.fastmcp, options.calls)
    runs = [
        Run(client, server, era, faults, seed)
        for faults in FAULTS
        for era in ERAS
        for client, server in PAIRS
        for seed in seeds
        if re.search(options.only, f"{client} {server} {era} {faults}")
        and (options.fastmcp is not None or "FastMCP" not in (client, server))
    ]
    found: dict[tuple[str, ...], Found] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        for run, of in zip(runs, pool.map(bench.run, runs), strict=True):
            found.setdefault((run.client, run.server, run.era, run.faults), Found()).add(of)
            print(*of.examples, sep="\n", flush=True)
    text = "\n".join(
        (
            f"{datetime.date.today()}, {_versions(options.fastmcp)}; Python "
            f"{platform.python_version()}; seeds {', '.join(map(str, seeds))}; "
            f"{options.calls} calls of each seed; "
            + "; ".join(f"{name}: `{' '.join(words)}`" for name, words in FAULTS.items())
            + ".",
            "",
            *_table(found, options.calls),
        )
    )
    print(text)
    if options.write is not None:
        page = options.write.read_text(encoding="utf-8")
        begin, end = "<!-- made by tests.interop.chaos -->\n", "\n<!-- end -->"
        before, after = page.split(begin)[0], page.split(end)[1]
        options.write.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
