"""What ``make count`` says of counts that have changed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.count import COUNTS, PYTHON, compare, rows

KNOWN: dict[str, Any] = {"python": PYTHON, "counts": {"call": {"Python calls": 100.0}}}


@pytest.mark.parametrize(("calls", "is_dearer"), [(90.0, False), (102.9, False), (103.1, True)])
def test_more_than_the_margin_is_dearer(calls: float, is_dearer: bool) -> None:
    assert bool(compare({"call": {"Python calls": calls}}, KNOWN)) is is_dearer


def test_a_row_that_one_of_both_lacks_is_told() -> None:
    counts = {"call": {"Python calls": 100.0}, "event": {"Python calls": 1.0}}
    assert compare(counts, KNOWN) == ["event: not in both"]


def test_another_version_of_python_is_not_compared() -> None:
    assert compare({"call": {"Python calls": 999.0}}, {**KNOWN, "python": "2.7"}) == []


def test_the_file_has_every_row() -> None:
    assert json.loads(COUNTS.read_text(encoding="utf-8"))["counts"].keys() == rows().keys()
