"""Attacks on the keys of calls: they give nothing, and cost other clients nothing."""

from __future__ import annotations

import pytest

from sansmcp import Limits, ServerCall

from ..harness import RawExchange
from .harness import ModernServerHarness
from .test_reclaim import SECRET, keyed, place_of, rest

_BYTES = 100_000
_MOST_CUT = 3


def begin_and_cut(
    harness: ModernServerHarness, id: int, secret: str = SECRET, principal: str = ""
) -> tuple[RawExchange, ServerCall]:
    talk, call = harness.start(keyed(id, secret), principal=principal)
    talk.lose_connection()
    return talk, call


@pytest.fixture
def harness() -> ModernServerHarness:
    return ModernServerHarness(limits=Limits(max_reclaim_bytes=_BYTES, max_cut_calls=_MOST_CUT))


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_guess_is_told_nothing_about_the_keys_that_there_are(
    harness: ModernServerHarness, has_ended: bool
) -> None:
    """Also if it shares most of a key, and comes with the id of its call."""
    _, call = begin_and_cut(harness, 1)
    if has_ended:
        harness.run_action(call.respond, {"content": ["secret"]})
    place = place_of(harness)
    guesses = [SECRET[:-1] + "x", SECRET + "x", SECRET.upper(), SECRET[::-1]]
    answers = {harness.ask(rest(1, guess, at)).body for guess in guesses for at in (".", place)}
    assert len(answers) == 2, "one for each place, whatever was guessed"
    assert not any(b"secret" in body for body in answers)
    assert call.is_running is not has_ended
    assert harness.ask(rest(1)).status in (None, 200)


def test_a_key_that_another_principal_has_learnt_gives_it_nothing(
    harness: ModernServerHarness,
) -> None:
    _, call = begin_and_cut(harness, 1, principal="ann")
    harness.run_action(call.respond, {"content": ["of ann"]})
    assert harness.ask(rest(1), principal="mallory").error["data"]["reason"] == "unknown_key"
    copy, other = harness.start(keyed(1), principal="mallory")
    harness.run_action(other.respond, {"content": ["of mallory"]})
    assert copy.json["result"]["content"] == ["of mallory"]
    confirmed = keyed(2, "another-secret-of-a-call", more=f",{SECRET}")
    harness.start(confirmed, principal="mallory")
    assert harness.ask(rest(1), principal="ann").json["result"]["content"] == ["of ann"]


def test_calls_that_are_cut_to_fill_the_bounds_cost_no_other_principal(
    harness: ModernServerHarness,
) -> None:
    ended = begin_and_cut(harness, 1, "a-secret-of-an-ended-call", "ann")[1]
    harness.run_action(ended.respond, {"content": ["ended"]})
    _, running = begin_and_cut(harness, 2, "a-secret-of-a-running-call", "ann")
    calls = [
        begin_and_cut(harness, id, f"a-secret-of-mallory-{id}", "mallory")[1] for id in range(100)
    ]
    assert [call.is_running for call in calls] == [False] * 97 + [True] * _MOST_CUT
    assert running.is_running
    assert harness.ask(rest(1, "a-secret-of-an-ended-call"), principal="ann").status == 200
    again = harness.ask(rest(2, "a-secret-of-a-running-call"), principal="ann")
    harness.run_action(running.respond, {"content": ["of ann"]})
    assert again.json["result"]["content"] == ["of ann"]


def test_a_flood_of_keys_and_responses_costs_no_other_principal(
    harness: ModernServerHarness,
) -> None:
    _, running = begin_and_cut(harness, 1, "a-secret-of-a-running-call", "ann")
    for id in range(300):
        talk, call = harness.start(keyed(id, f"a-secret-of-mallory-{id}"), principal="mallory")
        harness.run_action(call.respond, {"content": ["x" * 5000]})
        assert talk.status == 200
    again = harness.ask(rest(1, "a-secret-of-a-running-call"), principal="ann")
    harness.run_action(running.respond, {"content": ["of ann"]})
    assert again.json["result"]["content"] == ["of ann"]


def test_keys_that_a_flood_makes_the_server_forget_cost_no_other_principal(
    harness: ModernServerHarness,
) -> None:
    """Others need not ask for another place, and are told what has never arrived."""
    place = place_of(harness)
    for id in range(300):
        _, call = harness.start(keyed(id, f"a-secret-of-mallory-{id}"), principal="mallory")
        harness.run_action(call.respond, {"content": ["x" * 5000]})
    late = harness.ask(keyed(1, "a-secret-of-mallory-1", place), principal="mallory")
    assert late.error["data"]["reason"] == "other_place"
    lost = rest(1, "a-secret-that-never-came", place)
    assert harness.ask(lost, principal="mallory").error["data"]["neverArrived"] is False
    assert harness.ask(lost, principal="ann").error["data"]["neverArrived"] is True
    _, call = harness.start(keyed(1, "a-secret-of-ann-1", place), principal="ann")
    assert call.is_running


def test_calls_for_whose_keys_there_is_no_room_cost_no_other_principal() -> None:
    """Their connections are there, so that none of them can be cancelled to make room."""
    harness = ModernServerHarness(limits=Limits(max_reclaim_bytes=3000))
    place = place_of(harness)
    for id in range(4):
        harness.start(keyed(id, f"a-secret-of-mallory-{id}", place), principal="mallory")
    lost = rest(1, "a-secret-that-never-came", place)
    assert harness.ask(lost, principal="mallory").error["data"]["neverArrived"] is False
    assert harness.ask(lost, principal="ann").error["data"]["neverArrived"] is True


def test_beyond_a_thousand_principals_late_copies_are_still_refused() -> None:
    """The one that lost a key longest ago is then told of the keys of others, too."""
    harness = ModernServerHarness(limits=Limits(max_reclaim_bytes=6000))
    place = place_of(harness)
    for id in range(1100):
        about = keyed(id, f"a-secret-of-a-call-{id}")
        _, call = harness.start(about, principal=f"principal {id}")
        harness.run_action(call.respond, {"content": []})
    for id in (0, 1000):
        about = keyed(id, f"a-secret-of-a-call-{id}", place)
        late = harness.ask(about, principal=f"principal {id}")
        assert late.error["data"]["reason"] == "other_place"
    present = late.error["data"]["place"]
    _, call = harness.start(keyed(1, "a-secret-of-ann-1", present), principal="ann")
    assert call.is_running


def test_large_requests_of_calls_that_are_cut_cost_no_other_principal_its_responses() -> None:
    harness = ModernServerHarness(limits=Limits(max_reclaim_bytes=_BYTES))
    _, ended = harness.start(keyed(1, "a-secret-of-an-ended-call"), principal="ann")
    harness.run_action(ended.respond, {"content": ["of ann"]})
    for id in range(100):
        request = keyed(id, f"a-secret-of-mallory-{id}", arguments={"text": "x" * 5000})
        talk, _ = harness.start(request, principal="mallory")
        talk.lose_connection()
    again = harness.ask(rest(1, "a-secret-of-an-ended-call"), principal="ann")
    assert again.json["result"]["content"] == ["of ann"]


def test_asking_again_and_again_runs_nothing_and_keeps_nothing(
    harness: ModernServerHarness,
) -> None:
    """Each time the connection is cut at once; the call stays one, within its bounds."""
    _, call = begin_and_cut(harness, 1)
    for _ in range(1000):
        harness.ask(rest(1)).lose_connection()
    assert call.is_running
    harness.run_action(call.respond, {"content": ["once"]})
    for _ in range(1000):
        assert harness.ask(rest(1)).json["result"]["content"] == ["once"]
