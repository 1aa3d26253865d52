"""What a client brings back is not trusted: the state of another is of no use."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from sansmcp import InputRequired, Limits, LocalProtocolError
from sansmcp.events import CallReceived

from ..harness import expect
from .harness import (
    KEY,
    Clock,
    ModernServerHarness,
    modern_app,
    new_seal,
)
from .rounds import NAME, asking, first_round, new_bench

requirement = pytest.mark.requirement

# What comes back is not trusted


def refused(harness: ModernServerHarness, message: dict[str, Any], **options: Any) -> None:
    """It is refused, and no handler runs."""
    harness.events.clear()
    expect(harness.ask(message, **options), 400, "bad_request_state", -32602, id=message["id"])
    assert not any(isinstance(event, CallReceived) for event in harness.events)


@requirement("MRTR-S-012", "MRTR-S-013", "MRTR-S-014")
def test_a_state_that_was_changed() -> None:
    harness = new_bench()
    sealed = first_round(harness)
    raw = base64.urlsafe_b64decode(sealed)
    for index in range(len(raw)):
        changed = bytearray(raw)
        changed[index] ^= 1
        wrong = base64.urlsafe_b64encode(changed).decode()
        refused(harness, asking(index, requestState=wrong))
    for length in range(0, len(sealed), 7):
        refused(harness, asking(length, requestState=sealed[:length]))


@requirement("MRTR-S-012", "MRTR-S-014")
@pytest.mark.parametrize(
    "sealed", ["", "x", "ü" * 40, "====", "\x00" * 64, "A" * 100_000, "{}", "A" * 44]
)
def test_a_state_that_is_none(sealed: str) -> None:
    refused(new_bench(), asking(1, requestState=sealed))


@requirement("MRTR-S-014")
def test_a_state_of_another_server() -> None:
    sealed = first_round(new_bench(new_seal(b"another key of another server")))
    refused(new_bench(), asking(1, requestState=sealed))


@requirement("MRTR-S-016", "MRTR-S-020", "MODERN-B-004")
def test_a_state_of_somebody_else() -> None:
    harness = new_bench()
    talk, call = harness.start(asking(), principal="eve")
    harness.run_action(call.respond, InputRequired(state="hers"))
    message = asking(2, requestState=talk.json["result"]["requestState"])
    refused(harness, message)
    refused(harness, message, principal="mallory")
    _, call = harness.start(message, principal="eve")
    assert call.handler_input.state == "hers"


@requirement("MRTR-S-018")
def test_a_state_of_another_request() -> None:
    harness = new_bench()
    sealed = first_round(harness, name="a", arguments={"x": 1, "y": {"z": [1, 2]}})
    others: list[dict[str, Any]] = [
        {"name": "b", "arguments": {"x": 1, "y": {"z": [1, 2]}}},
        {"name": "a", "arguments": {"x": 2, "y": {"z": [1, 2]}}},
        {"name": "a", "arguments": {"x": 1, "y": {"z": [2, 1]}}},
        {"name": "a", "arguments": {}},
    ]
    for params in others:
        refused(harness, asking(2, requestState=sealed, **params))
    refused(harness, asking(2, "prompts/get", requestState=sealed, name="a"))
    same = {"y": {"z": [1, 2]}, "x": 1}  # in another order
    _, call = harness.start(asking(2, requestState=sealed, name="a", arguments=same))
    assert call.handler_input.state == "saved"


@requirement("MRTR-S-018")
def test_what_belongs_to_a_round_or_says_who_asks_may_differ() -> None:
    harness = new_bench()
    sealed = first_round(harness)
    message = asking(2, requestState=sealed, inputResponses={"a": {}})
    message["params"]["_meta"]["progressToken"] = 7
    _, call = harness.start(message)
    assert call.handler_input.state == "saved"


@requirement("MRTR-S-017")
def test_a_state_expires() -> None:
    clock = Clock()
    harness = new_bench(new_seal(clock=clock, lifetime=60))
    message = asking(2, requestState=first_round(harness))
    clock.now += 59.9
    harness.start(message)
    clock.now += 0.1
    refused(harness, message)
    clock.now -= 1
    harness.start(message)


@requirement("MRTR-S-019")
def test_a_state_may_be_one_for_a_single_use() -> None:
    """Who counts the uses is told a name: that of another state differs, whatever was saved."""
    used: list[str] = []

    def claim_once(name: str) -> bool:
        used.append(name)
        return used.count(name) == 1

    harness = new_bench(new_seal(claim_once=claim_once))
    states = [first_round(harness) for _ in range(2)]
    for number, sealed in enumerate(states, 1):
        harness.start(asking(10 * number, requestState=sealed))
        refused(harness, asking(10 * number + 1, requestState=sealed))
    assert len(set(used)) == 2


def test_keys_can_be_changed() -> None:
    new, other = b"the key that comes next", b"a key that has gone"
    sealed = first_round(new_bench(new_seal(KEY)))
    message = asking(2, requestState=sealed)
    new_bench(new_seal(new, KEY)).start(message)
    refused(new_bench(new_seal(new)), message)
    refused(new_bench(new_seal(new, other)), message)
    sealed = first_round(new_bench(new_seal(new, KEY)))
    new_bench(new_seal(new)).start(asking(2, requestState=sealed))


def test_parameters_as_deep_as_they_may_be() -> None:
    harness = ModernServerHarness(
        modern_app(), state_signer=new_seal(), limits=Limits(max_json_depth=500)
    )
    deep: Any = []
    for level in range(490):
        deep = [deep] if level % 3 else {"a": deep}
    sealed = first_round(harness, arguments={"a": deep})
    harness.start(asking(2, requestState=sealed, arguments={"a": deep}))


@requirement("MRTR-S-022", "MRTR-S-023")
@pytest.mark.parametrize(
    "extra",
    [
        {"inputResponses": []},
        {"inputResponses": "x"},
        {"inputResponses": {"a": None}},
        {"inputResponses": {"a": {}, "b": "accept"}},
        {"requestState": 5},
        {"requestState": {}},
        {"inputResponses": {}, "requestState": []},
    ],
)
def test_what_is_not_well_formed(extra: dict[str, Any]) -> None:
    harness = new_bench()
    expect(harness.ask(asking(1, **extra)), 400, "invalid_params", -32602, id=1)
    assert not harness.server.is_busy


def test_null_is_nothing() -> None:
    _, call = new_bench().start(asking(1, inputResponses=None, requestState=None))
    assert (call.handler_input.input_responses, call.handler_input.state) == ({}, None)


def test_other_methods_have_no_rounds() -> None:
    """There these are names like others."""
    message = asking(1, "completion/complete", inputResponses=[], requestState=5)
    _, call = new_bench().start(message)
    assert (call.handler_input.input_responses, call.handler_input.state) == ({}, None)


def test_without_a_seal_no_state_can_be_used() -> None:
    harness = ModernServerHarness()
    refused(harness, asking(1, requestState="x"))
    _, call = harness.start(asking())
    with pytest.raises(LocalProtocolError, match="StateSigner"):
        call.respond(InputRequired({"name": NAME}, "state"), now=0)
    assert call.is_running
    assert harness.run_action(call.respond, InputRequired({"name": NAME})) is True
