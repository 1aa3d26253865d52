"""What a handler at any instance tells the client reaches its standalone stream, wherever it is."""

from __future__ import annotations

from typing import Any

from sansmcp import Limits
from sansmcp.effects import StoreAppend, StoreRead
from sansmcp.events import ResponseUndelivered, StoreFailed
from sansmcp.server.legacy.inbox import INBOX
from sansmcp.store import Entry, EntryKind, StreamKey

from .harness import PING, RawExchange, ServerHarness, methods, request
from .instances import Instances
from .modern.harness import modern_app
from .test_leases import LEASE, wait

HELLO, AGAIN = "notifications/hello", "notifications/again"
UPDATED = "notifications/resources/updated"


def notify(harness: ServerHarness, session: str, method: str) -> bool:
    """Let a handler at an instance notify the client of a session, which is known there."""
    (known,) = [
        each
        for each in harness.server.sessions
        if each.id is not None and each.id.reveal() == session
    ]
    is_taken: bool = harness.run_action(known.notify, method)
    return is_taken


def listening() -> tuple[Instances, str, RawExchange]:
    instances = Instances()
    session = instances.open_session()
    listener = instances[0].get(session)
    instances[1].post(PING, session)
    return instances, session, listener


def test_a_notification_from_another_instance_arrives() -> None:
    instances, session, listener = listening()
    assert notify(instances[1], session, HELLO)
    instances.wait(1)
    assert notify(instances[0], session, AGAIN)
    assert methods(listener) == [HELLO, AGAIN]
    instances.wait(10)
    assert methods(listener) == [HELLO, AGAIN]


def test_it_waits_for_a_listener() -> None:
    first, second = instances = Instances()
    session = instances.open_session()
    assert notify(first, session, HELLO)
    second.post(PING, session)
    assert notify(second, session, AGAIN)
    listener = second.get(session)
    instances.wait(1)
    assert methods(listener) == [HELLO, AGAIN]


def test_an_entry_of_a_kind_that_only_later_versions_know_is_passed_over() -> None:
    first, second = instances = Instances()
    session = instances.open_session()
    assert notify(first, session, HELLO)
    later = Entry(2, b"?", kind=EntryKind("added later"))
    instances.store.append(StreamKey("", session, INBOX), (later,), token="t", now=0.0)
    second.post(PING, session)
    assert notify(second, session, AGAIN)
    listener = second.get(session)
    instances.wait(1)
    assert methods(listener) == [HELLO, AGAIN]


def test_it_reaches_a_client_that_has_gone_on_to_listen_to_another_instance() -> None:
    """Seed 5127 of the simulator: it stayed in the stream that the client has left."""
    first, second = instances = Instances()
    session = instances.open_session()
    first.get(session).lose_connection()
    listener = second.get(session)
    instances.wait(1)
    assert notify(first, session, HELLO)
    instances.wait(1)
    assert methods(listener) == [HELLO]


def test_what_comes_later_does_not_overtake_what_waits_in_the_inbox() -> None:
    """Seed 15108 of the simulator."""
    first, _ = instances = Instances()
    session = instances.open_session()
    first.store_works = first.leases_work = False
    assert notify(first, session, HELLO)
    (inbox,) = first.waiting
    listener = first.get(session)
    while first.waiting != [inbox]:
        first.waiting.remove(inbox)
        first.use_store_once()
        first.waiting.append(inbox)
    assert notify(first, session, AGAIN)
    while first.waiting:
        first.use_store_once()
    assert methods(listener) == [HELLO, AGAIN]
    first.store_works = first.leases_work = True
    assert notify(first, session, HELLO)
    assert methods(listener) == [HELLO, AGAIN, HELLO]


def test_what_comes_later_does_not_overtake_what_was_dropped_here() -> None:
    """Seed 996178905291 of the simulator: another instance sent it, after what came later."""
    first, second = instances = Instances(limits=Limits(max_pending_entries=1))
    session = instances.open_session()
    listener = first.get(session)
    second.post(PING, session)
    instances.wait(1)
    slow_down(first)
    for method in (f"{HELLO}/1", f"{HELLO}/2", f"{HELLO}/3"):
        assert notify(second, session, method)
    instances.wait(1)
    speed_up(first)
    assert methods(listener) == [f"{HELLO}/1", f"{HELLO}/2"]
    assert notify(first, session, AGAIN)
    assert methods(listener) == [f"{HELLO}/1", f"{HELLO}/2", AGAIN]
    moved = second.get(session, listener.last_id)
    wait(LEASE + 2, second)  # the first one is dead
    assert notify(second, session, HELLO)
    assert methods(moved) == [HELLO]


def test_a_second_stream_does_not_repeat_it() -> None:
    first, second = instances = Instances()
    session = instances.open_session()
    notify(first, session, HELLO)
    listener = first.get(session)
    instances.wait(1)
    assert methods(listener) == [HELLO]
    listener.lose_connection()
    first.run_action(first.server.shut_down)
    at_second = second.get(session)
    wait(1, second)
    assert methods(at_second) == []


def test_whoever_continues_the_stream_goes_on_in_the_inbox() -> None:
    instances, session, listener = listening()
    first, second = instances
    notify(second, session, HELLO)
    instances.wait(1)
    assert methods(listener) == [HELLO]
    moved = second.get(session, listener.last_id)
    notify(second, session, AGAIN)  # the first one is dead
    wait(LEASE + 2, second)
    assert methods(moved) == [AGAIN]
    assert first.server.sessions


def test_whoever_continues_the_stream_writes_to_its_present_reader() -> None:
    """Seed 652690170874 of the simulator: the page that the reader before waited for came late."""
    first, second = instances = Instances()
    session = instances.open_session()
    listener = first.get(session)
    for _ in range(5):
        assert notify(first, session, AGAIN)
    reader = second.get(session, listener.last_id)
    slow_down(second)
    second.wait(1)
    (late,) = (
        each
        for each in second.waiting
        if isinstance(each, StoreRead) and listener.last_id.startswith(each.stream.stream)
    )
    reader.lose_connection()
    moved = second.get(session, listener.last_id)
    second.use_store_except(late)
    assert moved.status == 200
    speed_up(second)
    wait(LEASE + 2, second)  # the first one is dead
    assert notify(second, session, HELLO)
    wait(1, second)
    assert methods(moved) == [HELLO]


def subscribe(harness: ServerHarness, session: str, method: str) -> None:
    talk = harness.post(request(1, method, uri="test://a"), session)
    assert talk.json["result"] == {}


def update(harness: ServerHarness) -> None:
    harness.run_action(harness.server.publish, UPDATED, {"uri": "test://a"})


def test_a_subscription_at_another_instance_counts() -> None:
    first, second = instances = Instances(app=modern_app())
    session = instances.open_session()
    listener = first.get(session)
    subscribe(second, session, "resources/subscribe")
    instances.wait(1)
    update(second)
    instances.wait(1)
    assert methods(listener) == [UPDATED]
    subscribe(second, session, "resources/unsubscribe")
    instances.wait(1)
    update(first)
    instances.wait(1)
    assert methods(listener) == [UPDATED]


def test_a_subscription_is_known_where_the_stream_goes_on() -> None:
    first, second = instances = Instances(app=modern_app())
    session = instances.open_session()
    listener = first.get(session)
    subscribe(first, session, "resources/subscribe")
    instances.wait(1)
    moved = second.get(session, listener.last_id)
    wait(LEASE + 2, second)
    update(second)
    wait(1, second)
    assert methods(moved) == [UPDATED]


# A subscription that waits for the store


def subscribing(**settings: Any) -> tuple[Instances, str, RawExchange, RawExchange]:
    """A client listens to the first instance, and the second one is to store a subscription."""
    first, second = instances = Instances(app=modern_app(), **settings)
    session = instances.open_session()
    listener = first.get(session)
    second.post(PING, session)
    slow_down(second)
    talk = second.post(request(1, "resources/subscribe", uri="test://a"), session)
    second.use_store_once()  # the session is looked up
    return instances, session, listener, talk


def test_a_subscription_is_acknowledged_when_it_is_stored() -> None:
    """Seed 1657094755612 of the simulator: the instance died after its response, and before."""
    (first, second), _, listener, talk = subscribing()
    assert talk.status is None
    assert second.server.is_busy
    while second.waiting:
        assert talk.status is None
        second.use_store_once()
    assert talk.json["result"] == {}
    assert not second.server.is_busy
    first.wait(1)  # the second one is dead
    update(first)
    first.wait(1)
    assert methods(listener) == [UPDATED]


def test_a_subscription_that_the_store_does_not_take_is_refused() -> None:
    (_, second), _, _, talk = subscribing()
    fail_for_long(second)
    assert talk.messages[-1]["error"]["data"]["reason"] == "store_failed"
    assert not second.server.is_busy


def test_a_subscription_ends_with_its_session() -> None:
    (_, second), _, _, talk = subscribing()
    (session,) = second.server.sessions
    second.run_action(second.server.end_session, session, "the operator wants it")
    assert talk.json["result"] == {}
    speed_up(second)
    assert not second.server.is_busy


def test_nobody_waits_behind_too_many_entries() -> None:
    (_, second), session, _, talk = subscribing(limits=Limits(max_pending_entries=1))
    other = second.post(request(2, "resources/unsubscribe", uri="test://b"), session)
    (lookup,) = (
        each
        for each in second.waiting
        if isinstance(each, StoreRead) and each.stream.stream == ".session"
    )
    second.waiting.remove(lookup)
    second.perform_store_effect(lookup)
    second.run_pending()
    assert (talk.status, other.json["result"]) == (None, {})
    speed_up(second)
    assert talk.json["result"] == {}


def test_whoever_has_gone_meanwhile_gets_no_response() -> None:
    (_, second), _, _, talk = subscribing()
    talk.lose_connection()
    speed_up(second)
    assert any(isinstance(event, ResponseUndelivered) for event in second.events)


def test_an_inbox_that_was_begun_anew_is_read() -> None:
    instances, session, listener = listening()
    third = ServerHarness(store=instances.store, tokens="third-instance", shared_store=True)
    third.post(PING, session)
    instances.append(third)
    for harness in (instances[1], third):
        notify(harness, session, HELLO)
        instances.wait(1)
        inbox = StreamKey("", session, ".notify")
        del instances.store._logs[inbox]  # noqa: SLF001  # pyright: ignore
    notify(instances[1], session, AGAIN)
    instances.wait(1)
    assert methods(listener) == [HELLO, HELLO, AGAIN]


def test_an_inbox_is_deleted_with_its_session() -> None:
    instances, session, _ = listening()
    notify(instances[1], session, HELLO)
    instances.wait(1)
    instances[1].send("DELETE", {"mcp-session-id": session})
    instances.wait(1)
    inbox = StreamKey("", session, ".notify")
    assert instances.store.read(inbox, 0, limit=1, max_bytes=1) is None


# A message that waits for the store when the client comes


def fail_for_long(harness: ServerHarness) -> None:
    """Let the store fail at everything for as long as it is repeated."""
    for _ in range(80):
        while harness.waiting:
            harness.fail_store_once()
        harness.wait(0.5)


def slow_down(harness: ServerHarness) -> None:
    harness.store_works = harness.leases_work = False


def speed_up(harness: ServerHarness) -> None:
    harness.store_works = harness.leases_work = True
    while harness.waiting:
        harness.use_store_once()


def test_a_message_that_the_store_does_not_take_is_sent_where_it_was_left() -> None:
    first, _ = instances = Instances()
    session = instances.open_session()
    slow_down(first)
    assert notify(first, session, HELLO)
    listener = first.get(session)
    reads = (each for each in first.waiting if isinstance(each, StoreRead))
    (lookup,) = (each for each in reads if each.stream.stream == ".session")
    first.waiting.remove(lookup)
    first.perform_store_effect(lookup)
    first.run_pending()
    assert listener.status == 200
    fail_for_long(first)
    assert methods(listener) == [HELLO]


def test_a_message_that_the_store_does_not_take_and_no_client_waits_for_is_lost() -> None:
    first, _ = instances = Instances()
    session = instances.open_session()
    slow_down(first)
    assert notify(first, session, HELLO)
    fail_for_long(first)
    assert any(isinstance(event, StoreFailed) and event.lost for event in first.events)
    speed_up(first)
    assert notify(first, session, AGAIN)
    listener = first.get(session)
    instances.wait(1)
    assert methods(listener) == [AGAIN]


def test_a_message_that_is_being_stored_when_the_client_comes_is_sent_once() -> None:
    first, _ = instances = Instances()
    session = instances.open_session()
    notify(first, session, HELLO)
    slow_down(first)
    notify(first, session, AGAIN)
    (append,) = first.waiting
    assert isinstance(append, StoreAppend)
    listener = first.get(session)
    first.use_store_except(append)
    assert listener.status == 200
    speed_up(first)
    instances.wait(1)
    assert methods(listener) == [HELLO, AGAIN]


def test_an_inbox_that_is_being_read_when_the_client_comes_is_read_from_its_beginning() -> None:
    first, second = instances = Instances()
    session = instances.open_session()
    second.post(PING, session)
    notify(first, session, HELLO)
    notify(second, session, AGAIN)
    slow_down(first)
    notify(first, session, HELLO)
    first.use_store_once()  # the append conflicts
    (read,) = first.waiting
    assert isinstance(read, StoreRead)
    listener = first.get(session)
    first.use_store_except(read)
    assert listener.status == 200
    speed_up(first)
    instances.wait(1)
    assert methods(listener) == [HELLO, AGAIN, HELLO]
