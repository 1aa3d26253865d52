"""A connection whose requests are authenticated reads no further meanwhile."""

from __future__ import annotations

from sansmcp.types import Idle

from .harness import INITIALIZE, ConnectionHarness, post


def test_a_body_waits_for_the_principal() -> None:
    """Row C9 of the review: what is read meanwhile is what has come together with the head."""
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
