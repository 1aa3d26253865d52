"""Judge a run: every call by what its client got, and by what was executed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import attrs

import sansmcp

from .clients import Outcome
from .journal import Record
from .plans import MODERN

_UNREACHABLE = (502, 503, 504)


@attrs.define
class Figures:
    """What a run has come to.

    Attributes:
        told: calls whose client was told that the handler had died.
        disconnected: by revision, the calls whose client could not resume, and raised its own
            error.
        refused: calls that were refused, or of which the proxy told that their server has died.
        delays: the seconds from the death of a process to the end of a call that it ran and whose
            client was told.
        problems: by kind, the calls that are wrong, each with an explanation.
    """

    calls: int = 0
    executions: int = 0
    results: int = 0
    told: int = 0
    disconnected: Counter[str] = attrs.field(factory=Counter[str])
    refused: int = 0
    cancelled: int = 0
    reports: int = 0
    answers: int = 0
    delays: list[float] = attrs.field(factory=list[float])
    problems: dict[str, list[str]] = attrs.field(factory=lambda: defaultdict[str, list[str]](list))

    wrong: set[str] = attrs.field(factory=set[str])
    """The calls that are wrong."""
    details: list[str] = attrs.field(factory=list[str])
    """All that is known about them."""

    def add_problem(self, kind: str, call: str, text: str) -> None:
        """Record that a call is wrong."""
        self.problems[kind].append(f"{call}: {text}")
        self.wrong.add(call)

    def delay(self, share: float) -> float:
        """Return the delay that this share of all does not exceed; 0.0 if there are none."""
        ordered = sorted(self.delays)
        return ordered[round(share * (len(ordered) - 1))] if ordered else 0.0

    def count(self, *kinds: str) -> int:
        """Return the number of problems of these kinds."""
        return sum(len(self.problems.get(kind, ())) for kind in kinds)


LOST, TWICE, DISORDER, FALSE, OTHER = (
    "lost silently",
    "twice",
    "out of order",
    "told falsely",
    "otherwise wrong",
)


def judge(
    outcomes: Iterable[Outcome], records: Iterable[Record], deaths: Mapping[int, float]
) -> Figures:
    """Judge all calls.

    Args:
        outcomes: what the clients got.
        records: the journal.
        deaths: the processes that were killed, each with the time.
    """
    by_call: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_call[record.call].append(record)
    figures = Figures()
    for outcome in outcomes:
        count = len(figures.wrong)
        executed = by_call.pop(outcome.plan.call, [])
        _judge_call(figures, outcome, executed, deaths)
        if len(figures.wrong) > count:
            figures.details += [str(outcome), *map(str, executed), ""]
    for call in by_call:
        figures.add_problem(OTHER, call, "executed, and no client has made the call")
    return figures


def _judge_call(
    figures: Figures, outcome: Outcome, records: list[Record], deaths: Mapping[int, float]
) -> None:
    plan = outcome.plan
    call = plan.call
    begun = [record for record in records if record.mark == "begin"]
    ended = [record for record in records if record.mark == "end"]
    figures.calls += 1
    figures.executions += len(begun)
    figures.reports += len(outcome.reports)
    figures.answers += outcome.asked.total()
    for round, times in Counter(record.round for record in begun).items():
        if times > 1:
            figures.add_problem(TWICE, call, f"round {round} was executed {times} times")
    for name, times in outcome.asked.items():
        if times > 1:
            figures.add_problem(TWICE, call, f"the client was asked {times} times for {name}")
    if len(set(outcome.reports)) < len(outcome.reports):
        figures.add_problem(TWICE, call, f"a report arrived twice: {outcome.reports}")
    elif sorted(outcome.reports) != outcome.reports:
        figures.add_problem(DISORDER, call, f"the reports {outcome.reports}")
    if outcome.result is not None:
        _judge_executions(figures, call, begun, records, deaths)
    if outcome.is_cancelled:
        figures.cancelled += 1
    elif outcome.result is not None:
        figures.results += 1
        _judge_result(figures, outcome, begun, ended)
    else:
        _judge_error(figures, outcome, begun, ended, deaths)


def _judge_executions(
    figures: Figures,
    call: str,
    begun: list[Record],
    records: list[Record],
    deaths: Mapping[int, float],
) -> None:
    """Each execution that began has ended, or its process was killed.

    If the client has given up, its handler may wait for an answer for a while.
    """
    over = {(record.process, record.round) for record in records if record.mark != "begin"}
    for record in begun:
        if (record.process, record.round) not in over and record.process not in deaths:
            figures.add_problem(OTHER, call, f"round {record.round} still runs at the end")
    for record in records:
        if record.mark == "failed":
            figures.add_problem(OTHER, call, f"the handler has failed in round {record.round}")


def _judge_result(
    figures: Figures, outcome: Outcome, begun: list[Record], ended: list[Record]
) -> None:
    """A result is that of the plan, and each round was executed."""
    plan = outcome.plan
    content = outcome.result["structuredContent"]
    answers = {name: f"answer to {plan.call} {name}" for name in plan.names}
    if content["call"] != plan.call or content["answers"] != answers:
        figures.add_problem(OTHER, plan.call, f"the result is {content}")
    if outcome.reports != list(range(1, plan.reports + 1)):
        text = f"{outcome.reports} of {plan.reports} reports, and then the result"
        figures.add_problem(LOST, plan.call, text)
    if len(begun) != len(plan.rounds) or len(ended) != len(plan.rounds):
        text = f"{len(begun)} of {len(plan.rounds)} rounds began, {len(ended)} ended; a result"
        figures.add_problem(OTHER, plan.call, text)


def _judge_error(
    figures: Figures,
    outcome: Outcome,
    begun: list[Record],
    ended: list[Record],
    deaths: Mapping[int, float],
) -> None:
    plan, error = outcome.plan, outcome.error
    could_resume = plan.version != MODERN and bool(outcome.reports or outcome.asked)
    text = f"{plan.version}: {type(error).__name__}: {error}"
    match error:
        case sansmcp.JsonRpcError(data={"reason": "instance_lost"}):
            figures.told += 1
            assert outcome.ended is not None
            death = deaths.get(begun[-1].process) if begun else None
            if death is None and 0 < len(begun) == len(ended):
                # The call was parked. The process that has taken it on may have been killed before
                # it called the handler.
                since = (at for at in deaths.values() if ended[-1].time < at < outcome.ended)
                death = min(since, default=None)
            if death is None:
                figures.add_problem(FALSE, plan.call, f"{text}; its process lives")
            else:
                figures.delays.append(outcome.ended - death)
        case sansmcp.Disconnected() if not could_resume:
            figures.disconnected[plan.version] += 1
        case sansmcp.RequestRefused(status=status) if status in _UNREACHABLE and not could_resume:
            figures.refused += 1
            was_not_run = error.reason is not None and plan.version != MODERN
            if was_not_run and begun:
                figures.add_problem(FALSE, plan.call, f"{text}; it was executed")
        case sansmcp.LocalProtocolError():
            figures.refused += 1  # the client is closed
        case None:
            figures.add_problem(LOST, plan.call, f"{plan.version}: it never ended")
        case sansmcp.RequestTimeout():
            figures.add_problem(LOST, plan.call, text)
        case _:
            figures.add_problem(OTHER, plan.call, text)
