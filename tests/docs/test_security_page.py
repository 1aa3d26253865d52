"""SECURITY.md: the tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[(\w+)\]\((tests/[\w/]+\.py)\)")


def test_each_promise_between_two_parties_has_its_tests() -> None:
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    rows = text.partition("## Who trusts whom")[2].partition("\n## ")[0].splitlines()
    pairs = [row for row in rows if row.startswith("| ")][2:]
    assert len(pairs) >= 7
    for row in pairs:
        named = LINK.findall(row)
        assert named, row
        for name, path in named:
            assert re.search(rf"def test_{name}\(", (ROOT / path).read_text("utf-8")), name
