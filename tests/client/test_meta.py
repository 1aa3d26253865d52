"""Further members of _meta: on calls and notifications, at every revision and transport."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from sansmcp import LocalProtocolError

from .harness import ClientHarness
from .modern.harness import META, PREFIX, ModernClientHarness, input_required
from .process_harness import ProcessHarness

TRACE = {"traceparent": "00-a-b-01"}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE = "rojo=00f067aa0ba902b7, congo=t61rcWkgMzE"


def test_a_call_may_have_further_members_of_meta(harness: ClientHarness) -> None:
    """There was no meta= on calls."""
    params = {"name": "x", "_meta": {"a": 1, "b": 1}}
    _, asked = harness.call(params=params, meta=MappingProxyType({"b": 2}))
    assert asked.json["params"] == {
        "name": "x",
        "_meta": {"a": 1, "b": 2, "progressToken": asked.id},
    }
    assert params == {"name": "x", "_meta": {"a": 1, "b": 1}}
    _, asked = harness.call("ping", meta=TRACE)
    assert asked.json["params"]["_meta"] == {**TRACE, "progressToken": asked.id}


def test_at_the_stateless_revision_and_in_each_round() -> None:
    harness = ModernClientHarness().connect()
    meta = {**TRACE, PREFIX + "logLevel": "debug"}
    _, asked = harness.call(meta=meta)
    expected = {**META, **meta}
    for _ in range(3):
        assert asked.json["params"]["_meta"] == {**expected, "progressToken": asked.id}
        asked.result(input_required(None, "state"))
        asked = harness.take()


def sent_context(asked: Any) -> tuple[Any, Any]:
    """The headers with the trace context of a request."""
    return asked.header("traceparent"), asked.header("tracestate")


@pytest.mark.parametrize("kind", [ClientHarness, ModernClientHarness])
def test_headers_repeat_the_trace_context(kind: Any) -> None:
    harness = kind().connect()
    _, asked = harness.call(meta={"traceparent": PARENT, "tracestate": STATE})
    assert sent_context(asked) == (PARENT, STATE)
    _, asked = harness.call(params={"name": "x", "_meta": {"traceparent": PARENT}})
    assert sent_context(asked) == (PARENT, None)
    _, asked = harness.call()
    assert sent_context(asked) == (None, None)


def test_headers_of_a_notification_repeat_the_trace_context(harness: ClientHarness) -> None:
    harness.run_command(harness.client.notify, "notifications/x", meta={"traceparent": PARENT})
    assert sent_context(harness.take()) == (PARENT, None)


@pytest.mark.parametrize(
    ("meta", "sent"),
    [
        ({"traceparent": PARENT + "\r\nx: y"}, (None, None)),
        ({"traceparent": 1}, (None, None)),
        ({"tracestate": STATE}, (None, None)),
        ({"traceparent": PARENT, "tracestate": ""}, (PARENT, None)),
        ({"traceparent": PARENT, "tracestate": "a=1\r\nx: y"}, (PARENT, None)),
        ({"traceparent": PARENT, "tracestate": "a=é"}, (PARENT, None)),
        ({"traceparent": PARENT, "tracestate": "a=" + "x" * 510}, (PARENT, "a=" + "x" * 510)),
        ({"traceparent": PARENT, "tracestate": "a=" + "x" * 511}, (PARENT, None)),
    ],
)
def test_headers_repeat_only_what_is_trace_context(
    harness: ClientHarness, meta: Any, sent: Any
) -> None:
    _, asked = harness.call(meta=meta)
    assert sent_context(asked) == sent
    assert asked.json["params"]["_meta"] == {**meta, "progressToken": asked.id}


def test_a_trace_parent_among_the_headers_of_the_application_stays() -> None:
    harness = ClientHarness(headers={"traceparent": "mine"}).connect()
    _, asked = harness.call(meta={"traceparent": PARENT, "tracestate": STATE})
    assert sent_context(asked) == ("mine", None)


def test_on_stdio() -> None:
    harness = ProcessHarness().connect()
    harness.run_command(harness.client.call, "tools/call", meta=TRACE)
    (message,) = harness.written
    assert message["params"]["_meta"] == {**TRACE, "progressToken": message["id"]}


def test_a_notification_may_have_it(harness: ClientHarness) -> None:
    harness.run_command(harness.client.notify, "notifications/x", meta=TRACE)
    assert harness.take().json["params"] == {"_meta": TRACE}
    harness.run_command(
        harness.client.notify, "notifications/x", {"a": 1, "_meta": {"b": 1}}, meta=TRACE
    )
    assert harness.requests.pop().json["params"] == {"a": 1, "_meta": {"b": 1, **TRACE}}


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"progressToken": 1}, "meta must not have 'progressToken': the client sets it itself"),
        ({PREFIX + "protocolVersion": "x"}, "meta must not have .*protocolVersion"),
        ({PREFIX + "clientInfo": {}}, "meta must not have .*clientInfo"),
        ({PREFIX + "clientCapabilities": {}}, "meta must not have .*clientCapabilities"),
        ([1], "meta must be Mapping, and is list"),
        ("x", "meta must be Mapping"),
        ({"x": object()}, "JSON"),
    ],
)
@pytest.mark.parametrize("command", ["call", "notify"])
def test_what_meta_cannot_be(harness: ClientHarness, command: str, meta: Any, message: str) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        getattr(harness.client, command)("tools/x", meta=meta, now=0.0)
    assert harness.client.next_effect().name == "NEED_DATA"  # type: ignore[union-attr]
