"""The first event of a response names a place: who is cut off early can come back."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from sansmcp import (
    App,
    Client,
    EntryKind,
    Limits,
    LocalProtocolError,
    MemoryStore,
    Server,
    ServerCall,
)
from sansmcp.effects import StoreAppend
from sansmcp.events import CallCompleted, CallFailed
from sansmcp.testing import Link, Pair, sequential_tokens

from .harness import LATEST, RawExchange, ServerHarness, methods, report_progress_all, request
from .instances import Instances


def cut_after(seconds: float, **settings: Any) -> list[Any]:
    """Break the connection of a call that takes a while; returns what the client got."""
    app = App("slow")
    runs: list[ServerCall] = []

    def work(call: ServerCall) -> Generator[float, None, Any]:
        runs.append(call)
        yield 0.2
        return {"done": True}

    app.handler("tools/call")(work)
    server = Server(app, new_token=sequential_tokens(), **settings)
    client = Client("http://localhost/mcp", versions=(LATEST,), jitter=lambda: 0.0)
    pair = Pair(client, server, Link(lambda: 0.5, latency=0.001), store=MemoryStore(Limits()))
    client.start(now=0.0)
    pair.run(5.0)
    client.call("tools/call", {"name": "slow"}, now=pair.clock.now)
    pair.run(5.0 + seconds)
    pair.break_connections()
    pair.run(200.0)
    assert len(runs) == 1
    ends = [event for event in pair.events if isinstance(event, CallCompleted | CallFailed)]
    return [event.result if isinstance(event, CallCompleted) else event.error for event in ends]


@pytest.mark.parametrize("milliseconds", [5, 10, 30, 45, 80, 150])
def test_a_call_that_is_cut_early_completes(milliseconds: int) -> None:
    """Before 50 ms had passed, such a call ended as Disconnected."""
    assert cut_after(milliseconds / 1000) == [{"done": True}]


def test_who_delays_the_stream_pays_for_it() -> None:
    (error,) = cut_after(0.03, stream_after=0.05)
    assert type(error).__name__ == "Disconnected"


# What is primed


def test_every_response_of_a_stream_is_primed(harness: ServerHarness) -> None:
    """A GET that resumes got an id with the next message only."""
    session = harness.open_session()
    talk, call = harness.call(session)
    harness.wait(0)
    report_progress_all(harness, call, "a")
    for reader in (talk, harness.get(session, talk.last_id)):
        again = harness.get(session, reader.last_id)
        (event,) = again.events
        assert (event.data, event.id) == ("", talk.last_id)


def test_before_the_first_message_a_stream_is_resumed_at_its_beginning(
    harness: ServerHarness,
) -> None:
    session = harness.open_session()
    talk, call = harness.call(session)
    harness.wait(0)
    resumed = harness.get(session, talk.lose_connection().last_id)
    assert [event.id for event in resumed.events] == [talk.last_id]
    harness.run_action(call.respond, {})
    assert methods(resumed) == ["answer"]
    assert resumed.ended


def test_an_id_means_the_same_to_every_instance() -> None:
    """The first id was that of a log without entries.

    Another instance refused it, for its store knew no such log.
    """
    first, second = instances = Instances()
    session = instances.open_session()
    talk, call = first.call(session)
    first.wait(0)
    first.wait(0.001)
    (primer,) = talk.events
    assert primer.data == ""
    resumed = second.get(session, talk.lose_connection().last_id)
    assert [event.id for event in resumed.events] == [primer.id]
    first.run_action(call.respond, {})
    instances.wait(0.5)
    assert methods(resumed) == ["answer"]
    assert resumed.ended


def opening() -> tuple[ServerHarness, RawExchange, ServerCall]:
    """A call at one of several instances; its store has just been asked to note the stream."""
    harness = ServerHarness(shared_store=True)
    session = harness.open_session()
    harness.store_works = False
    talk = harness.post(request(1), session)
    harness.use_store_once()
    call = harness.last_call()
    harness.wait(0)
    assert (talk.status, talk.body) == (200, b"")
    return harness, talk, call


def appended(harness: ServerHarness) -> list[EntryKind]:
    """The entries of the one append that the store is asked for, which is then done."""
    effect = harness.use_store_once()
    assert isinstance(effect, StoreAppend)
    assert harness.waiting == []
    return [entry.kind for entry in effect.entries]


@pytest.mark.parametrize("reports", [False, True])
def test_a_call_that_ends_at_once_is_one_append(*, reports: bool) -> None:
    harness, talk, call = opening()
    if reports:
        report_progress_all(harness, call, "a")
        assert appended(harness) == [EntryKind.OPENED, EntryKind.MESSAGE]
    assert harness.waiting == []
    harness.run_action(call.respond, {})
    assert len(appended(harness)) == 2 - reports
    assert [bool(event.data) for event in talk.events] == [False, *[True] * (1 + reports)]
    assert talk.ended


def test_before_2025_11_25_so_is_one_that_reports_at_once() -> None:
    harness = ServerHarness(shared_store=True)
    session = harness.open_session("2025-06-18")
    talk, call = harness.call(session, version=None)
    harness.store_works = False
    report_progress_all(harness, call, "a")
    assert appended(harness) == [EntryKind.WRITER, EntryKind.MESSAGE]
    assert methods(talk) == ["a"]


def test_a_client_has_an_id_after_a_millisecond() -> None:
    harness, talk, call = opening()
    assert harness.waiting == []
    harness.wait(0.001)
    assert appended(harness) == [EntryKind.OPENED]
    assert [event.data for event in talk.events] == [""]
    harness.run_action(call.respond, {})
    assert appended(harness) == [EntryKind.MESSAGE]


def test_a_question_does_not_wait() -> None:
    harness = ServerHarness(shared_store=True)
    session = harness.open_session(capabilities={"elicitation": {}})
    talk, call = harness.call(session)
    harness.wait(0)
    harness.run_action(call.ask, "elicitation/create", {}, timeout=1)
    assert methods(talk) == ["elicitation/create"]


def test_among_instances_no_id_is_told_before_it_is_stored() -> None:
    harness, talk, call = opening()
    harness.wait(0.001)
    assert talk.events == []
    harness.use_store_once()
    assert [event.data for event in talk.events] == [""]
    harness.run_action(call.respond, {})
    assert methods(talk) == []
    harness.use_store_once()
    assert methods(talk) == ["answer"]


def test_among_instances_a_client_is_let_go_when_it_has_an_id() -> None:
    """It was let go with no id, and could not come back."""
    harness, talk, call = opening()
    assert harness.run_action(call.disconnect, retry=1) is True
    assert not talk.ended
    report_progress_all(harness, call, "a")
    harness.use_store_once()
    assert [(bool(event.id), event.retry) for event in talk.events] == [(True, None), (True, 1000)]
    assert talk.ended


def test_among_instances_a_client_that_never_gets_an_id_stays() -> None:
    harness, talk, call = opening()
    assert harness.run_action(call.disconnect, retry=1) is True
    harness.fail_store_for_good()
    harness.run_action(call.respond, {})
    assert methods(talk) == ["answer"]


def test_among_instances_a_standalone_stream_has_an_id_from_the_beginning() -> None:
    harness = ServerHarness(shared_store=True)
    session = harness.open_session()
    reader = harness.get(session)
    assert reader.last_id
    assert harness.run_action(harness.server.disconnect_streams) == 1
    assert reader.ended
    assert harness.get(session, reader.last_id).status == 200


def test_without_the_store_no_id_is_told() -> None:
    harness, talk, call = opening()
    harness.wait(0.001)
    harness.fail_store_for_good()
    assert talk.events == []
    harness.run_action(call.respond, {})
    assert [(event.id, bool(event.data)) for event in talk.events] == [(None, True)]
    assert talk.ended


# When to come back


def test_each_response_says_once_when_to_come_back() -> None:
    """A server could say it only in the moment it sent a client away."""
    harness = ServerHarness(retry=1.5)
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a", "b")
    standalone = harness.get(session)
    for reader in (talk, standalone, harness.get(session, talk.events[0].id)):
        assert [event.retry for event in reader.events][:1] == [1500]
        assert [event.retry for event in reader.events][1:] == [None] * (len(reader.events) - 1)


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
def test_older_clients_are_told_with_the_first_message(version: str) -> None:
    harness = ServerHarness(retry=0.25)
    session = harness.open_session(version)
    talk, call = harness.call(session, version=None)
    report_progress_all(harness, call, "a", "b")
    assert [event.retry for event in talk.events] == [250, None]
    assert [event.retry for event in harness.get(session, talk.events[0].id).events] == [250]


def test_without_a_store_nobody_can_come_back() -> None:
    harness = ServerHarness(retry=1, resumable=False)
    talk, call = harness.call(harness.open_session())
    report_progress_all(harness, call, "a")
    assert [event.retry for event in talk.events] == [None]


@pytest.mark.parametrize("wrong", [-1, float("inf"), float("nan"), "1", True])
def test_nobody_comes_back_at_no_time(wrong: Any) -> None:
    with pytest.raises(LocalProtocolError, match="retry must"):
        ServerHarness(retry=wrong)


def test_standalone_streams_are_let_go() -> None:
    """Only the streams of calls could be polled."""
    harness = ServerHarness(retry=2)
    session, idle = harness.open_session(), harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a")
    standalone = harness.get(session)
    older = harness.get(harness.open_session("2025-06-18"))
    assert harness.run_action(harness.server.disconnect_streams) == 1
    assert (standalone.ended, standalone.aborted) == (True, False)
    assert [(event.data, event.retry) for event in standalone.events] == [("", 2000), ("", 2000)]
    assert not talk.ended
    assert not older.ended
    harness.run_action(harness.server.publish, "notifications/tools/list_changed")
    back = harness.get(session, standalone.last_id)
    assert methods(back) == ["notifications/tools/list_changed"]
    assert harness.run_action(harness.server.disconnect_streams, retry=0.5) == 1
    assert back.events[-1].retry == 500
    assert harness.get(idle).status == 200


def test_there_are_no_streams_to_be_let_go() -> None:
    unstored = ServerHarness(resumable=False)
    standalone = unstored.get(unstored.open_session())
    assert unstored.run_action(unstored.server.disconnect_streams) == 0
    assert not standalone.ended
    modern = ServerHarness(versions=("2026-07-28",))
    assert modern.run_action(modern.server.disconnect_streams) == 0
    modern.run_action(modern.server.publish, "notifications/tools/list_changed")
    with pytest.raises(LocalProtocolError, match="retry must"):
        modern.run_action(modern.server.disconnect_streams, retry=-1)


def test_a_planned_stop_says_when_to_come_back() -> None:
    """Where another instance goes on, clients are told to come back to it."""
    first, second = instances = Instances(retry=3)
    session = instances.open_session()
    talk, call = first.call(session)
    report_progress_all(first, call, "a")
    talk.lose_connection()
    first.run_action(call.respond, {})
    other, parked = second.call(session)
    standalone = first.get(session)
    report_progress_all(first, first.server.sessions[0], "x")
    following = first.get(session, talk.last_id)
    first.run_action(first.server.shut_down)
    for reader in (standalone,):
        assert (reader.ended, reader.aborted) == (True, False)
        assert reader.events[-1].retry == 3000
    back = second.get(session, standalone.last_id)
    assert back.status == 200
    assert following.ended
    assert parked.is_running
    assert other.head is None


def test_without_other_instances_nobody_is_told_to_come_back() -> None:
    harness = ServerHarness(retry=3)
    standalone = harness.get(harness.open_session())
    harness.run_action(harness.server.shut_down)
    assert [event.retry for event in standalone.events] == [3000]
    assert standalone.ended
