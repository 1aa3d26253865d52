"""A session that the server has forgotten is replaced, and nothing is repeated without consent."""

from __future__ import annotations

import pytest

from sansmcp import Disconnected, SessionLost
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    Closed,
    Connected,
    ListenerStopped,
    Reconnecting,
    ServerAsked,
    ServerWithdrew,
    SessionExpired,
)
from sansmcp.states import ClientState

from .bench import Bench, request, response

requirement = pytest.mark.requirement
NEW = "session-secret-0002"


@pytest.fixture
def bench() -> Bench:
    """A client in a session in which something has worked."""
    bench = Bench(capabilities={"roots": {}}).connect()
    _, asked = bench.call()
    asked.result()
    bench.take_events()
    return bench


@requirement("SESSION-C-003", "SESSION-C-005")
def test_404_opens_a_new_session(bench: Bench) -> None:
    handle, asked = bench.call()
    asked.refuse(404, b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"gone"}}')
    (failed, expired) = bench.take_events()
    assert isinstance(failed, CallFailed)
    assert failed.call == handle
    assert isinstance(failed.error, SessionLost)
    assert expired == SessionExpired((handle,))
    initialize = bench.take()
    assert initialize.json["method"] == "initialize"
    assert initialize.header("mcp-session-id") is None
    assert initialize.header("mcp-protocol-version") is None
    bench.requests.append(initialize)
    bench.shake_hands(session=NEW)
    assert bench.client.state is ClientState.READY
    handle, asked = bench.call()
    assert asked.header("mcp-session-id") == NEW
    asked.result()
    assert bench.events == [CallCompleted(handle, {})]


def test_calls_that_may_be_repeated_go_on_in_the_new_session(bench: Bench) -> None:
    lost, first = bench.call()
    kept, second = bench.call("tools/list")
    second.open_stream()
    second.event(id="e1")
    first.refuse(404)
    assert second.aborted
    failed, expired = bench.take_events()
    assert expired == SessionExpired((lost,))
    assert isinstance(failed, CallFailed)
    bench.take_initialize(session=NEW)
    bench.take().accept()
    assert isinstance(bench.take_events()[0], Connected)
    again = bench.take()
    assert again.json["method"] == "tools/list"
    assert again.header("mcp-session-id") == NEW
    assert again.id > second.id
    again.answer(response(again.id))
    assert bench.events == [CallCompleted(kept, {})]


@requirement("CACHE-C-019")
def test_a_page_of_the_old_session_is_not_asked_for_in_the_new_one(bench: Bench) -> None:
    handle, asked = bench.call("tools/list", params={"cursor": "page 2"})
    asked.refuse(404)
    failed, expired = bench.take_events()
    assert isinstance(failed, CallFailed)
    assert isinstance(failed.error, SessionLost)
    assert expired == SessionExpired((handle,))
    bench.shake_hands(session=NEW)
    assert bench.requests == []


@pytest.mark.parametrize("how", ["resume", "notify", "answer"])
def test_any_request_can_find_out(bench: Bench, how: str) -> None:
    handle, asked = bench.call()
    asked.open_stream()
    asked.event(id="e1")
    if how == "resume":
        asked.cut()
        bench.wait(1)
        bench.take("GET").refuse(404)
    elif how == "notify":
        bench.do(bench.client.notify, "x")
        bench.take().refuse(404)
    else:
        asked.event(request(1, "roots/list"))
        bench.do(bench.client.respond, 1, {"roots": []})
        bench.take().refuse(404)
    kinds = [
        type(event)
        for event in bench.take_events()
        if not isinstance(event, Reconnecting | ServerAsked)
    ]
    assert kinds == [CallFailed, SessionExpired]
    assert bench.take().json["method"] == "initialize"
    assert handle


def test_questions_are_withdrawn_with_the_session(bench: Bench) -> None:
    _, asked = bench.call("tools/list")
    asked.open_stream()
    asked.event(request(1, "roots/list"))
    bench.do(bench.client.notify, "x")
    bench.take_events()
    bench.take().refuse(404)
    assert ServerWithdrew(1, "the session has ended") in bench.events
    assert bench.do(bench.client.respond, 1, {}) is False


def test_a_404_of_the_old_session_does_not_end_the_new_one(bench: Bench) -> None:
    _, first = bench.call()
    bench.do(bench.client.notify, "x")
    late = bench.take()
    first.refuse(404)
    assert late.aborted
    bench.shake_hands(session=NEW)
    late.refuse(404)
    assert bench.client.state is ClientState.READY
    assert bench.events == []


def test_answers_that_wait_to_be_sent_again_end_with_the_session(bench: Bench) -> None:
    _, asked = bench.call("tools/list")
    asked.open_stream()
    asked.event(request(1, "roots/list"))
    bench.do(bench.client.respond, 1, {})
    bench.take().cut()
    bench.do(bench.client.notify, "x")
    bench.take().refuse(404)
    assert bench.take().json["method"] == "initialize"
    bench.wait(20)
    assert bench.requests == []


def test_a_server_that_forgets_every_session_is_given_up(bench: Bench) -> None:
    _, asked = bench.call()
    asked.refuse(404)
    bench.shake_hands(session=NEW)
    handle, asked = bench.call()
    asked.refuse(404)
    failed, closed = bench.take_events()
    assert isinstance(failed, CallFailed)
    assert failed.call == handle
    assert isinstance(failed.error, Disconnected)
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, SessionLost)
    assert bench.requests == []
    assert bench.client.state is ClientState.CLOSED


@pytest.mark.parametrize("proof", ["result", "error", "notification"])
def test_a_session_in_which_something_worked_may_be_replaced_again(
    bench: Bench, proof: str
) -> None:
    for number in range(3):
        _, asked = bench.call()
        asked.refuse(404)
        bench.shake_hands(session=f"{NEW}-{number}")
        if proof == "notification":
            bench.do(bench.client.notify, "x")
            bench.take().accept()
        else:
            _, asked = bench.call()
            if proof == "result":
                asked.result()
            else:
                asked.answer(
                    {"jsonrpc": "2.0", "id": asked.id, "error": {"code": 1, "message": ""}}
                )
        bench.take_events()
    assert bench.client.state is ClientState.READY


def test_a_new_session_that_cannot_be_opened_is_the_end(bench: Bench) -> None:
    bench.do(bench.client.call, "tools/list")
    kept = bench.take()
    _, asked = bench.call()
    asked.refuse(404)
    bench.take_events()
    assert kept.aborted
    bench.take().refuse(500)
    failed, closed = bench.take_events()
    assert isinstance(failed, CallFailed)
    assert isinstance(closed, Closed)


def test_without_a_session_404_is_a_refusal() -> None:
    bench = Bench().connect(session=None)
    handle, asked = bench.call()
    asked.refuse(404)
    (event,) = bench.events
    assert isinstance(event, CallFailed)
    assert event.call == handle
    assert bench.client.state is ClientState.READY


def test_a_listener_does_not_find_out_that_the_session_is_gone() -> None:
    bench = Bench(listen=True).connect()
    bench.take("GET").refuse(404)
    assert [type(event) for event in bench.events] == [ListenerStopped]
    assert bench.client.state is ClientState.READY


def test_the_new_session_has_a_listener_again() -> None:
    bench = Bench(listen=True).connect()
    listener = bench.take("GET")
    listener.open_stream()
    _, asked = bench.call()
    asked.result()
    _, asked = bench.call()
    asked.refuse(404)
    assert listener.aborted
    bench.take_initialize(session=NEW)
    bench.take().accept()
    assert bench.take("GET").header("mcp-session-id") == NEW


def test_a_404_while_closing_is_no_new_session(bench: Bench) -> None:
    bench.do(bench.client.close)
    bench.take("DELETE").refuse(404)
    assert bench.events == [Closed(None)]
    assert bench.requests == []
