"""Sessions: opened by initialize, bound to their principal, ended once, and bounded."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from sansmcp import Limits, LocalProtocolError, Server, Session
from sansmcp.effects import StoreDrop
from sansmcp.events import CallCancelled, SessionClosed, SessionOpened
from sansmcp.states import SessionState
from sansmcp.testing import sequential_tokens

from .bench import LATEST, Bench, Talk, example_app, initialize, notification, request

requirement = pytest.mark.requirement


def only_session(bench: Bench) -> Session:
    (session,) = bench.server.sessions
    return session


@requirement("SESSION-S-001", "LIFECYCLE-S-001", "LIFECYCLE-S-003")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", LATEST])
def test_initialize_opens_a_session(bench: Bench, version: str) -> None:
    talk = bench.post(initialize(version, {"roots": {}}))
    assert talk.status == 200
    assert talk.json["result"] == {
        "protocolVersion": version,
        "capabilities": {"tools": {}, "resources": {"subscribe": True}},
        "serverInfo": {"name": "bench", "version": "1"},
    }
    session = only_session(bench)
    assert session.id is not None
    assert session.id.reveal() == talk.header("mcp-session-id")
    assert session.state.name == "OPENING"
    assert session.revision.name == version
    assert session.client_info == {"name": "bench", "version": "1"}
    assert session.client_capabilities == {"roots": {}}
    assert bench.events == [SessionOpened(session)]
    bench.post(notification("notifications/initialized"), session.id.reveal(), version)
    bench.post(notification("notifications/initialized"), session.id.reveal(), version)
    assert session.state is SessionState.READY


@requirement("LIFECYCLE-S-004", "LIFECYCLE-S-005")
@pytest.mark.parametrize("version", ["2026-07-28", "1999-01-01", "latest", ""])
def test_an_unknown_version_is_answered_with_the_newest(bench: Bench, version: str) -> None:
    assert bench.post(initialize(version)).json["result"]["protocolVersion"] == LATEST


def test_only_served_versions_are_negotiated() -> None:
    bench = Bench(versions=("2025-03-26", "2025-06-18"))
    assert bench.post(initialize(LATEST)).json["result"]["protocolVersion"] == "2025-06-18"


@pytest.mark.parametrize("params", [{}, {"protocolVersion": 1}, {"protocolVersion": None}])
def test_initialize_without_a_version(bench: Bench, params: dict[str, Any]) -> None:
    talk = bench.post(request(0, "initialize", **params))
    assert (talk.status, talk.error["code"]) == (200, -32602)
    assert bench.server.sessions == ()


def test_initialize_of_a_client_that_leaves_things_out(bench: Bench) -> None:
    assert bench.post(request(0, "initialize", protocolVersion=LATEST)).status == 200
    assert only_session(bench).client_capabilities == {}


@requirement("SESSION-S-002", "SESSION-S-010")
def test_session_ids_come_from_the_source_of_tokens() -> None:
    given: list[str] = []

    def new_token() -> str:
        given.append(secrets.token_urlsafe())
        return given[-1]

    bench = Bench()
    bench.server = Server(example_app(), new_token=new_token)
    ids = [bench.open_session() for _ in range(10)]
    assert len(set(ids)) == 10
    assert set(ids) <= set(given)


@requirement("SESSION-S-003")
@pytest.mark.parametrize(
    "token", ["short", "x" * 129, "with space in it ok", "new\nline-new-line", "ä" * 20]
)
def test_a_bad_source_of_tokens_is_refused(token: str) -> None:
    bench = Bench()
    bench.server = Server(example_app(), new_token=lambda: token)
    with pytest.raises(LocalProtocolError, match="new_token"):
        bench.post(initialize())


def test_a_server_tells_its_path() -> None:
    assert Bench(path="/x").server.path == "/x"


def test_versions_have_to_be_known() -> None:
    with pytest.raises(LocalProtocolError):
        Server(example_app(), new_token=sequential_tokens(), versions=("2025-11-25", "draft"))


@requirement("SESSION-S-005", "SESSION-S-006", "SESSION-C-004")
def test_delete_ends_everything(bench: Bench) -> None:
    session = bench.open_session()
    talk, call = bench.call(session)
    bench.do(call.notify, "x")
    listener = bench.get(session)
    quiet, unanswered = bench.call(session)
    assert bench.send("DELETE", {"mcp-session-id": session}).status == 200
    for stream in (talk, listener, quiet):
        assert (stream.status, stream.ended, stream.aborted) == (200, True, False)
    reasons = [type(event) for event in bench.events]
    assert reasons == [CallCancelled, CallCancelled, SessionClosed]
    assert not call.is_running
    assert not unanswered.is_running
    assert bench.store.count == 0
    assert bench.server.sessions == ()
    assert bench.post(request(9), session).status == 404
    assert call.peer.notify("late", now=0) is False
    assert isinstance(call.peer, Session)
    assert call.peer.state is SessionState.ENDED


def test_delete_while_readers_have_not_sent_everything(bench: Bench) -> None:
    session = bench.open_session()
    talk, call = bench.call(session)
    bench.do(call.notify, "x")
    talk.reads = False
    newer = bench.get(session, talk.last_id)  # takes over; the older end is not sent yet
    newer.reads = False
    bench.do(call.respond, {})
    assert bench.send("DELETE", {"mcp-session-id": session}).status == 200
    for reader in (talk, newer):
        reader.reads = True
        reader.pull()
        assert reader.ended


def test_an_idle_session_expires() -> None:
    bench = Bench(limits=Limits(session_idle_timeout=60))
    session = bench.open_session()
    bench.wait(50)
    bench.post(request(1, "ping"), session)
    bench.wait(50)
    assert bench.server.sessions
    bench.wait(11)
    assert bench.server.sessions == ()
    assert isinstance(bench.events[-1], SessionClosed)
    assert bench.events[-1].reason == "idle for too long"
    assert bench.post(request(2, "ping"), session).status == 404
    assert bench.server.next_deadline() is None


@pytest.mark.parametrize(
    "message",
    [notification("notifications/roots/list_changed"), {"jsonrpc": "2.0", "id": 9, "result": {}}],
)
def test_a_session_that_only_notifies_or_answers_is_used(message: dict[str, Any]) -> None:
    bench = Bench(limits=Limits(session_idle_timeout=60))
    session = bench.open_session()
    for _ in range(3):
        bench.wait(0.9 * 60)
        assert bench.post(message, session).status == 202
    assert bench.server.sessions


def test_a_busy_session_does_not_expire() -> None:
    bench = Bench(limits=Limits(session_idle_timeout=60))
    session = bench.open_session()
    _, call = bench.call(session)
    bench.wait(1000)
    assert bench.server.sessions
    listener = bench.get(session)
    bench.do(call.respond, {})
    bench.wait(1000)
    assert bench.server.sessions
    listener.gone()
    bench.wait(59)
    assert bench.server.sessions
    bench.wait(62)
    assert bench.server.sessions == ()


def test_sessions_are_bounded() -> None:
    bench = Bench(limits=Limits(max_sessions=2))
    first, second = bench.open_session(), bench.open_session()
    for session in (first, second):
        bench.post(request(1, "ping"), session)
    refused = bench.post(initialize())
    assert (refused.status, refused.error["data"]) == (
        503,
        {"reason": "too_many_sessions", "limit": 2},
    )
    bench.send("DELETE", {"mcp-session-id": first})
    assert bench.post(initialize()).status == 200


def opened_by(bench: Bench, principal: str) -> str:
    """A session of a principal, which makes no request yet."""
    talk = bench.post(initialize(), principal=principal)
    assert talk.status == 200
    return talk.header("mcp-session-id") or ""


@pytest.mark.parametrize("attacker", ["", "attacker"])
def test_many_sessions_lock_nobody_out(attacker: str) -> None:
    """Row B8 of the review: 10,100 initialize locked all others out for 30 minutes."""
    bench = Bench(limits=Limits(max_sessions=1000, max_sessions_per_principal=500))
    neighbour = opened_by(bench, "")
    assert bench.post(request(1, "ping"), neighbour).status == 200
    assert bench.get(neighbour).status == 200
    for _ in range(1100):
        opened_by(bench, attacker)
    assert len(bench.server.sessions) == (1000 if attacker == "" else 501)
    assert bench.post(request(2, "ping"), neighbour).status == 200
    for principal in ("", "newcomer"):
        newcomer = opened_by(bench, principal)
        ping = bench.post(request(1, "ping"), newcomer, principal=principal)
        assert ping.status == 200
    assert bench.post(request(3, "ping"), neighbour).status == 200


def test_unused_sessions_go_first_and_oldest_first() -> None:
    """Row B8 of the review: of the principal that has most of them."""
    bench = Bench(limits=Limits(max_sessions=6))
    ids = {name: [opened_by(bench, name) for _ in range(2)] for name in ("a", "b")}
    ids["c"] = [opened_by(bench, "c") for _ in range(2)]
    for name in "ab":
        bench.post(request(1, "ping"), ids[name][0], principal=name)
        bench.post(b'{"jsonrpc":"2.0","method":"x"}', ids[name][1], principal=name)
    opened_by(bench, "d")
    statuses = {
        (name, number): bench.post(request(2, "ping"), id, principal=name).status
        for name, each in ids.items()
        for number, id in enumerate(each)
    }
    gone = [name for name, status in statuses.items() if status == 404]
    assert gone == [("c", 0)]


def test_an_answer_makes_a_session_used() -> None:
    """Its call may run at another instance, and go on here when the answer is stored.

    Seed 2941855010663 of the simulator: a call whose last answer was accepted was never heard of
    again.
    """
    bench = Bench(limits=Limits(max_sessions=2))
    answered, noted = bench.open_session(), opened_by(bench, "")
    answer = bench.post({"jsonrpc": "2.0", "id": "q", "result": {}}, answered)
    assert answer.status == 202
    assert bench.post(initialize()).status == 200
    assert bench.post(request(1, "ping"), answered).status == 200
    assert bench.post(request(1, "ping"), noted).status == 404


def test_one_principal_cannot_take_all_sessions() -> None:
    """Row B8 of the review: not even by using them."""
    bench = Bench(limits=Limits(max_sessions=10, max_sessions_per_principal=3))
    for _ in range(3):
        bench.post(request(1, "ping"), opened_by(bench, "a"), principal="a")
    refused = bench.post(initialize(), principal="a")
    assert (refused.status, refused.error["data"]["limit"]) == (503, 3)
    for _ in range(7):  # who is not authenticated is not one principal
        bench.post(request(1, "ping"), opened_by(bench, ""))
    refused = bench.post(initialize())
    assert (refused.status, refused.error["data"]["limit"]) == (503, 10)
    assert bench.post(initialize(), principal="b").status == 503


def test_a_session_that_goes_before_it_is_stored() -> None:
    """It can be found by its id nevertheless, for it is in the store."""
    bench = Bench(shared_store=True, store_works=False, limits=Limits(max_sessions=1))
    first, second = bench.post(initialize()), bench.post(initialize())
    assert [first.head, second.head] == [None, None]
    bench.use_store_once()
    bench.fail_store_once()
    assert (first.status, second.status) == (200, 503)
    assert bench.server.sessions == ()
    bench.store_works = True
    assert bench.post(request(1, "ping"), first.header("mcp-session-id") or "").status == 200


def test_a_session_that_goes_before_it_could_not_be_stored() -> None:
    bench = Bench(shared_store=True, store_works=False, limits=Limits(max_sessions=1))
    first, second = bench.post(initialize()), bench.post(initialize())
    bench.fail_store_once()
    bench.use_store_once()
    assert (first.status, second.status) == (503, 200)
    assert len(bench.server.sessions) == 1


def test_the_application_can_end_a_session(bench: Bench) -> None:
    session = bench.open_session()
    ended = only_session(bench)
    bench.do(bench.server.end_session, ended, "no more credit")
    bench.do(bench.server.end_session, ended, "twice")
    assert bench.events == [SessionClosed(ended, "no more credit")]
    assert bench.post(request(1, "ping"), session).status == 404


def test_shutting_down_ends_every_stream_properly(bench: Bench) -> None:
    streams: list[Talk] = []
    for _ in range(3):
        session = bench.open_session()
        streams += [bench.get(session), bench.call(session)[0]]
    assert bench.server.is_busy
    bench.do(bench.server.shut_down)
    assert all(stream.ended and not stream.aborted for stream in streams)
    assert bench.server.sessions == ()
    assert not bench.server.is_busy
    assert bench.post(initialize()).status == 503


def test_without_a_store_nothing_is_dropped() -> None:
    bench = Bench(resumable=False, store_works=False)
    session = bench.open_session()
    bench.send("DELETE", {"mcp-session-id": session})
    assert bench.waiting == []
    stored = Bench(store_works=False)
    session = stored.open_session()
    stored.send("DELETE", {"mcp-session-id": session})
    assert stored.waiting == [StoreDrop(principal="", session=session)]
    assert session not in repr(stored.waiting)


@requirement("SESSION-S-009", "SESSION-S-011", "SESSION-S-008")
def test_a_session_is_of_no_use_to_another_principal(bench: Bench) -> None:
    session = bench.open_session(principal="alice")
    answers = [
        bench.post(request(1, "ping"), session, principal=principal).status
        for principal in ("alice", "bob", "")
    ]
    assert answers == [200, 404, 404]


def test_many_sessions_cost_each_little() -> None:
    """Time per session does not depend on how many there are."""
    bench = Bench()
    for _ in range(300):
        bench.open_session()
    assert len(bench.server.sessions) == 300
    assert bench.server.next_deadline() == 1800
