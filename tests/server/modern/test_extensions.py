"""Extensions: what only one side has is refused, or done without; the application decides."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import App, JsonRpcError, ServerCall
from sansmcp.reclaim import EXTENSION as KEYS_OF_CALLS

from ..harness import expect
from .harness import ModernServerHarness, meta, modern

requirement = pytest.mark.requirement
GREETING = "com.example/greeting"
METHOD = "com.example/greet"


@pytest.fixture
def harness() -> ModernServerHarness:
    app = App("bench", capabilities={"extensions": {GREETING: {"loud": True}}})
    for method in (METHOD, "tools/call", "tools/list"):
        app.handler(method)(greet)
    return ModernServerHarness(app)


def greet(call: ServerCall) -> dict[str, Any]:
    """A tool can do without the extension; its own method cannot."""
    if GREETING in call.peer.client_capabilities.get("extensions", {}):
        return {"text": "hello"}
    if call.request.method == METHOD:
        missing: dict[str, Any] = {"requiredCapabilities": {"extensions": {GREETING: {}}}}
        raise JsonRpcError(-32021, "This is for clients that know greetings", missing)
    return {"text": "a greeting"}


def ask(harness: ModernServerHarness, method: str, *extensions: str) -> tuple[int | None, Any]:
    """The status and the answer that a client gets who knows these extensions."""
    about = meta({"extensions": {name: {} for name in extensions}})
    talk, call = harness.start(modern(1, method, about=about))
    try:
        harness.run_action(call.respond, greet(call))
    except JsonRpcError as error:
        harness.run_action(call.respond_exception, error)
    return talk.status, talk.json


@requirement("VERS-B-002", "VERS-S-007")
def test_an_extension_that_both_sides_know(harness: ModernServerHarness) -> None:
    discovered = harness.ask(modern(1, "server/discover")).json["result"]["capabilities"]
    assert discovered["extensions"].keys() == {GREETING, KEYS_OF_CALLS}
    assert discovered["extensions"][GREETING] == {"loud": True}
    for method in (METHOD, "tools/call"):
        status, answer = ask(harness, method, GREETING)
        assert (status, answer["result"]["text"]) == (200, "hello")


@requirement("VERS-B-002", "MODERN-S-018")
def test_a_client_that_does_not_know_it(harness: ModernServerHarness) -> None:
    status, answer = ask(harness, "tools/call", "com.example/other")
    assert (status, answer["result"]["text"]) == (200, "a greeting")
    status, answer = ask(harness, METHOD)
    assert (status, answer["error"]["code"]) == (400, -32021)
    assert answer["error"]["data"] == {"requiredCapabilities": {"extensions": {GREETING: {}}}}


@requirement("VERS-B-002")
def test_a_server_that_does_not_know_it() -> None:
    about = meta({"extensions": {GREETING: {}}})
    talk = ModernServerHarness().ask(modern(1, METHOD, about=about))
    expect(talk, 404, "method_not_found", -32601, id=1)


@requirement("CACHE-S-008")
def test_whatever_others_may_keep_every_request_reaches_the_application(
    harness: ModernServerHarness,
) -> None:
    """So it can decide each time who may know the answer."""
    for number, principal in enumerate(("ada", "bob", "ada")):
        talk, call = harness.start(modern(number, "tools/list"), principal=principal)
        assert call.peer.principal == principal
        result: dict[str, Any] = {
            "tools": [],
            "ttlMs": 60000,
            "cacheScope": "public",
            "for": principal,
        }
        harness.run_action(call.respond, result)
        assert talk.json["result"]["for"] == principal
