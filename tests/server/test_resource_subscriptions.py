"""Clients of the handshake revisions subscribe to resources, and are told of updates."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sansmcp import App, JsonRpcError, Limits
from sansmcp.events import CallReceived

from ..handlers import nothing
from .harness import LATEST, ServerHarness, example_app, initialize, request
from .pipe_harness import Pipe
from .sse_harness import SseClient

VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", LATEST]
UPDATED = "notifications/resources/updated"
Client = tuple[ServerHarness, Callable[[Any], Any], Callable[[], list[Any]]]
"""A server, what asks it, and what its client was told that belongs to no request."""


def on_streamable_http(version: str, app: App | None = None, **settings: Any) -> Client:
    harness = ServerHarness(app, **settings)
    session = harness.open_session(version)
    stream = harness.get(session)
    return (
        harness,
        lambda message: harness.post(message, session, version).json,
        lambda: stream.messages,
    )


def on_http_sse(version: str, app: App | None = None, **settings: Any) -> Client:
    harness = ServerHarness(app, http_sse="/sse", **settings)
    client = SseClient(harness).open(version)
    return harness, lambda message: client.say(message).said[0], lambda: client.said


def on_stdio(version: str, app: App | None = None, **settings: Any) -> Client:
    pipe = Pipe(app, **settings).open(version)
    said: list[Any] = []

    def told() -> list[Any]:
        return said + pipe.run_pending().said

    return pipe.harness, lambda message: pipe.say(message).said[0], told


TRANSPORTS = [on_streamable_http, on_http_sse, on_stdio]


def subscribe(uri: Any, method: str = "resources/subscribe") -> dict[str, Any]:
    return request(1, method, uri=uri)


def update(harness: ServerHarness, uri: str) -> None:
    harness.run_action(harness.server.publish, UPDATED, {"uri": uri})


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_subscriber_is_told_of_updates(transport: Callable[..., Client], version: str) -> None:
    """publish() reached clients of 2026-07-28 only."""
    harness, ask, told = transport(version)
    update(harness, "test://a")
    assert ask(subscribe("test://a")) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert not any(isinstance(event, CallReceived) for event in harness.events)
    update(harness, "test://b")
    update(harness, "test://a")
    assert told() == [{"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": "test://a"}}]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_whoever_does_not_want_it_any_more_is_not_told(transport: Callable[..., Client]) -> None:
    harness, ask, told = transport(LATEST)
    for method in ("resources/subscribe", "resources/unsubscribe", "resources/unsubscribe"):
        assert ask(subscribe("test://a", method))["result"] == {}
    update(harness, "test://a")
    assert told() == []


def test_only_subscribers_are_told() -> None:
    harness, ask, told = on_streamable_http(LATEST)
    other = harness.get(harness.open_session())
    ask(subscribe("test://a"))
    update(harness, "test://a")
    assert len(told()) == 1
    assert other.messages == []


@pytest.mark.parametrize("uri", ["test://a/b", "test://a/b/", "test://a/b/c", "test://a/b/c/d"])
def test_what_is_below_a_resource_is_told_too(uri: str) -> None:
    harness, ask, told = on_streamable_http(LATEST)
    ask(subscribe("test://a/b"))
    for other in ("test://a", "test://a/", "test://a/bc", "test://a/c/b"):
        update(harness, other)
    update(harness, uri)
    assert [message["params"]["uri"] for message in told()] == [uri]


def test_what_is_told_while_nobody_listens_is_kept() -> None:
    harness = ServerHarness()
    session = harness.open_session()
    harness.post(subscribe("test://a"), session)
    update(harness, "test://a")
    assert [message["method"] for message in harness.get(session).messages] == [UPDATED]


# Who may subscribe


def test_an_application_with_resources_to_read_declares_it() -> None:
    app = example_app()
    assert app.declared_capabilities()["resources"] == {"subscribe": True}
    listed = App("x", capabilities={"resources": {"listChanged": True}})
    listed.handler("resources/list")(nothing)
    assert listed.declared_capabilities()["resources"] == {"listChanged": True}
    listed.handler("resources/read")(nothing)
    assert listed.declared_capabilities()["resources"] == {"listChanged": True, "subscribe": True}


def silent_app() -> App:
    app = App("x", capabilities={"resources": {"subscribe": False}})
    app.handler("resources/read")(nothing)
    return app


@pytest.mark.parametrize("app", [App("x"), silent_app()])
@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe"])
def test_where_there_is_nothing_to_subscribe_to(app: App, method: str) -> None:
    harness, ask, _ = on_streamable_http(LATEST, app)
    assert ask(subscribe("test://a", method))["error"]["code"] == -32601
    assert harness.server.sessions[0].subscriptions == set()


def test_without_sessions_nobody_could_be_told() -> None:
    harness = ServerHarness(sessions=False)
    talk = harness.post(subscribe("test://a"), headers={"mcp-protocol-version": LATEST})
    assert talk.error["code"] == -32601
    declared = harness.post(initialize()).json["result"]["capabilities"]
    del declared["extensions"]
    assert declared == {"tools": {}, "resources": {"subscribe": False}}


@pytest.mark.parametrize("uri", [None, 1, ["test://a"], "test://" + "a" * 8192])
def test_a_resource_has_a_name(uri: Any) -> None:
    harness, ask, _ = on_streamable_http(LATEST)
    assert ask(subscribe(uri))["error"]["data"]["reason"] == "invalid_params"
    assert harness.server.sessions[0].subscriptions == set()


def test_a_session_subscribes_to_only_so_many() -> None:
    limits = Limits(max_resources_per_subscription=2)
    harness, ask, _ = on_streamable_http(LATEST, limits=limits)
    for uri in ("test://a", "test://b", "test://a"):
        assert "result" in ask(subscribe(uri))
    assert ask(subscribe("test://c"))["error"]["data"] == {
        "reason": "too_many_resources",
        "limit": 2,
    }
    ask(subscribe("test://a", "resources/unsubscribe"))
    assert "result" in ask(subscribe("test://c"))
    assert harness.server.sessions[0].subscriptions == {"test://b", "test://c"}


# An application that wants to know


def test_an_application_may_be_asked_first() -> None:
    app = example_app()
    app.handler("resources/subscribe")(nothing)
    harness = ServerHarness(app)
    session = harness.open_session()
    stream = harness.get(session)
    for uri, answer in (("test://no", None), ("test://a", {"x": 1})):
        talk = harness.post(subscribe(uri), session)
        call = harness.last_call()
        update(harness, uri)
        if answer is None:
            harness.run_action(call.respond_exception, JsonRpcError(-32002, "Resource not found"))
        else:
            harness.run_action(call.respond, answer)
            assert talk.json["result"] == answer
        update(harness, uri)
    assert [json.loads(event.data or "{}") for event in stream.events if event.data] == [
        {"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": "test://a"}}
    ]
