"""A server on the bench."""

from __future__ import annotations

import pytest

from .harness import ServerHarness


@pytest.fixture
def harness() -> ServerHarness:
    return ServerHarness()
