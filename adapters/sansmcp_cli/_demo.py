"""The demonstration: real sockets, a server that disconnects, and a network that breaks.

Between the client and the server stands a relay that breaks connections after a random number of
bytes, and the tool itself lets its client go in the middle of the work (SEP-1699). All calls end
with their results, and every progress report arrives once.

At the stateless revision nothing can be resumed: a call whose response breaks is made again, from
its beginning, and the reports of the attempt that succeeds are those that count.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from functools import partial

import attrs
import trio

import sansmcp
import sansmcp_trio
from sansmcp.events import ProgressReceived, Reconnecting
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp.trace import Tracer

from . import example
from ._say import Commands, say

_STEPS = 6


@attrs.define
class _Life:
    """How many bytes a connection has left."""

    left: int


@attrs.define(eq=False)
class _Relay:
    """Passes connections on to a server, and once it is told to, breaks them after a while."""

    _target: int
    _chance: random.Random
    _say: Tracer
    _longest_life: int
    """Bytes that a connection carries at most."""
    is_failing: bool = attrs.field(default=False, init=False)

    async def pass_on(self, client: trio.SocketStream) -> None:
        """One connection, from its first byte to its end."""
        server = await trio.open_tcp_stream("127.0.0.1", self._target)
        life = _Life(self._chance.randint(300, self._longest_life))
        async with client, server, trio.open_nursery() as nursery:
            nursery.start_soon(self._copy, client, server, life, nursery.cancel_scope)
            nursery.start_soon(self._copy, server, client, life, nursery.cancel_scope)

    async def _copy(
        self,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        life: _Life,
        both: trio.CancelScope,
    ) -> None:
        try:
            async for data in source:
                passed = data[: life.left] if self.is_failing else data
                life.left -= len(passed) if self.is_failing else 0
                await sink.send_all(passed)
                if self.is_failing and not life.left:
                    self._say.write("network: a connection breaks")
                    break
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # one end is gone: so is the connection
        both.cancel()


def add_to(commands: Commands) -> None:
    """Declare the command."""
    command = commands.add_parser(
        "demo", help="watch calls survive a server and a network that disconnect"
    )
    command.add_argument("--calls", type=int, default=8)
    command.add_argument("--seed", type=int, default=None, help="repeat the same accidents")
    command.add_argument("--quiet", action="store_true", help="only the last line")
    command.add_argument(
        "--revision",
        choices=tuple(sansmcp.REVISIONS),
        default=HANDSHAKE_VERSIONS[-1],
        help="the protocol revision to speak (default: the last one that resumes streams)",
    )
    command.set_defaults(run=demo)


async def demo(options: argparse.Namespace) -> int:
    """Run the demonstration. Returns the exit status: 1 if anything was lost or came twice."""
    began = time.monotonic()
    calls: int = options.calls
    seed: int = random.randrange(1_000_000) if options.seed is None else options.seed

    def write(line: str) -> None:
        if not options.quiet:
            say(f"{time.monotonic() - began:6.2f} {line}")

    write(f"demo: sansmcp {sansmcp.__version__}, {calls} calls, accidents by seed {seed}")
    tracer = Tracer("client", write)
    async with trio.open_nursery() as nursery:
        serve = partial(sansmcp_trio.serve, example.app, http=("127.0.0.1", 0))
        serving: sansmcp_trio.Serving = await nursery.start(serve)
        # A call that has to be carried whole needs connections that can do it.
        is_stateless = sansmcp.REVISIONS[options.revision].era is sansmcp.Era.MODERN
        life = 4000 if is_stateless else 1500
        relay = _Relay(sansmcp.Url.parse(serving.url).port, random.Random(seed), tracer, life)
        relays = partial(trio.serve_tcp, relay.pass_on, 0, host="127.0.0.1")
        listeners: list[trio.SocketListener] = await nursery.start(relays)
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp"
        tally = _Tally(is_stateless)
        async with sansmcp_trio.connect(
            url,
            trace=tracer,
            reconnect=sansmcp.ReconnectPolicy(initial=0.2, attempts=20),
            listen=False,
            versions=(options.revision,),
        ) as client:
            nursery.start_soon(tally.watch, client)
            relay.is_failing = True
            for number in range(calls):
                await tally.make_call(client, number)
            relay.is_failing = False
        nursery.cancel_scope.cancel()
    say(
        f"demo: {calls} calls, {tally.disconnects} disconnects, "
        f"{tally.lost} lost, {tally.duplicated} duplicated"
    )
    return 1 if tally.lost or tally.duplicated else 0


@attrs.define(eq=False)
class _Tally:
    """Counts what arrives."""

    _begins_again: bool
    """A call that was cut is made again."""
    disconnects: int = 0
    lost: int = 0
    duplicated: int = 0

    async def make_call(self, client: sansmcp_trio.Client, number: int) -> None:
        """Call the slow tool: every step is to be reported once, and then there is a result."""
        reports: Counter[float] = Counter()

        def count(report: ProgressReceived) -> None:
            if self._begins_again and report.progress == 1:
                reports.clear()
            reports[report.progress] += 1

        arguments = {"steps": _STEPS, "delay": 0.05, "retry": 0.1}
        try:
            await client.call_tool("slow", arguments, on_progress=count, idempotent=True)
        except sansmcp.CallError as error:
            say(f"demo: call {number} failed: {error}", sys.stderr)
            self.lost += 1
        self.lost += sum(1 for step in range(1, _STEPS + 1) if not reports[step])
        self.duplicated += sum(times - 1 for times in reports.values())

    async def watch(self, client: sansmcp_trio.Client) -> None:
        """Count how often a stream was left in the middle."""
        async for event in client.events():
            self.disconnects += isinstance(event, Reconnecting)
