"""What becomes of 100 calls whose connections are cut: ``python -m benchmarks.cuts``.

Client and server are this library, with all defaults. Each call takes up
to 0.8 s and reports its progress four times. Each connection is cut after a number of bytes that is
drawn from a uniform distribution, in either direction, so that some 80 cuts hit the calls. The
network is simulated in virtual time: the same seed gives the same cuts.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator
from typing import Any

import attrs

import sansmcp
from sansmcp import App, Client, Server, ServerCall
from sansmcp.events import CallCompleted, CallFailed
from sansmcp.testing import Link, Pair, sequential_tokens

CALLS = 100
REPORTS = 4
LONGEST = 0.8
MEAN_CUT = 1700
"""Bytes that a connection carries on average."""
CALLERS = 4
"""Calls that run at the same time."""


@attrs.frozen
class Fates:
    """What has become of the calls."""

    cuts: int
    results: int
    lost: Counter[str]
    """The calls without a result, by the name of the error."""
    runs: int
    twice: int
    """The calls that ran more than once."""


def cut_calls(version: str, *, seed: int = 1, calls: int = CALLS, off: str = "") -> Fates:
    """Make the calls at a revision, and return what has become of them.

    ``off``: ``"client"`` or ``"server"`` if that has ``reclaim=False``; empty if both have True.
    """
    chance = random.Random(seed)
    runs: Counter[int] = Counter()
    app = App("cuts", "1")

    @app.handler("tools/call")
    def work(call: ServerCall) -> Generator[float, Any, dict[str, Any]]:
        number = (call.request.params or {})["arguments"]["number"]
        runs[number] += 1
        for report in range(REPORTS):
            yield chance.random() * LONGEST / REPORTS
            call.progress(report + 1, REPORTS, now=pair.clock.now)
        return {"content": [{"type": "text", "text": str(number)}]}

    client = Client(
        "http://localhost/mcp",
        jitter=chance.random,
        random_bytes=chance.randbytes,
        versions=(version,),
        reclaim=off != "client",
    )
    server = Server(app, new_token=sequential_tokens(), reclaim=off != "server")
    link = Link(chance.random)
    pair = Pair(client, server, link, store=sansmcp.MemoryStore())
    client.start(now=0.0)
    pair.run(until=1.0)
    link.mean_cut = MEAN_CUT
    pending: dict[int, int] = {}
    results, lost, number = 0, Counter[str](), 0
    while number < calls or pending:
        while number < calls and len(pending) < CALLERS:
            params = {"name": "work", "arguments": {"number": number}}
            pending[client.call("tools/call", params, now=pair.clock.now)] = number
            number += 1
        pair.run(until=pair.clock.now + 0.05)
        for event in pair.events:
            match event:
                case CallCompleted(handle, result):
                    expected = str(pending.pop(handle))
                    assert result["content"][0]["text"] == expected, "the result of another call"
                    results += 1
                case CallFailed(handle, error):
                    del pending[handle]
                    lost[type(error).__name__] += 1
                case _:
                    pass
        pair.events.clear()
    twice = sum(count > 1 for count in runs.values())
    return Fates(pair.cuts, results, lost, sum(runs.values()), twice)


def main() -> None:
    """Print the fates at each revision, and without keys."""
    for version in sansmcp.revisions.REVISIONS:
        if version == "2024-11-05":
            continue  # HTTP+SSE, whose session is one connection
        for off in ("", "server") if version == "2026-07-28" else ("",):
            fates = cut_calls(version, off=off)
            named = ", ".join(f"{count} {name}" for name, count in sorted(fates.lost.items()))
            print(
                f"{version}{', without keys' * bool(off)}: {CALLS} calls, {fates.cuts} cuts: "
                f"{fates.results} results, {named or '0 lost'}; {fates.runs} runs, "
                f"{fates.twice} twice"
            )


if __name__ == "__main__":
    main()
