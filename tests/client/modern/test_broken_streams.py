"""Responses that break: nothing can be resumed, so a request is lost, or made again if it may be.

And law 6: every call ends exactly once, for every truncation point of every response.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import BodyData, Disconnected, InvalidResponse, RequestRefused, encode_event
from sansmcp.client.options import SAFE_METHODS
from sansmcp.events import CallCompleted, Reconnecting
from sansmcp.states import ClientState

from ..harness import POLICY, Asked, ClientHarness, error, notification, only_failure, response
from .harness import ModernClientHarness, ends, failed, input_required

requirement = pytest.mark.requirement


@pytest.fixture
def harness() -> ModernClientHarness:
    return ModernClientHarness().connect()


def reconnecting(harness: ClientHarness) -> list[tuple[int, float]]:
    """The attempts that were announced, and their delays."""
    found = [event for event in harness.events if isinstance(event, Reconnecting)]
    return [(event.attempt, event.delay) for event in found]


def break_off(asked: Asked, how: str) -> None:
    match how:
        case "cut":
            asked.cut()
        case "cut in the stream":
            asked.open_stream()
            asked.event(notification("x"), id="1", retry=60_000)
            asked.cut()
        case "stream without answer":
            asked.open_stream()
            asked.end()
        case "cut in JSON":
            asked.head(content_type="application/json")
            asked.feed(BodyData(b'{"jsonrpc":'))
            asked.cut()
        case _:
            asked.answer(response(77))


BREAKS = ("cut", "cut in the stream", "stream without answer", "cut in JSON", "another answer")


# What may not be made again


@pytest.mark.parametrize("how", BREAKS)
@pytest.mark.parametrize(
    ("method", "idempotent"), [("tools/call", None), ("custom", None), ("tools/list", False)]
)
def test_the_outcome_is_unknown(
    harness: ModernClientHarness, how: str, method: str, idempotent: bool | None
) -> None:
    handle, asked = harness.call(method, idempotent=idempotent)
    break_off(asked, how)
    failure = only_failure(harness, handle)
    assert isinstance(failure, Disconnected)
    assert "the outcome is unknown" in str(failure)
    assert failure.request_id == asked.id
    harness.wait(10_000)
    assert harness.requests == []
    assert harness.client.state is ClientState.READY


# What may


@requirement("JSONRPC-B-006", "RESUME-C-004")
@pytest.mark.parametrize("how", BREAKS)
@pytest.mark.parametrize("method", sorted(SAFE_METHODS - {"ping", "server/discover"}))
def test_safe_requests_are_made_again(harness: ModernClientHarness, how: str, method: str) -> None:
    handle, asked = harness.call(method, params={"x": 1, "uri": "u"})
    break_off(asked, how)
    assert reconnecting(harness) == [(1, 0.5)]
    harness.wait(0.4)
    assert harness.requests == []
    harness.wait(0.1)
    again = harness.take()
    assert again.id != asked.id
    assert again.header("last-event-id") is None
    old, new = asked.json["params"], again.json["params"]
    assert new.pop("_meta")["progressToken"] == again.id
    old.pop("_meta")
    assert (again.json["method"], new) == (method, old)
    again.result()
    assert ends(harness) == [CallCompleted(handle, {})]


def test_so_are_those_that_the_caller_calls_idempotent(harness: ModernClientHarness) -> None:
    _, asked = harness.call("tools/call", idempotent=True)
    asked.cut()
    harness.wait(0.5)
    assert harness.take().json["method"] == "tools/call"


@pytest.mark.parametrize("how", BREAKS)
def test_attempts_are_bounded_whatever_the_server_says(
    harness: ModernClientHarness, how: str
) -> None:
    handle, asked = harness.call("tools/list", timeout=math.inf, total_timeout=math.inf)
    break_off(asked, how)
    for _ in range(POLICY.max_attempts):
        harness.wait(4)
        break_off(harness.take(), how)
    assert reconnecting(harness) == [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0)]
    failure = only_failure(harness, handle)
    assert isinstance(failure, Disconnected)
    harness.wait(1000)
    assert harness.requests == []


def test_a_stream_that_has_lasted_starts_the_count_again(harness: ModernClientHarness) -> None:
    _, asked = harness.call("tools/list", timeout=math.inf)
    for lasts in (0, 8, 8.5, 0):
        asked.open_stream()
        harness.wait(lasts)
        asked.cut()
        harness.wait(8)
        asked = harness.take()
    assert [attempt for attempt, _ in reconnecting(harness)] == [1, 2, 1, 2]


def test_waiting_for_a_response_is_no_lasting(harness: ModernClientHarness) -> None:
    _, asked = harness.call("tools/list", timeout=math.inf)
    for _ in range(2):
        harness.wait(100)
        asked.cut()
        harness.wait(8)
        asked = harness.take()
    assert [attempt for attempt, _ in reconnecting(harness)] == [1, 2]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_while_a_stream_is_replaced_the_server_may_be_away(
    harness: ModernClientHarness, status: int
) -> None:
    handle, asked = harness.call("tools/list")
    asked.cut()
    harness.wait(1)
    harness.take().refuse(status, b"starting")
    harness.wait(2)
    harness.take().result()
    assert [attempt for attempt, _ in reconnecting(harness)] == [1, 2]
    assert ends(harness) == [CallCompleted(handle, {})]


def test_the_server_may_say_how_long_to_wait_at_least(harness: ModernClientHarness) -> None:
    _, asked = harness.call("tools/list")
    asked.cut()
    harness.wait(0.5)
    harness.take().refuse(503, retry_after="20")
    assert reconnecting(harness) == [(1, 0.5), (2, 21.0)]


def test_but_not_for_ever(harness: ModernClientHarness) -> None:
    handle, asked = harness.call("tools/list")
    asked.cut()
    for _ in range(POLICY.max_attempts):
        harness.wait(8)
        harness.take().refuse(503, b"starting")
    failure = only_failure(harness, handle)
    assert isinstance(failure, RequestRefused)
    assert failure.status == 503


@pytest.mark.parametrize("status", [401, 404, 405])
def test_other_refusals_end_it(harness: ModernClientHarness, status: int) -> None:
    handle, asked = harness.call("tools/list")
    asked.cut()
    harness.wait(1)
    harness.take().refuse(status)
    assert isinstance(only_failure(harness, handle), RequestRefused)


def test_so_do_answers(harness: ModernClientHarness) -> None:
    handle, asked = harness.call("tools/list")
    asked.cut()
    harness.wait(1)
    again = harness.take()
    again.answer(failed(again.id, -32603), 500)
    assert "-32603" in str(only_failure(harness, handle))


def test_what_cannot_be_read_is_not_made_again(harness: ModernClientHarness) -> None:
    handle, asked = harness.call("tools/list")
    asked.answer(b"{")
    assert isinstance(only_failure(harness, handle), InvalidResponse)


def test_the_total_timeout_bounds_it_too(harness: ModernClientHarness) -> None:
    handle, asked = harness.call("tools/list", total_timeout=0.4)
    asked.cut()
    harness.wait(1)
    only_failure(harness, handle)
    assert harness.requests == []


# Every truncation point


ANSWER = json.dumps(response(1, {"resultType": "complete", "a": "ä"})).encode()
PROGRESS = json.dumps(notification("notifications/progress", progressToken=1, progress=1)).encode()
ROUND = json.dumps(response(1, input_required(None, "s"))).encode()
STREAM = "text/event-stream"
RESPONSES = {
    "json": ("application/json", ANSWER),
    "an error": ("application/json", json.dumps(error(1, -32020)).encode()),
    "a round": ("application/json", ROUND),
    "stream": (STREAM, encode_event(PROGRESS) + b":\n\n" + encode_event(ANSWER)),
    "round in a stream": (STREAM, encode_event(PROGRESS, id="1", retry=5) + encode_event(ROUND)),
    "empty": (STREAM, b""),
}


def hang(asked: Asked) -> None:
    """Nothing ever comes."""


def ask_for_ever(asked: Asked) -> None:
    asked.result(input_required(None, "s"))


BEHAVIOURS: dict[str, Callable[[Asked], None]] = {
    "cut": lambda asked: break_off(asked, "cut in the stream"),
    "hangs": hang,
    "answers": lambda asked: asked.result({"tools": []}),
    "asks": ask_for_ever,
    "404": lambda asked: asked.refuse(404),
    "503": lambda asked: asked.refuse(503),
    "mismatch": lambda asked: asked.answer(error(asked.id, -32020), 400),
}


def check(name: str, cut: int, behaviour: str, *, clean: bool, method: str) -> None:
    kind, body = RESPONSES[name]
    harness = ModernClientHarness().connect()
    handle, asked = harness.call(method)
    asked.head(content_type=kind)
    if cut:
        asked.feed(BodyData(body[:cut]))
    if clean:
        asked.end()
    else:
        asked.cut()
    while (deadline := harness.client.next_deadline()) is not None or harness.requests:
        while harness.requests:
            BEHAVIOURS[behaviour](harness.requests.pop(0))
        harness.wait(0 if deadline is None else max(deadline - harness.now, 0))
        assert harness.now < 10_000
    harness.run_command(harness.client.close)
    assert [event.call for event in ends(harness)] == [handle]
    assert harness.requests == []
    assert harness.client.state is ClientState.CLOSED


@pytest.mark.no_cover
@requirement("MODERN-B-003")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
def test_every_truncation_point_of_every_response(name: str, clean: bool, method: str) -> None:
    for cut in range(len(RESPONSES[name][1]) + 1):
        for behaviour in ("cut", "hangs", "answers"):
            check(name, cut, behaviour, clean=clean, method=method)


@given(
    name=st.sampled_from(sorted(RESPONSES)),
    cut=st.integers(0, 300),
    behaviour=st.sampled_from(sorted(BEHAVIOURS)),
    clean=st.booleans(),
    method=st.sampled_from(["tools/call", "tools/list", "resources/read", "x"]),
)
def test_any_truncation_and_any_behaviour(
    name: str, cut: int, behaviour: str, clean: bool, method: str
) -> None:
    check(name, cut, behaviour, clean=clean, method=method)
