"""Standalone streams: what belongs to no call is kept for a listener, and told to one of them."""

from __future__ import annotations

import pytest

from sansmcp import Limits

from .harness import ServerHarness, methods, report_progress_all

requirement = pytest.mark.requirement


@requirement("SHTTP-S-020", "SHTTP-S-022", "POLL-S-002")
def test_a_listener_gets_what_belongs_to_no_call(harness: ServerHarness) -> None:
    key = harness.open_session()
    session = harness.server.sessions[0]
    listener = harness.get(key)
    assert [(event.data, bool(event.id)) for event in listener.events] == [("", True)]
    assert harness.run_action(session.notify, "a", {"x": 1}) is True
    assert listener.messages == [{"jsonrpc": "2.0", "method": "a", "params": {"x": 1}}]
    assert not listener.ended


@requirement("SHTTP-S-023")
@pytest.mark.parametrize("streams", [True, False])
def test_no_answer_goes_to_a_listener(harness: ServerHarness, streams: bool) -> None:
    key = harness.open_session()
    listener = harness.get(key)
    talk, call = harness.call(key)
    if streams:
        harness.wait(0)
        talk.lose_connection()
    harness.run_action(call.respond, {"a": 1})
    assert listener.messages == []
    answered = harness.get(key, talk.last_id).messages if streams else [talk.json]
    assert [message["result"] for message in answered] == [{"a": 1}]
    assert listener.messages == []


def test_what_was_said_before_anybody_listened_is_kept(harness: ServerHarness) -> None:
    key = harness.open_session()
    session = harness.server.sessions[0]
    harness.run_action(session.notify, "a")
    listener = harness.get(key)
    assert methods(listener) == ["a"]
    listener.lose_connection()
    harness.run_action(session.notify, "b")
    assert methods(harness.get(key, listener.last_id)) == ["b"]


def test_a_listener_without_a_cursor_goes_on_where_the_last_one_was(harness: ServerHarness) -> None:
    key = harness.open_session()
    session = harness.server.sessions[0]
    first = harness.get(key)
    harness.run_action(session.notify, "a")
    first.lose_connection()
    harness.run_action(session.notify, "b")
    second = harness.get(key)
    assert methods(second) == ["b"]
    assert methods(harness.get(key, first.events[0].id)) == ["a", "b"]


def test_a_listener_that_comes_too_late_gets_what_is_still_kept() -> None:
    harness = ServerHarness(limits=Limits(max_stored_entries=2))
    key = harness.open_session()
    session = harness.server.sessions[0]
    harness.run_action(session.notify, "a")
    harness.run_action(session.notify, "b")
    harness.run_action(session.notify, "c")
    assert methods(harness.get(key)) == ["b", "c"]


def test_a_listener_whose_log_has_gone_altogether() -> None:
    harness = ServerHarness(limits=Limits(max_stored_entries=2))
    key = harness.open_session()
    session = harness.server.sessions[0]
    harness.run_action(session.notify, "a")
    _, call = harness.call(key)
    report_progress_all(harness, call, "x", "y", "z")
    listener = harness.get(key)
    assert (listener.status, methods(listener)) == (200, [])
    harness.run_action(session.notify, "b")
    assert methods(listener) == ["b"]


@requirement("SHTTP-C-012", "SHTTP-S-025", "SHTTP-S-026")
def test_of_several_listeners_one_gets_each_message(harness: ServerHarness) -> None:
    key = harness.open_session()
    session = harness.server.sessions[0]
    first, second = harness.get(key), harness.get(key)
    harness.run_action(session.notify, "a")
    assert (methods(first), methods(second)) == ([], ["a"])
    second.lose_connection()
    harness.run_action(session.notify, "b")
    assert methods(first) == ["b"]
    third = harness.get(key)  # takes over from the second
    harness.run_action(session.notify, "c")
    assert methods(third) == ["c"]
    resumed = harness.get(key, first.last_id)
    harness.run_action(session.notify, "d")
    assert methods(resumed) == ["d"]
    assert first.ended


def test_listeners_are_bounded() -> None:
    harness = ServerHarness(limits=Limits(max_streams_per_session=2))
    key = harness.open_session()
    first, _ = harness.get(key), harness.get(key)
    refused = harness.get(key)
    assert (refused.status, refused.error["data"]["reason"]) == (429, "too_many_streams")
    first.lose_connection()
    assert harness.get(key).status == 200
    assert harness.get(harness.open_session()).status == 200


def test_without_a_store_a_listener_gets_only_what_it_hears() -> None:
    harness = ServerHarness(resumable=False)
    key = harness.open_session()
    session = harness.server.sessions[0]
    assert harness.run_action(session.notify, "lost") is False
    listener = harness.get(key)
    assert listener.events == []
    assert harness.run_action(session.notify, "a") is True
    assert methods(listener) == ["a"]
    assert [event.id for event in listener.events] == [None]
