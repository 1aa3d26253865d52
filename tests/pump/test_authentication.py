"""A connection whose requests are authenticated reads no further meanwhile."""

from __future__ import annotations

from sansmcp.types import Idle

from .bench import INITIALIZE, Bench, post


def test_a_body_waits_for_the_principal() -> None:
    """Row C9 of the review: what is read meanwhile is what has come together with the head."""
    bench = Bench(authentication=True)
    data = post(INITIALIZE)
    bench.feed(data[:-5])
    assert (len(bench.asked), bench.idle, bench.sent) == (1, Idle.PAUSED, b"")
    bench.server.authenticated(bench.asked[0], "ada", now=0)
    bench.settle()
    assert bench.idle is Idle.NEED_DATA
    bench.feed(data[-5:])
    assert bench.answer().status == 200


def test_the_deadline_of_a_request_holds_meanwhile() -> None:
    bench = Bench(authentication=True)
    bench.feed(post(INITIALIZE)[:-5])
    bench.wait(bench.server.limits.body_timeout)
    assert bench.answer().status == 408
    bench.server.authenticated(bench.asked[0], "ada", now=bench.now)
    bench.settle()
    bench.server.shut_down(now=bench.now)
    bench.settle()
    assert bench.server.sessions == ()
