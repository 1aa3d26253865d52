"""What holds for all tests."""

from __future__ import annotations

import signal
import sys

import hypothesis
import pytest

from sansmcp import Verdicts

# How long an example takes says something of the machine, nothing of the code. Each run has other
# examples, and the suite is run often.
hypothesis.settings.register_profile(
    "untimed",
    deadline=None,
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("untimed")

# A shell lets what it starts in the background ignore Ctrl-C, and all that this starts; some tests
# press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def nothing_is_known_of_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of one program share what they find out; each test is a program of its own."""
    if (module := sys.modules.get("sansmcp_local._client")) is not None:
        monkeypatch.setattr(module, "_VERDICTS", Verdicts())
