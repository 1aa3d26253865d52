"""An instance that dies: those that follow its streams end its calls, and continue the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import pytest

from sansmcp import (
    AppendResult,
    Entry,
    InputRequired,
    Limits,
    LocalProtocolError,
    MemoryStore,
    RequestCancelled,
    StreamKey,
)
from sansmcp.effects import StoreAppend, StoreEffect, StoreRead
from sansmcp.events import CallCancelled, CallReceived, ClocksDiffer
from sansmcp.server.leases import lease_key
from sansmcp.timers import Timer

from ..timed_harness import timers_set
from .harness import (
    LATEST,
    PING,
    RawExchange,
    ServerHarness,
    methods,
    report_progress_all,
)
from .instances import Instances
from .pipe_harness import result
from .test_parked_calls import ask
from .test_rounds import ACCEPTED, NAME

CHANGED = "notifications/tools/list_changed"
LEASE = 10.0
"""Seconds: the default of ``Limits.lease_timeout``."""
VERSIONS = ["2025-03-26", "2025-06-18", "2025-11-25"]


def followed(
    first: ServerHarness, *followers: ServerHarness, version: str = LATEST
) -> tuple[str, Any, list[RawExchange]]:
    """A call of the first instance whose client goes on reading at others."""
    session = first.open_session(version)
    talk, call = first.call(session, version=version)
    report_progress_all(first, call, "a")
    talk.lose_connection()
    last_id = talk.last_id
    return (
        session,
        call,
        [each.get(session, last_id, {"mcp-protocol-version": version}) for each in followers],
    )


def wait(seconds: float, *harnesses: ServerHarness) -> None:
    """Let time pass at some instances only; the others are dead, or hang."""
    for _ in range(round(seconds / 0.25)):
        for harness in harnesses:
            harness.wait(0.25)


def reason_of(talk: RawExchange) -> str:
    reason: str = talk.messages[-1]["error"]["data"]["reason"]
    return reason


@pytest.mark.parametrize("version", VERSIONS)
def test_a_call_whose_instance_has_died_ends_with_an_error(version: str) -> None:
    first, second = Instances()
    _, call, (resumed,) = followed(first, second, version=version)
    wait(LEASE - 1, second)
    assert not resumed.ended
    wait(2, second)
    assert reason_of(resumed) == "instance_lost"
    assert resumed.messages[-1]["id"] == call.request.id
    assert resumed.ended


def test_a_call_that_says_nothing_for_long_goes_on_while_its_instance_lives() -> None:
    first, second = instances = Instances()
    _, call, (resumed,) = followed(first, second)
    instances.wait(12 * LEASE)
    assert not resumed.ended
    first.run_action(call.respond, {})
    instances.wait(0.5)
    assert methods(resumed) == ["answer"]


def test_of_several_followers_one_ends_the_call() -> None:
    first, *others = Instances(4)
    _, _, resumed = followed(first, *others)
    wait(LEASE + 1, *others)
    assert [len(each.messages) for each in resumed] == [1, 1, 1]
    assert {reason_of(each) for each in resumed} == {"instance_lost"}


def test_an_instance_that_was_only_slow_is_told_to_cancel() -> None:
    first, second = Instances()
    _, call, (resumed,) = followed(first, second)
    wait(2, first)  # the call has opened its mailbox
    wait(LEASE + 1, second)
    assert resumed.ended
    wait(1, first)
    assert not call.is_running
    assert any(isinstance(event, CallCancelled) for event in first.events)
    assert len(resumed.messages) == 1


def test_a_handler_whose_call_was_taken_over_is_told_so_when_it_asks() -> None:
    """It has done nothing wrong: drivers log no error for this exception."""
    first, second = Instances()
    session = first.open_session(capabilities={"elicitation": {}})
    talk, call = first.call(session)
    report_progress_all(first, call, "a")
    talk.lose_connection()
    second.get(session, talk.last_id)
    wait(2, first)
    wait(LEASE + 1, second)
    wait(1, first)
    with pytest.raises(RequestCancelled, match="stop working on it"):
        first.run_action(call.ask, "elicitation/create", {}, timeout=5.0)
    _, answered = first.call(session)
    first.run_action(answered.respond, {})
    with pytest.raises(LocalProtocolError, match="has ended"):
        first.run_action(answered.ask, "elicitation/create", {}, timeout=5.0)


def test_what_a_slow_instance_says_late_is_not_sent() -> None:
    first, second = Instances()
    session, call, (resumed,) = followed(first, second)
    wait(LEASE + 1, second)
    first.run_action(call.respond, {"late": True})
    again = second.get(session, resumed.events[0].id)
    assert again.messages == resumed.messages
    assert reason_of(again) == "instance_lost"


def test_no_instance_is_judged_while_the_store_cannot_be_read() -> None:
    first, second = instances = Instances()
    _, _, (resumed,) = followed(first, second)
    instances.wait(5)
    second.store_works = second.leases_work = False
    for _ in range(80):
        second.wait(0.25)
        while second.waiting:
            second.fail_store_once()
    second.store_works = second.leases_work = True
    wait(2, second)
    assert not resumed.ended, "the first one could not write, either"
    instances.wait(3 * LEASE)
    assert not resumed.ended


def wait_while_the_store_takes_nothing(
    seconds: float, *harnesses: ServerHarness, reports: bool = True
) -> None:
    """Let time pass while reads work, and appends fail, or hang if they are not reported.

    Appends that hang stay in ``waiting``.
    """
    for _ in range(round(seconds / 0.25)):
        for harness in harnesses:
            harness.store_works = harness.leases_work = False
            harness.wait(0.25)
            while effects := [
                each for each in harness.waiting if reports or not isinstance(each, StoreAppend)
            ]:
                if isinstance(effects[0], StoreAppend):
                    harness.fail_store_once(effects[0])
                else:
                    harness.waiting.remove(effects[0])
                    harness.perform_store_effect(effects[0])
                    harness.run_pending()


@pytest.mark.parametrize("outage", [LEASE / 2, LEASE + 1, 3 * LEASE])
@pytest.mark.parametrize("reports", [True, False])
def test_no_instance_is_judged_while_the_store_takes_no_writes(
    reports: bool, outage: float
) -> None:
    """A full disk, or Redis at its memory limit: what is read is all that was ever written."""
    first, second = instances = Instances()
    _, call, (resumed,) = followed(first, second)
    instances.wait(5)
    wait_while_the_store_takes_nothing(outage, first, second, reports=reports)
    assert not resumed.ended
    use_store(second)
    wait(LEASE / 3, second)  # the first one writes later: its turn may come that much later
    use_store(first)
    instances.wait(3 * LEASE)
    assert call.is_running
    assert not resumed.ended
    wait(LEASE + 1, second)
    assert reason_of(resumed) == "instance_lost"


def test_an_instance_that_stood_still_judges_no_other_at_once() -> None:
    """A machine that was suspended, with all its processes, whose clocks then go on at once."""
    first, second = instances = Instances()
    _, call, (resumed,) = followed(first, second)
    instances.wait(LEASE / 2)
    second.now += 5 * LEASE
    first.now += 5 * LEASE
    second.wait(0.25)
    assert not resumed.ended
    instances.wait(3 * LEASE)
    assert call.is_running
    assert not resumed.ended


def test_a_read_that_was_under_way_while_an_instance_stood_still_judges_no_other() -> None:
    first, second = instances = Instances()
    _, _, (resumed,) = followed(first, second)
    instances.wait(LEASE / 4)
    second.store_works = second.leases_work = False
    while not (reads := lease_reads(second)):
        second.wait(0.25)
    second.now += 5 * LEASE
    second.waiting.remove(reads[0])
    second.perform_store_effect(reads[0])
    second.run_pending()
    assert not resumed.ended


def test_a_lease_counts_as_it_was_when_it_was_read_not_when_the_page_came() -> None:
    """Standing still for less than two entries of one's own lease is not noticed otherwise."""
    first, second = instances = Instances()
    _, call, (resumed,) = followed(first, second)
    instances.wait(LEASE / 4)
    wait(LEASE / 3, second)  # the first one stands still
    second.store_works = second.leases_work = False
    while not (reads := lease_reads(second)):
        second.wait(0.25)
        for effect in [each for each in second.waiting if each not in lease_reads(second)]:
            second.waiting.remove(effect)
            second.perform_store_effect(effect)
    second.now += LEASE / 2
    second.store_works = second.leases_work = True
    second.waiting.remove(reads[0])
    second.perform_store_effect(reads[0])  # without the entry that is stored next
    second.run_pending()
    assert not resumed.ended
    first.now = second.now
    instances.wait(3 * LEASE)
    assert call.is_running
    assert not resumed.ended


def test_an_instance_that_stops_is_not_waited_for() -> None:
    first, second = Instances()
    _, _, (resumed,) = followed(first, second)
    first.run_action(first.server.shut_down)
    wait(0.5, second)
    assert reason_of(resumed) == "shutting_down"


def test_a_parked_call_waits_for_its_client_without_an_instance() -> None:
    _, second = instances = Instances()
    session, talk, (question,) = ask(instances)
    talk.lose_connection()
    resumed = second.get(session, talk.last_id)
    wait(6 * LEASE, second)
    assert not resumed.ended
    second.post(result(question["id"], ACCEPTED), session)
    second.run_action(second.last_call().respond, {})
    wait(0.5, second)
    assert resumed.messages == [result("original")]


def test_the_instance_that_continues_a_parked_call_is_the_one_that_counts() -> None:
    first, second, third = instances = Instances(3)
    session, talk, (question,) = ask(instances)
    talk.lose_connection()
    resumed = third.get(session, talk.last_id)
    second.post(result(question["id"], ACCEPTED), session)
    wait(3 * LEASE, second, third)
    assert not resumed.ended, "the first one is dead, but the second one has the call"
    wait(LEASE + 1, first, third)
    assert reason_of(resumed) == "instance_lost"


def test_a_call_that_is_parked_again_is_not_ended() -> None:
    _, second, third = instances = Instances(3)
    session, talk, (question,) = ask(instances)
    talk.lose_connection()
    second.post(result(question["id"], ACCEPTED), session)
    second.run_action(second.last_call().respond, InputRequired({"again": NAME}))
    resumed = third.get(session, talk.last_id)
    wait(5 * LEASE, third)
    assert [message["method"] for message in resumed.messages] == ["elicitation/create"]
    assert not resumed.ended


def test_a_standalone_stream_is_continued_where_it_is_read() -> None:
    first, second = Instances()
    session = first.open_session()
    listener = first.get(session)
    first.run_action(first.server.publish, CHANGED)
    assert methods(listener) == [CHANGED]
    listener.lose_connection()
    moved = second.get(session, listener.last_id)
    wait(LEASE + 1, second)
    assert not moved.ended
    second.run_action(second.server.publish, CHANGED)
    assert methods(moved) == [CHANGED]
    first.run_action(first.server.publish, CHANGED)  # it was only slow: its own append conflicts
    wait(1, second)
    assert methods(moved) == [CHANGED, CHANGED]


@pytest.mark.parametrize("page", [1, 2, 100])
def test_only_the_requests_of_a_batch_that_have_no_response_get_an_error(page: int) -> None:
    """Also if the log, which names the requests at its beginning, is longer than a page."""
    first, second = Instances(limits=Limits(replay_page_entries=page))
    session = first.open_session("2025-03-26")
    requests = [{"jsonrpc": "2.0", "id": id, "method": "tools/list"} for id in ("x", "y", "z")]
    talk = first.post(requests, session, "2025-03-26")
    calls = {
        event.call.request.id: event.call
        for event in first.events
        if isinstance(event, CallReceived)
    }
    report_progress_all(first, calls["x"], "a")
    talk.lose_connection()
    first.run_action(calls["y"].respond, {})
    resumed = second.get(session, talk.last_id, {"mcp-protocol-version": "2025-03-26"})
    wait(LEASE + 1, second)
    assert resumed.ended
    ends = {message["id"]: "error" in message for message in resumed.messages}
    assert ends == {"x": True, "y": False, "z": True}


def test_an_instance_without_streams_writes_nothing() -> None:
    first, _ = instances = Instances()
    session = instances.open_session()
    count = instances.store.count
    instances.wait(5 * LEASE)
    assert instances.store.count == count
    _, call = first.call(session)
    first.run_action(call.respond, {})
    instances.wait(LEASE)
    count = instances.store.count
    instances.wait(5 * LEASE)
    assert instances.store.count == count


def test_the_lease_is_read_only_while_a_stream_is_followed() -> None:
    first, second = instances = Instances()
    _, _, (resumed,) = followed(first, second)
    resumed.lose_connection()
    second.store_works = second.leases_work = False
    instances.wait(3 * LEASE)
    assert lease_reads(second) == []


def test_nothing_is_left_of_a_lease_that_is_no_longer_followed() -> None:
    first, second = instances = Instances()
    _, _, (resumed,) = followed(first, second)
    instances.wait(LEASE / 2)
    resumed.lose_connection()
    second.wait(LEASE)  # the follower's own lease is due once more
    assert Timer.LEASE not in timers_set(second.server)
    count = instances.store.count
    second.store_works = second.leases_work = False
    wait(5 * LEASE, second)
    assert lease_reads(second) == []
    assert not any(map(is_of_own_lease, second.waiting))
    assert instances.store.count == count


def test_an_instance_that_follows_keeps_a_lease_of_its_own() -> None:
    """Its appends tell it whether the other instance could write."""
    first, second = instances = Instances()
    _, _, (resumed,) = followed(first, second)
    count = instances.store.count
    wait(LEASE / 2, second)
    assert instances.store.count > count
    assert not resumed.ended


def lease_reads(harness: ServerHarness) -> list[StoreEffect]:
    """The reads of leases that the store has not done yet."""
    return [
        effect
        for effect in harness.waiting
        if isinstance(effect, StoreRead) and effect.stream.stream == ".lease"
    ]


# A lease whose reading or writing goes wrong


def key_of_lease(harness: ServerHarness) -> StreamKey:
    """The lease of an instance, which has just been kept."""
    harness.store_works = harness.leases_work = False
    while not (beats := [each for each in harness.waiting if is_of_own_lease(each)]):
        harness.wait(0.25)
    use_store(harness)
    return beats[0].stream


def is_of_own_lease(effect: StoreEffect) -> TypeGuard[StoreAppend]:
    return isinstance(effect, StoreAppend) and effect.stream.stream == ".lease"


@pytest.mark.parametrize("fail", [ServerHarness.fail_store_once, ServerHarness.fail_store_for_good])
def test_a_lease_whose_entry_was_stored_although_the_store_failed_is_kept_on(
    fail: Callable[[ServerHarness, StoreEffect], None],
) -> None:
    first, second = instances = Instances()
    _, call, (resumed,) = followed(first, second)
    first.store_works = first.leases_work = False
    first.wait(LEASE / 3)
    (beat,) = filter(is_of_own_lease, first.waiting)
    stored = instances.store.append(beat.stream, beat.entries, token=beat.token, now=first.now)
    assert stored is AppendResult.STORED
    fail(first, beat)
    first.store_works = first.leases_work = True
    while first.waiting:
        first.use_store_once()
    instances.wait(5 * LEASE)
    assert call.is_running
    assert not resumed.ended


def lose_end(store: MemoryStore, key: StreamKey) -> None:
    """Let a store lose all entries of a log but the first."""
    page = store.read(key, 0, limit=1, max_bytes=1)
    assert page is not None
    del store._logs[key]  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    store.append(key, page.entries, token="the store", now=0)


def test_a_lease_whose_end_the_store_has_lost_is_begun_anew() -> None:
    first, second = instances = Instances()
    _, call, (resumed,) = followed(first, second)
    instances.wait(2 * LEASE)
    lose_end(instances.store, key_of_lease(first))
    instances.wait(5 * LEASE)
    assert call.is_running
    assert not resumed.ended
    wait(LEASE + 1, second)
    assert reason_of(resumed) == "instance_lost"


def test_a_lease_that_was_lost_counts_as_new_at_the_number_that_was_last_seen() -> None:
    first, second = instances = Instances()
    _, _, (resumed,) = followed(first, second)
    key = key_of_lease(first)
    instances.wait(LEASE / 2)
    seen = instances.store.read(key, 0, limit=10, max_bytes=10_000)
    assert seen is not None
    wait(LEASE / 3, second)  # it sees the last entry
    del instances.store._logs[key]  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    wait(LEASE * 0.4, second)  # it sees that there is none
    instances.store.append(key, seen.entries, token="begun anew", now=0)
    wait(LEASE * 0.7, second)
    assert not resumed.ended


def test_a_lease_that_the_store_has_lost_is_begun_anew_at_once() -> None:
    first, second = instances = Instances()
    followed(first, second)
    key = key_of_lease(first)
    instances.wait(LEASE / 2)
    lose_end(instances.store, key)
    lose_end(instances.store, key_of_lease(second))
    instances.wait(LEASE / 3)
    page = instances.store.read(key, 0, limit=10, max_bytes=10_000)
    assert page is not None
    assert page.last.seq == 1
    instances.wait(LEASE / 3)
    page = instances.store.read(key, 0, limit=10, max_bytes=10_000)
    assert page is not None
    assert page.last.seq == 2


def test_a_lease_that_was_lost_is_not_begun_anew_by_an_instance_that_stops() -> None:
    first, second = instances = Instances()
    followed(first, second)
    key = key_of_lease(first)
    instances.wait(LEASE / 2)
    lose_end(instances.store, key)
    first.stop()
    instances.wait(LEASE)
    assert instances.store.read(key, 0, limit=1, max_bytes=1) is None


@pytest.mark.parametrize("fails", [False, True])
def test_a_lease_that_is_read_when_the_last_reader_leaves_is_not_read_again(fails: bool) -> None:
    first, second = instances = Instances()
    _, _, (resumed,) = followed(first, second)
    second.leases_work = second.store_works = False
    instances.wait(LEASE / 2)
    (read,) = lease_reads(second)
    resumed.lose_connection()
    if fails:
        second.fail_store_once(read)
    else:
        second.waiting.remove(read)
        second.perform_store_effect(read)
    instances.wait(3 * LEASE)
    assert lease_reads(second) == []


def test_each_stream_of_an_instance_that_has_died_is_gone_on_with() -> None:
    """Except the one whose reader has left; its client gets the error when it comes back."""
    first, second = Instances()
    followed_here = [followed(first, second) for _ in range(3)]
    session, _, (gone,) = followed_here[0]
    gone.lose_connection()
    wait(LEASE + 1, second)
    assert [reason_of(talk) for _, _, (talk,) in followed_here[1:]] == ["instance_lost"] * 2
    back = second.get(session, gone.last_id)
    wait(LEASE + 1, second)
    assert reason_of(back) == "instance_lost"


# The scan of a log


def scan_of(harness: ServerHarness) -> StoreEffect:
    """The read that looks for the writer of the log of a call, which the store has not done yet."""
    (scan,) = (each for each in harness.waiting if isinstance(each, StoreRead) and each.after == 0)
    return scan


def followed_slowly(instances: Instances) -> tuple[str, RawExchange, StoreEffect]:
    """A reader at the second instance, whose store has not yet read who writes the log."""
    first, second = instances
    session = first.open_session()
    talk, call = first.call(session)
    report_progress_all(first, call, "a")
    talk.lose_connection()
    second.post(PING, session)
    second.store_works = False
    resumed = second.get(session, talk.last_id)
    while resumed.head is None:
        second.use_store_once()
    return session, resumed, scan_of(second)


def use_store(harness: ServerHarness) -> None:
    """Let the store do all that it was asked for, and work from now on."""
    harness.store_works = True
    while harness.waiting:
        harness.use_store_once()


def test_a_log_that_could_not_be_read_for_long_is_watched_afterwards() -> None:
    _, second = instances = Instances()
    _, resumed, scan = followed_slowly(instances)
    second.fail_store_for_good(scan)
    use_store(second)
    wait(1, second)
    assert not resumed.ended
    wait(LEASE + 1, second)
    assert reason_of(resumed) == "instance_lost"


def test_nothing_is_read_for_a_reader_that_has_gone() -> None:
    _, second = instances = Instances()
    _, resumed, scan = followed_slowly(instances)
    resumed.lose_connection()
    second.fail_store_once(scan)
    second.wait(5)
    assert second.waiting == []


def test_a_log_whose_beginning_is_not_stored_is_followed_but_its_writer_is_not_known() -> None:
    """The log grows all the time, so that its writer need not repeat its name."""
    limits = Limits(max_stored_age=60)
    first, second = instances = Instances(limits=limits)
    session = first.open_session()
    talk, call = first.call(session)
    for _ in range(100):
        report_progress_all(first, call, "a")
        instances.wait(1)
    talk.lose_connection()
    resumed = second.get(session, talk.last_id)
    wait(2 * LEASE, second)
    assert not resumed.ended
    first.run_action(call.respond, {})
    wait(1, second)
    assert methods(resumed) == ["answer"]


# The append that ends a call


def ending(instances: Instances) -> tuple[str, RawExchange, StoreAppend]:
    """A reader at the second instance, whose store has not yet ended the call of the first one."""
    first, second, *_ = instances
    session, _, (resumed,) = followed(first, second)
    second.store_works = False
    while not (appends := [each for each in second.waiting if isinstance(each, StoreAppend)]):
        if second.waiting:
            second.use_store_once()
        else:
            second.wait(0.25)
    (append,) = appends
    return session, resumed, append


def test_of_two_that_end_a_call_at_once_one_succeeds_and_both_readers_get_its_error() -> None:
    _, second, third = instances = Instances(3)
    session, resumed, _ = ending(instances)
    other = third.get(session, resumed.events[0].id)
    wait(LEASE + 2, third)
    assert reason_of(other) == "instance_lost"
    use_store(second)
    assert resumed.messages == other.messages
    assert resumed.ended


def test_a_log_that_lost_its_end_before_its_call_could_be_ended_breaks_its_reader_off() -> None:
    _, second = instances = Instances()
    session, resumed, append = ending(instances)
    last_id = resumed.events[0].id
    lose_end(instances.store, append.stream)
    use_store(second)
    assert resumed.aborted
    assert second.get(session, last_id).error["data"]["reason"] == "unknown_event_id"


def test_a_call_that_could_not_be_ended_is_ended_when_the_store_works_again() -> None:
    _, second = instances = Instances()
    _, resumed, append = ending(instances)
    second.fail_store_for_good(append)
    use_store(second)
    assert resumed.messages == []
    wait(LEASE + 2, second)
    assert reason_of(resumed) == "instance_lost"
    assert resumed.ended


def test_a_reader_that_leaves_while_its_call_is_ended_gets_the_error_later() -> None:
    _, second = instances = Instances()
    session, resumed, _ = ending(instances)
    resumed.lose_connection()
    use_store(second)
    back = second.get(session, resumed.events[0].id)
    assert reason_of(back) == "instance_lost"
    assert back.ended


# The clocks of the instances

EPOCH = 1_800_000_000.0


def with_clocks(*ahead: float, limits: Limits | None = None) -> tuple[ServerHarness, ServerHarness]:
    """Two instances whose clocks show so many seconds more than the right time."""
    store = MemoryStore(limits or Limits())

    def instance(number: int) -> ServerHarness:
        harness: ServerHarness = ServerHarness(
            store=store,
            tokens=f"instance-{number}",
            shared_store=True,
            limits=limits,
            wall_clock=lambda: EPOCH + ahead[number] + harness.now,
        )
        return harness

    return instance(0), instance(1)


def differences(harness: ServerHarness) -> list[float]:
    return [event.seconds for event in harness.events if isinstance(event, ClocksDiffer)]


@pytest.mark.parametrize("ahead", [-3600.0, -20.0, 20.0, 3600.0])
def test_clocks_that_differ_are_reported_once(ahead: float) -> None:
    """As far as two entries of a lease, and the reads of it, show it."""
    first, second = with_clocks(ahead, 0.0)
    followed(first, second)
    wait(3 * LEASE, first, second)
    (seconds,) = differences(second)
    assert seconds * ahead > 0
    assert abs(ahead) - LEASE <= abs(seconds) <= abs(ahead)
    followed(first, second)
    wait(3 * LEASE, first, second)
    assert len(differences(second)) == 1


@pytest.mark.parametrize("ahead", [-4.0, 0.0, 4.0])
def test_clocks_that_hardly_differ_are_not_reported(ahead: float) -> None:
    first, second = with_clocks(ahead, 0.0)
    followed(first, second)
    wait(6 * LEASE, first, second)
    assert differences(second) == []


def test_an_entry_that_was_stored_late_is_no_wrong_clock() -> None:
    """The store was slow, or the append was repeated until it worked."""
    first, second = with_clocks(0.0, 0.0, limits=Limits(lease_timeout=60))
    followed(first, second)
    wait(70, first, second)
    first.store_works = first.leases_work = False
    wait(39, first, second)
    assert [effect for effect in first.waiting if is_of_own_lease(effect)]
    first.store_works = True
    while first.waiting:
        first.use_store_once()
    wait(70, first, second)
    assert differences(second) == []


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"time":"x"}', b'{"time":1e999}', b"{}"])
def test_entries_without_a_time_show_no_difference(data: bytes) -> None:
    """Those of another version."""
    first, second = with_clocks(0.0, 0.0)
    followed(first, second)
    key = lease_key("instance-0-000000000001")
    for number in range(3):
        first.store.append(key, (Entry(2 + number, data),), token=f"{number}", now=first.now)
        wait(LEASE / 3, second)
    assert differences(second) == []
