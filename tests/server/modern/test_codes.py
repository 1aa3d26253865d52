"""Error codes that are not used any more, and ``_meta`` that nobody knows."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import JsonRpcError

from ..harness import request
from .harness import MODERN, ModernServerHarness, meta, modern

requirement = pytest.mark.requirement


@requirement("JSONRPC-B-051", "JSONRPC-S-001")
@pytest.mark.parametrize(("retired", "code"), [(-32002, -32602), (-32042, -32603)])
@pytest.mark.both_eras
def test_retired_codes_are_replaced(harness: ModernServerHarness, retired: int, code: int) -> None:
    """Handlers of any age work at any revision."""
    for fails in ("by hand", "by raising"):
        talk, call = harness.start(modern(1, "resources/read", uri="test://a"))
        session = harness.open_session()
        old, old_call = harness.call(session, method="resources/read")
        for one in (call, old_call):
            if fails == "by hand":
                harness.run_action(one.respond_error, retired, "no", {"x": 1})
            else:
                harness.run_action(one.respond_exception, JsonRpcError(retired, "no", {"x": 1}))
        assert talk.error == {"code": code, "message": "no", "data": {"x": 1}}
        assert old.error == {"code": retired, "message": "no", "data": {"x": 1}}


UNKNOWN = ("io.modelcontextprotocol/nobodyKnows", "dev.mcp/x", "traceparent", "x", "")


@requirement("JSONRPC-B-040")
@pytest.mark.parametrize("value", [None, 1, "x", ["x"], {"x": 1}])
@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
@pytest.mark.both_eras
def test_what_nobody_knows_is_passed_on(
    harness: ModernServerHarness, version: str, value: Any
) -> None:
    unknown = dict.fromkeys(UNKNOWN, value)
    if version == MODERN:
        talk, call = harness.start(modern(1, about={**meta(), **unknown}))
    else:
        message = request(1, _meta=unknown)
        talk, call = harness.post(message, harness.open_session(), version), harness.last_call()
    assert call.request.params is not None
    assert {key: call.request.params["_meta"][key] for key in UNKNOWN} == unknown
    harness.run_action(call.respond, {"_meta": unknown})
    answered = talk.json["result"]["_meta"]
    assert {key: answered[key] for key in UNKNOWN} == unknown
