"""Results of the stateless revision: what they say of themselves, and what they cannot be."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest

from sansmcp import LocalProtocolError

from ..harness import JSON
from .harness import SERVER_INFO, ModernServerHarness, modern, modern_app

requirement = pytest.mark.requirement
US = {"name": "bench", "version": "1"}
FIRST = {"resultType": "complete"}
LAST = {"_meta": {SERVER_INFO: US}}


# Results


@attrs.frozen
class Model:
    """Like those of pydantic."""

    members: dict[str, Any]

    def model_dump(self, *, mode: str, by_alias: bool, exclude_none: bool) -> dict[str, Any]:
        assert (mode, by_alias, exclude_none) == ("json", True, True)
        return self.members


def test_a_result_may_be_a_model(harness: ModernServerHarness) -> None:
    talk, call = harness.start()
    harness.run_action(call.respond, Model({"content": []}))
    assert talk.json["result"] == {**FIRST, "content": [], **LAST}


@pytest.mark.parametrize("result", [None, [], "x", 1, Model([])])  # type: ignore[arg-type]
def test_a_result_is_an_object(harness: ModernServerHarness, result: Any) -> None:
    talk, call = harness.start()
    with pytest.raises(LocalProtocolError, match="object"):
        call.respond(result, now=0)
    assert call.is_running
    harness.run_action(call.respond, {})
    assert talk.status == 200


@pytest.mark.parametrize("result", [{"x": math.nan}, {"x": object()}, {"x": "\ud800"}])
def test_what_is_no_json_changes_nothing(harness: ModernServerHarness, result: Any) -> None:
    talk, call = harness.start()
    with pytest.raises(LocalProtocolError):
        call.respond(result, now=0)
    with pytest.raises(LocalProtocolError):
        call.notify("notifications/x", result, now=0)
    harness.run_action(call.respond, {})
    assert talk.header("content-type") == JSON


def test_what_a_result_says_itself_is_kept(harness: ModernServerHarness) -> None:
    talk, call = harness.start()
    about = {"mine": 1, SERVER_INFO: {"name": "other", "version": "2"}}
    given = {"resultType": "task", "_meta": about}
    harness.run_action(call.respond, given)
    assert talk.json["result"] == given
    assert given == {"resultType": "task", "_meta": about}


def test_input_is_not_asked_for_by_hand(harness: ModernServerHarness) -> None:
    _, call = harness.start()
    with pytest.raises(LocalProtocolError, match="InputRequired"):
        call.respond({"resultType": "input_required"}, now=0)


CACHEABLE = [
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "tools/list",
]


@requirement("CACHE-S-001", "CACHE-S-003", "CACHE-S-004", "JSONRPC-S-002")
@pytest.mark.parametrize("method", CACHEABLE)
def test_what_may_be_cached_says_so(method: str) -> None:
    harness = ModernServerHarness(modern_app())
    params = {"uri": "test://a"} if method == "resources/read" else {}
    talk, call = harness.start(modern(1, method, **params))
    harness.run_action(call.respond, {"x": 1})
    hints = {"ttlMs": 0, "cacheScope": "private"}
    assert talk.json["result"] == {**FIRST, "x": 1, **hints, **LAST}


@requirement("CACHE-S-005", "CACHE-S-007")
def test_how_long_something_may_be_cached_is_for_the_application(
    harness: ModernServerHarness,
) -> None:
    for ttl in (0, 5000):
        talk, call = harness.start(modern(1, "tools/list"))
        harness.run_action(call.respond, {"tools": [], "ttlMs": ttl, "cacheScope": "public"})
        assert talk.json["result"]["ttlMs"] == ttl
        assert talk.json["result"]["cacheScope"] == "public"


@requirement("CACHE-S-003", "CACHE-S-004")
@pytest.mark.parametrize(
    "hints",
    [
        {"ttlMs": -1},
        {"ttlMs": 1.5},
        {"ttlMs": 1.0},
        {"ttlMs": True},
        {"ttlMs": "1"},
        {"ttlMs": None},
        {"cacheScope": "shared"},
        {"cacheScope": None},
        {"cacheScope": []},
    ],
)
def test_hints_that_make_no_sense(harness: ModernServerHarness, hints: dict[str, Any]) -> None:
    _, call = harness.start(modern(1, "tools/list"))
    with pytest.raises(LocalProtocolError, match=r"ttlMs|cacheScope"):
        call.respond({"tools": [], **hints}, now=0)
    assert call.is_running


def test_other_results_have_no_hints(harness: ModernServerHarness) -> None:
    for message, result in (
        (modern(1), {}),
        (modern(1, "tools/list"), {"resultType": "task"}),
    ):
        talk, call = harness.start(message)
        harness.run_action(call.respond, result)
        assert talk.json["result"].keys().isdisjoint({"ttlMs", "cacheScope"})
