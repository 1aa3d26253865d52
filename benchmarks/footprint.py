"""What it takes to be there: ``python -m benchmarks.footprint [rounds]``.

Processor time and modules of an import, in a process of its own; the most memory that one large
message takes on each way through the library, beside its size; processor time of an event among few
streams and among many; memory that a server takes for each client that only listens, beyond what
the kernel keeps for its socket. Linux only.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack

from .contestants import SERVERS
from .crowd import FEW, MACHINES, MANY, compared
from .large import LARGE
from .measuring import Skipped, check_time, has_time, skip
from .requests import message, post
from .servers import running

IMPORTS = (
    "import sansmcp",
    "from sansmcp import Client",
    "from sansmcp import Server",
    "import sansmcp_blocking",
    "from sansmcp_blocking import connect",
    "from sansmcp_blocking import serve",
    "from sansmcp_asyncio import connect",
    "from sansmcp_asyncio import serve",
    "from sansmcp_trio import connect",
    "from sansmcp_trio import serve",
    "import httpx",
    "import mcp",
)
LISTENERS = 400
MEGABYTES = 100

_IMPORT = """if True:
    import contextlib, importlib, sys, time
    for name in {before}:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    start = time.process_time()
    {code}
    print((time.process_time() - start) * 1000, *sys.modules)
"""
_LARGE = """if True:
    import resource
    from benchmarks.large import LARGE
    def most():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    LARGE[{name!r}](65536)
    before = most()
    held = LARGE[{name!r}]({megabytes} << 20)
    print((most() - before) / {megabytes})
"""


def printed(code: str) -> list[str]:
    """The words that a process of its own prints; modules are compiled once for all of them."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.split()


def imported(code: str, rounds: int) -> tuple[float, float, int]:
    """Milliseconds of an import, those of our own modules alone, and how many there are of all."""
    _, *all_modules = printed(_IMPORT.format(before=[], code=code))
    _, *those_before = printed(_IMPORT.format(before=[], code="pass"))
    others = [name for name in all_modules if not name.startswith("sansmcp")]
    whole, own = (
        min(float(printed(_IMPORT.format(before=before, code=code))[0]) for _ in range(rounds))
        for before in ([], others)
    )
    return whole, own, len(set(all_modules) - set(those_before))


def peak(name: str) -> float:
    """How many times its size a large message takes at most."""
    return float(printed(_LARGE.format(name=name, megabytes=MEGABYTES))[0])


def listening(port: int) -> bytes:
    """A request for an event stream that stays open."""
    wanted = {"notifications": {"toolsListChanged": True}}
    return post(message("subscriptions/listen", wanted), port)


def memory_per_listener(server: str) -> float:
    """KiB that one more listening client takes."""
    with running(server) as (port, process), ExitStack() as stack:
        sizes = [0.0, 0.0]
        for number in range(2 * LISTENERS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.sendall(listening(port))
            received = connection.recv(65536)
            if not received.startswith(b"HTTP/1.1 200"):
                raise Skipped(f"wrong: no stream, but {received[:100]!r}")
            if number + 1 in (LISTENERS, 2 * LISTENERS):
                sizes[number // LISTENERS] = resident(process.pid)
    return (sizes[1] - sizes[0]) / LISTENERS


def resident(pid: int) -> float:
    """KiB of memory of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def last_line(reason: Exception) -> str:
    """Why a process of its own has failed."""
    if isinstance(reason, subprocess.CalledProcessError):
        return str(reason.stderr).strip().rpartition("\n")[2]
    return str(reason)


def main(rounds: int) -> None:
    """Measure, and print tables."""
    print("| import | processor time, ms | of our own modules | modules |\n|---|---|---|---|")
    for code in IMPORTS:
        try:
            check_time()
            whole, own, modules = imported(code, rounds)
        except (Skipped, subprocess.CalledProcessError) as reason:
            skip(code, last_line(reason))
            continue
        print(f"| `{code}` | {whole:.0f} | {own:.0f} | {modules} |")
    print(f"\n| a message of {MEGABYTES} MB | memory at most, times its size |\n|---|---|")
    for name in LARGE:
        if not has_time():
            skip(name, "no time left")
            continue
        print(f"| {name} | {peak(name):.1f} |")
    print(f"\n| an event, µs | among {FEW} streams | among {MANY:,} |\n|---|---|---|")
    for name, of_machine in MACHINES.items():
        if not has_time():
            skip(name, "no time left")
            continue
        few, many = compared(of_machine)
        print(f"| {name} | {few:.1f} | {many:.1f} |")
    print("\n| server | memory for a listener, KiB |\n|---|---|")
    for name in SERVERS:
        if name.startswith("sansmcp"):
            try:
                check_time()
                print(f"| {name} | {memory_per_listener(name):.1f} |")
            except Skipped as reason:
                skip(name, reason)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
