"""A store that fails for seconds takes nothing from what runs; new work is refused meanwhile."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from sansmcp import AppendResult, Entry, Limits, ServerCall, StreamKey
from sansmcp.effects import StoreAppend, StoreDrop, StoreEffect, StoreRead, StoreWatch
from sansmcp.events import CallCancelled, CallReceived, ClientResponseReceived, StoreFailed
from sansmcp.messages import Response
from sansmcp.server.legacy.mailbox import response_mailbox
from sansmcp.server.legacy.parked_calls import parse_turn_id
from sansmcp.server.store_health import StoreHealth

from .harness import (
    PING,
    RawExchange,
    ServerHarness,
    initialize,
    methods,
    report_progress_all,
    request,
)
from .instances import Instances
from .pipe_harness import result
from .test_elsewhere import cancelled
from .test_parked_calls import answer_to, ask
from .test_rounds import ACCEPTED, ALL

_TIMEOUT = Limits().store_retry_timeout


def failing(**settings: Any) -> tuple[ServerHarness, str, RawExchange, ServerCall]:
    """A call whose first message is to be stored; the store does nothing by itself."""
    harness = ServerHarness(store_works=False, **settings)
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a")
    return harness, session, talk, call


def repetitions(harness: ServerHarness, seconds: float) -> list[tuple[float, StoreEffect]]:
    """Let everything fail for some time; returns the effects, each with the time it came at."""
    seen: list[tuple[float, StoreEffect]] = []
    end = harness.now + seconds
    while True:
        for effect in tuple(harness.waiting):
            seen.append((harness.now, effect))
            harness.waiting.remove(effect)
            harness.server.store_failed(effect, "away", now=harness.now)
        harness.run_pending()
        due = harness.next_deadline()
        if due is None or due > end:
            harness.now = end
            return seen
        harness.wait(max(due - harness.now, 0))


# Repetition


def test_what_failed_is_repeated_with_its_token_and_delivered_when_it_is_stored() -> None:
    harness, session, talk, _ = failing()
    seen = repetitions(harness, 10)
    assert methods(talk) == []
    (append,) = {effect for _, effect in seen}
    assert isinstance(append, StoreAppend)
    assert append.token
    harness.wait(1)
    assert harness.waiting == [append]
    harness.use_store_once()
    assert methods(talk) == ["a"]
    resumed = harness.get(session, talk.events[0].id)
    harness.use_store_once()
    assert methods(resumed) == ["a"]
    assert {type(event) for event in harness.events} == {StoreFailed}
    assert not any(event.lost for event in harness.events if isinstance(event, StoreFailed))


def test_delays_grow_and_stay_below_a_second() -> None:
    harness, _, _, _ = failing()
    times = [now for now, _ in repetitions(harness, _TIMEOUT - 2)]
    delays = [after - before for before, after in itertools.pairwise(times)]
    assert 0.025 <= delays[0] <= 0.05
    assert all(0.5 <= delay <= 1.0 for delay in delays[6:])
    assert sorted(delays[:4]) == delays[:4]
    assert len(times) < 65


def test_operations_that_fail_together_come_back_at_different_times() -> None:
    harness = ServerHarness(store_works=False)
    session = harness.open_session()
    for _ in range(20):
        _, call = harness.call(session)
        report_progress_all(harness, call, "a")
    first = [effect for effect in harness.waiting if isinstance(effect, StoreAppend)]
    times = [now for now, effect in repetitions(harness, 0.05) if effect in first]
    assert len(set(times)) > 15


def test_what_is_said_meanwhile_waits_behind_it() -> None:
    harness, _, talk, call = failing()
    harness.fail_store_once()
    report_progress_all(harness, call, "b", "c")
    harness.run_action(call.respond, {})
    harness.wait(1)
    assert [type(effect) for effect in harness.waiting] == [StoreAppend]
    harness.use_store_once()
    harness.use_store_once()
    assert methods(talk) == ["a", "b", "c", "answer"]
    assert talk.ended


def test_it_is_given_up_after_the_timeout_and_the_reader_gets_its_messages_all_the_same() -> None:
    harness, _, talk, _ = failing()
    repetitions(harness, _TIMEOUT - 0.1)
    assert methods(talk) == []
    repetitions(harness, 0.2)
    assert methods(talk) == ["a"]
    assert talk.last_id == ""
    assert harness.next_deadline() is None or harness.waiting == []
    assert repetitions(harness, 100) == []


def test_the_timeout_begins_with_the_first_failure_and_anew_after_success() -> None:
    harness, _, talk, call = failing()
    repetitions(harness, _TIMEOUT - 5)
    harness.wait(1)
    harness.use_store_once()
    report_progress_all(harness, call, "b")
    repetitions(harness, _TIMEOUT - 5)
    harness.wait(1)
    harness.use_store_once()
    assert methods(talk) == ["a", "b"]


def test_a_lost_reply_is_recognised_by_the_token() -> None:
    """The append was done; when it is repeated the store says so, and nothing comes twice."""
    harness, session, talk, call = failing()
    (append,) = harness.waiting
    assert isinstance(append, StoreAppend)
    done = harness.store.append(append.stream, append.entries, token=append.token, now=harness.now)
    assert done is AppendResult.STORED
    harness.fail_store_once()
    harness.wait(1)
    harness.use_store_once()
    assert methods(talk) == ["a"]
    harness.store_works = True
    harness.run_action(call.respond, {})
    assert methods(harness.get(session, talk.events[0].id)) == ["a", "answer"]


def test_tokens_differ() -> None:
    instances = Instances()
    tokens: list[str] = []
    for harness in instances:
        harness.leases_work = False
        harness.store_works = False
        for _ in range(3):
            harness.post(initialize())
        tokens += [each.token for each in harness.waiting if isinstance(each, StoreAppend)]
    assert len(tokens) == len(set(tokens)) == 6


def test_a_page_of_an_open_stream_is_repeated() -> None:
    harness = ServerHarness(limits=Limits(replay_page_entries=1), store_works=False)
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a", "b")
    while harness.waiting:
        harness.use_store_once()
    resumed = harness.get(session, talk.events[0].id)
    harness.use_store_once()
    assert methods(resumed) == ["a"]
    harness.fail_store_once()
    assert not resumed.aborted
    harness.wait(1)
    harness.use_store_once()
    assert methods(resumed) == ["a", "b"]


def test_a_page_for_a_reader_that_has_gone_is_not() -> None:
    harness = ServerHarness(limits=Limits(replay_page_entries=1), store_works=False)
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a", "b")
    while harness.waiting:
        harness.use_store_once()
    resumed = harness.get(session, talk.events[0].id)
    harness.use_store_once()
    resumed.lose_connection()
    harness.fail_store_once()
    harness.wait(5)
    assert harness.waiting == []


def test_what_a_deleted_session_had_to_store_is_not_lost() -> None:
    harness, session, talk, _ = failing()
    talk.lose_connection()
    harness.send("DELETE", {"mcp-session-id": session})
    harness.fail_store_once()
    (failed,) = (event for event in harness.events if isinstance(event, StoreFailed))
    assert not failed.lost
    harness.use_store_once()


def test_a_drop_is_repeated() -> None:
    harness = ServerHarness(store_works=False)
    session = harness.open_session()
    harness.send("DELETE", {"mcp-session-id": session})
    (drop,) = harness.waiting
    assert isinstance(drop, StoreDrop)
    harness.fail_store_once()
    harness.wait(1)
    assert harness.waiting == [drop]
    harness.use_store_once()
    harness.wait(100)
    assert harness.waiting == []


def test_a_server_that_stops_repeats_nothing() -> None:
    harness, _, talk, _ = failing()
    harness.fail_store_once()
    harness.run_action(harness.server.shut_down)
    assert "a" in methods(talk)
    assert harness.next_deadline() is None
    while harness.waiting:
        harness.fail_store_once()
    assert harness.next_deadline() is None


def test_a_server_that_stops_gives_up_a_drop_that_failed() -> None:
    harness = ServerHarness(store_works=False)
    session = harness.open_session()
    harness.send("DELETE", {"mcp-session-id": session})
    harness.fail_store_once()
    harness.run_action(harness.server.shut_down)
    assert harness.next_deadline() is None
    harness.check_stopped()


# A store that has lost entries


def test_a_stream_goes_on_without_ids_if_the_store_has_lost_its_end() -> None:
    harness, session, talk, call = failing()
    harness.use_store_once()
    assert talk.last_id
    report_progress_all(harness, call, "b")
    (append,) = harness.waiting
    assert isinstance(append, StoreAppend)
    harness.waiting.clear()
    harness.server.append_completed(append, AppendResult.BEHIND, now=harness.now)
    harness.run_pending()
    assert methods(talk) == ["a", "b"]
    assert talk.last_id == ""
    (event,) = harness.events
    assert isinstance(event, StoreFailed)
    assert "lost entries" in event.reason
    harness.run_action(call.respond, {})
    assert methods(talk) == ["a", "b", "answer"]
    assert talk.ended
    assert harness.waiting == []
    assert session in {str(each.id.reveal()) for each in harness.server.sessions if each.id}


def test_a_real_store_that_has_lost_entries_says_so() -> None:
    harness = ServerHarness()
    talk, call = harness.call(harness.open_session())
    report_progress_all(harness, call, "a", "b")
    (key,) = harness.store._logs  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
    harness.store.drop(key.principal, key.session)
    harness.store.append(key, (Entry(1, b"{}"),), token="another", now=0)
    report_progress_all(harness, call, "c")
    assert methods(talk) == ["a", "b", "c"]
    assert talk.last_id == ""


def test_a_reader_of_what_the_store_has_lost_is_refused() -> None:
    """The server read the same page again and again (seed 4000632551742 of the simulator)."""
    harness = ServerHarness()
    session = harness.open_session()
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a", "b")
    talk.lose_connection()
    _, first, _ = talk.events
    (key,) = harness.store._logs  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
    page = harness.store.read(key, 0, limit=1, max_bytes=10**6)
    assert page is not None
    harness.store.drop(key.principal, key.session)
    harness.store.append(key, page.entries, token="another", now=0)
    resumed = harness.get(session, first.last_event_id)
    assert (resumed.status, resumed.error["data"]["reason"]) == (400, "unknown_event_id")
    harness.run_action(call.respond, {})
    assert not call.is_running


def lose_before_append(harness: ServerHarness, log: str) -> None:
    """Let the store work until it is asked to append to a log, and lose the end of that log."""
    while not (isinstance(append := harness.waiting[0], StoreAppend) and is_append_to(append, log)):
        harness.use_store_once()
    del harness.waiting[0]
    harness.server.append_completed(append, AppendResult.BEHIND, now=harness.now)
    harness.run_pending()


def test_a_response_whose_mailbox_is_lost_is_accepted() -> None:
    """Its call cannot be reached any more, so the client need not send it again."""
    first, second = instances = Instances()
    session = instances.open_session(capabilities=ALL)
    _, call = first.call(session)
    id: int = first.run_action(call.ask, "elicitation/create", timeout=60)
    second.store_works = False
    posted = second.post(result(id, ACCEPTED), session)
    lose_before_append(second, response_mailbox(id))
    assert posted.status == 202


def test_responses_to_a_parked_call_that_is_lost_are_refused_and_its_reader_ends() -> None:
    _, second = instances = Instances()
    session, talk, (question,) = ask(instances)
    talk.lose_connection()
    resumed = second.get(session, talk.last_id)
    second.store_works = False
    posted = second.post(answer_to(question), session)
    turn = parse_turn_id(question["id"])
    assert turn is not None
    lose_before_append(second, f"{turn.encode()}.")
    assert posted.error["data"]["reason"] == "unknown_turn"
    assert resumed.aborted


def test_a_session_whose_record_is_lost_while_it_is_refreshed_ends_with_the_next_request() -> None:
    first, second = instances = Instances()
    session = first.open_session()
    second.store_works = False
    posted = second.post(PING, session)
    lose_before_append(second, ".session")
    assert posted.status == 200
    instances.store.drop("", session)
    second.store_works = True
    assert second.post(PING, session).status == 404


# New work


def down(harness: ServerHarness) -> None:
    """Let the store fail until it counts as down."""
    for _ in range(10):
        repetitions(harness, 0.2)


def refused(talk: RawExchange) -> bool:
    """Whether the store was the reason of a refusal that invites to come again."""
    if talk.status != 503:
        return False
    assert talk.error["data"]["reason"] == "store_failed"
    assert talk.header("retry-after") == "1"
    return True


def test_new_work_is_refused_while_the_store_is_down() -> None:
    harness, session, _, _ = failing()
    standalone = harness.get(session)
    down(harness)
    harness.events.clear()
    assert refused(harness.post(request(100), session))
    assert refused(harness.post(initialize()))
    assert refused(harness.get(session))
    assert not any(isinstance(event, CallReceived) for event in harness.events)
    assert harness.post(PING, session).status == 200  # it needs no store
    assert not standalone.ended
    assert harness.send("DELETE", {"mcp-session-id": session}).status != 503


def test_what_runs_goes_on_meanwhile_and_new_work_is_taken_when_the_store_works() -> None:
    harness, session, talk, call = failing()
    down(harness)
    assert refused(harness.post(request(100), session))
    harness.wait(0.9)
    harness.use_store_once()
    assert methods(talk) == ["a"]
    assert harness.post(request(101), session).status != 503
    harness.last_call()
    harness.run_action(call.respond, {})
    harness.use_store_once()
    assert talk.ended


def test_each_call_of_a_batch_is_refused() -> None:
    harness = ServerHarness(store_works=False)
    session = harness.open_session("2025-03-26")
    _, call = harness.call(session, version="2025-03-26")
    report_progress_all(harness, call, "a")
    down(harness)
    talk = harness.post([request(100), request(101)], session, "2025-03-26")
    assert [each["error"]["data"]["reason"] for each in talk.json] == ["store_failed"] * 2


def test_sessions_that_store_nothing_are_served() -> None:
    unstored = ServerHarness(resumable=False)
    session = unstored.open_session()
    for _ in range(9):
        unstored.server._core.store_health.failed(0)  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
    assert unstored.call(session)[0].status is None


def test_a_second_after_the_last_failure_the_store_is_tried_again() -> None:
    health = StoreHealth()
    for _ in range(4):
        health.failed(1.0)
    assert not health.is_down(1.0)
    health.failed(1.0)
    assert health.is_down(1.0)
    assert health.is_down(1.9)
    assert not health.is_down(2.0)
    health.failed(2.0)
    assert health.is_down(2.5)
    health.worked()
    assert not health.is_down(2.5)
    health.failed(3.0)
    assert not health.is_down(3.5)
    health.failed(4.0)  # for a second, although not often
    assert health.is_down(4.5)


# Watches


def following(**settings: object) -> tuple[Instances, str, RawExchange, ServerCall]:
    """A call at the first instance, whose stream is read at the second."""
    instances = Instances(**settings)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    first, second = instances
    session = instances.open_session()
    talk, call = first.call(session)
    report_progress_all(first, call, "a")
    talk.lose_connection()
    return instances, session, second.get(session, talk.last_id), call


def test_a_store_that_tells_is_read_at_once_when_it_has_told() -> None:
    instances, _, resumed, call = following(store_tells=True)
    first, second = instances
    second.wait(0.1)
    report_progress_all(first, call, "b")
    assert methods(resumed) == []
    second.tell()
    assert methods(resumed) == ["b"]
    first.run_action(call.respond, {})
    second.tell()
    assert resumed.ended
    assert second.watched == set()


def reads(instances: Instances, stream: str, seconds: float) -> int:
    """How often the second instance reads a log in some seconds."""
    count = 0
    harness = instances[1]
    perform = harness.perform_store_effect

    def counting(effect: StoreEffect) -> None:
        nonlocal count
        count += isinstance(effect, StoreRead) and effect.stream.stream == stream
        perform(effect)

    harness.perform_store_effect = counting  # type: ignore[method-assign]
    instances.wait(seconds)
    harness.perform_store_effect = perform  # type: ignore[method-assign]
    return count


@pytest.mark.parametrize(("tells", "least", "most"), [(False, 39, 41), (True, 1, 3)])
def test_a_log_is_read_rarely_if_the_store_tells(tells: bool, least: int, most: int) -> None:
    instances, _, resumed, call = following(store_tells=tells)
    stream = resumed.last_id.rpartition("-")[0]
    assert least <= reads(instances, stream, 10) <= most
    report_progress_all(instances[0], call, "b")  # the store does not tell of it
    instances.wait(6.5)
    assert methods(resumed) == ["b"]


def test_five_changes_while_a_read_is_in_flight_are_one_more_read() -> None:
    instances, _, resumed, call = following(store_tells=True)
    first, second = instances
    second.store_works = False
    second.tell()
    (page,) = second.waiting
    for _ in range(5):
        second.tell()
    assert second.waiting == [page]
    second.use_store_once()
    assert len(second.waiting) == 1
    report_progress_all(first, call, "b")
    second.use_store_once()
    assert methods(resumed) == ["b"]
    assert second.waiting == []


def test_a_change_is_not_missed_while_a_second_reader_begins() -> None:
    """Seed 1101392432036 of the simulator: it waited for seconds until the log was read again."""
    instances, session, resumed, call = following(store_tells=True)
    first, second = instances
    stream = resumed.last_id.rpartition("-")[0]
    second.store_works = False
    again = second.get(session, resumed.last_id)
    second.use_store_once()  # the session is still known
    (page,) = second.waiting
    assert isinstance(page, StoreRead)
    assert page.stream.stream == stream
    found = instances.store.read(page.stream, page.after, limit=9, max_bytes=9999)
    report_progress_all(first, call, "b")
    second.tell()
    second.waiting.clear()
    second.run_action(second.server.read_completed, page, found)  # as it was before
    assert methods(again) == []
    while second.waiting:
        second.use_store_once()
    assert methods(again) == ["b"]


def test_a_page_for_a_reader_that_has_gone_leaves_the_next_one_alone() -> None:
    """Seed 408093671076 of the simulator: the table forgot the stream of the second reader."""
    instances, session, resumed, _ = following()
    second, cursor = instances[1], resumed.last_id
    resumed.lose_connection()
    second.store_works = False
    gone = second.get(session, cursor)
    second.use_store_once()  # the session is still known
    (page,) = second.waiting
    assert isinstance(page, StoreRead)
    gone.lose_connection()
    second.waiting.clear()
    again = second.get(session, cursor)
    second.use_store_once()
    found = instances.store.read(page.stream, page.after, limit=9, max_bytes=9999)
    second.run_action(second.server.read_completed, page, found)
    second.get(session, cursor)
    while second.waiting:
        second.use_store_once()
    assert again.ended  # because its client reads elsewhere


def test_a_watch_ends_with_its_reader() -> None:
    instances, _, resumed, _ = following(store_tells=True)
    second = instances[1]
    stream = resumed.last_id.rpartition("-")[0]
    watched = {key for key in second.watched if key.stream == stream}
    assert len(watched) == 1
    resumed.lose_connection()
    assert not watched & second.watched
    for key in watched:
        second.server.store_changed(key, now=second.now)  # late: it changes nothing
    second.run_pending()
    assert reads(instances, stream, 20) == 0


def test_a_store_that_begins_to_tell_while_a_reader_waits_is_trusted_from_then_on() -> None:
    instances, _, resumed, _ = following()
    second = instances[1]
    stream = resumed.last_id.rpartition("-")[0]
    assert reads(instances, stream, 1) >= 3
    (key,) = (key for key in second.watched if key.stream == stream)
    second.server.store_watched(StoreWatch(key), now=second.now)
    assert reads(instances, stream, 3) == 0
    unknown = StoreWatch(StreamKey("", "", "unknown"))
    second.server.store_watched(unknown, now=second.now)


# Mailboxes that are opened late


def test_a_cancellation_that_comes_before_the_mailbox_is_opened_is_kept() -> None:
    """The instance that runs the call opens the mailbox late, because its store is slow."""
    instances = Instances()
    first, second = instances
    session = instances.open_session()
    second.post(PING, session)
    _, call = first.call(session, "a")
    first.store_works = False
    assert second.post(cancelled("a"), session).status == 202
    instances.wait(2)
    assert call.is_running
    first.store_works = True
    while first.waiting:
        first.use_store_once()
    instances.wait(1)
    assert [each for each in first.events if isinstance(each, CallCancelled)] == [
        CallCancelled(call, "cancelled by the client")
    ]
    assert second.watched == set()


def test_it_is_looked_for_only_for_some_seconds() -> None:
    instances = Instances()
    first, second = instances
    session = instances.open_session()
    second.post(PING, session)
    assert second.post(cancelled("never"), session).status == 202
    assert len(second.watched) == 1
    instances.wait(6)
    assert second.watched == set()
    count = instances.store.count
    first.call(session, "never")
    instances.wait(1)
    assert instances.store.count > count
    assert first.events == []


def test_a_store_that_tells_ends_the_search_at_once() -> None:
    instances = Instances(store_tells=True)
    first, second = instances
    session = instances.open_session()
    second.post(PING, session)
    _, call = first.call(session, "a")
    second.post(cancelled("a"), session)
    first.wait(0.25)  # it opens the mailbox
    second.tell()
    first.tell()
    assert CallCancelled(call, "cancelled by the client") in first.events


def is_append_to(effect: StoreEffect, log: str) -> bool:
    return isinstance(effect, StoreAppend) and effect.stream.stream == log


def ask_with_late_mailbox(instances: Instances) -> tuple[str, ServerCall, int]:
    """A request of the first instance that the client has got, although its mailbox is not open."""
    first = instances[0]
    session = instances.open_session(capabilities=ALL)
    talk, call = first.call(session)
    first.store_works = False
    id: int = first.run_action(call.ask, "elicitation/create", timeout=60)
    (mailbox,) = (each for each in first.waiting if is_append_to(each, response_mailbox(id)))
    first.fail_store_once(mailbox)
    while not talk.messages:
        first.use_store_once()
    assert [each["id"] for each in talk.messages] == [id]
    return session, call, id


def test_a_response_that_comes_before_the_mailbox_is_opened_is_kept() -> None:
    """The store fails at the append that opens the mailbox, and not at that of the request."""
    first, second = instances = Instances()
    session, call, id = ask_with_late_mailbox(instances)
    posted = second.post(result(id, ACCEPTED), session)
    assert posted.status is None
    instances.wait(1)
    first.store_works = True
    while first.waiting:
        first.use_store_once()
    instances.wait(1)
    assert posted.status == 202
    first.wait(0.25)
    assert first.events[-1] == ClientResponseReceived(call, id, Response(id, ACCEPTED))


def test_a_response_that_nothing_waits_for_is_accepted_after_some_seconds() -> None:
    instances = Instances()
    second = instances[1]
    session, *_ = ask_with_late_mailbox(instances)
    posted = second.post(result(1), session)
    instances.wait(4)
    assert posted.status is None
    instances.wait(2)
    assert posted.status == 202
    assert second.watched == set()


def test_responses_that_look_for_a_mailbox_are_bounded() -> None:
    instances = Instances(limits=Limits(max_calls_per_session=2))
    second = instances[1]
    session = instances.open_session(capabilities=ALL)
    posted = [second.post(result(id), session) for id in range(1, 4)]
    assert [each.status for each in posted] == [None, None, 202]
    instances.wait(6)
    assert [each.status for each in posted] == [202] * 3
