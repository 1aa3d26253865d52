"""A server with one connection, on the bench, with each implementation of HTTP/1.1."""

from __future__ import annotations

import pytest

from . import harness as harnesses
from .harness import ConnectionHarness


@pytest.fixture(params=["h11", "httptools"], autouse=True)
def http11(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all machines of a test use the same implementation; httptools is optional."""
    parser = pytest.importorskip(f"sansmcp.{request.param}_parser")
    monkeypatch.setattr(harnesses, "HTTP11", parser.HTTP11)


@pytest.fixture
def harness() -> ConnectionHarness:
    return ConnectionHarness()
