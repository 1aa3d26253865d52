"""A few scenarios of the official suite; ``make conformance`` runs them all, on every adapter."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from ..node import install_or_skip
from .peers import Peer, adapter
from .suite import FOLDER, Scenario, judge

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def peer() -> Generator[Peer, None, None]:
    """Our fixtures on trio."""
    install_or_skip(FOLDER)
    with adapter("trio") as running:
        yield running


@pytest.mark.parametrize(
    ("leg", "revision", "name"),
    [
        ("server", "2025-11-25", "server-sse-polling"),
        ("server", "2026-07-28", "input-required-result-multi-round"),
        ("server", "2026-07-28", "sep-2640-skills-enumeration"),
        ("server", "2026-07-28", "server-stateless"),
        ("client", "2025-11-25", "sse-retry"),
        ("client", "2026-07-28", "http-custom-headers"),
        ("client", "2026-07-28", "sep-2322-client-request-state"),
    ],
)
def test_scenario(peer: Peer, leg: str, revision: str, name: str) -> None:
    reached = peer.reached(leg)
    assert reached is not None
    assert judge(Scenario(leg, revision, name, True), reached).problems == ()


def test_nothing_checked_is_not_passed(peer: Peer) -> None:
    reached = peer.reached("server")
    assert reached is not None
    verdict = judge(Scenario("server", "2025-11-25", "server-stateless", True), reached)
    assert verdict.problems == ("nothing was a success",)
