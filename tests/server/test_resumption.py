"""Streams are resumed from every place that is still kept, and only by those they belong to."""

from __future__ import annotations

import pytest

from sansmcp import Entry, EntryKind, EventId, Limits, MemoryStore, StreamKey
from sansmcp.effects import StoreAppend, StoreRead
from sansmcp.events import RefusalSent

from ..appending import append
from .harness import PING, ServerHarness, methods, report_progress_all
from .instances import Instances

requirement = pytest.mark.requirement


@requirement("RESUME-S-001", "RESUME-S-005", "RESUME-S-007", "RESUME-C-003", "SHTTP-S-023")
def test_a_stream_is_resumed_from_every_place(harness: ServerHarness) -> None:
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a", "b", "c")
    ids = [event.id for event in talk.events]
    assert len(set(ids)) == 4
    resumed = talk
    for index, id in enumerate(ids):
        resumed = harness.get(session, id)
        assert resumed.status == 200
        assert methods(resumed) == ["a", "b", "c"][index:]
        assert [event.id for event in resumed.events] == ids[index:], "the first one primes it"
    assert talk.ended
    harness.run_action(call.respond, {})
    assert methods(resumed) == ["answer"]
    assert resumed.ended
    for index, id in enumerate(ids):
        assert methods(harness.get(session, id)) == ["a", "b", "c", "answer"][index:]


@requirement("RESUME-S-007")
def test_a_newer_reader_replaces_the_older(harness: ServerHarness) -> None:
    session = harness.open_session()
    first, call = harness.call(session)
    report_progress_all(harness, call, "a")
    second = harness.get(session, first.last_id)
    assert (first.ended, first.aborted) == (True, False)
    report_progress_all(harness, call, "b")
    assert (methods(first), methods(second)) == (["a"], ["b"])
    first.lose_connection()
    report_progress_all(harness, call, "c")
    assert methods(second) == ["b", "c"]


def test_what_is_said_while_nobody_reads_is_kept(harness: ServerHarness) -> None:
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a")
    talk.lose_connection()
    report_progress_all(harness, call, "b", "c")
    harness.run_action(call.respond, {})
    resumed = harness.get(session, talk.last_id)
    assert methods(resumed) == ["b", "c", "answer"]
    assert resumed.ended
    again = harness.get(session, resumed.last_id)
    assert (again.status, again.messages, again.ended) == (200, [], True)


@requirement("RESUME-S-006", "RESUME-S-002")
def test_streams_and_sessions_are_apart(harness: ServerHarness) -> None:
    session, other = harness.open_session(), harness.open_session()
    talk, call = harness.call(session, 1)
    talk2, call2 = harness.call(session, 2)
    report_progress_all(harness, call, "a")
    report_progress_all(harness, call2, "b")
    for stranger in (other, harness.open_session(principal="eve")):
        refused = harness.get(
            stranger, talk.events[0].id, principal="eve" if stranger != other else ""
        )
        assert (refused.status, refused.error["data"]["reason"]) == (400, "unknown_event_id")
    assert methods(harness.get(session, talk.events[0].id)) == ["a"]
    assert methods(harness.get(session, talk2.events[0].id)) == ["b"]
    assert not {event.id for event in talk.events} & {event.id for event in talk2.events}


def test_a_place_that_was_never_reached_is_unknown(harness: ServerHarness) -> None:
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a")
    cursor = EventId.decode(talk.last_id)
    assert cursor is not None
    beyond = EventId(cursor.stream, 2).encode()
    assert harness.get(session, beyond).status == 400
    harness.run_action(call.respond, {})
    assert harness.get(session, beyond).status == 200
    assert harness.get(session, EventId(cursor.stream, 3).encode()).status == 400


def test_what_is_no_longer_kept_is_said(harness: ServerHarness) -> None:
    harness = ServerHarness(limits=Limits(max_stored_entries=2))
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a", "b", "c", "d")
    ids = [event.id for event in talk.events]
    assert harness.get(session, ids[1]).status == 400
    assert isinstance(harness.events[-1], RefusalSent)
    assert methods(harness.get(session, ids[2])) == ["c", "d"]


def test_what_still_runs_is_not_old() -> None:
    """A quiet call went from the store after ``max_stored_age``.

    So no other instance knew it. The client misses nothing: it gets no event for what keeps the
    log.
    """
    first, second = instances = Instances(limits=Limits(max_stored_age=90))
    session = instances.open_session()
    talk, call = first.call(session)
    report_progress_all(first, call, "a")
    for _ in range(40):
        instances.grow_old(20)
        assert second.post(PING, session).status == 200
    assert methods(talk) == ["a"]
    talk.lose_connection()
    quiet = second.get(session, talk.last_id)
    assert (quiet.status, quiet.messages) == (200, [])
    first.run_action(call.notify, "b")
    instances.wait(1)
    assert methods(quiet) == ["b"]
    first.run_action(call.respond, {})
    instances.wait(1)
    assert methods(quiet) == ["b", "answer"]
    assert second.get(session, talk.events[0].id).status == 400  # "a" has grown old


def asked_to_keep(harness: ServerHarness) -> list[StoreAppend]:
    appends = [effect for effect in harness.waiting if isinstance(effect, StoreAppend)]
    return [each for each in appends if each.entries[0].kind is EntryKind.KEPT]


def test_a_store_that_is_slow_is_not_asked_twice_to_keep_a_log() -> None:
    """And one that has failed is not asked at all."""
    harness = ServerHarness(limits=Limits(max_stored_age=90), shared_store=True)
    session = harness.open_session()
    _, call = harness.call(session)
    report_progress_all(harness, call, "a")
    harness.wait(20)  # another instance is told that the call runs
    harness.store_works = False

    for _ in range(8):
        harness.wait(20)
    (kept,) = asked_to_keep(harness)
    assert len(kept.entries) == 1
    harness.fail_store_for_good(kept)
    for _ in range(8):
        harness.wait(20)
    assert asked_to_keep(harness) == []


def test_a_stream_that_is_resumed_while_its_ended_log_is_stored_ends() -> None:
    """Its response stayed open, with nothing to come (seed 2769739180854)."""
    harness = ServerHarness(limits=Limits(max_stored_age=90), shared_store=True)
    session = harness.open_session()
    talk = harness.get(session)
    harness.wait(20)
    harness.store_works = False
    harness.wait(20)
    (kept,) = asked_to_keep(harness)
    harness.post(PING, session)
    for effect in [each for each in harness.waiting if each is not kept]:
        harness.waiting.remove(effect)
        harness.server.perform_store_effect(effect, MemoryStore(), now=harness.now)
    harness.run_pending()
    assert talk.ended
    resumed = harness.get(session, talk.last_id)
    harness.use_store_except(kept)
    assert (resumed.status, resumed.ended) == (200, False)
    while harness.waiting:
        harness.use_store_once()
    assert resumed.ended


def test_long_logs_are_replayed_in_pages() -> None:
    harness = ServerHarness(
        limits=Limits(replay_page_entries=3, max_unsent_bytes=1000), store_works=False
    )
    session = harness.open_session()
    talk, call = harness.call(session)
    names = [f"n{number}" for number in range(10)]
    report_progress_all(harness, call, *names)
    while harness.waiting:
        harness.use_store_once()
    assert methods(talk) == names
    resumed = harness.get(session, talk.events[0].id)
    pages: list[tuple[int, int]] = []
    while harness.waiting:
        effect = harness.use_store_once()
        assert isinstance(effect, StoreRead)
        pages.append((effect.after, len(methods(resumed))))
    assert pages == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert methods(resumed) == names


# A log that another process has written


def stored_log(*, final: bool) -> tuple[ServerHarness, str, str]:
    """A store that knows a stream which no machine here has written."""
    harness = ServerHarness(store=MemoryStore())
    session = harness.open_session()
    key = StreamKey("", session, "other-process-token")
    message = b'{"jsonrpc":"2.0","method":"a"}'
    entries = (Entry(1, message), Entry(2, message, final))
    append(harness.store, key, entries, now=0)
    return harness, session, EventId(key.stream, 0).encode()


@pytest.mark.parametrize("final", [True, False])
def test_a_log_of_another_process_is_replayed_and_ends(final: bool) -> None:
    harness, session, cursor = stored_log(final=final)
    talk = harness.get(session, cursor)
    assert methods(talk) == ["a", "a"]
    assert talk.ended
    again = harness.get(session, talk.last_id)
    assert (again.status, again.messages, again.ended) == (200, [], True)
