"""The demonstration: real sockets and processes, a server that disconnects, a network that breaks.

A relay between the client and the server breaks connections in the middle of responses, and the
tool itself disconnects its client in the middle of its work (SEP-1699). The tools log each run, so
executions are counted beside results.

At 2026-07-28, the default revision of a client, each call has a key, by which the client asks for
the rest if the response breaks (docs/reclaim.md). At 2025-11-25 streams are resumed. No call is
marked as idempotent, and each runs once. After that, calls with input requests move from one
process to another (see ``_demo_input``).
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import signal
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import attrs

import sansmcp
from sansmcp.base_client import tool_call
from sansmcp.events import ClientEvent, Connected, ProgressReceived, Reconnecting
from sansmcp.revisions import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from sansmcp.trace import Tracer
from sansmcp_local import STOPPING, ConnectSettings, handlers_restored, on_signals

from ._adapters import Adapter, Script, ScriptCall, adapter_of, add_adapter
from ._counts import Counts
from ._demo_input import show_rounds
from ._fault_proxy import Ending, FaultProxy, Link, Piece, Way, relaying
from ._output import Commands, UsageError, examples, print_line
from ._servers import started

_STEPS = 6
_NARROWEST = 80
"""Columns that lines are fitted to on terminals that have fewer."""
_EVENT_WITH_ID = re.compile(rb"\nid: [^\n]*\n(?:[^\n]+\n)*\n")


def add_to(commands: Commands) -> None:
    """Add the command and its options to the parser."""
    command = commands.add_parser(
        "demo",
        help="watch calls survive a server and a network that disconnect",
        description="Make calls over a network that breaks, and calls that go from one process to "
        "another; count results and executions. The exit status is 1 if any result is lost or "
        "comes twice, or a tool runs more than once for a call.",
        usage="sansmcp demo [options]",
        epilog=examples("demo", "demo --seed 7 --revision 2025-11-25 --trace"),
    )
    command.add_argument(
        "--calls", type=int, default=5, help="how many at each revision (default: 5)"
    )
    command.add_argument("--seed", type=int, default=None, help="repeat the same accidents")
    command.add_argument("--quiet", action="store_true", help="only the last line")
    command.add_argument("--trace", action="store_true", help="show every message, too")
    command.add_argument(
        "--revision",
        choices=tuple(sansmcp.REVISIONS),
        metavar="REVISION",
        help="the protocol revision to speak: %(choices)s (default: the newest, then the last one "
        "that resumes streams)",
    )
    add_adapter(command)
    command.set_defaults(run=demo)


def demo(options: argparse.Namespace) -> int:
    """Run the demonstration. Return the exit status: 1 if anything failed or was duplicated.

    SIGTERM and Ctrl-Break raise KeyboardInterrupt, as Ctrl-C does, so that the server processes are
    ended.
    """
    with handlers_restored(STOPPING):
        on_signals(STOPPING, partial(signal.raise_signal, signal.SIGINT))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return _show(options)


def _show(options: argparse.Namespace) -> int:
    if options.calls < 0:
        raise UsageError(f"--calls must be zero or more, got {options.calls}")
    seed: int = random.randrange(1_000_000) if options.seed is None else options.seed
    width = max(shutil.get_terminal_size().columns, _NARROWEST)

    def write(line: str) -> None:
        if not options.quiet:
            for part in textwrap.wrap(line, width):
                print_line(part)

    def trace(line: str) -> None:
        print_line(line if len(line) <= width else line[: width - 3] + "...")

    revisions: tuple[str, ...] = (MODERN_VERSIONS[-1], HANDSHAKE_VERSIONS[-1])
    if options.revision is not None:
        revisions = (options.revision,)
    write(f"sansmcp {sansmcp.__version__}, accidents by --seed {seed}")
    adapter = adapter_of(options)
    tracer = Tracer("client", trace) if options.trace and not options.quiet else None
    counts = Counts()
    for revision in revisions:
        with started(options.adapter) as servers:
            part = Part(revision, options.calls, random.Random(seed), write, tracer)
            counts += part.show(adapter, servers.ports[0], servers.executions)
    counts += show_rounds(adapter, options.adapter, write)
    print_line(counts.verdict)
    return 1 if counts.lost or counts.duplicated else 0


@attrs.define(eq=False)
class _Accident:
    """Cuts a connection in the middle of a response.

    If a call without a key is cut before the first event id has arrived, the client cannot know
    whether the server got its request, and cannot safely repeat it. So unless calls have keys, only
    responses that can be resumed are cut.
    """

    _left: int
    """Bytes of responses that the connection still passes on."""
    _cuts_anywhere: bool
    """True if all calls have keys."""
    _response: bytes = b""
    """The bytes received since the last request, until the response can be resumed."""
    _can_resume: bool = False
    end_by_time: None = attrs.field(default=None, init=False)

    def pieces(self, way: Way, data: bytes) -> tuple[Piece, ...]:
        """Pass on requests, and responses up to the remaining bytes."""
        if way is Way.TO_SERVER:
            self._response = b""
            self._can_resume = self._cuts_anywhere or data.startswith(b"GET ")
            return (Piece(data),)
        share = data[: self._left] if self._can_resume else data
        self._left = max(self._left - len(share), 0)
        if not self._can_resume:
            self._response += share
            self._can_resume = _EVENT_WITH_ID.search(self._response) is not None
        return (Piece(share, ending=Ending.CLOSE if len(share) < len(data) else None),)


@attrs.define(eq=False)
class _Call:
    """One call, its reports and its result."""

    number: int
    handle: int | None = None
    reports: Counter[float] = attrs.field(factory=Counter[float])
    is_done: bool = False


@attrs.define(eq=False)
class Part:
    """Calls at one revision, over a network that breaks."""

    _revision: str
    _count: int
    _chance: random.Random
    _write: Callable[[str], None]
    _tracer: Tracer | None
    _executions: Callable[[], Counter[str]] = attrs.field(init=False)
    _calls: list[_Call] = attrs.field(factory=list[_Call], init=False)
    _disconnects: Counter[int | None] = attrs.field(factory=Counter["int | None"], init=False)
    """The number of disconnects, by the handle of the call."""

    @property
    def _resumes(self) -> bool:
        return sansmcp.REVISIONS[self._revision].resumption

    def show(self, adapter: Adapter, port: int, executions: Callable[[], Counter[str]]) -> Counts:
        """Make the calls to the server at ``port``."""
        self._executions = executions
        default = " (default)" if self._revision == MODERN_VERSIONS[-1] else ""
        how = "streams are resumed" if self._resumes else "calls have keys"
        self._write(f"{self._revision}{default}: {how}, no call is marked idempotent")

        def fate(number: int) -> _Accident:
            return _Accident(self._chance.randint(300, 1000), not self._resumes)

        relay = FaultProxy(lambda: ("127.0.0.1", port), fate, self._note, is_quiet=True)
        settings: ConnectSettings = {
            "trace": self._tracer,
            "reconnect": sansmcp.ReconnectPolicy(initial_delay=0.1, max_attempts=20),
            "standalone_stream": False,
            "versions": (self._revision,),
        }

        def script(server: Connected) -> Script:
            relay.is_quiet = False
            for number in range(1, self._count + 1):
                yield from self._make_call(number)
            relay.is_quiet = True

        with relaying(relay) as url:
            adapter.run_calls(url, script, self._watch, settings)
        return self._sum_up()

    def _note(self, link: Link) -> None:
        if self._tracer is not None and link.ending is Ending.CLOSE:
            self._tracer.write("network: a connection breaks")

    def _make_call(self, number: int) -> Script:
        """Call the slow tool, which reports every step once and then returns a result."""
        call = _Call(number)
        self._calls.append(call)
        began = time.monotonic()

        def count(report: ProgressReceived) -> None:
            call.handle = report.call
            call.reports[report.progress] += 1

        arguments = {"steps": _STEPS, "delay": 0.05, "retry": 0.1, "call": number}
        try:
            yield ScriptCall(*tool_call("slow", arguments), on_progress=count)
        except sansmcp.CallError as error:
            print_line(f"demo: {self._revision}, call {number} failed: {error}", sys.stderr)
            return
        call.is_done = True
        ran = self._executions()[str(number)]
        disconnects = self._disconnects[call.handle]
        how = "resumed" if self._resumes else "reclaimed"
        self._write(
            f"  call {number}: {_times(disconnects, 'disconnect')}, "
            f"{how + ', ' if disconnects else ''}"
            f"{_times(ran, 'execution')}, done in {time.monotonic() - began:.1f} s"
        )

    def _watch(self, event: ClientEvent) -> None:
        """Count the streams that broke before their end."""
        if isinstance(event, Reconnecting):
            self._disconnects[event.call] += 1

    def _sum_up(self) -> Counts:
        executions = self._executions()
        counts = Counts(
            calls=len(self._calls),
            disconnects=sum(self._disconnects.values()),
            executions=sum(executions.values()),
            lost=sum(map(_lost, self._calls)),
            duplicated=sum(self._duplicated(call, executions) for call in self._calls),
        )
        ran_once = counts.executions == counts.calls
        why = "each call ran once" if ran_once else "calls did not run once each"
        self._write(f"{self._revision}: {counts}: {why}")
        return counts

    def _duplicated(self, call: _Call, executions: Counter[str]) -> int:
        """Return the number of duplicate reports, and of runs after the first."""
        reports = sum(times - 1 for times in call.reports.values())
        return reports + max(executions[str(call.number)] - 1, 0)


def _lost(call: _Call) -> int:
    missing = sum(1 for step in range(1, _STEPS + 1) if not call.reports[step])
    return missing + (not call.is_done)


def _times(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
