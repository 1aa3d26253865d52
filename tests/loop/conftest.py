"""The event loops."""

from __future__ import annotations

import pytest

from ..asgi.loops import RUNS, Run


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs an async function in one of the event loops."""
    function: Run = request.param
    return function
