"""Peers that are slow or leave: every wait for them has an end, and nothing is left of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import Idle, Limits
from sansmcp.effects import Authenticate, Wake
from sansmcp.states import ExchangeState

from .bench import CALL, INITIALIZE, PING, Bench, peer_loses_interest, post

# Slow peers


@pytest.mark.parametrize("begun", [b"", b"G", b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx"])
def test_a_head_has_to_come_in_time_in_all(bench: Bench, begun: bytes) -> None:
    if not begun:
        assert bench.connection.next_deadline() == 75
        bench.wait(74)
        assert not bench.closed
        bench.wait(1)
        assert bench.closed
        assert bench.sent == b""
        return
    bench.wait(50)
    bench.feed(begun)
    for _ in range(29):
        bench.wait(1)
        bench.feed(b"y")
        assert not bench.sent
    bench.wait(1)
    answer = bench.answer("GET")
    assert (answer.status, answer.reason) == (408, "request_timeout")
    bench.wait(2)
    assert bench.closed


def test_a_body_has_to_come_in_time_in_all(bench: Bench) -> None:
    session = bench.session()
    bench.feed(post(b" " * 1000 + PING, session)[:-900])
    for _ in range(59):
        bench.wait(1)
        bench.feed(b" ")
    assert not bench.sent
    bench.wait(1)
    assert bench.answer().status == 408
    bench.wait(2)
    assert bench.closed


def test_a_refused_peer_that_goes_on_sending_is_left(bench: Bench) -> None:
    bench.feed(post(b"x" * 100, path=b"/nope")[:-50])
    assert bench.answer().status == 404
    bench.wait(1)
    bench.feed(b"x")
    assert not bench.closed
    bench.wait(1)
    assert bench.closed


def test_an_answer_may_take_any_time(bench: Bench) -> None:
    session = bench.session()
    bench.feed(post(CALL, session))
    assert bench.connection.next_deadline() is None
    bench.wait(1000)
    assert not bench.closed
    bench.calls[0].respond({}, now=bench.now)
    bench.settle()
    assert bench.connection.next_deadline() == bench.now + 75


def test_deadlines_may_be_handled_early_late_and_twice(bench: Bench) -> None:
    bench.connection.handle_timeout(now=1)
    bench.connection.handle_timeout(now=74)
    assert bench.connection.next_deadline() == 75
    bench.connection.handle_timeout(now=99)
    bench.connection.handle_timeout(now=99)
    bench.settle()
    assert bench.closed


# Peers that go


def test_a_peer_that_leaves_a_stream(bench: Bench) -> None:
    session = bench.session()
    bench.feed(post(CALL, session))
    bench.calls[0].notify("x", now=0)
    bench.settle()
    exchange = bench.connection.exchange
    bench.connection.connection_lost(now=0)
    bench.connection.connection_lost(now=0)
    bench.settle()
    assert exchange.state is ExchangeState.DONE
    assert bench.closed
    assert bench.calls[0].is_running
    assert bench.calls[0].respond({}, now=0) is True


def test_a_stream_that_cannot_go_on_is_broken_off() -> None:
    bench = Bench(limits=Limits(max_stored_entries=2, max_unsent_bytes=1))
    session = bench.session()
    bench.feed(post(CALL, session))
    (call,) = bench.calls
    call.notify("x", now=0)
    bench.settle()
    for _ in range(9):  # nobody pulls: the reader falls behind what is kept
        call.notify("x", now=0)
        while not isinstance(effect := bench.server.next_effect(), Idle):
            if not isinstance(effect, Wake | Authenticate):
                bench.server.perform_store_effect(effect, bench.store, now=0)
    bench.settle()
    assert bench.closed
    assert not bench.sent.endswith(b"0\r\n\r\n")


@given(cut=st.integers(0, 400), size=st.integers(1, 100))
def test_a_request_that_is_cut_anywhere_leaves_nothing(cut: int, size: int) -> None:
    bench = Bench()
    request = post(INITIALIZE)
    bench.feed(request[:cut], size)
    peer_loses_interest(bench)
    assert bench.closed
    assert len(bench.server.sessions) == (cut >= len(request))
    assert bench.connection.next_deadline() is None
