"""Streams are resumed from every place that is still kept, and only by those they belong to."""

from __future__ import annotations

import pytest

from sansmcp import Entry, EntryKind, EventId, Limits, MemoryStore, StreamKey
from sansmcp.effects import StoreAppend, StoreRead
from sansmcp.events import RefusalSent

from .bench import PING, Bench, methods, say
from .instances import Instances

requirement = pytest.mark.requirement


@requirement("RESUME-S-001", "RESUME-S-005", "RESUME-S-007", "RESUME-C-003", "SHTTP-S-023")
def test_a_stream_is_resumed_from_every_place(bench: Bench) -> None:
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "a", "b", "c")
    ids = [event.id for event in talk.events]
    assert len(set(ids)) == 4
    resumed = talk
    for index, id in enumerate(ids):
        resumed = bench.get(session, id)
        assert resumed.status == 200
        assert methods(resumed) == ["a", "b", "c"][index:]
        assert [event.id for event in resumed.events] == ids[index:], "the first one primes it"
    assert talk.ended
    bench.do(call.respond, {})
    assert methods(resumed) == ["answer"]
    assert resumed.ended
    for index, id in enumerate(ids):
        assert methods(bench.get(session, id)) == ["a", "b", "c", "answer"][index:]


@requirement("RESUME-S-007")
def test_a_newer_reader_replaces_the_older(bench: Bench) -> None:
    session = bench.open_session()
    first, call = bench.call(session)
    say(bench, call, "a")
    second = bench.get(session, first.last_id)
    assert (first.ended, first.aborted) == (True, False)
    say(bench, call, "b")
    assert (methods(first), methods(second)) == (["a"], ["b"])
    first.gone()
    say(bench, call, "c")
    assert methods(second) == ["b", "c"]


def test_what_is_said_while_nobody_reads_is_kept(bench: Bench) -> None:
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "a")
    talk.gone()
    say(bench, call, "b", "c")
    bench.do(call.respond, {})
    resumed = bench.get(session, talk.last_id)
    assert methods(resumed) == ["b", "c", "answer"]
    assert resumed.ended
    again = bench.get(session, resumed.last_id)
    assert (again.status, again.messages, again.ended) == (200, [], True)


@requirement("RESUME-S-006", "RESUME-S-002")
def test_streams_and_sessions_are_apart(bench: Bench) -> None:
    session, other = bench.open_session(), bench.open_session()
    talk, call = bench.call(session, 1)
    talk2, call2 = bench.call(session, 2)
    say(bench, call, "a")
    say(bench, call2, "b")
    for stranger in (other, bench.open_session(principal="eve")):
        refused = bench.get(
            stranger, talk.events[0].id, principal="eve" if stranger != other else ""
        )
        assert (refused.status, refused.error["data"]["reason"]) == (400, "unknown_event_id")
    assert methods(bench.get(session, talk.events[0].id)) == ["a"]
    assert methods(bench.get(session, talk2.events[0].id)) == ["b"]
    assert not {event.id for event in talk.events} & {event.id for event in talk2.events}


def test_a_place_that_was_never_reached_is_unknown(bench: Bench) -> None:
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "a")
    cursor = EventId.decode(talk.last_id)
    assert cursor is not None
    beyond = EventId(cursor.stream, 2).encode()
    assert bench.get(session, beyond).status == 400
    bench.do(call.respond, {})
    assert bench.get(session, beyond).status == 200
    assert bench.get(session, EventId(cursor.stream, 3).encode()).status == 400


def test_what_is_no_longer_kept_is_said(bench: Bench) -> None:
    bench = Bench(limits=Limits(max_stored_entries=2))
    session = bench.open_session()
    talk, call = bench.call(session)
    say(bench, call, "a", "b", "c", "d")
    ids = [event.id for event in talk.events]
    assert bench.get(session, ids[1]).status == 400
    assert isinstance(bench.events[-1], RefusalSent)
    assert methods(bench.get(session, ids[2])) == ["c", "d"]


def test_what_still_runs_is_not_old() -> None:
    """Row A18 of the review: a quiet call went from the store after ``max_stored_age``.

    So no other instance knew it. The client misses nothing: it gets no event for what keeps the
    log.
    """
    first, second = instances = Instances(limits=Limits(max_stored_age=90))
    session = instances.open_session()
    talk, call = first.call(session)
    say(first, call, "a")
    for _ in range(40):
        instances.grow_old(20)
        assert second.post(PING, session).status == 200
    assert methods(talk) == ["a"]
    talk.gone()
    quiet = second.get(session, talk.last_id)
    assert (quiet.status, quiet.messages) == (200, [])
    first.do(call.notify, "b")
    instances.wait(1)
    assert methods(quiet) == ["b"]
    first.do(call.respond, {})
    instances.wait(1)
    assert methods(quiet) == ["b", "answer"]
    assert second.get(session, talk.events[0].id).status == 400  # "a" has grown old


def test_a_store_that_is_slow_is_not_asked_twice_to_keep_a_log() -> None:
    """Row A18 of the review: and one that has failed is not asked at all."""
    bench = Bench(limits=Limits(max_stored_age=90), shared_store=True)
    session = bench.open_session()
    _, call = bench.call(session)
    say(bench, call, "a")
    bench.wait(20)  # another instance is told that the call runs
    bench.store_works = False

    def asked_to_keep() -> int:
        appends = [effect for effect in bench.waiting if isinstance(effect, StoreAppend)]
        return sum(entry.kind is EntryKind.KEPT for each in appends for entry in each.entries)

    for _ in range(8):
        bench.wait(20)
    assert asked_to_keep() == 1
    while bench.waiting:
        bench.fail_store_once()
    for _ in range(8):
        bench.wait(20)
    assert asked_to_keep() == 0


def test_long_logs_are_replayed_in_pages() -> None:
    bench = Bench(limits=Limits(replay_page_entries=3, max_unsent_bytes=1000), store_works=False)
    session = bench.open_session()
    talk, call = bench.call(session)
    names = [f"n{number}" for number in range(10)]
    say(bench, call, *names)
    while bench.waiting:
        bench.use_store_once()
    assert methods(talk) == names
    resumed = bench.get(session, talk.events[0].id)
    pages: list[tuple[int, int]] = []
    while bench.waiting:
        effect = bench.use_store_once()
        assert isinstance(effect, StoreRead)
        pages.append((effect.after, len(methods(resumed))))
    assert pages == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert methods(resumed) == names


# A log that another process has written


def stored_log(*, final: bool) -> tuple[Bench, str, str]:
    """A store that knows a stream which no machine here has written."""
    bench = Bench(store=MemoryStore())
    session = bench.open_session()
    key = StreamKey("", session, "other-process-token")
    message = b'{"jsonrpc":"2.0","method":"a"}'
    entries = (Entry(1, message), Entry(2, message, final))
    bench.store.append(key, entries, now=0)
    return bench, session, EventId(key.stream, 0).encode()


@pytest.mark.parametrize("final", [True, False])
def test_a_log_of_another_process_is_replayed_and_ends(final: bool) -> None:
    bench, session, cursor = stored_log(final=final)
    talk = bench.get(session, cursor)
    assert methods(talk) == ["a", "a"]
    assert talk.ended
    again = bench.get(session, talk.last_id)
    assert (again.status, again.messages, again.ended) == (200, [], True)
