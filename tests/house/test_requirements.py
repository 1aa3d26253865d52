"""Tests name only rules that exist, every MUST is proven or waived, and the report is right."""

from __future__ import annotations

import re

import pytest

from .requirements import PAGE, Rule, named_in, page, proofs, rules, summary

NOT_YET = {"AUTH"}
"""The areas of what is not there yet."""


def rule(id: str, level: str, waived: str = "") -> Rule:
    said = {"source": "x", "text": "One | two.", "check": "x"}
    return Rule(id=id, level=level, revisions=("x",), waived=waived, **said)


RULES = [
    rule("SSE-B-001", "MUST"),
    rule("SSE-C-002", "MAY", "There is no such thing."),
    rule("POLL-S-001", "SHOULD NOT"),
    rule("POLL-S-002", "MUST NOT"),
]
PROOFS = {"SSE-B-001": ["a/test_b.py::test_c", "test_d.py"]}


def test_every_rule_is_well_formed() -> None:
    shape = re.compile(r"[A-Z]+-[BCS]-\d{3}")
    levels = {"MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY"}
    assert [rule for rule in rules() if not shape.fullmatch(rule.id)] == []
    assert {rule.level for rule in rules()} == levels
    assert [rule for rule in rules() if not (rule.revisions and rule.text.endswith("."))] == []


def test_every_rule_is_there_once() -> None:
    ids = [rule.id for rule in rules()]
    assert sorted(set(ids)) == sorted(ids)


def test_tests_name_only_rules_that_exist() -> None:
    assert set(proofs()) - {rule.id for rule in rules()} == set()


def test_every_must_is_proven_or_waived() -> None:
    musts = [rule for rule in rules() if rule.is_a_must and rule.area not in NOT_YET]
    assert [rule.id for rule in musts if rule.id not in proofs() and not rule.waived] == []


def test_what_is_waived_is_not_proven() -> None:
    assert [rule.id for rule in rules() if rule.waived and rule.id in proofs()] == []


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(rules(), proofs()), "make requirements"


@pytest.mark.parametrize(
    ("source", "test"),
    [
        ("@requirement('A', 'B')\ndef test(): pass", "test"),
        ("@pytest.mark.requirement('A')\n@requirement('B')\ndef test(): pass", "test"),
        ("pytestmark = requirement('A', 'B')", ""),
        ("CASES = pytest.param(1, marks=requirement('A', 'B'))", ""),
    ],
)
def test_named_rules_are_found(source: str, test: str) -> None:
    assert list(named_in(source)) == [("A", test), ("B", test)]


def test_the_summary() -> None:
    assert summary(RULES, PROOFS) == [
        ["area", "rules", "proven", "waived", "unproven", "unproven MUST"],
        ["SSE", "2", "1", "1", "0", "0"],
        ["POLL", "2", "0", "0", "2", "1"],
        ["all", "4", "1", "1", "2", "1"],
    ]


def test_the_page() -> None:
    rows = page(RULES, PROOFS).splitlines()
    tests = "[a/test_b.py::test_c](../tests/a/test_b.py)<br>[test_d.py](../tests/test_d.py)"
    assert rf"| SSE-B-001 MUST | One \| two. | {tests} |" in rows
    assert r"| SSE-C-002 MAY | One \| two. | waived: There is no such thing. |" in rows
    assert r"| POLL-S-002 MUST NOT | One \| two. | **unproven** |" in rows
