"""A server decides the era of a request first: then no module of the other era is entered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sansmcp import ServerCall
from sansmcp.meta_keys import LISTEN

from ..server.harness import ServerHarness, example_app, initialize, notification, request
from ..server.modern.harness import ModernServerHarness, meta, modern, modern_app, notification_from
from ..server.pipe_harness import Pipe
from ..server.sse_harness import SseClient
from .message_path import trace


def answer(harness: ServerHarness, call: ServerCall) -> None:
    harness.run_action(call.progress, 1)
    harness.run_action(call.notify, "notifications/message", {"level": "info", "data": 1})
    harness.run_action(call.respond, {"content": []})


def modern_http() -> Callable[[], None]:
    harness = ModernServerHarness(modern_app())

    def conversation() -> None:
        harness.ask(modern(1, "server/discover"))
        harness.ask(notification_from("notifications/roots/list_changed"))
        for large in ("", "x" * 100_000):
            about = {**meta(logLevel="debug"), "progressToken": 1}
            talk, call = harness.start(modern(2, about=about, arguments={"text": large}))
            answer(harness, call)
            assert talk.ended
        talk, call = harness.start()
        talk.lose_connection()
        assert not call.is_running
        listener = harness.ask(modern(4, LISTEN, notifications={"toolsListChanged": True}))
        listener.lose_connection()
        harness.ask(modern(5, "tools/nothing"))  # refused

    return conversation


def modern_stdio() -> Callable[[], None]:
    pipe = Pipe(modern_app())

    def conversation() -> None:
        pipe.say(modern(1, "server/discover"))
        pipe.say(modern(2, about={**meta(), "progressToken": 1}))
        answer(pipe.harness, pipe.harness.last_call())
        pipe.say(modern(3), notification("notifications/cancelled", requestId=3))
        pipe.say(modern(4, LISTEN, notifications={"toolsListChanged": True}))
        pipe.say(notification("notifications/cancelled", requestId=4), modern(5, "tools/nothing"))
        assert len(pipe.said) > 4

    return conversation


def legacy_http() -> Callable[[], None]:
    harness = ServerHarness(example_app())

    def conversation() -> None:
        for version in ("2025-03-26", "2025-06-18", "2025-11-25"):
            session = harness.open_session(version)
            talk, call = harness.call(session, token=1, version=version)
            answer(harness, call)
            assert talk.ended
            _, call = harness.call(session, 7, version=version)
            cancellation = notification("notifications/cancelled", requestId=7)
            assert harness.post(cancellation, session, version).status == 202
            assert not call.is_running
            harness.get(session).lose_connection()
            harness.post(request(8, "tools/nothing"), session, version)  # refused
        harness.post(
            [request(1, "ping"), request(2, "ping")], session=harness.open_session("2025-03-26")
        )
        harness.send("DELETE", {"mcp-session-id": session})

    return conversation


def legacy_stdio() -> Callable[[], None]:
    pipe = Pipe(example_app())

    def conversation() -> None:
        pipe.say(initialize(), notification("notifications/initialized"), request(1, "ping"))
        pipe.say(request(2), notification("notifications/cancelled", requestId=2))
        pipe.say(request(3, "tools/nothing"))
        assert len(pipe.said) > 2

    return conversation


def legacy_http_sse() -> Callable[[], None]:
    harness = ServerHarness(example_app(), http_sse="/sse")

    def conversation() -> None:
        client = SseClient(harness).open("2024-11-05")
        client.say(request(1, "ping"), request(2))
        answer(harness, harness.last_call())
        client.stream.lose_connection()

    return conversation


CONVERSATIONS: dict[Any, str] = {
    modern_http: "server/legacy/",
    modern_stdio: "server/legacy/",
    legacy_http: "server/modern/",
    legacy_stdio: "server/modern/",
    legacy_http_sse: "server/modern/",
}


@pytest.mark.parametrize("prepare", CONVERSATIONS, ids=lambda prepare: prepare.__name__)
def test_a_request_enters_no_module_of_the_other_era(
    prepare: Callable[[], Callable[[], None]],
) -> None:
    other, entered = CONVERSATIONS[prepare], trace(prepare())
    own = "server/modern/" if "legacy" in other else "server/legacy/"
    assert any(function.module.startswith(own) for function in entered)
    assert not [function for function in entered if function.module.startswith(other)]
