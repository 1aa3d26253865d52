"""The rules of the protocol, and which of them tests prove.

``python -m tests.house.requirements`` lists those that no test names. ``requirements.txt`` has one
rule a line: its id, whether it is a MUST, the protocol revisions and standards that have it, and
what it says.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from sansmcp import REVISIONS

TESTS = Path(__file__).resolve().parents[1]

SPOKEN = {"SEP-1699", "jsonrpc-2.0", "whatwg-sse", *REVISIONS}
"""The revisions and standards that the library speaks."""


@attrs.frozen
class Rule:
    """One rule of the protocol."""

    id: str
    level: str
    sources: tuple[str, ...]
    text: str

    @property
    def area(self) -> str:
        """What the rule is about; its id begins with that."""
        return self.id.partition("-")[0]

    @property
    def is_spoken(self) -> bool:
        """Whether it belongs to anything that the library speaks."""
        return not SPOKEN.isdisjoint(self.sources)


@functools.cache
def rules() -> tuple[Rule, ...]:
    """All rules, in order."""
    lines = Path(__file__).with_suffix(".txt").read_text().splitlines()
    return tuple(
        Rule(id, level, tuple(sources.split()), text)
        for id, level, sources, text in (line.split(" | ") for line in lines)
    )


def named_in(source: str) -> Iterator[str]:
    """The ids in the requirement marks of a test file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "requirement",
            "pytest.mark.requirement",
        ):
            yield from (ast.literal_eval(argument) for argument in node.args)


@functools.cache
def named_by_tests() -> frozenset[str]:
    """The ids that any test names."""
    return frozenset(id for path in TESTS.rglob("*.py") for id in named_in(path.read_text()))


def report(rules: Iterable[Rule], proven: frozenset[str]) -> str:
    """How many of the rules that we speak are proven, by area, and the text of the others."""
    spoken = [rule for rule in rules if rule.is_spoken]
    unproven = [rule for rule in spoken if rule.id not in proven]
    total = Counter(rule.area for rule in spoken)
    missing = Counter(rule.area for rule in unproven)
    return "\n".join(
        [
            *(_count(area, total[area] - missing[area], total[area]) for area in total),
            _count("all", len(spoken) - len(unproven), len(spoken)),
            "",
            *(f"{rule.id}  {rule.level}: {rule.text}" for rule in unproven),
        ]
    )


def _count(area: str, proven: int, total: int) -> str:
    return f"{area:10} {proven:3} of {total:3} proven"


if __name__ == "__main__":
    print(report(rules(), named_by_tests()))
