"""A connection whose requests are authenticated reads no further meanwhile."""

from __future__ import annotations

import pytest

from sansmcp.types import Idle

from .harness import INITIALIZE, ConnectionHarness, post


def test_a_body_waits_for_the_principal() -> None:
    """What is read meanwhile is what has come together with the head."""
    harness = ConnectionHarness(authentication=True)
    data = post(INITIALIZE)
    harness.feed(data[:-5])
    assert (len(harness.asked), harness.idle, harness.sent) == (1, Idle.PAUSED, b"")
    harness.server.authenticated(harness.asked[0], "ada", now=0)
    harness.run_pending()
    assert harness.idle is Idle.NEED_DATA
    harness.feed(data[-5:])
    assert harness.answer().status == 200


def test_the_deadline_of_a_request_holds_meanwhile() -> None:
    harness = ConnectionHarness(authentication=True)
    harness.feed(post(INITIALIZE)[:-5])
    harness.wait(harness.server.limits.body_timeout)
    assert harness.answer().status == 408
    harness.server.authenticated(harness.asked[0], "ada", now=harness.now)
    harness.run_pending()
    harness.server.shut_down(now=harness.now)
    harness.run_pending()
    assert harness.server.sessions == ()


@pytest.mark.parametrize(("authentication", "principal"), [(False, "uid:1"), (True, "ada")])
def test_a_connection_may_know_its_user(authentication: bool, principal: str) -> None:
    """That of a Unix socket does; if there is an ``authenticate``, only that decides."""
    harness = ConnectionHarness(authentication=authentication)
    harness.connection.principal = "uid:1"
    for _ in range(2):
        harness.feed(post(INITIALIZE))
        for asked in harness.asked:
            harness.server.authenticated(asked, "ada", now=0)
        harness.asked.clear()
        harness.run_pending()
    assert [session.principal for session in harness.server.sessions] == [principal] * 2
