"""What a revision allows is a row; versions are known or not, never compared."""

from __future__ import annotations

import attrs
import pytest

from sansmcp import REVISIONS, Era

requirement = pytest.mark.requirement


def test_the_rows() -> None:
    assert list(REVISIONS) == ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
    assert all(name == row.name for name, row in REVISIONS.items())
    eras = [row.era for row in REVISIONS.values()]
    assert eras == [Era.LEGACY] * 4 + [Era.MODERN]


def features(version: str) -> set[str]:
    row = attrs.asdict(REVISIONS[version])
    return {name for name, value in row.items() if value is True}


def test_features() -> None:
    legacy = {"sessions", "standalone_stream", "resumption", "server_requests"}
    assert features("2024-11-05") == legacy
    assert features("2025-03-26") == {*legacy, "batching"}
    assert features("2025-06-18") == {*legacy, "version_header"}
    latest = {"version_header", "polling", "multi_turn", "error_without_id"}
    assert features("2025-11-25") == {*legacy, *latest}
    modern = {"mirrored_headers", "result_type", "caching", "listen"}
    assert features("2026-07-28") == {*modern, "version_header", "error_without_id"}


def test_retired_codes() -> None:
    retired = {row.name: dict(row.retired_codes) for row in REVISIONS.values() if row.retired_codes}
    assert retired == {"2026-07-28": {-32002: -32602, -32042: -32603}}


@pytest.mark.parametrize(
    "version", ["draft", "latest", "2025-11-26", "9999-01-01", "", "2025-11-25 "]
)
def test_unknown_versions_are_not_there(version: str) -> None:
    assert version not in REVISIONS
