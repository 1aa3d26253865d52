"""What belongs to no call, at several instances: ``publish()`` reaches the clients of all."""

from __future__ import annotations

import pytest

from sansmcp import AppendResult, Limits
from sansmcp.effects import StoreAppend, StoreEffect, StoreRead
from sansmcp.events import StoreFailed
from sansmcp.meta_keys import LISTEN

from .harness import LATEST, PING, RawExchange, ServerHarness, methods
from .instances import Instances
from .modern.harness import MODERN, mirrored, modern, modern_app
from .test_leases import LEASE, wait

CHANGED = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"


def publish(harness: ServerHarness, method: str = CHANGED) -> None:
    harness.run_action(harness.server.publish, method)


def listeners(instances: Instances) -> list[RawExchange]:
    """A client of each instance, which listens there."""
    return [harness.get(harness.open_session()) for harness in instances]


def test_all_clients_get_all_publications_in_one_order() -> None:
    instances = Instances(3)
    listening = listeners(instances)
    for harness, method in zip(instances, (CHANGED, PROMPTS, RESOURCES), strict=True):
        publish(harness, method)
    instances.wait(1)
    first, *others = [methods(each) for each in listening]
    assert sorted(first) == sorted((CHANGED, PROMPTS, RESOURCES))
    assert others == [first, first]


def test_the_clients_of_the_publishing_instance_need_not_wait() -> None:
    instances = Instances()
    near, far = listeners(instances)
    publish(instances[0])
    assert (methods(near), methods(far)) == ([CHANGED], [])
    instances.wait(0.5)
    assert (methods(near), methods(far)) == ([CHANGED], [CHANGED])


def test_a_store_that_tells_lets_others_know_at_once() -> None:
    instances = Instances(store_tells=True)
    near, far = listeners(instances)
    publish(instances[0])
    instances[1].tell()
    assert (methods(near), methods(far)) == ([CHANGED], [CHANGED])
    instances.wait(20)
    assert (methods(near), methods(far)) == ([CHANGED], [CHANGED])


def test_a_session_that_is_known_at_several_instances_is_told_once() -> None:
    first, second = instances = Instances()
    session = first.open_session()
    listener = first.get(session)
    second.post(PING, session)
    publish(second)
    instances.wait(1)
    assert methods(listener) == [CHANGED]
    at_second = second.get(session)
    publish(second)
    instances.wait(1)
    assert methods(at_second) == [CHANGED]


def test_what_was_published_before_is_not_told() -> None:
    first, second = instances = Instances()
    listeners(instances)
    publish(first)
    late = ServerHarness(store=instances.store, tokens="late-instance", shared_store=True)
    listener = late.get(late.open_session())
    late.wait(1)
    assert methods(listener) == []
    publish(second)
    late.wait(1)
    assert methods(listener) == [CHANGED]


@pytest.mark.both_eras
def test_subscriptions_get_what_other_instances_publish() -> None:
    first, second = instances = Instances(app=modern_app(), versions=(LATEST, MODERN))
    message = modern("l", LISTEN, notifications={"toolsListChanged": True})
    subscribed = second.post(message, headers=mirrored(message))
    publish(first)
    instances.wait(0.5)
    assert methods(subscribed)[1:] == [CHANGED]


def test_equal_publications_that_wait_are_one() -> None:
    instances = Instances()
    near, far = listeners(instances)
    first = instances[0]
    first.store_works = first.leases_work = False
    for _ in range(3):
        publish(first)
    publish(first, PROMPTS)
    first.store_works = first.leases_work = True
    while first.waiting:
        first.use_store_once()
    instances.wait(1)
    # The first of them was on its way, and one more may tell of a change after it.
    assert methods(near) == methods(far) == [CHANGED, CHANGED, PROMPTS]


def hold_back(harness: ServerHarness, method: str) -> StoreAppend:
    """Publish at an instance whose store is slow; returns the append that waits."""
    harness.store_works = harness.leases_work = False
    publish(harness, method)
    (append,) = [each for each in harness.waiting if isinstance(each, StoreAppend)]
    return append


def resume(harness: ServerHarness) -> None:
    harness.store_works = harness.leases_work = True
    while harness.waiting:
        harness.use_store_once()


def test_of_two_that_publish_at_once_one_appends_after_the_other() -> None:
    first, second = instances = Instances()
    near, far = listeners(instances)
    hold_back(first, CHANGED)
    publish(second, PROMPTS)
    resume(first)
    instances.wait(1)
    assert methods(near) == methods(far) == [PROMPTS, CHANGED]


def test_an_append_whose_reply_was_lost_is_found_in_the_log() -> None:
    """The other instance appends before it is repeated, so that the repetition conflicts."""
    first, second = instances = Instances()
    near, far = listeners(instances)
    append = hold_back(first, CHANGED)
    stored = instances.store.append(
        append.stream, append.entries, token=append.token, now=first.now
    )
    assert stored is AppendResult.STORED
    first.fail_store_once()
    second.wait(0.5)
    publish(second, PROMPTS)
    resume(first)
    instances.wait(2)
    assert methods(near) == methods(far) == [CHANGED, PROMPTS]


def test_what_the_store_does_not_take_is_told_here_alone() -> None:
    first, _ = instances = Instances()
    near, far = listeners(instances)
    append = hold_back(first, CHANGED)
    while not any(event.lost for event in first.events if isinstance(event, StoreFailed)):
        first.fail_store_once()
        first.wait(1.0)
    # It was done after all: those here have heard of it.
    instances.store.append(append.stream, append.entries, token=append.token, now=first.now)
    resume(first)
    instances.wait(2)
    assert (methods(near), methods(far)) == ([CHANGED], [CHANGED])


def test_too_many_that_wait_are_told_here_alone() -> None:
    instances = Instances(limits=Limits(max_pending_entries=2))
    near, far = listeners(instances)
    first = instances[0]
    hold_back(first, CHANGED)
    publish(first, PROMPTS)
    publish(first, RESOURCES)
    resume(first)
    instances.wait(1)
    assert methods(far) == [CHANGED, PROMPTS]
    assert sorted(methods(near)) == sorted((CHANGED, PROMPTS, RESOURCES))


@pytest.mark.parametrize("publishes_first", [0, 1])
def test_a_log_that_was_lost_begins_anew(publishes_first: int) -> None:
    instances = Instances()
    listening = listeners(instances)
    publish(instances[0])
    publish(instances[1], PROMPTS)
    instances.wait(1)
    before = [methods(each) for each in listening]
    instances.store.drop("", ".publish")
    late = ServerHarness(store=instances.store, tokens="a-late-instance", shared_store=True)
    instances.append(late)
    listening.append(late.get(late.open_session()))
    before.append([])
    publish(late, RESOURCES)
    publish(instances[publishes_first], CHANGED)
    instances.wait(1)
    told = [methods(each)[len(old) :] for each, old in zip(listening, before, strict=True)]
    assert told == [[RESOURCES, CHANGED]] * 3


def test_a_log_that_has_lost_its_end_repeats_nothing() -> None:
    instances = Instances()
    near, far = listeners(instances)
    publish(instances[0])
    publish(instances[0], PROMPTS)
    instances.wait(1)
    (append,) = [key for key in instances[0].watches if key.session == ".publish"]
    page = instances.store.read(append, 0, limit=1, max_bytes=1)
    assert page is not None
    instances.store.drop("", ".publish")
    instances.store.append(append, page.entries, token="the store", now=0)
    publish(instances[1], RESOURCES)
    instances.wait(1)
    assert methods(near) == methods(far) == [CHANGED, PROMPTS, RESOURCES]


def test_the_log_is_followed_from_the_first_request_until_the_end() -> None:
    first, second = Instances()
    assert first.watches == set()
    assert first.server.next_deadline() is None
    second.open_session()
    assert len(second.watches) == 1
    second.run_action(second.server.shut_down)
    assert second.watches == set()


def test_a_page_that_is_not_the_last_is_followed_by_the_next() -> None:
    instances = Instances(limits=Limits(replay_page_entries=2))
    near, far = listeners(instances)
    methods_ = (CHANGED, PROMPTS, RESOURCES, CHANGED, PROMPTS)
    for method in methods_:
        publish(instances[0], method)
    instances.wait(1)
    assert methods(near) == methods(far) == list(methods_)


def test_a_publication_that_fills_a_page_does_not_hold_up_the_next() -> None:
    instances = Instances(limits=Limits(max_unsent_bytes=100_000))
    near, far = listeners(instances)
    for number in range(3):
        params = {"_meta": {"text": str(number) * 60_000}}
        instances[0].run_action(instances[0].server.publish, CHANGED, params)
        near.pull()
    instances.wait(2)
    assert methods(near) == methods(far) == [CHANGED] * 3


def test_all_are_told_however_many_instances_have_published() -> None:
    """More than the instances whose last numbers are remembered."""
    (first,) = instances = Instances(1)
    (listener,) = listeners(instances)
    for number in range(300):
        publish(ServerHarness(store=instances.store, tokens=f"late-{number}", shared_store=True))
    instances.wait(2)
    assert methods(listener) == [CHANGED] * 300
    legacy = first.server._legacy  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    assert legacy is not None
    newest = legacy.publications.log._newest  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    assert len(newest) == 256


def test_a_stream_that_the_store_could_not_keep_is_told_on_without_ids() -> None:
    first, _ = instances = Instances()
    listener = first.get(instances.open_session())
    first.store_works = False
    publish(first)
    first.fail_store_for_good()
    assert methods(listener) == [CHANGED]
    publish(first, PROMPTS)
    assert methods(listener) == [CHANGED, PROMPTS]
    assert listener.last_id == ""


# A stream that goes on at another instance: what its client has missed


def moved(instances: Instances, *missed: str) -> tuple[str, RawExchange]:
    """A stream that is read at the second instance, while the first one, which writes it, is dead.

    ``missed``: what the last one publishes meanwhile.
    """
    first, second, *_ = instances
    session = instances.open_session()
    listener = first.get(session)
    publish(first)
    assert methods(listener) == [CHANGED]
    listener.lose_connection()
    resumed = second.get(session, listener.last_id)
    for method in missed:
        publish(instances[-1], method)
    wait(1, *instances[1:])
    return session, resumed


def next_catch_up(harness: ServerHarness, *held: StoreEffect) -> StoreRead:
    """Let the store work until it is asked for what a client has missed, and hold that back."""
    harness.store_works = harness.leases_work = False
    page = harness.server.limits.replay_page_entries  # a log is read with one entry more
    while True:
        waiting = [each for each in harness.waiting if each not in held]
        for each in waiting:
            if isinstance(each, StoreRead) and each.limit == page and is_publication(each):
                return each
        if waiting:
            harness.waiting.remove(waiting[0])
            harness.perform_store_effect(waiting[0])
            harness.run_pending()
        else:
            harness.wait(0.25)


def is_publication(effect: StoreRead) -> bool:
    return effect.stream.session == ".publish" and effect.after > 0


def test_what_a_dead_instance_has_not_sent_is_sent_page_by_page() -> None:
    instances = Instances(limits=Limits(replay_page_entries=1))
    missed = (PROMPTS, RESOURCES, CHANGED, PROMPTS)
    _, resumed = moved(instances, *missed)
    wait(LEASE + 2, instances[1])
    assert methods(resumed) == list(missed)


def test_what_is_found_while_a_client_catches_up_comes_after_what_it_has_missed() -> None:
    _, second = instances = Instances()
    _, resumed = moved(instances, PROMPTS)
    held = next_catch_up(second)
    publish(second, RESOURCES)
    second.use_store_except(held)
    assert methods(resumed) == []
    resume(second)
    wait(1, second)
    assert methods(resumed) == [PROMPTS, RESOURCES]


def test_what_is_published_while_a_client_catches_up_is_sent_once() -> None:
    """The second instance has not found it yet when it reads what the client has missed."""
    _, second, third = instances = Instances(3)
    _, resumed = moved(instances, PROMPTS)
    held = next_catch_up(second)
    publish(third, RESOURCES)
    second.waiting.remove(held)
    second.perform_store_effect(held)
    second.run_pending()
    resume(second)
    wait(1, second)
    assert methods(resumed) == [PROMPTS, RESOURCES]


def test_a_client_that_cannot_catch_up_gets_what_is_published_from_then_on() -> None:
    _, second = instances = Instances()
    _, resumed = moved(instances, PROMPTS)
    held = next_catch_up(second)
    second.fail_store_for_good(held)
    resume(second)
    publish(second, RESOURCES)
    wait(1, second)
    assert methods(resumed) == [RESOURCES]
    assert any(isinstance(event, StoreFailed) and event.lost for event in second.events)


def test_a_session_that_ends_while_its_client_catches_up() -> None:
    _, second = instances = Instances()
    session, resumed = moved(instances, PROMPTS)
    held = next_catch_up(second)
    second.send("DELETE", {"mcp-session-id": session})
    second.use_store_except(held)
    resume(second)
    wait(1, second)
    assert resumed.ended
    assert methods(resumed) == []
    assert second.get(session).status == 404


@pytest.mark.parametrize("fails", [False, True])
def test_a_stream_that_is_continued_twice_is_told_once(fails: bool) -> None:
    """The first instance was only slow, sent what was missed, and died then."""
    first, second = instances = Instances()
    _, resumed = moved(instances, PROMPTS)
    held = next_catch_up(second)
    first.wait(1)
    again = next_catch_up(second, held)
    assert methods(resumed) == [PROMPTS]
    if fails:
        second.fail_store_once(held)
    second.use_store_except(again)
    resume(second)
    wait(1, second)
    publish(second, RESOURCES)
    wait(1, second)
    assert methods(resumed) == [PROMPTS, RESOURCES]
    assert not any(isinstance(event, StoreFailed) and event.lost for event in second.events)


def test_two_streams_of_a_session_go_on_without_repeating_anything() -> None:
    first, second = instances = Instances()
    session = instances.open_session()
    listening = [first.get(session) for _ in range(2)]
    publish(first)
    assert [methods(each) for each in listening] == [[], [CHANGED]]
    resumed = [second.get(session, each.last_id) for each in listening]
    publish(second, PROMPTS)
    wait(LEASE + 2, second)
    assert sorted(methods(each) for each in resumed) == [[], [PROMPTS]]
    publish(second, RESOURCES)
    wait(1, second)
    assert [RESOURCES in methods(each) for each in resumed].count(True) == 1
