"""subscriptions/listen: who has asked for it is told what has changed, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import App, Limits, LocalProtocolError
from sansmcp.meta_keys import LISTEN

from ..bench import STREAM, Talk, expect, methods
from .bench import SUBSCRIPTION_ID, ModernBench, meta, modern, modern_app

requirement = pytest.mark.requirement

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"
EVERYTHING = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["test://a"],
}


@pytest.fixture
def bench() -> ModernBench:
    return ModernBench(modern_app())


def listening(id: Any, **notifications: Any) -> dict[str, Any]:
    return modern(id, LISTEN, notifications=notifications)


def listen(bench: ModernBench, id: Any = "l", **notifications: Any) -> Talk:
    talk = bench.ask(listening(id, **notifications))
    assert talk.status == 200
    return talk


def publish(bench: ModernBench, method: str, **params: Any) -> None:
    bench.do(bench.server.publish, method, params or None)


def publish_all(bench: ModernBench) -> None:
    for method in (TOOLS, PROMPTS, RESOURCES):
        publish(bench, method)
    publish(bench, UPDATED, uri="test://a")


# The acknowledgement


@requirement("SUBS-S-003", "SUBS-S-004", "SUBS-S-006", "SUBS-S-007", "SUBS-S-008", "MODERN-S-012")
@pytest.mark.parametrize("id", [1, "1", 0, ""])
def test_the_stream_begins_with_what_will_be_told(bench: ModernBench, id: Any) -> None:
    publish_all(bench)
    talk = listen(bench, id, **EVERYTHING)
    assert talk.header("content-type") == STREAM
    assert talk.header("x-accel-buffering") == "no"
    publish(bench, TOOLS)
    about = {SUBSCRIPTION_ID: id}
    assert talk.messages == [
        {
            "jsonrpc": "2.0",
            "method": ACKNOWLEDGED,
            "params": {"notifications": EVERYTHING, "_meta": about},
        },
        {"jsonrpc": "2.0", "method": TOOLS, "params": {"_meta": about}},
    ]
    assert all(event.id is None for event in talk.events)
    tagged = [message["params"]["_meta"][SUBSCRIPTION_ID] for message in talk.messages]
    assert [type(each) for each in tagged] == [type(id)] * 2
    bench.wait(1000)
    assert not talk.ended
    assert talk.body.endswith(b":\n\n")
    assert bench.events == []
    assert not bench.server.is_busy


@requirement("SUBS-S-006")
@pytest.mark.parametrize(
    ("capabilities", "honoured"),
    [
        ({}, {}),
        ({"tools": {}}, {}),
        ({"tools": {"listChanged": False}}, {}),
        ({"tools": {"listChanged": True}}, {"toolsListChanged": True}),
        ({"resources": {"subscribe": True}}, {"resourceSubscriptions": ["test://a"]}),
        ({"resources": {"listChanged": True}}, {"resourcesListChanged": True}),
    ],
)
def test_what_the_server_cannot_tell_is_left_out(
    capabilities: dict[str, Any], honoured: dict[str, Any]
) -> None:
    bench = ModernBench(App("bench", capabilities=capabilities))
    talk = listen(bench, **EVERYTHING, somethingElse=True)
    assert talk.messages[0]["params"]["notifications"] == honoured
    before = len(talk.messages)
    publish_all(bench)
    assert len(talk.messages) == before + len(honoured)


@requirement("SUBS-S-001")
@pytest.mark.parametrize("nothing", [{}, dict.fromkeys(EVERYTHING, False), {"toolsListChanged": 1}])
def test_who_asks_for_nothing_is_told_nothing(bench: ModernBench, nothing: dict[str, Any]) -> None:
    talk = listen(bench, **nothing)
    assert talk.messages[0]["params"]["notifications"] == {}
    publish_all(bench)
    assert methods(talk) == [ACKNOWLEDGED]
    assert not talk.ended


@pytest.mark.parametrize("notifications", [None, [], "x", True])
def test_a_filter_that_is_none(bench: ModernBench, notifications: Any) -> None:
    talk = bench.ask(modern(1, LISTEN, notifications=notifications))
    expect(talk, 400, "invalid_params", -32602, id=1)


def test_no_filter_at_all(bench: ModernBench) -> None:
    expect(bench.ask(modern(1, LISTEN)), 400, "invalid_params", -32602, id=1)


def test_a_client_that_takes_no_streams(bench: ModernBench) -> None:
    talk = bench.ask(listening(1), {"accept": "application/json"})
    expect(talk, 406, "not_acceptable")


# What is told


@requirement("SUBS-S-001", "SUBS-S-014", "SUBS-S-013")
@pytest.mark.both_eras
def test_each_is_told_what_it_has_asked_for_once(bench: ModernBench) -> None:
    session = bench.open_session()
    tools = listen(bench, 1, toolsListChanged=True)
    both = listen(bench, 1, toolsListChanged=True, promptsListChanged=True)
    uris = listen(bench, 1, resourceSubscriptions=["test://a"])
    running, _ = bench.start()
    publish_all(bench)
    assert methods(tools) == [ACKNOWLEDGED, TOOLS]
    assert methods(both) == [ACKNOWLEDGED, TOOLS, PROMPTS]
    assert methods(uris) == [ACKNOWLEDGED, UPDATED]
    assert running.head is None
    assert methods(bench.get(session)) == [TOOLS, PROMPTS, RESOURCES]


@requirement("SUBS-S-002")
@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("test://a", True),
        ("test://a/", True),
        ("test://a/b/c", True),
        ("test://ab", False),
        ("test://", False),
        ("test://b/", True),
        ("test://b/c", True),
        ("test://b", False),
        ("other://a", False),
        (None, False),
        (["test://a"], False),
    ],
)
def test_resources_are_told_by_uri(bench: ModernBench, uri: Any, told: bool) -> None:
    talk = listen(bench, resourceSubscriptions=["test://a", "test://b/", 5, None])
    honoured = {"resourceSubscriptions": ["test://a", "test://b/"]}
    assert talk.messages[0]["params"]["notifications"] == honoured
    publish(bench, UPDATED, uri=uri)
    assert methods(talk) == [ACKNOWLEDGED] + [UPDATED] * told


def test_a_resource_without_a_name_is_nobodys(bench: ModernBench) -> None:
    talk = listen(bench, resourceSubscriptions=["test://a"])
    publish(bench, UPDATED)
    assert methods(talk) == [ACKNOWLEDGED]


def test_a_resource_that_is_named_twice_is_told_once(bench: ModernBench) -> None:
    talk = listen(bench, resourceSubscriptions=["test://a", "test://a", "test://a/", "test://"])
    other = listen(bench, 2, resourceSubscriptions=["test://a"])
    publish(bench, UPDATED, uri="test://a/b")
    assert methods(talk) == methods(other) == [ACKNOWLEDGED, UPDATED]
    talk.gone()
    publish(bench, UPDATED, uri="test://a")
    assert methods(other) == [ACKNOWLEDGED, UPDATED, UPDATED]
    assert methods(talk) == [ACKNOWLEDGED, UPDATED]


def test_one_listener_is_told_of_so_many_resources_only() -> None:
    bench = ModernBench(modern_app(), limits=Limits(max_resources_per_subscription=2))
    talk = listen(bench, resourceSubscriptions=["test://a", "test://b", "test://c"])
    honoured = {"resourceSubscriptions": ["test://a", "test://b"]}
    assert talk.messages[0]["params"]["notifications"] == honoured
    publish(bench, UPDATED, uri="test://c")
    assert methods(talk) == [ACKNOWLEDGED]


@pytest.mark.parametrize("uris", [None, "test://a", {}, True])
def test_resources_that_are_no_list(bench: ModernBench, uris: Any) -> None:
    talk = listen(bench, resourceSubscriptions=uris)
    assert talk.messages[0]["params"]["notifications"] == {}


@requirement("SUBS-S-007")
def test_what_a_notification_says_is_kept(bench: ModernBench) -> None:
    talk = listen(bench, 7, **EVERYTHING)
    publish(bench, UPDATED, uri="test://a", title="A", _meta={"mine": 1, SUBSCRIPTION_ID: "x"})
    assert talk.messages[1]["params"] == {
        "uri": "test://a",
        "title": "A",
        "_meta": {"mine": 1, SUBSCRIPTION_ID: 7},
    }


def test_only_changes_can_be_published(bench: ModernBench) -> None:
    for method in (ACKNOWLEDGED, "notifications/message", "tools/list", "notifications/cancelled"):
        with pytest.raises(LocalProtocolError, match="listen"):
            bench.server.publish(method, now=0)
    with pytest.raises(LocalProtocolError, match="JSON"):
        bench.server.publish(TOOLS, {"x": object()}, now=0)


# Its end


@requirement("SUBS-S-009", "SUBS-S-013", "CANCEL-S-005")
def test_a_client_ends_it_by_going_away(bench: ModernBench) -> None:
    talk = listen(bench, **EVERYTHING)
    body = talk.body
    talk.gone()
    publish_all(bench)
    bench.do(bench.server.shut_down)
    talk.pull()
    assert (talk.body, talk.ended) == (body, False)
    assert bench.events == []


@requirement("SUBS-S-010", "SUBS-S-011", "SUBS-S-012", "CANCEL-S-002", "JSONRPC-S-002")
@pytest.mark.parametrize("id", [1, "1"])
def test_a_server_ends_it_with_a_result(bench: ModernBench, id: Any) -> None:
    talk = listen(bench, id, **EVERYTHING)
    other = listen(bench, "other")
    bench.do(bench.server.drain)
    publish(bench, TOOLS)
    bench.do(bench.server.shut_down)
    result = {"resultType": "complete", "_meta": {SUBSCRIPTION_ID: id}}
    assert talk.messages[2:] == [{"jsonrpc": "2.0", "id": id, "result": result}]
    assert methods(talk) == [ACKNOWLEDGED, TOOLS, "answer"]
    assert (talk.ended, talk.aborted) == (True, False)
    assert methods(other) == [ACKNOWLEDGED, "answer"]
    publish_all(bench)
    assert methods(other) == [ACKNOWLEDGED, "answer"]
    assert bench.server.next_deadline() is None


def test_a_client_that_does_not_read_is_let_go() -> None:
    """What it misses it has to find out for itself: a clean end would look like nothing missed."""
    bench = ModernBench(modern_app(), limits=Limits(max_unsent_bytes=200))
    slow, quick = (listen(bench, 1, toolsListChanged=True) for _ in range(2))
    slow.reads = False
    for _ in range(10):
        publish(bench, TOOLS)
    assert len(quick.messages) == 11
    slow.reads = True
    slow.pull()
    assert slow.aborted
    assert not slow.ended
    assert len(slow.messages) < 11
    publish(bench, TOOLS)
    assert len(quick.messages) == 12


def test_only_so_many_may_listen() -> None:
    bench = ModernBench(modern_app(), limits=Limits(max_subscriptions=2))
    first = listen(bench, 1)
    listen(bench, 2)
    expect(bench.ask(listening(3)), 503, "too_many_subscriptions", id=3)
    first.gone()
    listen(bench, 4)


def test_a_listener_is_refused_like_any_request(bench: ModernBench) -> None:
    expect(
        bench.ask(listening(1), {"mcp-method": "tools/list"}),
        400,
        "header_mismatch",
        -32020,
        id=1,
    )
    bench.ask(modern(2, LISTEN, about=meta(logLevel="debug"), notifications={}))
    assert bench.server.next_deadline() is not None
