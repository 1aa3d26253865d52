"""The demonstration: real sockets, a server that disconnects, and a network that breaks.

Between the client and the server stands a relay that breaks connections after a random number of
bytes, and the tool itself lets its client go in the middle of the work (SEP-1699). All calls end
with their results, and every progress report arrives once. Before that, calls that ask the client
go from one process to another (see ``_rounds``).

At the stateless revision nothing can be resumed: a call whose response breaks is made again, from
its beginning, and the reports of the attempt that succeeds are those that count.
"""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager

import attrs

import sansmcp
from sansmcp.events import ClientEvent, ProgressReceived, Reconnecting
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp.trace import Tracer

from ._adapters import Adapter, Script, ToolCall, adapter_of, add_adapter
from ._relay import Relay, relaying
from ._rounds import show_rounds
from ._say import Commands, say

_STEPS = 6


def add_to(commands: Commands) -> None:
    """Declare the command."""
    command = commands.add_parser(
        "demo",
        help="watch calls survive a server and a network that disconnect",
        description="Make calls that go from one process to another, and calls over a network that "
        "breaks. The exit status is 1 if any result is lost, or comes twice.",
    )
    command.add_argument("--calls", type=int, default=8, help="how many (default: 8)")
    command.add_argument("--seed", type=int, default=None, help="repeat the same accidents")
    command.add_argument("--quiet", action="store_true", help="only the last line")
    command.add_argument(
        "--revision",
        choices=tuple(sansmcp.REVISIONS),
        default=HANDSHAKE_VERSIONS[-1],
        help="the protocol revision to speak (default: the last one that resumes streams)",
    )
    add_adapter(command)
    command.set_defaults(run=demo)


def demo(options: argparse.Namespace) -> int:
    """Run the demonstration. Returns the exit status: 1 if anything failed, or came twice.

    SIGTERM ends it as Ctrl-C does, which raises KeyboardInterrupt: there are processes to be ended.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
        return _show(options)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(options: argparse.Namespace) -> int:
    began = time.monotonic()
    calls: int = options.calls
    seed: int = random.randrange(1_000_000) if options.seed is None else options.seed

    def write(line: str) -> None:
        if not options.quiet:
            say(f"{time.monotonic() - began:6.2f} {line}")

    write(f"demo: sansmcp {sansmcp.__version__}, {calls} calls, accidents by seed {seed}")
    adapter = adapter_of(options)
    failed = show_rounds(adapter, options.adapter, write)
    tracer = Tracer("client", write)
    # A call that has to be carried whole needs connections that can do it.
    is_stateless = sansmcp.REVISIONS[options.revision].era is sansmcp.Era.MODERN
    tally = _Tally(is_stateless)
    settings: sansmcp.ClientSettings = {
        "trace": tracer,
        "reconnect": sansmcp.ReconnectPolicy(initial=0.2, attempts=20),
        "listen": False,
        "versions": (options.revision,),
    }
    with _served(adapter) as port:
        longest_life = 4000 if is_stateless else 1500
        relay = Relay(itertools.repeat(port), random.Random(seed), longest_life, tracer.write)

        def script() -> Script:
            relay.is_failing = True
            for number in range(calls):
                yield from tally.make_call(number)
            relay.is_failing = False

        with relaying(relay) as url:
            adapter.converse(url, script(), tally.watch, settings)
    say(
        f"demo: {calls} calls, {tally.disconnects} disconnects, "
        f"{tally.lost} lost, {tally.duplicated} duplicated"
    )
    return 1 if failed or tally.lost or tally.duplicated else 0


@contextmanager
def _served(adapter: Adapter) -> Generator[int, None, None]:
    """Serve the example in a thread; gives the port."""
    begun: Future[tuple[str, Callable[[], object]]] = Future()

    def serve() -> None:
        settings = {"http": ("127.0.0.1", 0)}
        adapter.serve(adapter.EXAMPLE, lambda url, stop: begun.set_result((url, stop)), settings)

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    try:
        url, _ = begun.result()
        yield sansmcp.Url.parse(url).port
    finally:
        _, stop = begun.result()
        stop()
        serving.join()


@attrs.define(eq=False)
class _Tally:
    """Counts what arrives."""

    _begins_again: bool
    """A call that was cut is made again."""
    disconnects: int = 0
    lost: int = 0
    duplicated: int = 0

    def make_call(self, number: int) -> Script:
        """Call the slow tool: every step is to be reported once, and then there is a result."""
        reports: Counter[float] = Counter()

        def count(report: ProgressReceived) -> None:
            if self._begins_again and report.progress == 1:
                reports.clear()
            reports[report.progress] += 1

        arguments = {"steps": _STEPS, "delay": 0.05, "retry": 0.1}
        try:
            yield ToolCall(tool="slow", arguments=arguments, on_progress=count, idempotent=True)
        except sansmcp.CallError as error:
            say(f"demo: call {number} failed: {error}", sys.stderr)
            self.lost += 1
        self.lost += sum(1 for step in range(1, _STEPS + 1) if not reports[step])
        self.duplicated += sum(times - 1 for times in reports.values())

    def watch(self, event: ClientEvent) -> None:
        """Count how often a stream was left in the middle."""
        self.disconnects += isinstance(event, Reconnecting)
