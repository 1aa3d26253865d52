"""A server on the bench, asked at the stateless revision."""

from __future__ import annotations

import pytest

from .harness import ModernServerHarness


@pytest.fixture
def harness() -> ModernServerHarness:
    return ModernServerHarness()
