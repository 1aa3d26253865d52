"""Clients of the handshake revisions subscribe to resources, and are told of updates."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sansmcp import App, JsonRpcError, Limits
from sansmcp.events import CallReceived

from .bench import LATEST, Bench, example_app, initialize, request
from .pipe_bench import Pipe
from .sse_bench import SseClient

VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", LATEST]
UPDATED = "notifications/resources/updated"
Client = tuple[Bench, Callable[[Any], Any], Callable[[], list[Any]]]
"""A server, what asks it, and what its client was told that belongs to no request."""


def on_streamable_http(version: str, app: App | None = None, **settings: Any) -> Client:
    bench = Bench(app, **settings)
    session = bench.open_session(version)
    stream = bench.get(session)
    return (
        bench,
        lambda message: bench.post(message, session, version).json,
        lambda: stream.messages,
    )


def on_http_sse(version: str, app: App | None = None, **settings: Any) -> Client:
    bench = Bench(app, http_sse="/sse", **settings)
    client = SseClient(bench).open(version)
    return bench, lambda message: client.say(message).said[0], lambda: client.said


def on_stdio(version: str, app: App | None = None, **settings: Any) -> Client:
    pipe = Pipe(app, **settings).open(version)
    said: list[Any] = []

    def told() -> list[Any]:
        return said + pipe.settle().said

    return pipe.bench, lambda message: pipe.say(message).said[0], told


TRANSPORTS = [on_streamable_http, on_http_sse, on_stdio]


def subscribe(uri: Any, method: str = "resources/subscribe") -> dict[str, Any]:
    return request(1, method, uri=uri)


def update(bench: Bench, uri: str) -> None:
    bench.do(bench.server.publish, UPDATED, {"uri": uri})


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_subscriber_is_told_of_updates(transport: Callable[..., Client], version: str) -> None:
    """Row E1 of the review: publish() reached clients of 2026-07-28 only."""
    bench, ask, told = transport(version)
    update(bench, "test://a")
    assert ask(subscribe("test://a")) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert not any(isinstance(event, CallReceived) for event in bench.events)
    update(bench, "test://b")
    update(bench, "test://a")
    assert told() == [{"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": "test://a"}}]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_whoever_does_not_want_it_any_more_is_not_told(transport: Callable[..., Client]) -> None:
    bench, ask, told = transport(LATEST)
    for method in ("resources/subscribe", "resources/unsubscribe", "resources/unsubscribe"):
        assert ask(subscribe("test://a", method))["result"] == {}
    update(bench, "test://a")
    assert told() == []


def test_only_subscribers_are_told() -> None:
    bench, ask, told = on_streamable_http(LATEST)
    other = bench.get(bench.open_session())
    ask(subscribe("test://a"))
    update(bench, "test://a")
    assert len(told()) == 1
    assert other.messages == []


@pytest.mark.parametrize("uri", ["test://a/b", "test://a/b/", "test://a/b/c", "test://a/b/c/d"])
def test_what_is_below_a_resource_is_told_too(uri: str) -> None:
    bench, ask, told = on_streamable_http(LATEST)
    ask(subscribe("test://a/b"))
    for other in ("test://a", "test://a/", "test://a/bc", "test://a/c/b"):
        update(bench, other)
    update(bench, uri)
    assert [message["params"]["uri"] for message in told()] == [uri]


def test_what_is_told_while_nobody_listens_is_kept() -> None:
    bench = Bench()
    session = bench.open_session()
    bench.post(subscribe("test://a"), session)
    update(bench, "test://a")
    assert [message["method"] for message in bench.get(session).messages] == [UPDATED]


# Who may subscribe


def test_an_application_with_resources_to_read_declares_it() -> None:
    app = example_app()
    assert app.declared_capabilities()["resources"] == {"subscribe": True}
    listed = App("x", capabilities={"resources": {"listChanged": True}})
    listed.handler("resources/list")(lambda: None)
    assert listed.declared_capabilities()["resources"] == {"listChanged": True}
    listed.handler("resources/read")(lambda: None)
    assert listed.declared_capabilities()["resources"] == {"listChanged": True, "subscribe": True}


def silent_app() -> App:
    app = App("x", capabilities={"resources": {"subscribe": False}})
    app.handler("resources/read")(lambda: None)
    return app


@pytest.mark.parametrize("app", [App("x"), silent_app()])
@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe"])
def test_where_there_is_nothing_to_subscribe_to(app: App, method: str) -> None:
    bench, ask, _ = on_streamable_http(LATEST, app)
    assert ask(subscribe("test://a", method))["error"]["code"] == -32601
    assert bench.server.sessions[0].subscriptions == set()


def test_without_sessions_nobody_could_be_told() -> None:
    bench = Bench(sessions=False)
    talk = bench.post(subscribe("test://a"), headers={"mcp-protocol-version": LATEST})
    assert talk.error["code"] == -32601
    declared = bench.post(initialize()).json["result"]["capabilities"]
    assert declared == {"tools": {}, "resources": {"subscribe": False}}


@pytest.mark.parametrize("uri", [None, 1, ["test://a"], "test://" + "a" * 8192])
def test_a_resource_has_a_name(uri: Any) -> None:
    bench, ask, _ = on_streamable_http(LATEST)
    assert ask(subscribe(uri))["error"]["data"]["reason"] == "invalid_params"
    assert bench.server.sessions[0].subscriptions == set()


def test_a_session_subscribes_to_only_so_many() -> None:
    limits = Limits(max_resources_per_subscription=2)
    bench, ask, _ = on_streamable_http(LATEST, limits=limits)
    for uri in ("test://a", "test://b", "test://a"):
        assert "result" in ask(subscribe(uri))
    assert ask(subscribe("test://c"))["error"]["data"] == {
        "reason": "too_many_resources",
        "limit": 2,
    }
    ask(subscribe("test://a", "resources/unsubscribe"))
    assert "result" in ask(subscribe("test://c"))
    assert bench.server.sessions[0].subscriptions == {"test://b", "test://c"}


# An application that wants to know


def test_an_application_may_be_asked_first() -> None:
    app = example_app()
    app.handler("resources/subscribe")(lambda: None)
    bench = Bench(app)
    session = bench.open_session()
    stream = bench.get(session)
    for uri, answer in (("test://no", None), ("test://a", {"x": 1})):
        talk = bench.post(subscribe(uri), session)
        call = bench.last_call()
        update(bench, uri)
        if answer is None:
            bench.do(call.respond_exception, JsonRpcError(-32002, "Resource not found"))
        else:
            bench.do(call.respond, answer)
            assert talk.json["result"] == answer
        update(bench, uri)
    assert [json.loads(event.data or "{}") for event in stream.events if event.data] == [
        {"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": "test://a"}}
    ]
