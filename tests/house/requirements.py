"""The rules of the protocol, which tests prove them, and which are waived.

``python -m tests.house.requirements`` prints what is proven, and writes ``docs/requirements.md``,
which has the tests of every rule. The rules are in ``tests/requirements.toml``.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import attrs

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "requirements.md"

Proofs: TypeAlias = Mapping[str, list[str]]
"""The tests that name a rule, by its id: ``file::test``, or a file where all its tests do."""


@attrs.frozen(kw_only=True)
class Rule:
    """One rule of the protocol."""

    id: str
    level: str
    revisions: Sequence[str]
    source: str
    text: str
    check: str
    waived: str = ""

    @property
    def area(self) -> str:
        """What the rule is about; its id begins with that."""
        return self.id.partition("-")[0]

    @property
    def is_a_must(self) -> bool:
        """Whether there is no choice."""
        return self.level.startswith("MUST")


@functools.cache
def rules() -> tuple[Rule, ...]:
    """All rules, in order."""
    table = tomllib.loads((TESTS / "requirements.toml").read_text())
    return tuple(Rule(**row) for row in table["requirement"])


def named_in(source: str) -> Iterator[tuple[str, str]]:
    """The ids in the requirement marks of a test file, each with its test; "" for all of them."""
    for statement in ast.parse(source).body:
        test: str = getattr(statement, "name", "")
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "requirement",
                "pytest.mark.requirement",
            ):
                yield from ((ast.literal_eval(argument), test) for argument in node.args)


@functools.cache
def proofs() -> Proofs:
    """The tests of every rule that has any."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        name = path.relative_to(TESTS).as_posix()
        for id, test in dict.fromkeys(named_in(path.read_text())):
            found.setdefault(id, []).append(f"{name}::{test}" if test else name)
    return found


def summary(rules: Iterable[Rule], proofs: Proofs) -> list[list[str]]:
    """How many rules of each area, and of all, are proven, waived and unproven."""
    by_area: dict[str, list[Rule]] = {}
    for rule in rules:
        by_area.setdefault(rule.area, []).append(rule)
    by_area["all"] = [rule for area in by_area.values() for rule in area]
    head = ["area", "rules", "proven", "waived", "unproven", "unproven MUST"]
    return [head, *([area, *_counts(ours, proofs)] for area, ours in by_area.items())]


def _counts(rules: list[Rule], proofs: Proofs) -> list[str]:
    unproven = [rule for rule in rules if rule.id not in proofs and not rule.waived]
    counts = (
        len(rules),
        sum(rule.id in proofs for rule in rules),
        sum(bool(rule.waived) for rule in rules),
        len(unproven),
        sum(rule.is_a_must for rule in unproven),
    )
    return [str(count) for count in counts]


def page(rules: Iterable[Rule], proofs: Proofs) -> str:
    """The rules, and the tests that prove them, as Markdown."""
    rules = list(rules)
    head, *counts = summary(rules, proofs)
    lines = ["# The rules of the protocol, and what proves them", ""]
    lines += ["Written by `make requirements`. Each rule's source and the way to check it are in"]
    lines += ["[`tests/requirements.toml`](../tests/requirements.toml).", ""]
    lines += [_row(head), _row(["---"] * len(head)), *map(_row, counts)]
    for area in dict.fromkeys(rule.area for rule in rules):
        lines += ["", f"## {area}", "", _row(["rule", "", "proven by"]), _row(["---"] * 3)]
        lines += [
            _row([f"{rule.id} {rule.level}", rule.text, _status(rule, proofs)])
            for rule in rules
            if rule.area == area
        ]
    return "\n".join([*lines, ""])


def _status(rule: Rule, proofs: Proofs) -> str:
    tests = proofs.get(rule.id, [])
    if tests:
        return "<br>".join(f"[{test}](../tests/{test.partition('::')[0]})" for test in tests)
    return f"waived: {rule.waived}" if rule.waived else "**unproven**"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _print(rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *counts in rows:
        cells = [first.ljust(widths[0]), *map(str.rjust, counts, widths[1:])]
        print("  ".join(cells))


if __name__ == "__main__":
    _print(summary(rules(), proofs()))
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(rules(), proofs()))
