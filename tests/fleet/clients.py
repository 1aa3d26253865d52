"""The clients of the fleet: they make calls until they are told to stop, and note what they get."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import attrs

import sansmcp
import sansmcp_asyncio
from sansmcp.events import ProgressReceived

from .plans import Plan, draw_plan
from .server import trace_to

_CALL_TIMEOUT = 60.0
"""Seconds without any word after which a call counts as silent."""


@attrs.define(eq=False)
class Outcome:
    """What a client got of a call.

    Attributes:
        plan: the plan of the call.
        began: when the call was made, in seconds on the monotonic clock.
        ended: when it ended; None while it runs.
        reports: the numbers of the progress reports, in the order of their arrival.
        asked: how often the client was asked for each input.
        result: the result; None if there was none.
        error: the error that the call ended with; None if there was none.
        is_cancelled: True if the client cancelled the call.
        client: the number of its client.
    """

    plan: Plan
    began: float
    client: str
    ended: float | None = None
    reports: list[float] = attrs.field(factory=list[float])
    asked: Counter[str] = attrs.field(factory=Counter[str])
    result: Any = None
    error: Exception | None = None
    is_cancelled: bool = False


@attrs.define(eq=False)
class Crowd:
    """All clients.

    Attributes:
        outcomes: of all calls, by their names.
        is_over: True if no further call shall begin.
        problems: the errors of clients that could not connect, and how often.
    """

    seed: int
    pace: float
    trace: Path | None
    """The file to which all clients write what they send and receive."""
    outcomes: dict[str, Outcome] = attrs.field(factory=dict[str, Outcome])
    is_over: bool = False
    problems: Counter[str] = attrs.field(factory=Counter[str])

    async def run_client(self, name: str, url: str, version: str, calls: int) -> None:
        """Run a client that has so many calls in flight; if it is closed, the next one."""
        draws = random.Random(f"{self.seed}/{name}")
        for life in range(1_000_000):
            if self.is_over:
                return
            try:
                await self._run_client(f"{name}-{life}", url, version, calls, draws)
            except sansmcp.CallError as error:
                self.problems[f"{type(error).__name__}: {error}"] += 1
                await asyncio.sleep(draws.uniform(0, 0.5))

    async def _run_client(
        self, name: str, url: str, version: str, calls: int, draws: random.Random
    ) -> None:
        handlers: dict[str, Any] = {
            "elicitation/create": self._answer_elicitation,
            "sampling/createMessage": self._answer_sampling,
        }
        async with sansmcp_asyncio.connect(
            url,
            request_handlers=handlers,
            versions=(version,),
            capabilities={"elicitation": {}, "sampling": {}},
            standalone_stream=False,
            timeout=_CALL_TIMEOUT,
            total_timeout=4 * _CALL_TIMEOUT,
            connect_timeout=20,
            close_timeout=2,
            trace=None if self.trace is None else trace_to(self.trace, name),
            reconnect=sansmcp.ReconnectPolicy(initial_delay=0.1, max_delay=1.0, max_attempts=60),
        ) as client:
            await asyncio.gather(
                *(
                    self._run_calls(client, f"{name}-{place}", version, draws.getrandbits(64))
                    for place in range(calls)
                )
            )

    async def _run_calls(
        self, client: sansmcp_asyncio.Client, name: str, version: str, seed: int
    ) -> None:
        draws = random.Random(seed)
        await asyncio.sleep(draws.uniform(0, self.pace))
        for number in range(1_000_000):
            if self.is_over:
                return
            plan = draw_plan(draws, f"{name}-{number}", version, self.pace)
            outcome = self.outcomes[plan.call] = Outcome(plan, time.monotonic(), name)
            await self._call(client, plan, outcome)
            outcome.ended = time.monotonic()
            if isinstance(outcome.error, sansmcp.LocalProtocolError):
                raise sansmcp.CallError("the client is closed") from outcome.error
            if outcome.error is not None:
                await asyncio.sleep(draws.uniform(0, self.pace))  # as who repeats a call would

    async def _call(self, client: sansmcp_asyncio.Client, plan: Plan, outcome: Outcome) -> None:
        def on_progress(report: ProgressReceived) -> None:
            outcome.reports.append(report.progress)

        call = client.call_tool("work", plan.arguments, on_progress=on_progress)
        task = asyncio.ensure_future(call)
        if plan.cancel_after is not None:
            await asyncio.wait([task], timeout=plan.cancel_after)
            outcome.is_cancelled = not task.done()
            task.cancel()
        try:
            outcome.result = await task
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
        except (sansmcp.CallError, sansmcp.LocalProtocolError) as error:
            outcome.error = error

    def _answer_elicitation(self, request: sansmcp.ServerRequest) -> dict[str, Any]:
        return {"action": "accept", "content": {"name": self._asked(request.params["message"])}}

    def _answer_sampling(self, request: sansmcp.ServerRequest) -> dict[str, Any]:
        text = self._asked(request.params["messages"][0]["content"]["text"])
        return {"role": "assistant", "model": "none", "content": {"type": "text", "text": text}}

    def _asked(self, text: str) -> str:
        call, _, name = text.partition(" ")
        self.outcomes[call].asked[name] += 1
        return f"answer to {text}"
