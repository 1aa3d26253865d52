"""Tests name only rules that exist, and the report of what is proven is right."""

from __future__ import annotations

import re

import pytest

from .requirements import Rule, named_by_tests, named_in, report, rules

RULES = [
    Rule("SSE-B-001", "MUST", ("whatwg-sse",), "One."),
    Rule("SSE-C-002", "MAY", ("whatwg-sse",), "Two."),
    Rule("POLL-S-001", "SHOULD NOT", ("2025-11-25", "9999-01-01"), "Three."),
    Rule("POLL-S-002", "MUST NOT", ("9999-01-01",), "Four."),
]


def test_every_rule_is_well_formed() -> None:
    shape = re.compile(r"[A-Z]+-[BCS]-\d{3}")
    levels = {"MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY"}
    assert [rule for rule in rules() if not shape.fullmatch(rule.id)] == []
    assert {rule.level for rule in rules()} == levels
    assert [rule for rule in rules() if not (rule.sources and rule.text.endswith("."))] == []


def test_every_rule_is_there_once() -> None:
    ids = [rule.id for rule in rules()]
    assert sorted(set(ids)) == sorted(ids)


def test_tests_name_only_rules_that_exist() -> None:
    assert named_by_tests() - {rule.id for rule in rules()} == set()


@pytest.mark.parametrize(
    "source",
    [
        "@requirement('A', 'B')\ndef test(): pass",
        "@pytest.mark.requirement('A')\n@requirement('B')\ndef test(): pass",
        "pytestmark = requirement('A', 'B')",
        "pytest.param(1, marks=requirement('A', 'B'))",
    ],
)
def test_named_rules_are_found(source: str) -> None:
    assert list(named_in(source)) == ["A", "B"]


def test_the_report() -> None:
    assert report(RULES, frozenset({"SSE-B-001"})).splitlines() == [
        "SSE          1 of   2 proven",
        "POLL         0 of   1 proven",
        "all          1 of   3 proven",
        "",
        "SSE-C-002  MAY: Two.",
        "POLL-S-001  SHOULD NOT: Three.",
    ]


def test_the_counts_of_the_report_add_up() -> None:
    counts, unproven = report(rules(), named_by_tests()).split("\n\n")
    *areas, (proven, total) = [re.findall(r"\d+", line) for line in counts.splitlines()]
    assert int(total) == sum(rule.is_spoken for rule in rules())
    assert int(proven) == sum(int(of_area) for of_area, _ in areas)
    assert int(total) == sum(int(of_area) for _, of_area in areas)
    assert len(unproven.splitlines()) == int(total) - int(proven)
