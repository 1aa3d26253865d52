"""Calls with keys: they outlive their connections, and run once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sansmcp import (
    App,
    BodyData,
    BodyEnd,
    ConnectionLost,
    Limits,
    RateLimit,
    RequestHead,
    ServerCall,
)
from sansmcp.events import CallCancelled, CallReceived
from sansmcp.reclaim import CANCEL, EXTENSION
from sansmcp.trace import Tracer

from ..harness import BOTH, JSON, STREAM, RawExchange
from ..protected_harness import ProtectedHarness, challenge
from .harness import ModernServerHarness, meta, mirrored, modern, notification_from

SECRET = "a-secret-of-the-call"


def keyed(
    id: int = 1,
    secret: str = SECRET,
    place: str = ".",
    *,
    method: str = "tools/call",
    more: str = "",
    **params: Any,
) -> dict[str, Any]:
    """A request with a key, which carries a progress token."""
    about = {**meta(), EXTENSION: f"{place}.{secret}{more}", "progressToken": id}
    return modern(id, method, about, **params)


def rest(id: int = 1, secret: str = SECRET, place: str = ".", received: int = 0) -> dict[str, Any]:
    """A request for the rest of a call."""
    return keyed(id, secret, place, method=EXTENSION, received=received)


def cancelled(harness: ModernServerHarness) -> list[str]:
    return [event.reason for event in harness.events if isinstance(event, CallCancelled)]


def started(harness: ModernServerHarness) -> int:
    """The calls that have started and were not taken with ``begin()``."""
    return sum(isinstance(event, CallReceived) for event in harness.events)


def place_of(harness: ModernServerHarness) -> str:
    found = harness.ask(modern("d", "server/discover")).json["result"]
    place: str = found["capabilities"]["extensions"][EXTENSION]["place"]
    return place


@pytest.fixture
def harness() -> ModernServerHarness:
    return ModernServerHarness()


def begin(
    harness: ModernServerHarness, *args: Any, **params: Any
) -> tuple[RawExchange, ServerCall]:
    return harness.start(keyed(*args, **params))


def reported(talk: RawExchange) -> list[float]:
    return [each["params"]["progress"] for each in talk.messages if "params" in each]


# The declaration


def test_the_server_declares_how_long_calls_run_on(harness: ModernServerHarness) -> None:
    found = harness.ask(modern(1, "server/discover")).json["result"]["capabilities"]
    place = found["extensions"][EXTENSION].pop("place")
    assert found["extensions"][EXTENSION] == {"timeoutSeconds": 60.0}
    instance, _, count = place.partition(".")
    assert instance
    assert count == "0"
    harness = ModernServerHarness(App("without tools", "1"))
    assert harness.ask(modern(1, "server/discover")).json["result"]["capabilities"] == {}


def test_without_it_the_member_is_only_taken_out() -> None:
    harness = ModernServerHarness(reclaim=False)
    assert (
        "extensions" not in harness.ask(modern(1, "server/discover")).json["result"]["capabilities"]
    )
    talk, call = begin(harness)
    assert EXTENSION not in (call.request.params or {})["_meta"]
    talk.lose_connection()
    assert cancelled(harness) == ["the client has closed the response"]
    assert harness.ask(rest()).status == 404
    assert harness.ask(cancellation()).status == 202


def test_the_handler_does_not_see_the_key(harness: ModernServerHarness) -> None:
    _, call = begin(harness)
    assert (call.request.params or {})["_meta"] == {**meta(), "progressToken": 1}


# Cuts


def test_a_call_runs_on_after_a_cut_and_its_rest_is_sent(harness: ModernServerHarness) -> None:
    talk, call = begin(harness)
    assert harness.run_action(call.progress, 1)
    talk.lose_connection()
    assert call.is_running
    assert harness.run_action(call.progress, 2)
    again = harness.ask(rest(received=1))
    assert reported(again) == [2]
    assert harness.run_action(call.progress, 3)
    assert harness.run_action(call.respond, {"content": []})
    assert again.ended
    assert reported(again) == [2, 3]
    assert again.messages[-1]["id"] == 1
    assert (started(harness), cancelled(harness)) == (0, [])
    assert not harness.server.is_busy


def test_a_response_that_was_lost_is_sent_again(harness: ModernServerHarness) -> None:
    talk, call = begin(harness)
    harness.run_action(call.respond, {"content": []})
    talk.lose_connection()
    again = harness.ask(rest())
    assert again.header("content-type") == JSON
    assert again.body == talk.body


def test_with_it_the_reports_that_were_lost(harness: ModernServerHarness) -> None:
    talk, call = begin(harness)
    for number in (1, 2, 3):
        harness.run_action(call.progress, number)
    harness.run_action(call.respond, {"content": []})
    talk.lose_connection()
    again = harness.ask(rest(received=1))
    assert again.header("content-type") == STREAM
    assert again.ended
    assert again.messages == talk.messages[1:]


def test_what_was_sent_on_a_connection_that_was_cut_is_not_taken_for_received(
    harness: ModernServerHarness,
) -> None:
    talk, call = begin(harness)
    for number in (1, 2, 3):
        harness.run_action(call.progress, number)
    talk.lose_connection()
    for _ in range(2):
        again = harness.ask(rest(received=1))
        assert reported(again) == [2, 3]
        again.lose_connection()


def test_a_response_while_no_client_is_connected(harness: ModernServerHarness) -> None:
    talk, call = begin(harness)
    talk.lose_connection()
    assert harness.run_action(call.respond, {"content": []})
    assert harness.ask(rest()).json["result"]["content"] == []
    harness.wait(61)
    assert cancelled(harness) == []


def test_an_error_is_a_response_and_keeps_its_status(harness: ModernServerHarness) -> None:
    talk, call = begin(harness)
    talk.lose_connection()
    harness.run_action(call.refuse_busy)
    again = harness.ask(rest())
    assert (again.status, again.error["data"]["reason"]) == (503, "busy")


def test_a_newer_connection_replaces_the_older_one(harness: ModernServerHarness) -> None:
    talk, call = begin(harness)
    again = harness.ask(rest())
    assert talk.aborted
    talk.lose_connection()
    third = harness.ask(rest())
    assert again.aborted
    harness.run_action(call.respond, {"content": []})
    assert third.json["id"] == 1
    assert started(harness) == 0


def test_the_newest_reports_are_kept_and_none_comes_twice(harness: ModernServerHarness) -> None:
    talk, call = begin(harness)
    talk.lose_connection()
    for number in range(100):
        harness.run_action(call.progress, number)
    again = harness.ask(rest())
    assert reported(again) == list(range(68, 100))
    again.lose_connection()
    harness.run_action(call.progress, 100)
    assert reported(harness.ask(rest(received=32))) == [100]


def test_long_reports_are_bounded_in_bytes(harness: ModernServerHarness) -> None:
    talk, call = begin(harness)
    talk.lose_connection()
    for number in range(3):
        harness.run_action(call.progress, number, message="x" * 7000)
    assert reported(harness.ask(rest())) == [1, 2]


# Time


def test_a_client_that_does_not_come_back_cancels_its_call(harness: ModernServerHarness) -> None:
    talk, call = begin(harness)
    talk.lose_connection()
    harness.wait(59.9)
    assert call.is_running
    harness.wait(0.1)
    assert cancelled(harness) == ["the client did not come back within 60 s (reclaim_timeout)"]
    again = harness.ask(rest())
    assert (again.status, again.error["data"]["reason"]) == (409, "unknown_key")
    assert again.error["data"]["neverArrived"] is False


def test_a_client_that_has_come_back_has_as_long_again(harness: ModernServerHarness) -> None:
    talk, call = begin(harness)
    talk.lose_connection()
    harness.wait(50)
    again = harness.ask(rest())
    harness.wait(50)
    again.lose_connection()
    harness.wait(50)
    assert call.is_running


def test_a_response_is_dropped_after_a_while_and_its_key_is_still_known(
    harness: ModernServerHarness,
) -> None:
    _, call = begin(harness)
    harness.run_action(call.respond, {"content": []})
    harness.wait(30)
    _, second = begin(harness, 2, "another-secret-of-a-call")
    harness.run_action(second.respond, {"content": []})
    harness.wait(30)
    assert harness.ask(rest(2, "another-secret-of-a-call")).status == 200
    assert harness.ask(rest()).error["data"]["reason"] == "unknown_key"
    assert harness.ask(keyed()).error["data"]["neverArrived"] is False
    assert started(harness) == 0
    harness.wait(30)
    assert harness.ask(rest(2, "another-secret-of-a-call")).status == 409
    assert harness.server.next_deadline() is None


def test_a_response_is_dropped_when_the_client_confirms_it(harness: ModernServerHarness) -> None:
    _, call = begin(harness)
    harness.run_action(call.respond, {"content": []})
    begin(harness, 2, "another-secret-of-a-call", more=f",{SECRET},{'never-known':-<20}")
    assert harness.ask(rest()).error["data"]["reason"] == "unknown_key"
    begin(harness, 3, "a-third-secret-of-a-call", more=f",{SECRET}")
    assert started(harness) == 0


def test_a_call_that_runs_cannot_be_confirmed(harness: ModernServerHarness) -> None:
    talk, call = begin(harness)
    harness.run_action(call.progress, 1)
    talk.lose_connection()
    begin(harness, 2, "another-secret-of-a-call", more=f",{SECRET}")
    assert reported(harness.ask(rest())) == [1]


# Cancelling


def cancellation(secret: str = SECRET, key: Any = None) -> dict[str, Any]:
    message = notification_from(CANCEL)
    message["params"]["_meta"][EXTENSION] = f"..{secret}" if key is None else key
    return message


def test_the_client_cancels_by_the_key(harness: ModernServerHarness) -> None:
    talk, call = begin(harness)
    assert harness.ask(cancellation()).status == 202
    assert cancelled(harness) == ["cancelled by the client"]
    assert talk.aborted
    assert not call.is_running
    assert harness.ask(cancellation()).status == 202


def test_also_without_a_connection(harness: ModernServerHarness) -> None:
    talk, _ = begin(harness)
    talk.lose_connection()
    harness.ask(cancellation())
    assert cancelled(harness) == ["cancelled by the client"]
    harness.wait(100)
    assert len(cancelled(harness)) == 1


def test_a_cancellation_for_another_process_is_to_be_sent_again(
    harness: ModernServerHarness,
) -> None:
    talk = harness.ask(cancellation(key="another.0.never-known-to-anyone"))
    assert (talk.status, talk.error["data"]["reason"]) == (503, "unknown_key")
    ours = f"{place_of(harness)}.never-known-to-anyone"
    assert harness.ask(cancellation(key=ours)).status == 202


@pytest.mark.parametrize("key", ["", 1])
def test_what_is_no_key_of_a_call_cancels_nothing(harness: ModernServerHarness, key: Any) -> None:
    _, call = begin(harness)
    assert harness.ask(cancellation(key=key)).status == 202
    assert call.is_running


def test_the_key_of_another_principal_is_no_key(harness: ModernServerHarness) -> None:
    harness.start(keyed(), principal="ann")
    harness.ask(cancellation(), principal="bob")
    assert cancelled(harness) == []
    assert harness.ask(rest(), principal="bob").error["data"]["reason"] == "unknown_key"
    talk, call = harness.start(keyed(), principal="bob")
    harness.run_action(call.respond, {"content": ["of bob"]})
    assert talk.json["result"]["content"] == ["of bob"]
    assert started(harness) == 0


@pytest.mark.parametrize("is_over", [False, True])
def test_the_rest_needs_the_scopes_of_its_call(is_over: bool) -> None:
    harness = ProtectedHarness()
    harness.token = "reader"
    talk, call = harness.start(keyed(name="sum"))
    talk.lose_connection()
    if is_over:
        harness.run_action(call.respond, {"content": []})
    harness.token = "user"  # the same principal, with another token
    refused = harness.ask(rest())
    assert (refused.status, challenge(refused)["scope"]) == (403, "use read")
    harness.token = "reader"
    again = harness.ask(rest())
    if not is_over:
        harness.run_action(call.respond, {"content": []})
    assert again.json["id"] == 1


@pytest.mark.parametrize(("size", "most"), [(1, 32), (10_000, 2)])
def test_a_handler_without_a_connection_waits(
    harness: ModernServerHarness, size: int, most: int
) -> None:
    """Else one that reports without end, and awaits nothing else, would keep its loop to itself."""
    talk, call = begin(harness)
    talk.lose_connection()
    for number in range(1, most + 1):
        assert not call.is_above_high_water
        harness.run_action(call.progress, number, message="x" * size)
    assert call.is_above_high_water
    again = harness.ask(rest())
    assert not call.is_above_high_water
    again.lose_connection()
    assert not call.is_above_high_water


# Copies


def test_a_late_copy_runs_nothing_and_gets_the_response(harness: ModernServerHarness) -> None:
    _, call = begin(harness)
    copy = harness.ask(keyed())
    assert started(harness) == 0
    harness.run_action(call.respond, {"content": []})
    assert copy.json["id"] == 1
    assert harness.ask(keyed()).json == copy.json
    assert started(harness) == 0


@pytest.mark.parametrize(
    "other",
    [keyed(2), keyed(1, name="subtract"), rest(2), keyed("1")],  # type: ignore[arg-type]
)
def test_another_call_with_the_same_key_is_refused(
    harness: ModernServerHarness, other: dict[str, Any]
) -> None:
    begin(harness)
    assert harness.refused(other) == (409, -32600, "key_in_use")


@pytest.mark.parametrize(
    "bad",
    [
        keyed(secret="short"),
        keyed(place="x"),
        modern(1, about={**meta(), EXTENSION: 1}),
        keyed(more=",short"),
        keyed(method="tools/list"),
    ],
)
def test_what_is_no_key_is_refused(harness: ModernServerHarness, bad: dict[str, Any]) -> None:
    assert harness.refused(bad) == (400, -32602, "bad_key")


@pytest.mark.parametrize("received", [-1, "1", None, True])
def test_received_is_a_count(harness: ModernServerHarness, received: Any) -> None:
    begin(harness)
    assert harness.refused(rest(received=received)) == (400, -32602, "bad_key")


def test_the_rest_of_a_call_without_a_key_is_unknown_method(harness: ModernServerHarness) -> None:
    assert harness.refused(modern(1, EXTENSION))[0] == 404


def test_a_call_that_was_refused_has_no_key(harness: ModernServerHarness) -> None:
    place = place_of(harness)
    bad = keyed(place=place, requestState="forged")
    assert harness.ask(bad).status == 400
    assert harness.ask(rest(place=place)).error["data"]["neverArrived"] is True
    begin(harness, place=place)


def test_a_late_copy_of_a_call_that_was_refused_at_first_runs_nothing() -> None:
    """The client sends it again with the same key, for each reason of a refusal."""
    harness = ModernServerHarness(rate_limit=RateLimit(1 / 20, burst=1))
    harness.ask(modern("d", "server/discover"))
    assert harness.ask(keyed()).status == 429
    harness.wait(20)
    talk, call = begin(harness)
    harness.run_action(call.respond, {"content": []})
    harness.wait(20)
    assert harness.ask(keyed()).json == talk.json
    assert started(harness) == 0


# Processes


def test_a_call_for_another_process_is_refused(harness: ModernServerHarness) -> None:
    place = place_of(harness)
    talk = harness.ask(keyed(place="another.7"))
    assert (talk.status, talk.error["data"]) == (409, {"reason": "other_place", "place": place})
    assert started(harness) == 0
    begin(harness, place=place)


def test_only_the_process_that_was_named_says_that_nothing_arrived(
    harness: ModernServerHarness,
) -> None:
    place = place_of(harness)
    assert harness.ask(rest(place=place)).error["data"] == {
        "reason": "unknown_key",
        "place": place,
        "neverArrived": True,
    }
    for other in (".", "another.0"):
        assert harness.ask(rest(place=other)).error["data"]["neverArrived"] is False


def test_a_copy_that_arrives_after_its_key_was_forgotten_is_refused() -> None:
    harness = ModernServerHarness(limits=Limits(max_reclaim_bytes=4096))
    place = place_of(harness)
    _, call = begin(harness, place=place)
    harness.run_action(call.respond, {"content": []})
    for id in range(2, 20):
        _, call = begin(harness, id, f"another-secret-of-{id:04}")
        harness.run_action(call.respond, {"content": []})
    talk = harness.ask(keyed(place=place))
    assert talk.error["data"]["reason"] == "other_place"
    assert started(harness) == 0
    assert harness.ask(rest(place=place)).error["data"]["neverArrived"] is False
    begin(harness, 99, "a-secret-of-a-new-call", place=talk.error["data"]["place"])


# Bounds


def test_without_room_a_call_has_no_key() -> None:
    harness = ModernServerHarness(limits=Limits(max_reclaim_bytes=3000))
    place = place_of(harness)
    talks = [begin(harness, id, f"a-secret-of-a-call-{id}", place=place) for id in (1, 2, 3)]
    talks[2][0].lose_connection()
    assert [call.is_running for _, call in talks] == [True, True, False]
    again = harness.ask(rest(3, "a-secret-of-a-call-3", place))
    assert again.error["data"]["neverArrived"] is False


def test_a_call_without_room_is_refused_as_ever() -> None:
    harness = ModernServerHarness(limits=Limits(max_reclaim_bytes=500))
    begin(harness)
    bad = keyed(2, "another-secret-of-a-call", requestState="forged")
    assert harness.ask(bad).status == 400


def test_a_call_without_room_is_answered_as_ever() -> None:
    harness = ModernServerHarness(limits=Limits(max_reclaim_bytes=500))
    begin(harness)
    talk, call = begin(harness, 2, "another-secret-of-a-call")
    assert harness.run_action(call.progress, 1)
    assert harness.run_action(call.respond, {"content": []})
    assert reported(talk) == [1]
    assert talk.messages[-1]["id"] == 2


def test_the_principal_that_uses_most_loses_its_responses() -> None:
    harness = ModernServerHarness(limits=Limits(max_reclaim_bytes=100_000))

    def run(principal: str, id: int, size: int) -> str:
        secret = f"secret-{principal}-{id:06}"
        _, call = harness.start(keyed(id, secret), principal=principal)
        harness.run_action(call.respond, {"content": ["x" * size]})
        return secret

    quiet = run("quiet", 1, 1000)
    loud = [run("loud", id, 10_000) for id in range(50)]
    assert harness.ask(rest(1, quiet), principal="quiet").status == 200
    assert harness.ask(rest(0, loud[0]), principal="loud").status == 409
    assert harness.ask(rest(49, loud[49]), principal="loud").status == 200


def test_many_principals_take_the_bytes_of_all_together() -> None:
    harness = ModernServerHarness(limits=Limits(max_reclaim_bytes=100_000))
    for id in range(200):
        talk, call = harness.start(
            keyed(id, f"a-secret-of-a-call-{id}"), principal=f"principal {id}"
        )
        talk.lose_connection()
        assert call.is_running
        harness.run_action(call.respond, {"content": []})
    newest = harness.ask(rest(199, "a-secret-of-a-call-199"), principal="principal 199")
    assert newest.status == 200


def test_long_ids_take_room() -> None:
    harness = ModernServerHarness(limits=Limits(max_reclaim_bytes=100_000))
    for letter in "abc":
        about = {**meta(), EXTENSION: f"..the-secret-of-call-{letter}"}
        _, call = harness.start(modern(20_000 * letter, "tools/call", about))
        harness.run_action(call.respond, {"content": []})
    about = {**meta(), EXTENSION: "..the-secret-of-call-a"}
    forgotten = harness.ask(modern(20_000 * "a", EXTENSION, about, received=0))
    assert forgotten.error["data"]["reason"] == "unknown_key"


def test_a_principal_whose_old_keys_make_room_for_a_new_one() -> None:
    """Nothing of it is left then. Its new call runs on after a cut; its response has no room."""
    harness = ModernServerHarness(limits=Limits(max_reclaim_bytes=10_400))
    _, call = harness.start(keyed(1, "a-secret-of-bob-1"), principal="bob")
    harness.run_action(call.respond, {"content": ["x" * 600]})
    for id in range(10):  # which run, so that only the other principal can make room
        harness.start(keyed(id, f"a-secret-of-mallory-{id}"), principal="mallory")
    talk, call = harness.start(keyed(2, "a-secret-of-bob-2"), principal="bob")
    talk.lose_connection()
    assert call.is_running
    harness.run_action(call.respond, {"content": ["x" * 1000]})
    assert harness.ask(rest(2, "a-secret-of-bob-2"), principal="bob").status == 409


def test_refused_calls_take_no_room() -> None:
    harness = ModernServerHarness(limits=Limits(max_reclaim_bytes=10_000))
    for id in range(10):
        bad = keyed(id, f"a-secret-of-a-call-{id}", requestState="forged")
        assert harness.ask(bad, principal=f"principal {id}").status == 400
    talk, call = begin(harness)
    talk.lose_connection()
    assert call.is_running


def test_the_call_that_was_cut_longest_ago_is_cancelled_beyond_the_bound() -> None:
    harness = ModernServerHarness(limits=Limits(max_cut_calls=2))
    calls: list[ServerCall] = []
    for id in range(3):
        talk, call = harness.start(keyed(id, f"a-secret-of-a-call-{id}"), principal="ann")
        talk.lose_connection()
        calls.append(call)
        _, other = harness.start(keyed(id, f"a-secret-of-a-call-{id}"), principal="bob")
        assert other.is_running
    assert [call.is_running for call in calls] == [False, True, True]
    assert cancelled(harness) == ["too many calls run without a connection (max_cut_calls)"]


def test_the_requests_of_calls_without_a_connection_take_room() -> None:
    harness = ModernServerHarness(limits=Limits(max_reclaim_bytes=30_000))

    def run(principal: str, id: int) -> ServerCall:
        request = keyed(id, f"a-secret-of-{principal}-{id}", arguments={"text": "x" * 5000})
        talk, call = harness.start(request, principal=principal)
        talk.lose_connection()
        return call

    quiet = run("quiet", 1)
    loud = [run("loud", id) for id in range(10)]
    assert quiet.is_running
    assert [call.is_running for call in loud] == [False] * 7 + [True] * 3
    assert {*cancelled(harness)} == {"too many calls run without a connection (max_reclaim_bytes)"}
    forgotten = harness.ask(rest(0, "a-secret-of-loud-0"), principal="loud")
    assert forgotten.error["data"]["reason"] == "unknown_key"


def test_a_request_takes_no_room_while_the_call_has_a_connection() -> None:
    harness = ModernServerHarness(limits=Limits(max_reclaim_bytes=30_000))
    for id in range(10):
        request = keyed(id, f"a-secret-of-a-call-{id}", arguments={"text": "x" * 5000})
        talk, call = harness.start(request)
        talk.lose_connection()
        harness.ask(rest(id, f"a-secret-of-a-call-{id}"))
        assert call.is_running
    assert cancelled(harness) == []


def test_reports_take_room() -> None:
    harness = ModernServerHarness(limits=Limits(max_reclaim_bytes=50_000))
    calls: list[ServerCall] = []
    for id in range(5):
        talk, call = harness.start(keyed(id, f"a-secret-of-a-call-{id}"))
        calls.append(call)
        talk.lose_connection()
        for number in range(4):
            harness.run_action(call.progress, number, message="x" * 3000)
    assert [call.is_running for call in calls] == [False, False, True, True, True]
    for call in calls:
        harness.run_action(call.respond, {"content": []})
    assert [harness.ask(rest(id, f"a-secret-of-a-call-{id}")).status for id in range(5)] == [
        409,
        409,
        200,
        200,
        200,
    ]


# Stopping, traces


def test_the_rest_is_sent_while_the_server_stops(harness: ModernServerHarness) -> None:
    talk, call = begin(harness)
    talk.lose_connection()
    harness.server.drain(now=harness.now)
    assert harness.server.is_busy
    again = harness.ask(rest())
    assert harness.ask(keyed(2, "another-secret-of-a-call")).status == 503
    harness.run_action(call.respond, {"content": []})
    assert again.json["id"] == 1


def test_a_call_without_a_connection_ends_with_the_server(harness: ModernServerHarness) -> None:
    talk, _ = begin(harness)
    talk.lose_connection()
    harness.server.shut_down(now=harness.now)
    harness.run_pending()
    assert cancelled(harness) == ["the server shuts down"]
    assert harness.ask(rest()).error["data"]["reason"] == "shutting_down"


@pytest.mark.parametrize("is_full", [False, True])
def test_a_trace_does_not_show_the_key(is_full: bool) -> None:
    lines: list[str] = []
    harness = ModernServerHarness(trace=Tracer("server", lines.append, is_full))
    begin(harness)
    assert any(EXTENSION in line for line in lines) is is_full
    assert not any(SECRET in line for line in lines)


_BODY = json.dumps(keyed())
BODIES = {
    "as it is": _BODY,
    "with blanks": _BODY.replace(f'"{EXTENSION}"', f'"{EXTENSION}" \n\t'),
    "with a slash escaped": _BODY.replace(EXTENSION, EXTENSION.replace("/", r"\/")),
    "with a slash as a number": _BODY.replace(EXTENSION, EXTENSION.replace("/", r"\u002f")),
    "with letters escaped": _BODY.replace(EXTENSION, EXTENSION.replace("s", r"\u0073")),
    "escaped within the key": _BODY.replace("..a-secret", r"\u002e\u002E\u0061-secret"),
}


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("pieces", [1, 7, 5000])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("is_whole", [True, False])
def test_nor_if_it_comes_otherwise(is_full: bool, pieces: int, body: str, is_whole: bool) -> None:
    lines: list[str] = []
    harness = ModernServerHarness(trace=Tracer("server", lines.append, is_full))
    pairs = {"host": "localhost", "accept": BOTH, "content-type": JSON, **mirrored(keyed())}
    fields = tuple((name.encode(), str(value).encode()) for name, value in pairs.items())
    talk = RawExchange(harness)
    talk.feed(RequestHead(method=b"POST", target=b"/mcp", headers=fields))
    sent = body.encode() if is_whole else body.encode().partition(b"-the-call")[0]
    for start in range(0, len(sent), pieces):
        talk.feed(BodyData(sent[start : start + pieces]))
    talk.feed(BodyEnd() if is_whole else ConnectionLost("cut"))
    assert started(harness) == is_whole
    assert sum('"jsonrpc"' in line for line in lines) == 1
    shown = "".join(lines)
    assert "secret" not in shown
    assert "of-the-call" not in shown
