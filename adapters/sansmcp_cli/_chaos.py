"""``sansmcp chaos``: a network that breaks, between any client and any server."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import socket
import textwrap
import time
from collections import Counter
from contextlib import suppress
from functools import partial

import attrs

import sansmcp
from sansmcp_local import STOPPING, called_at

from ._fault_proxy import CUTS, Address, Ending, FaultProxy, Link, Way
from ._faults import Faults, Mean, SeededFate
from ._output import Commands, UsageError, examples, print_error, print_line

_WIDTH = 80
_USUAL = Faults(cut=Mean(10_000, is_time=False), silence=Mean(40_000, is_time=False), delay=0.02)
"""The faults if no option names one."""
_CONNECT_TIMEOUT = 10.0
_LAST_PORT = 65535
_MOST = 10**12
"""The largest mean, rate or time that an option accepts."""


def add_to(commands: Commands) -> None:
    """Add the command and its options to the parser."""
    command = commands.add_parser(
        "chaos",
        help="put a network that cuts, delays and falls silent before a server",
        description="Pass connections on to a server, and break them by seed. Any MCP software "
        "may be at either end: only bytes are seen. Each connection is one line on stdout when it "
        "ends or falls silent; Ctrl-C stops with a summary. Without the option of a fault these "
        f"are on: {_USUAL}. The same seed cuts the k-th connection after the same byte. Which "
        "request is on that connection, and what is read at once, a real network decides. The exit "
        "status is 2 if the options are wrong or it cannot begin.",
        usage="sansmcp chaos [options] --listen HOST:PORT --upstream URL",
        epilog=examples(
            "chaos --listen 127.0.0.1:9000 --upstream http://127.0.0.1:8000/mcp",
            "chaos --cut 2.5s --listen 127.0.0.1:0 --upstream https://example.com",
        ),
    )
    command.add_argument(
        "--listen", required=True, metavar="HOST:PORT", help="where clients connect; port 0: free"
    )
    command.add_argument(
        "--upstream",
        required=True,
        metavar="URL",
        help="the server; of https, the bytes of TLS are passed on as they are",
    )
    command.add_argument("--seed", metavar="N", help="repeat the same decisions (default: fresh)")
    faults = command.add_argument_group("faults")
    faults.add_argument(
        "--cut",
        metavar="BYTES|SECONDS",
        help="end a connection after so much on average: 4000 (bytes of either direction), or 2.5s "
        "(since it was opened); every second one by a reset",
    )
    faults.add_argument(
        "--silence",
        metavar="BYTES|SECONDS",
        help="from there on swallow all bytes, and keep the connection",
    )
    faults.add_argument(
        "--delay", metavar="SECONDS", help="hold back what was read, so long on average"
    )
    faults.add_argument("--slow", metavar="BYTES/S", help="pass on so much in each direction")
    faults.add_argument(
        "--fragments", metavar="BYTES", help="pass on in pieces of this size on average"
    )
    faults.add_argument(
        "--quiet-after",
        metavar="SECONDS",
        help="from then on no further faults, to see what recovers; what is silent stays silent",
    )
    command.set_defaults(run=_chaos)


def _chaos(options: argparse.Namespace) -> int:
    try:
        return _start(options)
    except (UsageError, sansmcp.LocalProtocolError) as error:
        print_error(error)
        return 2


def _start(options: argparse.Namespace) -> int:
    seed = random.randrange(1_000_000) if options.seed is None else _seed(options.seed)
    faults = _faults(options)
    quiet_after = _number("--quiet-after", options.quiet_after)
    url = sansmcp.Url.parse(options.upstream)
    with _listen(options.listen) as listener:
        upstream = _reach(url)
        here = attrs.evolve(url, host=options.listen.rpartition(":")[0].strip("[]"))
        print_line(attrs.evolve(here, port=listener.getsockname()[1]).shown)
        _write(f"passes connections on to {url.shown}")
        if url.scheme == "https":
            _write(f"The certificate is that of {url.host}; clients have to expect it here")
        _write(f"--seed {seed}: {faults}")
        log = _Log()
        relay = FaultProxy(lambda: upstream, partial(SeededFate, faults, seed), log.add)
        asyncio.run(_run(relay, listener, quiet_after))
    _write(f"--seed {seed}: {log}")
    return 0


async def _run(relay: FaultProxy, listener: socket.socket, quiet_after: float | None) -> None:
    """Pass connections on until SIGINT or SIGTERM."""
    running = asyncio.ensure_future(relay.run(listener))

    def fall_quiet() -> None:
        relay.is_quiet = True
        print_line("no further faults")

    if quiet_after is not None:
        asyncio.get_running_loop().call_later(quiet_after, fall_quiet)
    with called_at(STOPPING, running.cancel), suppress(asyncio.CancelledError):
        await running


class _Log:
    """Prints a line for each connection, and counts them."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._endings: Counter[Ending] = Counter()
        self._carried: Counter[Way] = Counter()
        self._delays = 0
        print_line("  at (s)    conn  for (s)    to server    to client  what happened")

    def add(self, link: Link) -> None:
        assert link.ending is not None
        self._endings[link.ending] += 1
        self._carried.update(link.carried)
        self._delays += link.delays
        at = time.monotonic() - self._began
        to_server, to_client = (link.carried[way] for way in Way)
        where = "" if link.way is None else f", {link.way.value}"
        print_line(
            f"{at:8.2f} {link.number:7} {link.seconds:8.2f} {to_server:12} {to_client:12}  "
            f"{link.ending.value}{where}"
        )

    def __str__(self) -> str:
        to_server, to_client = (self._carried[way] for way in Way)
        cuts = sum(self._endings[ending] for ending in CUTS)
        return (
            f"{self._endings.total()} connections, {to_server} bytes to the server, {to_client} to "
            f"the client; {cuts} cuts, {self._delays} delays, {self._endings[Ending.SILENCE]} "
            f"silences, {self._endings[Ending.REFUSED]} refused by the upstream"
        )


def _write(text: str) -> None:
    for line in textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False):
        print_line(line)


def _listen(text: str) -> socket.socket:
    """Return a socket that listens at the address."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not host or not (port.isdecimal() and int(port) <= _LAST_PORT):
        raise UsageError(
            f"--listen takes HOST:PORT, got {text!r}; write 127.0.0.1:9000; port 0: a free one"
        )
    try:
        family, *_, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family)
    except OSError as error:
        raise UsageError(
            f"Cannot listen at {text}: {_reason(error)}; choose another address or port (0: any)"
        ) from error


def _reach(url: sansmcp.Url) -> Address:
    """Return the address at which the upstream takes connections. Raises UsageError."""
    if url.socket_path is not None:
        raise UsageError("chaos passes TCP connections on; serve the upstream with --http, too")
    try:
        with socket.create_connection((url.host, url.port), _CONNECT_TIMEOUT) as connection:
            address: Address = connection.getpeername()
            return address
    except OSError as error:
        raise UsageError(
            f"Cannot reach the upstream {url.shown}: {_reason(error)}; start the server first"
        ) from error


def _reason(error: OSError) -> str:
    """Return the system's text for an error, without Python's additions."""
    number = error.errno or 0
    # Errors of getaddrinfo() have negative numbers of their own, not those of errno.
    return os.strerror(number) if number > 0 else str(error.strerror or error)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(
            f"--seed takes a whole number, got {text!r}; an earlier run printed its own"
        )
    return int(text)


def _faults(options: argparse.Namespace) -> Faults:
    """Return the faults that were named, or the usual ones if there are none."""
    slow = _whole("--slow", options.slow, "bytes a second")
    faults = Faults(
        cut=_mean("--cut", options.cut),
        silence=_mean("--silence", options.silence),
        delay=_number("--delay", options.delay),
        slow=slow,
        fragments=_whole("--fragments", options.fragments, "bytes"),
    )
    return _USUAL if faults == Faults() else faults


def _mean(option: str, text: str | None) -> Mean | None:
    if text is None:
        return None
    is_time = text.endswith("s")
    amount = _parse(text.removesuffix("s"))
    if amount is None or not (is_time or amount >= 1):
        raise UsageError(f"{option} takes bytes, as in 4000, or seconds, as in 2.5s, got {text!r}")
    return Mean(amount, is_time)


def _number(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    amount = _parse(text.removesuffix("s"))
    if amount is None:
        raise UsageError(f"{option} takes seconds above zero, as in 0.05, got {text!r}")
    return amount


def _whole(option: str, text: str | None, unit: str) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= _MOST:
        raise UsageError(f"{option} takes {unit}, one or more, as in 1000, got {text!r}")
    return int(text)


def _parse(text: str) -> float | None:
    """Return a number above zero that is not too large; None for anything else."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 1e-6 <= number <= _MOST else None
