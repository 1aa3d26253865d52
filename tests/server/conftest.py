"""A server on the bench."""

from __future__ import annotations

import pytest

from .bench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()
