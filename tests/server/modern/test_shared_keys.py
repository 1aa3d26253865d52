"""Keys of calls in a shared store: any instance gives the rest of a call, and none runs twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from sansmcp import (
    Entry,
    EntryKind,
    Limits,
    LocalProtocolError,
    MemoryStore,
    StateSigner,
    StreamKey,
)
from sansmcp.effects import StoreAppend, StoreEffect, StoreRead
from sansmcp.events import CallCancelled, CallReceived
from sansmcp.messages import Request
from sansmcp.server.records import write_head
from sansmcp.server.shared_keys import Claim

from ..harness import STREAM, RawExchange
from ..protected_harness import ProtectedHarness
from .harness import KEY, Clock, ModernServerHarness
from .test_reclaim import SECRET, cancellation, keyed, place_of, rest

EPOCH = 1_800_000_000.0
LEASE = 10.0
VALID = 300
"""Seconds for which a place is valid: a third of the default of ``max_stored_age``."""

DONE: dict[str, Any] = {"content": []}
REQUEST = Request(1, "tools/call", {"name": "add"})


def settings_of(number: int, clock: Any, limits: Limits, **settings: Any) -> dict[str, Any]:
    """The settings of an instance that shares the keys of its calls."""
    return {
        "tokens": f"instance-{number}",
        "shared_store": True,
        "reclaim": "store",
        "state_signer": StateSigner(keys=(KEY,), clock=clock),
        "wall_clock": clock,
        "limits": limits,
        **settings,
    }


class Fleet(list[ModernServerHarness]):
    """Instances at one store."""

    def __init__(self, count: int = 2, limits: Limits | None = None, **settings: Any) -> None:
        limits = limits or Limits()
        self.store = MemoryStore(limits)
        super().__init__(
            ModernServerHarness(
                store=self.store,
                **settings_of(number, lambda: EPOCH + self[0].now, limits, **settings),
            )
            for number in range(count)
        )

    def wait(self, seconds: float, *alive: ModernServerHarness) -> None:
        """Let time pass for those that live, a little at a time."""
        for _ in range(round(seconds / 0.25)):
            for harness in self:
                if not alive or harness in alive:
                    harness.wait(0.25)
                else:
                    harness.now += 0.25

    @property
    def logs(self) -> dict[str, list[bytes]]:
        """What the store has, by the sessions of the logs."""
        found: dict[str, list[bytes]] = {}
        for key in self.store._logs:  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
            page = self.store.read(key, 0, limit=99, max_bytes=10**6)
            assert page is not None
            found.setdefault(key.session, []).extend(entry.data for entry in page.entries)
        return found


def starts(harness: ModernServerHarness) -> int:
    """The calls that have started and were not taken."""
    return sum(isinstance(event, CallReceived) for event in harness.events)


def cancelled(harness: ModernServerHarness) -> list[str]:
    return [event.reason for event in harness.events if isinstance(event, CallCancelled)]


def reason_of(talk: RawExchange) -> Any:
    return talk.error["data"]["reason"]


def never_arrived(talk: RawExchange) -> Any:
    assert (talk.status, reason_of(talk)) == (409, "unknown_key")
    return talk.error["data"]["neverArrived"]


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


# The place


@pytest.mark.parametrize(
    "settings",
    [
        {"shared_store": False},
        {"wall_clock": None},
        {"state_signer": None},
        {"reclaim": "file"},
        {"reclaim": 1},
    ],
)
def test_it_needs_what_instances_share(settings: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError, match="reclaim"):
        Fleet(**settings)


def test_all_instances_are_one_place(fleet: Fleet) -> None:
    first, second = map(place_of, fleet)
    assert first == second
    name, _, count = first.partition(".")
    assert len(name) == 16
    assert count == str(int(EPOCH))


def test_instances_with_other_keys_of_the_signer_are_another_place() -> None:
    (other,) = Fleet(1, state_signer=StateSigner(keys=(b"another key of 16",), clock=lambda: 0.0))
    (first,) = Fleet(1)
    assert reason_of(other.ask(keyed(place=place_of(first)))) == "other_place"
    rotating = StateSigner(keys=(b"another key of 16", KEY), clock=lambda: 0.0)
    (both,) = Fleet(1, state_signer=rotating)
    assert place_of(both).partition(".")[0] == place_of(other).partition(".")[0]
    assert both.start(keyed(place=place_of(first)))[1].is_running


@pytest.mark.parametrize(
    ("age", "is_taken"), [(-301, False), (-299, True), (299, True), (301, False)]
)
def test_a_call_that_names_an_old_place_is_refused(fleet: Fleet, age: int, is_taken: bool) -> None:
    """Its claim may have been evicted."""
    name, _, count = place_of(fleet[0]).partition(".")
    talk = fleet[0].ask(keyed(place=f"{name}.{int(count) - age}"))
    assert starts(fleet[0]) == is_taken
    if not is_taken:
        assert (talk.status, reason_of(talk)) == (409, "other_place")
        assert talk.error["data"]["place"] == f"{name}.{count}"


@pytest.mark.parametrize("place", ["instance-0-000000000001.0", "another.0"])
def test_so_is_one_for_a_single_process(fleet: Fleet, place: str) -> None:
    assert reason_of(fleet[0].ask(keyed(place=place))) == "other_place"


# Calls


@pytest.mark.parametrize("place", [".", None])
def test_any_instance_gives_the_response(fleet: Fleet, place: str | None) -> None:
    first, second = fleet
    at = place or place_of(first)
    talk, call = first.start(keyed(place=at))
    talk.lose_connection()
    again = second.ask(rest(place=at))
    assert not again.body
    first.run_action(call.respond, DONE)
    fleet.wait(0.5)
    assert again.json["id"] == 1
    assert again.json["result"]["content"] == []
    assert not second.server.is_busy
    assert (starts(first), starts(second)) == (0, 0)
    later = second.ask(rest(place=at))
    assert later.json == again.json


def test_the_store_tells_of_the_response(fleet: Fleet) -> None:
    first, second = fleet
    second.store_tells = True
    talk, call = first.start(keyed())
    talk.lose_connection()
    again = second.ask(rest())
    first.run_action(call.respond, DONE)
    second.tell()
    assert again.json["id"] == 1


def test_the_instance_that_runs_it_gives_its_reports_too(fleet: Fleet) -> None:
    first, _ = fleet
    talk, call = first.start(keyed())
    talk.lose_connection()
    first.run_action(call.progress, 1)
    again = first.ask(rest())
    assert again.messages[0]["params"]["progress"] == 1


def test_a_copy_at_another_instance_gets_the_response(fleet: Fleet) -> None:
    first, second = fleet
    _, call = first.start(keyed())
    copy = second.ask(keyed())
    first.run_action(call.respond, DONE)
    fleet.wait(0.5)
    assert copy.json["id"] == 1
    assert starts(second) == 0


def test_of_two_copies_at_one_time_one_runs(fleet: Fleet) -> None:
    first, second = fleet
    second.store_works = False
    copy = second.ask(keyed())
    assert starts(second) == 0
    talk, call = first.start(keyed())
    while second.waiting:
        second.use_store_once()
    first.run_action(call.respond, DONE)
    second.store_works = True
    fleet.wait(0.5)
    assert copy.json == talk.json
    assert starts(second) == 0


def test_a_call_that_never_arrived_is_sent_again_to_any_instance(fleet: Fleet) -> None:
    _, second = fleet
    place = place_of(second)
    assert never_arrived(second.ask(rest(place=place))) is True
    assert never_arrived(second.ask(rest(place="."))) is False
    assert never_arrived(second.ask(rest(place=f"{place.partition('.')[0]}.5"))) is False


def test_a_response_that_waits_shows_that_the_server_does(fleet: Fleet) -> None:
    first, second = fleet
    talk, call = first.start(keyed())
    talk.lose_connection()
    again = second.ask(rest())
    fleet.wait(16)
    assert again.header("content-type") == STREAM
    first.run_action(call.respond, DONE)
    fleet.wait(0.5)
    assert again.messages[-1]["id"] == 1
    assert again.ended


def test_an_error_is_a_response(fleet: Fleet) -> None:
    first, second = fleet
    talk, call = first.start(keyed())
    talk.lose_connection()
    first.run_action(call.respond_error, -32050, "no")
    assert second.ask(rest()).error["code"] == -32050


def test_keys_are_those_of_their_principals(fleet: Fleet) -> None:
    first, second = fleet
    place = place_of(first)
    first.start(keyed(place=place), principal="ann")
    assert never_arrived(second.ask(rest(place=place), principal="bob")) is True
    assert second.start(keyed(place=place), principal="bob")[1].is_running


@pytest.mark.parametrize("other", [rest(2), keyed(1, name="subtract")])
def test_another_call_with_the_same_key_is_refused(fleet: Fleet, other: dict[str, Any]) -> None:
    first, second = fleet
    first.start(keyed())
    assert reason_of(second.ask(other)) == "key_in_use"
    assert starts(second) == 0


def test_the_rest_needs_the_scopes_of_its_call() -> None:
    limits, store, clock = Limits(), MemoryStore(), Clock()
    first, second = (
        ProtectedHarness(store=store, **settings_of(number, clock, limits)) for number in (1, 2)
    )
    first.token = "reader"
    talk, call = first.start(keyed(name="sum"))
    talk.lose_connection()
    first.run_action(call.respond, DONE)
    second.token = "user"
    assert second.ask(rest()).status == 403
    second.token = "reader"
    assert second.ask(rest()).json["id"] == 1


def test_the_store_has_no_key(fleet: Fleet) -> None:
    _, call = fleet[0].start(keyed())
    fleet[0].run_action(call.respond, DONE)
    fleet.wait(0.25)
    logs = fleet.logs
    assert len(logs) == 3
    assert SECRET not in repr(logs)
    assert SECRET not in repr(list(fleet.store._logs))  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def test_a_newer_request_for_the_rest_replaces_the_one_before(fleet: Fleet) -> None:
    first, second = fleet
    first.start(keyed())
    before = second.ask(rest())
    again = second.ask(rest())
    assert before.aborted
    again.lose_connection()
    assert not second.server.is_busy
    assert second.watched == set()


def test_one_that_was_lost_is_not_replaced(fleet: Fleet) -> None:
    first, second = fleet
    first.start(keyed())
    second.ask(rest()).lose_connection()
    assert not second.server.is_busy
    second.ask(rest())
    assert second.server.is_busy


@pytest.mark.parametrize("is_there", [True, False])
def test_a_call_whose_client_waits_elsewhere_is_not_cancelled(
    fleet: Fleet, *, is_there: bool
) -> None:
    first, second = fleet
    talk, call = first.start(keyed())
    talk.lose_connection()
    again = second.ask(rest())
    if not is_there:
        again.lose_connection()
    for _ in range(30 if is_there else 0):
        fleet.wait(10)
        again = second.ask(rest())
        assert call.is_running
    again.lose_connection()
    fleet.wait(190)
    assert cancelled(first) == ["the client did not come back within 60 s (reclaim_timeout)"]


def test_nor_is_it_while_the_store_does_not_say(fleet: Fleet) -> None:
    first, second = fleet
    talk, call = first.start(keyed())
    talk.lose_connection()
    first.wait(59)
    first.store_works = second.store_works = False
    again = second.ask(rest())
    second.fail_store_once()
    first.wait(1)
    looks = [each for each in first.waiting if isinstance(each, StoreRead)]
    first.fail_store_once(looks[-1])
    assert call.is_running
    first.wait(60)
    looks = [each for each in first.waiting if isinstance(each, StoreRead)]
    first.run_action(call.respond, DONE)
    first.perform_store_effect(looks[-1])
    assert cancelled(first) == []
    again.lose_connection()


def test_that_it_waits_is_shown_again_if_the_store_fails(fleet: Fleet) -> None:
    first, second = fleet
    talk, call = first.start(keyed())
    talk.lose_connection()
    second.store_works = False
    again = second.ask(rest())
    second.use_store_once()
    second.fail_store_once(read_of(second, "waits"))
    released(second)
    fleet.wait(61)
    assert call.is_running
    assert again.aborted


def read_of(harness: ModernServerHarness, log: str) -> StoreEffect:
    """What the store was asked for of a log."""
    (read,) = [
        each
        for each in harness.waiting
        if isinstance(each, StoreRead) and each.stream.stream == log
    ]
    return read


# Before the store has the claim


def held(harness: ModernServerHarness, message: dict[str, Any]) -> RawExchange:
    """A call whose claim the store has not taken yet."""
    harness.store_works = False
    talk = harness.ask(message)
    assert starts(harness) == 0
    return talk


def released(harness: ModernServerHarness) -> None:
    harness.store_works = True
    while harness.waiting:
        harness.use_store_once()


def test_a_cut_before_the_handler_starts_costs_nothing(fleet: Fleet) -> None:
    first, _ = fleet
    talk = held(first, keyed())
    talk.lose_connection()
    released(first)
    call = first.last_call()
    again = first.ask(rest())
    first.run_action(call.respond, DONE)
    assert again.json["id"] == 1


def test_nor_does_a_copy_then(fleet: Fleet) -> None:
    first, _ = fleet
    talk = held(first, keyed())
    copy = first.ask(keyed())
    assert talk.aborted
    released(first)
    call = first.last_call()
    first.run_action(call.respond, DONE)
    assert copy.json["id"] == 1
    assert starts(first) == 0


def test_a_call_that_is_cancelled_then_does_not_start(fleet: Fleet) -> None:
    first, second = fleet
    talk = held(first, keyed())
    assert first.ask(cancellation()).status == 202
    assert talk.aborted
    released(first)
    assert starts(first) == 0
    assert never_arrived(second.ask(rest())) is False


def test_a_store_that_fails_refuses_the_call(fleet: Fleet) -> None:
    first, second = fleet
    talk = held(first, keyed())
    first.fail_store_for_good(claim_in(first))
    assert (talk.status, reason_of(talk)) == (503, "store_failed")
    first.waiting.clear()
    first.store_works = True
    assert second.start(keyed())[1].is_running


def claim_in(harness: ModernServerHarness) -> StoreEffect:
    (claim,) = [
        each
        for each in harness.waiting
        if isinstance(each, StoreAppend) and each.stream.session == ".keys"
    ]
    return claim


def test_a_claim_is_repeated_also_if_the_client_has_left(fleet: Fleet) -> None:
    first, second = fleet
    talk = held(first, keyed())
    talk.lose_connection()
    first.fail_store_once(claim_in(first))
    first.wait(1)
    released(first)
    first.run_action(first.last_call().respond, DONE)
    assert second.ask(rest()).json["id"] == 1


def test_a_client_that_has_left_is_not_told_that_the_store_has_failed(fleet: Fleet) -> None:
    first, _ = fleet
    held(first, keyed()).lose_connection()
    first.fail_store_for_good(claim_in(first))
    assert starts(first) == 0


def test_a_call_whose_claim_cannot_be_given_back_is_refused_all_the_same(fleet: Fleet) -> None:
    first, _ = fleet
    talk = held(first, keyed(requestState="forged"))
    first.use_store_except(claim_in(first))
    first.use_store_once()
    first.fail_store_for_good(claim_in(first))
    assert talk.status == 400


def test_a_call_that_is_refused_after_its_claim_can_run_elsewhere(fleet: Fleet) -> None:
    first, second = fleet
    place = place_of(first)
    talk = held(first, keyed(place=place))
    first.server.drain(now=first.now)
    released(first)
    assert (talk.status, reason_of(talk)) == (503, "shutting_down")
    assert never_arrived(second.ask(rest(place=place))) is True
    copy, call = second.start(keyed(place=place))
    second.run_action(call.respond, DONE)
    assert copy.json["id"] == 1


def test_so_can_one_that_the_application_cannot_start(fleet: Fleet) -> None:
    first, _ = fleet
    assert first.ask(keyed(requestState="forged")).status == 400
    assert first.start(keyed())[1].is_running


# The end of a call


def kept(fleet: Fleet) -> int:
    """How many logs of responses the store has."""
    return sum(session.startswith(".kept.") for session in fleet.logs)


@pytest.mark.parametrize("waits", [0, 0.25])
def test_a_confirmed_response_is_deleted_and_its_claim_stays(fleet: Fleet, waits: float) -> None:
    """If it is confirmed at once, the store never has it."""
    first, second = fleet
    _, call = first.start(keyed())
    first.run_action(call.respond, DONE)
    fleet.wait(waits)
    assert kept(fleet) == bool(waits)
    first.store_works = waits > 0
    first.ask(keyed(2, "another-secret-of-a-call", more=f",{SECRET}"))
    uses = [each for each in first.waiting if not isinstance(each, StoreRead)]
    assert uses == ([] if waits else [claim_in(first)])
    released(first)
    fleet.wait(0.25)
    assert kept(fleet) == 0
    first.start(keyed(2, "another-secret-of-a-call", more=f",{SECRET}"))
    assert kept(fleet) == 0
    late = second.ask(keyed())
    fleet.wait(61)
    assert late.aborted
    assert starts(second) == 0


def test_a_response_that_was_sent_is_stored_a_moment_later(fleet: Fleet) -> None:
    """It may not have arrived."""
    first, second = fleet
    talk, call = first.start(keyed())
    first.run_action(call.respond, DONE)
    again = second.ask(rest())
    assert not again.body
    fleet.wait(0.5)
    assert again.json == talk.json


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_response_that_was_sent_is_stored_before_the_instance_stops(
    fleet: Fleet, *, is_killed: bool
) -> None:
    first, second = fleet
    talk, call = first.start(keyed())
    late, other = first.start(keyed(2, "another-secret-of-a-call"))
    first.run_action(call.respond, DONE)
    first.run_action(first.server.shut_down if is_killed else first.server.drain)
    assert kept(fleet) == 1 + is_killed
    assert second.ask(rest()).json == talk.json
    if not is_killed:
        first.run_action(other.respond, DONE)
    assert second.ask(rest(2, "another-secret-of-a-call")).json == late.json


def test_a_response_is_deleted_after_a_while(fleet: Fleet) -> None:
    first, _ = fleet
    _, call = first.start(keyed())
    first.run_action(call.respond, DONE)
    fleet.wait(0.25)
    assert kept(fleet) == 1
    fleet.wait(61)
    assert kept(fleet) == 0
    assert ".keys" in fleet.logs


def test_a_response_that_is_dropped_while_it_is_stored(fleet: Fleet) -> None:
    first, _ = fleet
    talk, call = first.start(keyed())
    talk.lose_connection()
    first.store_works = False
    first.run_action(call.respond, DONE)
    first.ask(keyed(2, "another-secret-of-a-call", more=f",{SECRET}"))
    released(first)
    assert kept(fleet) == 0


def test_a_cancelled_call_has_no_response(fleet: Fleet) -> None:
    first, second = fleet
    talk, _ = first.start(keyed())
    talk.lose_connection()
    again = second.ask(rest())
    assert first.ask(cancellation()).status == 202
    fleet.wait(0.5)
    assert never_arrived(again) is False


def test_a_cancellation_is_repeated_until_it_reaches_the_right_instance(fleet: Fleet) -> None:
    first, second = fleet
    first.start(keyed())
    assert second.ask(cancellation()).status == 503
    assert first.ask(cancellation()).status == 202
    assert len(cancelled(first)) == 1


def test_a_long_call_shows_that_it_runs(fleet: Fleet) -> None:
    first, second = fleet
    _, call = first.start(keyed(place=place_of(first)))
    place = place_of(first)
    fleet.wait(1100)  # the store has evicted the claim
    third = second.ask(rest(place=place))
    first.run_action(call.respond, DONE)
    fleet.wait(0.5)
    assert third.messages[-1]["id"] == 1


def test_after_a_while_the_client_asks_again(fleet: Fleet) -> None:
    """The instance that runs the call alone has its reports."""
    first, second = fleet
    first.start(keyed())
    again = second.ask(rest())
    fleet.wait(19)
    assert not again.ended
    fleet.wait(8)
    assert again.aborted
    assert not second.server.is_busy


def test_an_instance_knows_that_it_does_not_run_it() -> None:
    (first,) = Fleet(1, Limits(max_reclaim_bytes=4096))
    _, call = first.start(keyed())
    first.run_action(call.respond, DONE)
    for id in range(2, 20):
        _, call = first.start(keyed(id, f"another-secret-of-{id:04}"))
        first.run_action(call.respond, DONE)
    assert never_arrived(first.ask(rest())) is False
    assert never_arrived(first.ask(keyed())) is False
    assert starts(first) == 0


def test_a_call_without_room_for_its_key_runs_once() -> None:
    first, second = fleet = Fleet(limits=Limits(max_reclaim_bytes=500))
    first.start(keyed())
    place = place_of(first)
    talk, call = first.start(keyed(2, "another-secret-of-a-call", place))
    assert never_arrived(second.ask(rest(2, "another-secret-of-a-call", place))) is False
    first.run_action(call.respond, DONE)
    assert talk.json["id"] == 2
    lost = held(first, keyed(3, "a-secret-of-a-third-call"))
    lost.lose_connection()
    released(first)
    assert starts(first) == 0
    assert fleet.logs


def test_claims_are_bounded() -> None:
    first, second = fleet = Fleet(limits=Limits(max_stored_entries=8))
    for id in range(4):
        first.start(keyed(id, f"a-secret-of-a-call-{id}"))
    refused = first.ask(keyed(9, "a-secret-of-a-call-9"))
    assert (refused.status, reason_of(refused)) == (429, "too_many_keys")
    assert second.start(keyed(9, "a-secret-of-a-call-9"))[1].is_running
    fleet.wait(VALID)
    assert reason_of(first.ask(keyed(9, "a-secret-of-a-call-8"))) == "too_many_keys"
    fleet.wait(VALID)
    assert first.start(keyed(9, "a-secret-of-a-call-8"))[1].is_running


def test_the_claims_of_one_principal_leave_room_for_others() -> None:
    (first,) = Fleet(1, limits=Limits(max_stored_entries=64))
    talks = [
        first.ask(keyed(id, f"a-secret-of-mallory-{id}"), principal="mallory") for id in range(40)
    ]
    assert sum(talk.head is None for talk in talks) == 28
    assert reason_of(talks[-1]) == "too_many_keys"
    for id in range(3):
        _, call = first.start(keyed(id, f"a-secret-of-ann-{id}"), principal="ann")
        assert call.is_running


# Instances that die or stop, and stores that fail


def test_a_call_whose_instance_dies_is_told(fleet: Fleet) -> None:
    first, second = fleet
    place = place_of(first)
    talk, _ = first.start(keyed(place=place))
    talk.lose_connection()
    again = second.ask(rest(place=place))
    fleet.wait(2 * LEASE, second)
    assert again.messages[-1]["error"]["data"]["reason"] == "instance_lost"
    assert never_arrived_or_lost(fleet, second, place)
    copy = second.ask(keyed(place=place))
    fleet.wait(2 * LEASE, second)
    assert copy.messages[-1]["error"]["data"]["reason"] == "instance_lost"
    assert starts(second) == 0


def never_arrived_or_lost(fleet: Fleet, harness: ModernServerHarness, place: str) -> bool:
    talk = harness.ask(rest(place=place))
    fleet.wait(2 * LEASE, harness)
    return bool(talk.messages[-1]["error"]["data"]["reason"] == "instance_lost")


def test_a_response_outlives_its_instance(fleet: Fleet) -> None:
    first, second = fleet
    talk, call = first.start(keyed())
    first.run_action(call.respond, DONE)
    fleet.wait(0.25)
    fleet.wait(3 * LEASE, second)
    assert second.ask(rest()).json == talk.json


def test_a_call_that_ends_with_its_instance_has_a_response(fleet: Fleet) -> None:
    first, second = fleet
    first.start(keyed())
    first.stop()
    assert reason_of(second.ask(rest())) == "shutting_down"


@pytest.mark.parametrize("waits", [0, 16])
def test_an_instance_that_stops_sends_its_clients_elsewhere(fleet: Fleet, waits: float) -> None:
    first, second = fleet
    first.start(keyed())
    again = second.ask(rest())
    fleet.wait(waits)
    second.stop()
    if waits:
        assert again.aborted
    else:
        assert (again.status, reason_of(again)) == (503, "shutting_down")
    second.check_stopped()


def test_a_lookup_that_fails_is_repeated(fleet: Fleet) -> None:
    first, second = fleet
    talk, call = first.start(keyed())
    talk.lose_connection()
    first.run_action(call.respond, DONE)
    second.store_works = False
    again = second.ask(rest())
    second.fail_store_once()
    second.wait(1)
    released(second)
    assert again.json["id"] == 1
    second.store_works = False
    again = second.ask(rest())
    second.use_store_once()
    second.fail_store_once(read_of(second, "response"))
    second.wait(6)
    released(second)
    assert again.json["id"] == 1


def test_a_lookup_that_fails_for_long_is_refused(fleet: Fleet) -> None:
    _, second = fleet
    second.store_works = False
    again = second.ask(rest())
    second.fail_store_for_good()
    assert (again.status, reason_of(again)) == (503, "store_failed")
    gone = second.ask(rest())
    gone.lose_connection()
    second.fail_store_once()
    assert second.waiting == []


def test_a_client_that_leaves_while_the_store_is_asked(fleet: Fleet) -> None:
    first, second = fleet
    first.start(keyed())
    second.store_works = False
    second.ask(rest()).lose_connection()
    released(second)
    assert not second.server.is_busy
    second.store_works = False
    again = second.ask(rest())
    second.use_store_once()
    again.lose_connection()
    released(second)
    assert not second.server.is_busy
    assert second.watched == set()


def test_one_that_leaves_while_the_response_cannot_be_read(fleet: Fleet) -> None:
    first, second = fleet
    first.start(keyed())
    second.store_works = False
    again = second.ask(rest())
    second.use_store_once()
    again.lose_connection()
    second.fail_store_once(read_of(second, "response"))
    assert not second.server.is_busy


def test_a_response_that_cannot_be_stored_is_stored_later(fleet: Fleet) -> None:
    first, second = fleet
    talk, call = first.start(keyed())
    talk.lose_connection()
    first.store_works = False
    first.run_action(call.respond, DONE)
    first.fail_store_once(response_in(first))
    first.wait(1)
    released(first)
    assert second.ask(rest()).json["id"] == 1


def response_in(harness: ModernServerHarness) -> StoreEffect:
    (append,) = [
        each
        for each in harness.waiting
        if isinstance(each, StoreAppend) and each.stream.session.startswith(".kept.")
    ]
    return append


def test_or_is_in_the_memory_of_its_instance_alone(fleet: Fleet) -> None:
    first, second = fleet
    talk, call = first.start(keyed())
    talk.lose_connection()
    first.store_works = False
    first.run_action(call.respond, DONE)
    first.fail_store_for_good(response_in(first))
    first.waiting.clear()
    first.store_works = True
    assert first.ask(rest()).json["id"] == 1
    again = second.ask(rest())
    assert not again.ended


def test_a_response_that_comes_while_the_call_shows_that_it_runs(fleet: Fleet) -> None:
    first, second = fleet
    _, call = first.start(keyed())
    first.wait(29)
    first.store_works = False
    first.wait(1)
    pin = response_in(first)
    first.run_action(call.respond, DONE)
    first.perform_store_effect(pin)
    first.waiting.remove(pin)
    first.run_pending()
    released(first)
    assert second.ask(rest()).json["id"] == 1


def test_an_entry_whose_reply_was_lost_was_stored(fleet: Fleet) -> None:
    first, second = fleet
    talk, call = first.start(keyed())
    talk.lose_connection()
    first.store_works = False
    first.run_action(call.respond, DONE)
    append = response_in(first)
    assert isinstance(append, StoreAppend)
    fleet.store.append(append.stream, append.entries, token="another", now=first.now)
    released(first)
    assert second.ask(rest()).json["id"] == 1


def test_a_log_that_the_store_has_lost_is_begun_anew(fleet: Fleet) -> None:
    first, second = fleet
    _, call = first.start(keyed())
    first.wait(31)
    log = next(each for each in fleet.logs if each.startswith(".kept."))
    (key,) = [
        each
        for each in fleet.store._logs  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        if each.session == log
    ]
    first.wait(300)
    fleet.store.drop("", log)
    fleet.store.append(key, (Entry(1, Claim.of("x", REQUEST, ()).encode()),), token="t", now=0.0)
    first.wait(300)
    first.run_action(call.respond, DONE)
    fleet.wait(0.5)
    assert second.ask(rest()).json["id"] == 1


# Records


LATER = b'{"reader":99}'


def put(fleet: Fleet, session: str, stream: str, entry: Entry) -> None:
    fleet.store.append(StreamKey("", session, stream), (entry,), token="later", now=0.0)


@pytest.mark.parametrize("entry", [Entry(1, LATER), Entry(1, b"?", kind=EntryKind.UNKNOWN)])
def test_a_claim_of_a_later_version_is_refused(fleet: Fleet, entry: Entry) -> None:
    first, _ = fleet
    name = name_of_log()
    put(fleet, ".keys", name, entry)
    for message in (keyed(), rest()):
        talk = first.ask(message)
        assert (talk.status, reason_of(talk)) == (503, "record_too_new")
    assert starts(first) == 0


def name_of_log() -> str:
    """The name of the logs of the key in these tests."""
    (other,) = Fleet(1)
    other.start(keyed())
    (name,) = [
        key.stream
        for key in other.store._logs  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        if key.session == ".keys"
    ]
    return name


def test_a_response_of_a_later_version_is_refused(fleet: Fleet) -> None:
    first, second = fleet
    first.start(keyed())
    entry = Entry(1, b"?", final=True, kind=EntryKind.UNKNOWN)
    put(fleet, f".kept.{name_of_log()}", "response", entry)
    assert reason_of(second.ask(rest())) == "record_too_new"


def test_a_claim_with_many_entries_is_read_to_its_end(fleet: Fleet) -> None:
    first, second = fleet
    place = place_of(first)
    for _ in range(20):
        talk = held(first, keyed(place=place, requestState="forged"))
        released(first)
        assert talk.status == 400
    assert never_arrived(second.ask(rest(place=place))) is True
    assert second.start(keyed(place=place))[1].is_running


def test_a_response_of_version_1_is_read_and_written_as_it_was(fleet: Fleet) -> None:
    first, second = fleet
    data = (Path(__file__).parents[1] / "stored" / "kept-response-1.txt").read_bytes()
    data = data.removesuffix(b"\n")
    first.start(keyed())
    put(fleet, f".kept.{name_of_log()}", "response", Entry(1, data, final=True))
    assert second.ask(rest()).body == data.partition(b"\n")[2]
    assert write_head("response", 200, data.partition(b"\n")[2]) == data


def test_members_of_a_later_version_are_kept(fleet: Fleet) -> None:
    first, _ = fleet
    free = attrs.evolve(Claim.of("", REQUEST, ()), unknown={"new": 1})
    put(fleet, ".keys", name_of_log(), Entry(1, free.encode()))
    first.start(keyed())
    assert b'"new":1' in fleet.logs[".keys"][-1]


def test_a_claim_whose_end_is_lost_while_it_is_taken_over(fleet: Fleet) -> None:
    first, _ = fleet
    free, name = Claim.of("", REQUEST, ()).encode(), name_of_log()
    for seq in (1, 2):
        put(fleet, ".keys", name, Entry(seq, free))
    first.store_works = False
    first.ask(keyed())
    first.use_store_except(claim_in(first))
    for _ in range(2):
        first.use_store_once()
    fleet.store.drop("", ".keys")
    put(fleet, ".keys", name, Entry(1, free))
    released(first)
    assert starts(first) == 1


def test_a_copy_whose_client_leaves_while_another_instance_has_it(fleet: Fleet) -> None:
    first, second = fleet
    second.start(keyed())
    talk = held(first, keyed())
    first.use_store_except(claim_in(first))
    first.use_store_once()
    talk.lose_connection()
    released(first)
    assert not first.server.is_busy
    assert starts(first) == 0


def test_a_call_without_room_is_refused_as_any_other() -> None:
    (first,) = Fleet(1, limits=Limits(max_reclaim_bytes=500))
    first.start(keyed())
    bad = keyed(2, "another-secret-of-a-call", requestState="forged")
    assert first.ask(bad).status == 400


def test_a_log_with_many_entries_is_read_to_its_end(fleet: Fleet) -> None:
    first, second = fleet
    first.start(keyed())
    name = name_of_log()
    for seq in range(1, 40):
        put(fleet, f".kept.{name}", "response", Entry(seq, b"{}"))
    put(fleet, f".kept.{name}", "response", Entry(40, b"response 200\n{}", final=True))
    assert second.ask(rest()).json == {}


def test_a_call_shows_that_it_runs_when_the_store_has_taken_the_entry_before(fleet: Fleet) -> None:
    first, second = fleet
    talk, call = first.start(keyed())
    talk.lose_connection()
    first.store_works = False
    for _ in range(70):
        first.wait(10)
    released(first)
    first.run_action(call.respond, DONE)
    assert second.ask(rest()).json["id"] == 1


def test_an_entry_that_shows_that_it_runs_may_fail(fleet: Fleet) -> None:
    first, second = fleet
    talk, call = first.start(keyed())
    talk.lose_connection()
    first.store_works = False
    first.wait(31)
    first.fail_store_for_good(response_in(first))
    released(first)
    first.run_action(call.respond, DONE)
    assert second.ask(rest()).json["id"] == 1


def test_a_claim_that_is_evicted_while_it_is_read(fleet: Fleet) -> None:
    first, second = fleet
    second.start(keyed())
    first.store_works = False
    first.ask(keyed())
    first.use_store_except(claim_in(first))
    first.use_store_once()
    fleet.store.drop("", ".keys")
    released(first)
    assert starts(first) == 1
