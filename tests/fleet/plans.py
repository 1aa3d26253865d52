"""What a handler is to do in a call: drawn by seed, and sent as the arguments of the tool."""

from __future__ import annotations

import random
from typing import Any

import attrs

VERSIONS = ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")

MODERN = "2026-07-28"

_POLLING = "2025-11-25"


@attrs.frozen
class Plan:
    """The plan of a call.

    Attributes:
        call: the name of the call.
        version: the revision of its client.
        rounds: for each round the steps of the handler. A step is ``["report"]``, ``["pause",
            seconds]``, ``["ask", name]`` or ``["disconnect", seconds]``. Between two rounds the
            handler returns InputRequired.
        cancel_after: seconds after which the client cancels the call; None if it does not.
    """

    call: str
    version: str
    rounds: tuple[tuple[tuple[Any, ...], ...], ...]
    cancel_after: float | None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the tool."""
        rounds = [[list(step) for step in steps] for steps in self.rounds]
        return {"call": self.call, "version": self.version, "rounds": rounds}

    @property
    def names(self) -> list[str]:
        """The names of the input that the handler asks for, in order."""
        names: list[str] = []
        for number, steps in enumerate(self.rounds):
            names += [step[1] for step in steps if step[0] == "ask"]
            if number + 1 < len(self.rounds):
                names.append(f"round-{number}")
        return names

    @property
    def reports(self) -> int:
        """The number of progress reports."""
        return sum(step[0] == "report" for steps in self.rounds for step in steps)


def draw_plan(draws: random.Random, call: str, version: str, pace: float) -> Plan:
    """Draw the plan of a call that lasts some multiples of ``pace`` seconds."""
    rounds = tuple(
        _draw_steps(draws, version, pace, number) for number in range(draws.choice((1, 1, 1, 2, 3)))
    )
    is_cancelled = draws.random() < 0.1
    return Plan(call, version, rounds, draws.uniform(0, 2 * pace) if is_cancelled else None)


def _draw_steps(
    draws: random.Random, version: str, pace: float, number: int
) -> tuple[tuple[Any, ...], ...]:
    kinds = ["report", "report", "report", "pause", "pause"]
    if version != MODERN:
        kinds.append("ask")  # a stateless client is not asked during a call
    if version == _POLLING:
        kinds.append("disconnect")
    steps: list[tuple[Any, ...]] = []
    for place in range(draws.randint(0, 6)):
        match draws.choice(kinds):
            case "pause":
                steps.append(("pause", round(draws.expovariate(1 / pace), 3)))
            case "ask":
                steps.append(("ask", f"{number}-{place}"))
            case "disconnect":
                steps.append(("disconnect", 0.1))
            case kind:
                steps.append((kind,))
    return tuple(steps)
