"""A client whose handshake is done, on the bench."""

from __future__ import annotations

import pytest

from .bench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench().connect()
