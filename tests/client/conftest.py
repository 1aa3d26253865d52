"""A client whose handshake is done, on the bench."""

from __future__ import annotations

import pytest

from .harness import ClientHarness


@pytest.fixture
def harness() -> ClientHarness:
    return ClientHarness().connect()
