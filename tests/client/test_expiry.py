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

from .harness import ClientHarness, notification, request, response

requirement = pytest.mark.requirement
NEW = "session-secret-0002"


@pytest.fixture
def harness() -> ClientHarness:
    """A client in a session in which something has worked."""
    harness = ClientHarness(capabilities={"roots": {}}).connect()
    _, asked = harness.call()
    asked.result()
    harness.take_events()
    return harness


@requirement("SESSION-C-003", "SESSION-C-005")
def test_404_opens_a_new_session(harness: ClientHarness) -> None:
    handle, asked = harness.call()
    asked.refuse(404, b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"gone"}}')
    (failed, expired) = harness.take_events()
    assert isinstance(failed, CallFailed)
    assert failed.call == handle
    assert isinstance(failed.error, SessionLost)
    assert failed.error.was_not_run
    assert expired == SessionExpired((handle,))
    initialize = harness.take()
    assert initialize.json["method"] == "initialize"
    assert initialize.header("mcp-session-id") is None
    assert initialize.header("mcp-protocol-version") is None
    harness.requests.append(initialize)
    harness.initialize(session=NEW)
    assert harness.client.state is ClientState.READY
    handle, asked = harness.call()
    assert asked.header("mcp-session-id") == NEW
    asked.result()
    assert harness.events == [CallCompleted(handle, {})]


def test_a_call_whose_response_had_begun_may_have_run(harness: ClientHarness) -> None:
    _, running = harness.call()
    running.open_stream()
    harness.call()[1].refuse(404)
    begun, refused = (e.error for e in harness.take_events() if isinstance(e, CallFailed))
    assert isinstance(begun, SessionLost)
    assert isinstance(refused, SessionLost)
    assert (begun.was_not_run, refused.was_not_run) == (False, True)
    assert "was not completed, and may have run; the client opens" in str(begun)
    assert "was not run; repeat it in the new session" in str(refused)


def test_calls_that_may_be_repeated_go_on_in_the_new_session(harness: ClientHarness) -> None:
    lost, first = harness.call()
    kept, second = harness.call("tools/list")
    second.open_stream()
    second.event(id="e1")
    first.refuse(404)
    assert second.aborted
    failed, expired = harness.take_events()
    assert expired == SessionExpired((lost,))
    assert isinstance(failed, CallFailed)
    harness.take_initialize(session=NEW)
    harness.take().accept()
    assert isinstance(harness.take_events()[0], Connected)
    again = harness.take()
    assert again.json["method"] == "tools/list"
    assert again.header("mcp-session-id") == NEW
    assert again.id > second.id
    again.answer(response(again.id))
    assert harness.events == [CallCompleted(kept, {})]


@requirement("CACHE-C-019")
def test_a_page_of_the_old_session_is_not_asked_for_in_the_new_one(harness: ClientHarness) -> None:
    handle, asked = harness.call("tools/list", params={"cursor": "page 2"})
    asked.refuse(404)
    failed, expired = harness.take_events()
    assert isinstance(failed, CallFailed)
    assert isinstance(failed.error, SessionLost)
    assert expired == SessionExpired((handle,))
    harness.initialize(session=NEW)
    assert harness.requests == []


@pytest.mark.parametrize("how", ["resume", "notify", "answer"])
def test_any_request_can_find_out(harness: ClientHarness, how: str) -> None:
    handle, asked = harness.call()
    asked.open_stream()
    asked.event(id="e1")
    if how == "resume":
        asked.cut()
        harness.wait(1)
        harness.take("GET").refuse(404)
    elif how == "notify":
        harness.run_command(harness.client.notify, "x")
        harness.take().refuse(404)
    else:
        asked.event(request(1, "roots/list"))
        harness.run_command(harness.client.respond, 1, {"roots": []})
        harness.take().refuse(404)
    kinds = [
        type(event)
        for event in harness.take_events()
        if not isinstance(event, Reconnecting | ServerRequestReceived)
    ]
    assert kinds == [CallFailed, SessionExpired]
    assert harness.take().json["method"] == "initialize"
    assert handle


def test_questions_are_withdrawn_with_the_session(harness: ClientHarness) -> None:
    _, asked = harness.call("tools/list")
    asked.open_stream()
    asked.event(request(1, "roots/list"))
    harness.run_command(harness.client.notify, "x")
    harness.take_events()
    harness.take().refuse(404)
    assert ServerRequestCancelled(1, "the session has ended") in harness.events
    assert harness.run_command(harness.client.respond, 1, {}) is False


def test_a_404_of_the_old_session_does_not_end_the_new_one(harness: ClientHarness) -> None:
    _, first = harness.call()
    harness.run_command(harness.client.notify, "x")
    late = harness.take()
    first.refuse(404)
    assert late.aborted
    harness.initialize(session=NEW)
    late.refuse(404)
    assert harness.client.state is ClientState.READY
    assert harness.events == []


def test_answers_that_wait_to_be_sent_again_end_with_the_session(harness: ClientHarness) -> None:
    _, asked = harness.call("tools/list")
    asked.open_stream()
    asked.event(request(1, "roots/list"))
    harness.run_command(harness.client.respond, 1, {})
    harness.take().cut()
    harness.run_command(harness.client.notify, "x")
    harness.take().refuse(404)
    assert harness.take().json["method"] == "initialize"
    harness.wait(20)
    assert harness.requests == []


def lose(harness: ClientHarness, where: str) -> None:
    """The server does not know the session of the request that comes next."""
    if where == "confirmation":
        harness.take_initialize(session=NEW)
        harness.take().refuse(404)
    else:
        harness.initialize(session=NEW)
        harness.call()[1].refuse(404)


@pytest.mark.parametrize("how", ["idle", "first call", "progress", "waiting"])
def test_a_session_in_which_nothing_was_answered_is_replaced_at_once(how: str) -> None:
    """A server that restarts before the first call has ended."""
    harness = ClientHarness().connect()
    handle, asked = harness.call(idempotent=how == "waiting")
    if how == "progress":
        asked.open_stream()
        asked.event(id="e1")
        asked.event(notification("notifications/progress", progressToken=asked.id, progress=1))
        asked.cut()
        harness.wait(1)
        asked = harness.take("GET")
    harness.take_events()
    asked.refuse(404)
    if how == "waiting":
        assert harness.take_events() == [SessionExpired(())]
    else:
        failed, expired = harness.take_events()
        assert isinstance(failed, CallFailed)
        assert isinstance(failed.error, SessionLost)
        assert expired == SessionExpired((handle,))
    harness.initialize(session=NEW)
    if how == "waiting":
        again = harness.take()
    else:
        handle, again = harness.call()
    again.result()
    assert harness.events == [CallCompleted(handle, {})]


@pytest.mark.parametrize("where", ["call", "confirmation"])
def test_a_server_that_forgets_every_session_is_given_up(where: str) -> None:
    """Further losses wait longer and longer, and are bounded."""
    harness = ClientHarness(capabilities={"roots": {}}).connect()
    harness.call()[1].refuse(404)
    delays: list[float] = []
    while True:
        harness.take_events()
        lose(harness, where)
        if isinstance(harness.events[-1], Closed):
            break
        event = harness.events[-1]
        assert isinstance(event, Reconnecting)
        assert "HTTP 404" in event.reason
        assert harness.requests == []
        delays.append(event.delay)
        harness.wait(event.delay)
    assert delays == [0.5, 1.0, 2.0, 4.0]
    closed = harness.events[-1]
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, SessionLost)
    assert "discarded 6 sessions in a row: POST" in str(closed.error)
    assert harness.requests == []
    assert harness.client.state is ClientState.CLOSED
    assert harness.client.next_deadline() is None


def test_calls_wait_for_the_next_session_and_time_out(harness: ClientHarness) -> None:
    harness.call()[1].refuse(404)
    lose(harness, "call")
    harness.take_events()
    kept = harness.run_command(harness.client.call, "tools/call", timeout=100)
    lost = harness.run_command(harness.client.call, "tools/call", timeout=0.1)
    harness.wait(0.2)
    assert lost == getattr(harness.events.pop(), "call", None)
    assert harness.requests == []
    harness.wait(0.3)
    harness.take_initialize(session=NEW)
    harness.take().accept()
    harness.take().result()
    assert harness.events[-1] == CallCompleted(kept, {})


def test_closing_while_the_next_session_is_waited_for(harness: ClientHarness) -> None:
    harness.call()[1].refuse(404)
    lose(harness, "call")
    harness.run_command(harness.client.close)
    assert harness.events[-1] == Closed(None)
    assert harness.requests == []
    assert harness.client.next_deadline() is None


@pytest.mark.parametrize("proof", ["result", "error", "notification"])
def test_a_session_in_which_something_worked_may_be_replaced_again(
    harness: ClientHarness, proof: str
) -> None:
    for number in range(3):
        _, asked = harness.call()
        asked.refuse(404)
        harness.initialize(session=f"{NEW}-{number}")
        if proof == "notification":
            harness.run_command(harness.client.notify, "x")
            harness.take().accept()
        else:
            _, asked = harness.call()
            if proof == "result":
                asked.result()
            else:
                asked.answer(
                    {"jsonrpc": "2.0", "id": asked.id, "error": {"code": 1, "message": ""}}
                )
        harness.take_events()
    assert harness.client.state is ClientState.READY


def test_a_new_session_that_cannot_be_opened_is_the_end(harness: ClientHarness) -> None:
    harness.run_command(harness.client.call, "tools/list")
    kept = harness.take()
    _, asked = harness.call()
    asked.refuse(404)
    harness.take_events()
    assert kept.aborted
    harness.take().refuse(500)
    failed, closed = harness.take_events()
    assert isinstance(failed, CallFailed)
    assert isinstance(closed, Closed)


def test_without_a_session_404_is_a_refusal() -> None:
    harness = ClientHarness().connect(session=None)
    handle, asked = harness.call()
    asked.refuse(404)
    (event,) = harness.events
    assert isinstance(event, CallFailed)
    assert event.call == handle
    assert harness.client.state is ClientState.READY


def test_a_listener_that_is_refused_at_first_does_not_tell_that_the_session_is_gone() -> None:
    """Servers without a standalone stream answer so, too."""
    harness = ClientHarness(standalone_stream=True).connect()
    harness.take("GET").refuse(404)
    assert [type(event) for event in harness.events] == [StandaloneStreamClosed]
    assert harness.client.state is ClientState.READY


@pytest.mark.parametrize("id", ["s1", None])
def test_a_listener_that_was_open_finds_out_that_the_session_is_gone(id: str | None) -> None:
    """Connected and idle, the client hears of a restart by its stream."""
    harness = ClientHarness(standalone_stream=True).connect()
    asked = harness.take("GET")
    asked.open_stream()
    if id is not None:
        asked.event(id=id)
    asked.cut()
    harness.wait(1)
    harness.take_events()
    harness.take("GET").refuse(404)
    assert harness.take_events() == [SessionExpired(())]
    harness.take_initialize(session=NEW)
    harness.take().accept()
    assert harness.take("GET").header("mcp-session-id") == NEW


def test_the_new_session_has_a_listener_again() -> None:
    harness = ClientHarness(standalone_stream=True).connect()
    listener = harness.take("GET")
    listener.open_stream()
    _, asked = harness.call()
    asked.result()
    _, asked = harness.call()
    asked.refuse(404)
    assert listener.aborted
    harness.take_initialize(session=NEW)
    harness.take().accept()
    assert harness.take("GET").header("mcp-session-id") == NEW


def test_a_404_while_closing_is_no_new_session(harness: ClientHarness) -> None:
    harness.run_command(harness.client.close)
    harness.take("DELETE").refuse(404)
    assert harness.events == [Closed(None)]
    assert harness.requests == []
