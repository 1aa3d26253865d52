"""A server on the bench, asked at the stateless revision."""

from __future__ import annotations

import pytest

from .bench import ModernBench


@pytest.fixture
def bench() -> ModernBench:
    return ModernBench()
