"""Calls whose connections are cut at bytes drawn uniformly; ``cuts`` draws many more."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cuts import FORMS, cut_calls

_CUTS = 20
_FORMS = {form.name: form for form in FORMS}


@pytest.mark.parametrize(
    ("form", "revision", "adapter"),
    [
        ("one", "2025-11-25", "asyncio"),
        ("one", "2026-07-28", "blocking"),
        ("one", "2024-11-05", "trio"),
        ("killed", "2026-07-28", "trio"),
        pytest.param("one", "2025-03-26", "blocking", marks=pytest.mark.thorough),
        pytest.param("store", "2025-11-25", "trio", marks=pytest.mark.thorough),
        pytest.param("keys", "2025-03-26", "asyncio", marks=pytest.mark.thorough),
        pytest.param("keys", "2026-07-28", "blocking", marks=pytest.mark.thorough),
        pytest.param("two", "2026-07-28", "asyncio", marks=pytest.mark.thorough),
    ],
)
def test_each_call_ends_and_none_runs_twice(
    form: str, revision: str, adapter: str, tmp_path: Path
) -> None:
    fates = cut_calls(_FORMS[form], revision, adapter, tmp_path, cuts=_CUTS, seed=3)
    assert fates.cuts >= _CUTS
    assert fates.results
    assert fates.is_safe, str(fates)
    if form == "keys" or (form == "one" and revision in ("2024-11-05", "2026-07-28")):
        assert not fates.unknown, str(fates)
