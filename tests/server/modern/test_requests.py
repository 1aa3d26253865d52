"""Requests that stand alone: how they are answered, and what is said before the answer."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import App, Limits, LocalProtocolError, Session
from sansmcp.events import CallCancelled, CallReceived
from sansmcp.meta_keys import LOG_LEVEL
from sansmcp.revisions import REVISIONS
from sansmcp.server.calls import CallOwner
from sansmcp.tasks import PROGRESS_UNSHOWN

from ...handlers import nothing
from ..harness import JSON, STREAM, RawExchange, expect, methods
from .harness import (
    MODERN,
    SERVER_INFO,
    ModernServerHarness,
    meta,
    modern,
    modern_app,
    notification_from,
)

requirement = pytest.mark.requirement
US = {"name": "bench", "version": "1"}
FIRST = {"resultType": "complete"}
LAST = {"_meta": {SERVER_INFO: US}}


def header_names(talk: RawExchange) -> set[bytes]:
    assert talk.head is not None
    return {name for name, _ in talk.head.headers}


# Answers


@requirement("MODERN-S-005", "MODERN-S-022", "VERS-S-008", "JSONRPC-B-007", "JSONRPC-B-011")
@pytest.mark.parametrize("id", [1, "1", "a", 10**30])
def test_an_answer_at_once_is_json(harness: ModernServerHarness, id: Any) -> None:
    talk, call = harness.start(modern(id))
    assert harness.run_action(call.respond, {"content": []}) is True
    assert (talk.status, talk.ended, talk.aborted) == (200, True, False)
    result: dict[str, Any] = {**FIRST, "content": [], **LAST}
    assert talk.json == {"jsonrpc": "2.0", "id": id, "result": result}
    assert b"mcp-session-id" not in header_names(talk)
    assert not harness.server.is_busy


@requirement("MODERN-S-005", "MODERN-S-009", "MODERN-S-012", "RESUME-S-001")
def test_an_answer_that_takes_long_is_a_stream() -> None:
    harness = ModernServerHarness(stream_after=1.0)
    talk, call = harness.start()
    harness.wait(0.9)
    assert talk.head is None
    harness.wait(0.1)
    assert (talk.status, talk.header("content-type")) == (200, STREAM)
    assert talk.header("x-accel-buffering") == "no"
    assert talk.events == []
    harness.run_action(call.respond, {"a": 1})
    assert talk.messages == [{"jsonrpc": "2.0", "id": 1, "result": {**FIRST, "a": 1, **LAST}}]
    assert (talk.ended, talk.aborted) == (True, False)


def test_an_answer_can_be_a_stream_from_the_beginning() -> None:
    harness = ModernServerHarness(stream_after=0)
    talk, call = harness.start()
    assert (talk.status, talk.body) == (200, b"")
    harness.run_action(call.respond, {})
    assert methods(talk) == ["answer"]


@requirement("MODERN-S-006", "MODERN-S-026")
def test_what_is_said_before_makes_it_a_stream(harness: ModernServerHarness) -> None:
    talk, call = harness.start()
    assert harness.run_action(call.notify, "notifications/a", {"x": 1}) is True
    assert harness.run_action(call.notify, "notifications/b") is True
    harness.run_action(call.respond, {})
    assert methods(talk) == ["notifications/a", "notifications/b", "answer"]
    assert talk.ended


@requirement("RESUME-S-009")
@pytest.mark.both_eras
def test_there_are_no_event_ids_and_nothing_is_stored(harness: ModernServerHarness) -> None:
    """Though there is a store."""
    talk, call = harness.start()
    harness.run_action(call.notify, "notifications/a")
    assert harness.run_action(call.disconnect, retry=1.0) is False
    harness.run_action(call.respond, {"large": "x" * 100_000})
    assert all(event.id is None and event.retry is None for event in talk.events)
    assert harness.store.count == 0
    large, call = harness.start()
    harness.run_action(call.respond, {"large": "x" * 100_000})
    assert large.header("content-type") == JSON


def test_a_stream_that_has_begun_is_not_begun_again(harness: ModernServerHarness) -> None:
    """The time after which it would have begun by itself comes later."""
    talk, call = harness.start()
    harness.run_action(call.notify, "notifications/a")
    assert harness.server.next_deadline() == harness.server.limits.stream_comment_interval
    harness.wait(1)
    assert methods(talk) == ["notifications/a"]


def test_a_quiet_stream_is_kept_alive() -> None:
    harness = ModernServerHarness(limits=Limits(stream_comment_interval=10))
    talk, call = harness.start(modern(1, about={**meta(), "progressToken": 1}))
    harness.wait(1)
    assert talk.body == b""
    harness.wait(10)
    assert talk.body == b":\n\n"
    harness.wait(10)
    assert talk.body == b":\n\n" * 2
    harness.run_action(call.respond, {})
    harness.wait(100)
    assert methods(talk) == ["answer"]
    assert harness.server.next_deadline() is None


@pytest.mark.parametrize(
    ("asks", "opens_after"),
    [
        ({}, 10.0),
        ({"progressToken": 1, PROGRESS_UNSHOWN: True}, 10.0),
        ({"progressToken": 1}, 0.05),
        ({LOG_LEVEL: "info"}, 0.05),
    ],
)
def test_a_stream_opens_late_if_nothing_can_precede_the_result(
    asks: dict[str, Any], opens_after: float
) -> None:
    harness = ModernServerHarness(limits=Limits(stream_comment_interval=10))
    talk, call = harness.start(modern(1, about={**meta(), **asks}))
    harness.wait(opens_after - 0.01)
    assert talk.status is None
    harness.run_action(call.respond, {})
    assert talk.header("content-type") == JSON
    talk, call = harness.start(modern(2, about={**meta(), **asks}))
    harness.wait(opens_after)
    assert talk.header("content-type") == STREAM


def test_a_message_of_the_handler_opens_it_at_once(harness: ModernServerHarness) -> None:
    talk, call = harness.start()
    harness.run_action(call.notify, "notifications/x")
    assert talk.header("content-type") == STREAM


@requirement("MODERN-S-010")
def test_after_the_answer_nothing_can_be_said(harness: ModernServerHarness) -> None:
    talk, call = harness.start(modern(1, about=meta(progressToken=1)))
    harness.run_action(call.notify, "notifications/a")
    harness.run_action(call.respond, {})
    body = talk.body
    assert harness.run_action(call.notify, "notifications/b") is False
    assert harness.run_action(call.progress, 1) is False
    assert harness.run_action(call.respond, {}) is False
    assert harness.run_action(call.respond_error, 1, "late") is False
    assert talk.body == body


@pytest.mark.parametrize("code", [-32602, -32603, -32601, -32020, 7])
def test_an_error_of_a_handler_is_an_answer_like_others(
    harness: ModernServerHarness, code: int
) -> None:
    """A status of its own could be read as one of an older server."""
    talk, call = harness.start(modern("a"))
    harness.run_action(call.respond_error, code, "no", {"x": 1})
    assert talk.status == 200
    error = {"code": code, "message": "no", "data": {"x": 1}}
    assert talk.json == {"jsonrpc": "2.0", "id": "a", "error": error}


@requirement("MODERN-S-021")
def test_an_error_about_capabilities_has_a_status_of_its_own() -> None:
    harness = ModernServerHarness(stream_after=1)
    talk, call = harness.start()
    harness.run_action(
        call.respond_error, -32021, "sampling", {"requiredCapabilities": {"sampling": {}}}
    )
    assert (talk.status, talk.error["code"]) == (400, -32021)
    talk, call = harness.start()
    harness.run_action(call.notify, "notifications/x")
    harness.run_action(call.respond_error, -32021, "too late for a status")
    assert (talk.status, methods(talk)) == (200, ["notifications/x", "answer"])


@requirement("MODERN-S-014")
@pytest.mark.parametrize(("method", "status"), [("com.example/odd", 404), ("tools/call", 200)])
def test_a_method_that_a_fallback_does_not_know_is_not_implemented(
    method: str, status: int
) -> None:
    app = modern_app()
    app.fallback(print)
    harness = ModernServerHarness(app)
    talk, call = harness.start(modern("a", method))
    harness.run_action(call.respond_error, -32601, "no")
    assert (talk.status, talk.error["code"]) == (status, -32601)


# What is said before the answer


@requirement("PROGRESS-B-007")
def test_progress(harness: ModernServerHarness) -> None:
    message = modern(1, about={**meta(), "progressToken": "t"})
    talk, call = harness.start(message)
    assert harness.run_action(call.progress, 1, 2, "half") is True
    harness.run_action(call.respond, {})
    params = {"progressToken": "t", "progress": 1, "total": 2, "message": "half"}
    assert talk.messages[0]["params"] == params
    _, call = harness.start()
    assert harness.run_action(call.progress, 1) is False


@requirement("MODERN-S-007", "MODERN-S-029", "MODERN-S-027", "MODERN-S-028", "MODERN-S-011")
def test_each_request_hears_what_it_has_asked_for() -> None:
    harness = ModernServerHarness(modern_app())
    asked = {"toolsListChanged": True}
    listener = harness.ask(modern("l", "subscriptions/listen", notifications=asked))
    levels = {"silent": None, "all": "debug", "bad": "error"}
    running: dict[str, Any] = {}
    for name, level in levels.items():
        about = (
            {**meta(), "progressToken": name}
            if level is None
            else {**meta(logLevel=level), "progressToken": name}
        )
        running[name] = harness.start(modern(name, about=about))
    for name, (_, call) in running.items():
        for level in ("debug", "info", "error", "emergency", "loud", None):
            said = harness.run_action(
                call.notify, "notifications/message", {"level": level, "data": name}
            )
            heard_from = levels[name]
            assert said is (
                (heard_from == "debug" and level in ("debug", "info", "error", "emergency"))
                or (heard_from == "error" and level in ("error", "emergency"))
            )
        harness.run_action(call.progress, 1)
        harness.run_action(call.respond, {})
    told = {name: methods(talk) for name, (talk, _) in running.items()}
    log = "notifications/message"
    assert told == {
        "silent": ["notifications/progress", "answer"],
        "all": [log, log, log, log, "notifications/progress", "answer"],
        "bad": [log, log, "notifications/progress", "answer"],
    }
    for name, (talk, _) in running.items():
        tokens = [m["params"]["progressToken"] for m in talk.messages if "progress" in str(m)]
        assert tokens == [name]
    assert methods(listener) == ["notifications/subscriptions/acknowledged"]


@requirement("MODERN-S-027")
def test_a_log_message_without_parameters_is_not_heard(harness: ModernServerHarness) -> None:
    talk, call = harness.start(modern(1, about=meta(logLevel="debug")))
    assert harness.run_action(call.notify, "notifications/message") is False
    harness.run_action(call.respond, {})
    assert talk.header("content-type") == JSON


@requirement("MODERN-S-008", "MRTR-S-001")
def test_a_server_asks_nothing(harness: ModernServerHarness) -> None:
    everything: dict[str, Any] = {"sampling": {}, "elicitation": {}, "roots": {}}
    talk, call = harness.start(modern(1, about=meta(everything)))
    for method in ("sampling/createMessage", "elicitation/create", "roots/list", "ping"):
        with pytest.raises(LocalProtocolError, match="InputRequired"):
            call.ask(method, timeout=1, now=0)
    harness.run_action(call.respond, {})
    assert talk.header("content-type") == JSON


def test_a_slow_client_makes_handlers_wait() -> None:
    harness = ModernServerHarness(limits=Limits(max_unsent_bytes=100))
    talk, call = harness.start()
    assert not call.is_above_high_water
    talk.reads = False
    harness.run_action(call.notify, "notifications/x", {"a": "x" * 100})
    assert call.is_above_high_water
    talk.reads = True
    talk.pull()
    assert not call.is_above_high_water
    harness.run_action(call.respond, {})
    assert not call.is_above_high_water


# Nothing is taken from elsewhere


@requirement("SESSION-S-012", "SESSION-S-013", "RESUME-S-008")
@pytest.mark.both_eras
def test_what_belongs_to_sessions_is_ignored(harness: ModernServerHarness) -> None:
    session = harness.open_session()
    for given in (session, "unknown", ""):
        headers = {"mcp-session-id": given, "last-event-id": "abc-1"}
        talk, call = harness.start(None, headers)
        assert not isinstance(call.peer, Session)
        assert call.peer.notify("notifications/x", now=0) is False
        harness.run_action(call.respond, {})
        assert (talk.status, talk.header("mcp-session-id")) == (200, None)
        assert harness.ask(notification_from("notifications/x"), headers).status == 202
    (only,) = harness.server.sessions
    assert isinstance(only, CallOwner)
    assert only.calls == {}


@requirement("MODERN-S-018", "MODERN-S-023", "MODERN-S-024", "MODERN-S-025", "MODERN-B-002")
def test_a_request_is_known_by_what_it_says_itself(harness: ModernServerHarness) -> None:
    talks: list[RawExchange] = []
    declared: list[dict[str, Any]] = [{"sampling": {}}, {}, {"roots": {}}]
    for number, capabilities in enumerate(declared):
        info = {"name": f"client {number}", "version": "1"}
        message = modern(1, about=meta(capabilities, clientInfo=info))  # the same id, all the time
        talk, call = harness.start(message, principal=f"p{number}")
        assert call.peer.client_capabilities == capabilities
        assert call.peer.client_info == info
        assert call.peer.principal == f"p{number}"
        assert not isinstance(call.peer, Session)
        talks.append(talk)
    assert harness.server.is_busy
    assert harness.server.sessions == ()
    assert all(talk.head is None for talk in talks)


# Cancellation


@requirement("CANCEL-S-001", "CANCEL-S-004", "CANCEL-S-005", "CANCEL-S-002")
@pytest.mark.parametrize("streams", [True, False])
def test_a_client_that_goes_away_has_cancelled(streams: bool) -> None:
    harness = ModernServerHarness()
    message = modern(1, about={**meta(logLevel="debug"), "progressToken": 1})
    talk, call = harness.start(message)
    other, unharmed = harness.start(message)
    if streams:
        harness.run_action(call.progress, 1)
    body = talk.body
    talk.lose_connection()
    assert harness.events == [CallCancelled(call, "the client has closed the response")]
    assert not call.is_running
    assert harness.run_action(call.progress, 2) is False
    assert harness.run_action(call.notify, "notifications/message", {"level": "error"}) is False
    assert harness.run_action(call.respond, {}) is False
    assert not call.is_above_high_water
    talk.pull()
    assert (talk.body, talk.ended, talk.aborted) == (body, False, False)
    assert harness.run_action(unharmed.respond, {}) is True
    assert other.status == 200
    harness.wait(100)
    assert not harness.server.is_busy
    assert len(harness.events) == 1


@requirement("CANCEL-B-006")
def test_an_answer_and_a_cancellation_cross(harness: ModernServerHarness) -> None:
    talk, call = harness.start()
    talk.reads = False
    harness.run_action(call.respond, {})
    talk.lose_connection()
    assert harness.events == []
    assert not harness.server.is_busy


def test_a_client_that_goes_before_its_request_is_complete(harness: ModernServerHarness) -> None:
    talk = RawExchange(harness).lose_connection()
    assert not any(isinstance(event, CallReceived) for event in harness.events)
    assert talk.head is None


@requirement("MODERN-S-022")
def test_who_we_are_may_be_kept_to_ourselves() -> None:
    app = modern_app()
    app.anonymous = True
    harness = ModernServerHarness(app)
    for result, shown in (({}, {}), ({"_meta": {"x": 1}}, {"_meta": {"x": 1}})):
        talk, call = harness.start()
        harness.run_action(call.respond, result)
        assert talk.json["result"] == {"resultType": "complete", **shown}
    assert "_meta" not in harness.ask(modern(1, "server/discover")).json["result"]


def test_what_is_for_people_is_sent_once() -> None:
    """Each other result has name and version only, since icons may be large."""
    app = modern_app()
    app.title, app.icons = "A Title", [{"src": "https://example.com/i.png"}]
    harness = ModernServerHarness(app)
    discovered = harness.ask(modern(1, "server/discover")).json["result"]
    assert discovered["_meta"][SERVER_INFO] == {
        **app.identity,
        "title": app.title,
        "icons": app.icons,
    }
    talk, call = harness.start()
    harness.run_action(call.respond, {})
    assert talk.json["result"]["_meta"][SERVER_INFO] == app.identity


# Ending


def test_a_server_that_drains_lets_run_what_runs(harness: ModernServerHarness) -> None:
    talk, call = harness.start()
    harness.run_action(harness.server.drain)
    expect(harness.ask(modern("n")), 503, "shutting_down", id="n")
    for method in ("server/discover", "subscriptions/listen"):
        expect(harness.ask(modern("n", method)), 503, "shutting_down", id="n")
    assert harness.server.is_busy
    harness.run_action(call.respond, {})
    assert talk.status == 200
    assert not harness.server.is_busy


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("versions", [REVISIONS, (MODERN,)])
def test_what_runs_when_the_server_shuts_down_is_told_so(
    streams: bool, versions: tuple[str, ...]
) -> None:
    harness = ModernServerHarness(stream_after=0 if streams else 1, versions=versions)
    talk, call = harness.start()
    harness.run_action(harness.server.shut_down)
    assert harness.events == [CallCancelled(call, "the server shuts down")]
    assert talk.ended
    if streams:
        (answer,) = talk.messages
    else:
        answer = talk.json
        assert talk.status == 200  # with 503 a client would repeat what has run
    assert (answer["id"], answer["error"]["data"]["reason"]) == (1, "shutting_down")
    assert not harness.server.is_busy
    assert harness.server.next_deadline() is None


def test_many_requests_leave_nothing_behind() -> None:
    app = App("bench")
    app.handler("tools/call")(nothing)
    harness = ModernServerHarness(app)
    for id in range(100):
        talk, call = harness.start(modern(id))
        if id % 2:
            talk.lose_connection()
        else:
            harness.run_action(call.respond, {})
    assert not harness.server.is_busy
    assert harness.server.next_deadline() is None
