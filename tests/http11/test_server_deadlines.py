"""Peers that are slow or leave: every wait for them has an end, and nothing is left of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import Idle, Limits
from sansmcp.effects import StoreAppend, StoreDrop, StoreRead
from sansmcp.states import ExchangeState

from .harness import CALL, INITIALIZE, PING, ConnectionHarness, close_peer_sending, post

# Slow peers


@pytest.mark.parametrize("begun", [b"", b"G", b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx"])
def test_a_head_has_to_come_in_time_in_all(harness: ConnectionHarness, begun: bytes) -> None:
    if not begun:
        assert harness.connection.next_deadline() == 75
        harness.wait(74)
        assert not harness.closed
        harness.wait(1)
        assert harness.closed
        assert harness.sent == b""
        return
    harness.wait(50)
    harness.feed(begun)
    for _ in range(29):
        harness.wait(1)
        harness.feed(b"y")
        assert not harness.sent
    harness.wait(1)
    answer = harness.answer("GET")
    assert (answer.status, answer.reason) == (408, "request_timeout")
    harness.wait(2)
    assert harness.closed


def test_a_body_has_to_come_in_time_in_all(harness: ConnectionHarness) -> None:
    session = harness.session()
    harness.feed(post(b" " * 1000 + PING, session)[:-900])
    for _ in range(59):
        harness.wait(1)
        harness.feed(b" ")
    assert not harness.sent
    harness.wait(1)
    assert harness.answer().status == 408
    harness.wait(2)
    assert harness.closed


def test_a_refused_peer_that_goes_on_sending_is_left(harness: ConnectionHarness) -> None:
    harness.feed(post(b"x" * 100, path=b"/nope")[:-50])
    assert harness.answer().status == 404
    harness.wait(1)
    harness.feed(b"x")
    assert not harness.closed
    harness.wait(1)
    assert harness.closed


def test_an_answer_may_take_any_time(harness: ConnectionHarness) -> None:
    session = harness.session()
    harness.feed(post(CALL, session))
    assert harness.connection.next_deadline() is None
    harness.wait(1000)
    assert not harness.closed
    harness.calls[0].respond({}, now=harness.now)
    harness.run_pending()
    assert harness.connection.next_deadline() == harness.now + 75


def test_deadlines_may_be_handled_early_late_and_twice(harness: ConnectionHarness) -> None:
    harness.connection.handle_timeout(now=1)
    harness.connection.handle_timeout(now=74)
    assert harness.connection.next_deadline() == 75
    harness.connection.handle_timeout(now=99)
    harness.connection.handle_timeout(now=99)
    harness.run_pending()
    assert harness.closed


# Peers that go


def test_a_peer_that_leaves_a_stream(harness: ConnectionHarness) -> None:
    session = harness.session()
    harness.feed(post(CALL, session))
    harness.calls[0].notify("x", now=0)
    harness.run_pending()
    exchange = harness.connection.exchange
    harness.connection.connection_lost(now=0)
    harness.connection.connection_lost(now=0)
    harness.run_pending()
    assert exchange.state is ExchangeState.DONE
    assert harness.closed
    assert harness.calls[0].is_running
    assert harness.calls[0].respond({}, now=0) is True


def test_a_stream_that_cannot_go_on_is_broken_off() -> None:
    harness = ConnectionHarness(limits=Limits(max_stored_entries=2, max_unsent_bytes=1))
    session = harness.session()
    harness.feed(post(CALL, session))
    (call,) = harness.calls
    call.notify("x", now=0)
    harness.run_pending()
    for _ in range(9):  # nobody pulls: the reader falls behind what is kept
        call.notify("x", now=0)
        while not isinstance(effect := harness.server.next_effect(), Idle):
            if isinstance(effect, StoreAppend | StoreRead | StoreDrop):
                harness.server.perform_store_effect(effect, harness.store, now=0)
    harness.run_pending()
    assert harness.closed
    assert not harness.sent.endswith(b"0\r\n\r\n")


@given(cut=st.integers(0, 400), size=st.integers(1, 100))
def test_a_request_that_is_cut_anywhere_leaves_nothing(cut: int, size: int) -> None:
    harness = ConnectionHarness()
    request = post(INITIALIZE)
    harness.feed(request[:cut], size)
    close_peer_sending(harness)
    assert harness.closed
    assert len(harness.server.sessions) == (cut >= len(request))
    assert harness.connection.next_deadline() is None
