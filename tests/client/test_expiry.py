"""A session that the server has forgotten is replaced, and nothing is repeated without consent."""

from __future__ import annotations

import pytest

from sansmcp import SessionLost
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    Closed,
    Connected,
    Reconnecting,
    ServerRequestCancelled,
    ServerRequestReceived,
    SessionExpired,
    StandaloneStreamClosed,
)
from sansmcp.states import ClientState

from .bench import Bench, notification, request, response

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
        if not isinstance(event, Reconnecting | ServerRequestReceived)
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
    assert ServerRequestCancelled(1, "the session has ended") in bench.events
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


def lose(bench: Bench, where: str) -> None:
    """The server does not know the session of the request that comes next."""
    if where == "confirmation":
        bench.take_initialize(session=NEW)
        bench.take().refuse(404)
    else:
        bench.shake_hands(session=NEW)
        bench.call()[1].refuse(404)


@pytest.mark.parametrize("how", ["idle", "first call", "progress", "waiting"])
def test_a_session_in_which_nothing_was_answered_is_replaced_at_once(how: str) -> None:
    """Row A15 of the review: a server that restarts before the first call has ended."""
    bench = Bench().connect()
    handle, asked = bench.call(idempotent=how == "waiting")
    if how == "progress":
        asked.open_stream()
        asked.event(id="e1")
        asked.event(notification("notifications/progress", progressToken=asked.id, progress=1))
        asked.cut()
        bench.wait(1)
        asked = bench.take("GET")
    bench.take_events()
    asked.refuse(404)
    if how == "waiting":
        assert bench.take_events() == [SessionExpired(())]
    else:
        failed, expired = bench.take_events()
        assert isinstance(failed, CallFailed)
        assert isinstance(failed.error, SessionLost)
        assert expired == SessionExpired((handle,))
    bench.shake_hands(session=NEW)
    if how == "waiting":
        again = bench.take()
    else:
        handle, again = bench.call()
    again.result()
    assert bench.events == [CallCompleted(handle, {})]


@pytest.mark.parametrize("where", ["call", "confirmation"])
def test_a_server_that_forgets_every_session_is_given_up(where: str) -> None:
    """Row A15 of the review: further losses wait longer and longer, and are bounded."""
    bench = Bench(capabilities={"roots": {}}).connect()
    bench.call()[1].refuse(404)
    delays: list[float] = []
    while True:
        bench.take_events()
        lose(bench, where)
        if isinstance(bench.events[-1], Closed):
            break
        event = bench.events[-1]
        assert isinstance(event, Reconnecting)
        assert "HTTP 404" in event.reason
        assert bench.requests == []
        delays.append(event.delay)
        bench.wait(event.delay)
    assert delays == [0.5, 1.0, 2.0, 4.0]
    closed = bench.events[-1]
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, SessionLost)
    assert "forgotten 6 sessions in a row: POST" in str(closed.error)
    assert bench.requests == []
    assert bench.client.state is ClientState.CLOSED
    assert bench.client.next_deadline() is None


def test_calls_wait_for_the_next_session_and_time_out(bench: Bench) -> None:
    bench.call()[1].refuse(404)
    lose(bench, "call")
    bench.take_events()
    kept = bench.do(bench.client.call, "tools/call", timeout=100)
    lost = bench.do(bench.client.call, "tools/call", timeout=0.1)
    bench.wait(0.2)
    assert lost == getattr(bench.events.pop(), "call", None)
    assert bench.requests == []
    bench.wait(0.3)
    bench.take_initialize(session=NEW)
    bench.take().accept()
    bench.take().result()
    assert bench.events[-1] == CallCompleted(kept, {})


def test_closing_while_the_next_session_is_waited_for(bench: Bench) -> None:
    bench.call()[1].refuse(404)
    lose(bench, "call")
    bench.do(bench.client.close)
    assert bench.events[-1] == Closed(None)
    assert bench.requests == []
    assert bench.client.next_deadline() is None


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


def test_a_listener_that_is_refused_at_first_does_not_tell_that_the_session_is_gone() -> None:
    """Servers without a standalone stream answer so, too."""
    bench = Bench(standalone_stream=True).connect()
    bench.take("GET").refuse(404)
    assert [type(event) for event in bench.events] == [StandaloneStreamClosed]
    assert bench.client.state is ClientState.READY


@pytest.mark.parametrize("id", ["s1", None])
def test_a_listener_that_was_open_finds_out_that_the_session_is_gone(id: str | None) -> None:
    """Row A15 of the review: connected and idle, the client hears of a restart by its stream."""
    bench = Bench(standalone_stream=True).connect()
    asked = bench.take("GET")
    asked.open_stream()
    if id is not None:
        asked.event(id=id)
    asked.cut()
    bench.wait(1)
    bench.take_events()
    bench.take("GET").refuse(404)
    assert bench.take_events() == [SessionExpired(())]
    bench.take_initialize(session=NEW)
    bench.take().accept()
    assert bench.take("GET").header("mcp-session-id") == NEW


def test_the_new_session_has_a_listener_again() -> None:
    bench = Bench(standalone_stream=True).connect()
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
