"""Sessions and streams, when each request may come to another instance."""

from __future__ import annotations

import pytest

from sansmcp import (
    App,
    AppendResult,
    Limits,
    LocalProtocolError,
    Server,
    ServerCall,
    StreamKey,
)
from sansmcp.effects import StoreAppend, StoreRead
from sansmcp.events import SessionClosed
from sansmcp.testing import sequential_tokens

from .harness import (
    LATEST,
    PING,
    RawExchange,
    ServerHarness,
    expect,
    initialize,
    methods,
    report_progress_all,
)
from .instances import Instances
from .pipe_harness import result
from .test_rounds import ALL

requirement = pytest.mark.requirement
OLDER = ["2025-03-26", "2025-06-18", "2025-11-25"]


# Sessions


def test_a_session_is_known_everywhere() -> None:
    instances = Instances(3)
    session = instances.open_session(capabilities=ALL)
    for harness in instances:
        assert harness.post(PING, session).status == 200
        (known,) = harness.server.sessions
        assert (known.revision.name, known.client_capabilities) == (LATEST, ALL)
        assert known.client_info == {"name": "bench", "version": "1"}


@pytest.mark.parametrize("principal", ["eve", ""])
def test_it_is_known_to_its_principal_only(principal: str) -> None:
    first, second = Instances()
    session = first.open_session(principal="alice")
    id = session if principal else f"{session}x"
    expect(second.post(PING, id, principal=principal), 404, "session_not_found", id=7)
    expect(second.get(id, principal=principal), 404, "session_not_found")
    assert second.server.sessions == ()


def test_what_has_ended_anywhere_has_ended_everywhere() -> None:
    first, second = Instances()
    session = first.open_session()
    assert second.post(PING, session).status == 200
    assert second.send("DELETE", {"mcp-session-id": session}).status == 200
    expect(first.post(PING, session), 404, "session_not_found", id=7)
    assert any(isinstance(event, SessionClosed) for event in first.events)
    assert first.server.sessions == second.server.sessions == ()


def test_the_client_learns_the_id_when_others_can_find_the_session() -> None:
    harness = ServerHarness(store_works=False, shared_store=True)
    talk = harness.post(initialize())
    assert talk.head is None
    harness.use_store_once()
    assert talk.status == 200
    gone = harness.post(initialize()).lose_connection()
    harness.use_store_once()
    assert gone.head is None


def test_a_session_that_cannot_be_stored_is_none() -> None:
    harness = ServerHarness(store_works=False, shared_store=True)
    talk, gone = harness.post(initialize()), harness.post(initialize()).lose_connection()
    for _ in range(2):
        harness.fail_store_once()
    assert talk.status == 503
    assert talk.error["data"]["reason"] == "store_failed"
    assert gone.head is None
    assert harness.server.sessions == ()


def test_a_request_waits_until_its_session_is_looked_up() -> None:
    harness = ServerHarness(store_works=False, shared_store=True)
    opened = harness.post(initialize())
    harness.use_store_once()
    session = opened.header("mcp-session-id")
    talk = harness.post(PING, session)
    assert talk.head is None
    harness.use_store_once()
    assert talk.json == result(7)
    gone = harness.post(PING, session).lose_connection()
    harness.use_store_once()
    assert gone.head is None
    failed = harness.post(PING, session)
    harness.fail_store_once()
    assert failed.status == 503


def test_there_are_only_so_many_sessions_at_an_instance() -> None:
    first, second = Instances(limits=Limits(max_sessions=1))
    session, other = first.open_session(), second.open_session()
    second.post(PING, other)
    assert second.post(PING, session).error["data"]["reason"] == "too_many_sessions"
    assert second.post(PING, other).status == 200


def test_a_session_in_use_is_not_forgotten_by_the_store() -> None:
    instances = Instances(limits=Limits(max_stored_age=90))
    session = instances.open_session()
    for number in range(20):
        instances.wait(20)
        assert instances[number % 2].post(PING, session).status == 200
    instances.grow_old(200)
    expect(instances[1].post(PING, session), 404, "session_not_found", id=7)


def test_nor_is_one_that_is_busy_for_long() -> None:
    first, second = instances = Instances(limits=Limits(max_stored_age=90))
    session, other = instances.open_session(), instances.open_session()
    _, call = first.call(session)
    second.get(other)
    for _ in range(20):
        instances.wait(20)
        instances.open_session()  # something is stored, so what is old goes
    assert second.post(PING, session).status == first.post(PING, session).status == 200
    assert first.post(PING, other).status == 200
    assert call.is_running


def test_an_idle_instance_forgets_it_and_finds_it_again() -> None:
    first, second = Instances(limits=Limits(max_stored_age=90))
    session = first.open_session()
    second.post(PING, session)
    second.wait(31)
    assert second.server.sessions == ()
    assert second.post(PING, session).status == 200
    talk, _ = second.call(session)
    second.wait(60)
    assert len(second.server.sessions) == 1  # it is busy
    assert not talk.ended


def test_an_instance_that_shuts_down_ends_no_session_of_others() -> None:
    first, second = Instances()
    session = first.open_session()
    first.run_action(first.server.shut_down)
    assert second.post(PING, session).status == 200


def test_a_store_that_is_shared_is_used() -> None:
    with pytest.raises(LocalProtocolError, match="resumable"):
        Server(App("x"), new_token=sequential_tokens(), resumable=False, shared_store=True)


# Streams


def left(harness: ServerHarness) -> tuple[str, RawExchange, ServerCall]:
    """A session, the stream of a call that has said "a" before its client left, and the call."""
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a")
    talk.lose_connection()
    return session, talk, call


def test_a_stream_is_followed_at_another_instance() -> None:
    first, second = instances = Instances()
    session, talk, call = left(first)
    resumed = second.get(session, talk.events[0].id)
    assert methods(resumed) == ["a"]
    report_progress_all(first, call, "b")
    assert methods(resumed) == ["a"]
    instances.wait(0.5)
    assert methods(resumed) == ["a", "b"]
    first.run_action(call.respond, {})
    instances.wait(0.5)
    assert methods(resumed) == ["a", "b", "answer"]
    assert resumed.ended
    again = second.get(session, resumed.last_id)
    assert (again.status, again.messages, again.ended) == (200, [], True)
    assert second.watched == set()


def test_a_stream_that_is_being_read_is_not_looked_at_as_well() -> None:
    first, second = instances = Instances()
    session, talk, call = left(first)
    second.get(session, talk.events[0].id)
    second.store_works = False
    resumed = second.get(session, talk.last_id)
    assert len(second.waiting) == 1
    second.use_store_once()  # whose session it is
    (reading,) = second.waiting
    instances.wait(1)
    assert second.waiting.count(reading) == 1
    report_progress_all(first, call, "b")
    second.use_store_once()
    assert methods(resumed) == ["b"]


def test_a_publication_reaches_those_who_listen_to_another_instance() -> None:
    changed = "notifications/tools/list_changed"
    first, second = instances = Instances()
    session = instances.open_session()
    second.post(PING, session)
    listener = first.get(session)
    second.run_action(second.server.publish, changed)
    assert methods(listener) == []
    instances.wait(0.5)
    assert methods(listener) == [changed]
    first.run_action(first.server.publish, changed)
    assert methods(listener) == [changed, changed]
    listener.lose_connection()
    moved = second.get(session, listener.last_id)
    first.run_action(first.server.publish, changed)
    instances.wait(0.5)
    assert methods(moved) == [changed]


def test_a_listener_that_has_moved_is_told_however_long_it_listens() -> None:
    """Another instance writes its stream, and is asked nothing about the session any more."""
    changed = "notifications/tools/list_changed"
    first, second = instances = Instances(limits=Limits(max_stored_age=90))
    session = instances.open_session()
    listener = first.get(session)
    first.run_action(first.server.publish, changed)
    listener.lose_connection()
    moved = second.get(session, listener.last_id)
    for number in range(1, 6):
        instances.wait(31)
        first.run_action(first.server.publish, changed)
        instances.wait(0.5)
        assert methods(moved) == [changed] * number
    moved.lose_connection()
    instances.wait(200)
    instances.open_session()  # something is stored, so what is old goes
    instances.wait(200)
    assert first.server.sessions == second.server.sessions == ()


def test_two_instances_write_a_session_down_at_the_same_time() -> None:
    instances = Instances(3, limits=Limits(max_stored_age=90))
    session = instances.open_session()
    instances.wait(40)
    for harness in instances[1:]:
        harness.store_works = False
        harness.post(PING, session)
        harness.use_store_once()
    for harness in instances[1:]:
        assert isinstance(harness.use_store_once(), StoreAppend)
        assert isinstance(harness.use_store_once(), StoreRead)  # whether the record was there
        assert harness.waiting == []
    assert [len(harness.server.sessions) for harness in instances[1:]] == [1, 1]


def test_completions_of_nothing_change_nothing() -> None:
    harness = ServerHarness(shared_store=True)
    never_asked = StoreAppend(stream=StreamKey("", "", ""), entries=(), token="")
    harness.server.append_completed(never_asked, AppendResult.CONFLICT, now=0)
    assert harness.events == []
