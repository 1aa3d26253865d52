"""Standalone streams: what belongs to no call is kept for a listener, and told to one of them."""

from __future__ import annotations

import pytest

from sansmcp import Limits

from .bench import Bench, methods, say

requirement = pytest.mark.requirement


@requirement("SHTTP-S-020", "SHTTP-S-022", "POLL-S-002")
def test_a_listener_gets_what_belongs_to_no_call(bench: Bench) -> None:
    key = bench.open_session()
    session = bench.server.sessions[0]
    listener = bench.get(key)
    assert [(event.data, bool(event.id)) for event in listener.events] == [("", True)]
    assert bench.do(session.notify, "a", {"x": 1}) is True
    assert listener.messages == [{"jsonrpc": "2.0", "method": "a", "params": {"x": 1}}]
    assert not listener.ended


@requirement("SHTTP-S-023")
@pytest.mark.parametrize("streams", [True, False])
def test_no_answer_goes_to_a_listener(bench: Bench, streams: bool) -> None:
    key = bench.open_session()
    listener = bench.get(key)
    talk, call = bench.call(key)
    if streams:
        bench.wait(0)
        talk.gone()
    bench.do(call.respond, {"a": 1})
    assert listener.messages == []
    answered = bench.get(key, talk.last_id).messages if streams else [talk.json]
    assert [message["result"] for message in answered] == [{"a": 1}]
    assert listener.messages == []


def test_what_was_said_before_anybody_listened_is_kept(bench: Bench) -> None:
    key = bench.open_session()
    session = bench.server.sessions[0]
    bench.do(session.notify, "a")
    listener = bench.get(key)
    assert methods(listener) == ["a"]
    listener.gone()
    bench.do(session.notify, "b")
    assert methods(bench.get(key, listener.last_id)) == ["b"]


def test_a_listener_without_a_cursor_goes_on_where_the_last_one_was(bench: Bench) -> None:
    key = bench.open_session()
    session = bench.server.sessions[0]
    first = bench.get(key)
    bench.do(session.notify, "a")
    first.gone()
    bench.do(session.notify, "b")
    second = bench.get(key)
    assert methods(second) == ["b"]
    assert methods(bench.get(key, first.events[0].id)) == ["a", "b"]


def test_a_listener_that_comes_too_late_gets_what_is_still_kept() -> None:
    bench = Bench(limits=Limits(max_stored_entries=2))
    key = bench.open_session()
    session = bench.server.sessions[0]
    bench.do(session.notify, "a")
    bench.do(session.notify, "b")
    bench.do(session.notify, "c")
    assert methods(bench.get(key)) == ["b", "c"]


def test_a_listener_whose_log_has_gone_altogether() -> None:
    bench = Bench(limits=Limits(max_stored_entries=2))
    key = bench.open_session()
    session = bench.server.sessions[0]
    bench.do(session.notify, "a")
    _, call = bench.call(key)
    say(bench, call, "x", "y", "z")
    listener = bench.get(key)
    assert (listener.status, methods(listener)) == (200, [])
    bench.do(session.notify, "b")
    assert methods(listener) == ["b"]


@requirement("SHTTP-C-012", "SHTTP-S-025", "SHTTP-S-026")
def test_of_several_listeners_one_gets_each_message(bench: Bench) -> None:
    key = bench.open_session()
    session = bench.server.sessions[0]
    first, second = bench.get(key), bench.get(key)
    bench.do(session.notify, "a")
    assert (methods(first), methods(second)) == ([], ["a"])
    second.gone()
    bench.do(session.notify, "b")
    assert methods(first) == ["b"]
    third = bench.get(key)  # takes over from the second
    bench.do(session.notify, "c")
    assert methods(third) == ["c"]
    resumed = bench.get(key, first.last_id)
    bench.do(session.notify, "d")
    assert methods(resumed) == ["d"]
    assert first.ended


def test_listeners_are_bounded() -> None:
    bench = Bench(limits=Limits(max_streams_per_session=2))
    key = bench.open_session()
    first, _ = bench.get(key), bench.get(key)
    refused = bench.get(key)
    assert (refused.status, refused.error["data"]["reason"]) == (429, "too_many_streams")
    first.gone()
    assert bench.get(key).status == 200
    assert bench.get(bench.open_session()).status == 200


def test_without_a_store_a_listener_gets_only_what_it_hears() -> None:
    bench = Bench(resumable=False)
    key = bench.open_session()
    session = bench.server.sessions[0]
    assert bench.do(session.notify, "lost") is False
    listener = bench.get(key)
    assert listener.events == []
    assert bench.do(session.notify, "a") is True
    assert methods(listener) == ["a"]
    assert [event.id for event in listener.events] == [None]
