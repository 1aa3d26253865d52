"""Machines are measured here, so their benches do nothing else."""

from __future__ import annotations

import pytest


@pytest.fixture
def benches_live_on() -> None:
    """Let benches end with their test: the hours after it would take longer than the test."""
