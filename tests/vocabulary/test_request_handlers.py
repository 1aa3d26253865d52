"""Handlers of server requests: what they imply, how they are checked, what their failures say."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import JsonRpcError, LocalProtocolError, ServerRequest
from sansmcp.meta_keys import CAPABILITIES, CLIENT_CAPABILITIES

from ..client.harness import request
from ..client.modern.harness import MODERN, discovered, input_required, question
from .test_hosting_client import DriverHarness, Host


def handler(request: ServerRequest) -> Any:
    return {}


def without() -> Any: ...


def declared(harness: DriverHarness, version: str) -> Any:
    """What the client declares at that version."""
    harness.host.begin_session()
    first = harness.take()
    if version == MODERN:
        return first.json["params"]["_meta"][CAPABILITIES]
    return first.json["params"]["capabilities"]


@pytest.mark.parametrize("version", ["2025-06-18", MODERN])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {"elicitation": {}, "roots": {}, "sampling": {}}),
        ({}, {"elicitation": {}, "roots": {}, "sampling": {}}),
        (
            {"elicitation": {"form": {}, "url": {}}, "experimental": {"x": {}}},
            {
                "elicitation": {"form": {}, "url": {}},
                "experimental": {"x": {}},
                "roots": {},
                "sampling": {},
            },
        ),
    ],
)
def test_capabilities_follow_from_handlers(version: str, given: Any, expected: Any) -> None:
    """What the application declares itself is kept."""
    harness = DriverHarness(
        dict.fromkeys(CLIENT_CAPABILITIES, handler),
        capabilities=given,
        versions=(version,),
        tasks=False,
    )
    assert declared(harness, version) == expected


def test_without_handlers_nothing_is_declared() -> None:
    harness = DriverHarness({}, capabilities=None, versions=("2025-06-18",))
    assert declared(harness, "2025-06-18") == {}


def test_requests_whose_capability_follows_from_a_handler_are_answered() -> None:
    harness = DriverHarness({"roots/list": lambda request: {"roots": []}}, capabilities=None)
    harness.connect()
    harness.ask(request("q", "roots/list"), request("r", "sampling/createMessage"))
    answer, refusal = harness.requests
    assert answer.json["result"] == {"roots": []}
    assert "has not declared the capability 'sampling'" in refusal.json["error"]["message"]


@pytest.mark.parametrize(
    ("method", "function", "text"),
    [
        (
            "elicitation/created",
            handler,
            r"has no 'elicitation/created'.*; did you mean 'elicitation/create'\?",
        ),
        ("sampling/create_message", handler, "did you mean 'sampling/createMessage'"),
        ("elicit", handler, "elicitation/create, roots/list, sampling/createMessage"),
        ("ping", handler, "has no 'ping'"),
        ("com.example/ask", handler, "declare the extension in capabilities"),
        ("roots/list", None, r"request_handlers\['roots/list'\] must be a function, got None"),
        ("roots/list", {"roots": []}, "must be a function"),
        (
            "roots/list",
            without,
            r"handler of 'roots/list' gets one argument, the request, and without\(\).* does not "
            r"take that: .*\. Write: def without\(request\)",
        ),
    ],
)
def test_handlers_that_cannot_be_called_are_refused(method: str, function: Any, text: str) -> None:
    harness = DriverHarness({}, capabilities=None)
    with pytest.raises(LocalProtocolError, match=text):
        Host(harness, {method: function})


@pytest.mark.parametrize("kind", ["extensions", "experimental"])
def test_methods_of_declared_extensions_have_handlers(kind: str) -> None:
    harness = DriverHarness(
        {"com.example/ask": lambda request: {"is": "asked"}},
        capabilities={kind: {"com.example/asking": {}}},
    )
    harness.connect()
    harness.ask(request("q", "com.example/ask"))
    assert harness.take().json["result"] == {"is": "asked"}


@pytest.mark.parametrize("result", [True, None, "accept", [], 1])
def test_a_result_that_is_no_object_is_the_fault_of_its_handler(result: Any) -> None:
    """The log names the handler, and the server learns that the client failed."""
    harness = DriverHarness({"elicitation/create": lambda request: result})
    harness.connect()
    harness.ask(request("q", "elicitation/create"))
    error = harness.take().json["error"]
    assert error["code"] == -32603
    assert "the client's handler of elicitation/create failed" in error["message"]
    ((method, failure),) = harness.host.failures
    assert method == "elicitation/create"
    assert isinstance(failure, LocalProtocolError)
    text = r"request_handlers['elicitation/create'] must return a JSON object (dict), got "
    assert str(failure).startswith(text + repr(result))


def test_an_exception_is_kept_from_the_server_and_the_side_is_named() -> None:
    def fail(request: ServerRequest) -> Any:
        raise ValueError("secret")

    harness = DriverHarness({"roots/list": fail})
    harness.connect()
    harness.ask(request("q", "roots/list"))
    message = harness.take().json["error"]["message"]
    assert message == "Internal error: the client's handler of roots/list failed"
    ((_, failure),) = harness.host.failures
    assert str(failure) == "secret"


@pytest.mark.parametrize("method", sorted(CLIENT_CAPABILITIES))
def test_a_call_whose_handler_fails_says_so(method: str) -> None:
    """At 2026-07-28 the call ends at the client, and the error does not look like the server's."""
    harness = DriverHarness({method: lambda request: True}, versions=(MODERN,))
    harness.host.begin_session()
    asked = harness.take()
    asked.answer(discovered(asked.id, MODERN))
    pending = harness.host.call("tools/call", {"name": "t"})
    harness.take().result(input_required({"a": question(method)}))
    with pytest.raises(JsonRpcError, match=f"the client's handler of {method} failed"):
        pending.result()
