"""What a revision allows is a row; versions are known or not, never compared."""

from __future__ import annotations

import pytest

from sansmcp import REVISIONS, Era

requirement = pytest.mark.requirement


def test_the_rows() -> None:
    rows = [
        (row.name, row.batching, row.version_header, row.polling, row.error_without_id)
        for row in REVISIONS.values()
    ]
    assert rows == [
        ("2024-11-05", False, False, False, False),
        ("2025-03-26", True, False, False, False),
        ("2025-06-18", False, True, False, False),
        ("2025-11-25", False, True, True, True),
        ("2026-07-28", False, True, False, True),
    ]
    eras = [row.era for row in REVISIONS.values()]
    assert eras == [Era.LEGACY] * 4 + [Era.MODERN]


def test_retired_codes() -> None:
    retired = {row.name: dict(row.retired_codes) for row in REVISIONS.values() if row.retired_codes}
    assert retired == {"2026-07-28": {-32002: -32602, -32042: -32603}}


@pytest.mark.parametrize(
    "version", ["draft", "latest", "2025-11-26", "9999-01-01", "", "2025-11-25 "]
)
def test_unknown_versions_are_not_there(version: str) -> None:
    assert version not in REVISIONS
