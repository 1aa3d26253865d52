"""Calls between our client and our server while connections are cut at random."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.cuts import CALLS, cut_calls


@pytest.mark.parametrize("seed", range(1, 3))
def test_with_keys_no_call_is_lost_and_each_runs_once(seed: int) -> None:
    fates = cut_calls("2026-07-28", seed=seed)
    assert fates.cuts > CALLS / 2
    assert (fates.results, fates.lost) == (CALLS, Counter())
    assert (fates.runs, fates.twice) == (CALLS, 0)


@pytest.mark.parametrize("off", ["client", "server"])
def test_without_them_calls_are_lost(off: str) -> None:
    fates = cut_calls("2026-07-28", off=off)
    assert fates.lost["Disconnected"] == fates.cuts == 44
    assert fates.twice == 0
