"""subscriptions/listen: who has asked for it is told what has changed, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import App, ConnectionInfo, Limits, LocalProtocolError
from sansmcp.events import ListenersChanged, ListenReceived
from sansmcp.meta_keys import LISTEN
from sansmcp.server_call import ListenRequest

from ..harness import STREAM, RawExchange, expect, methods
from .harness import SUBSCRIPTION_ID, ModernServerHarness, meta, modern, modern_app

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
def harness() -> ModernServerHarness:
    return ModernServerHarness(modern_app())


def listening(id: Any, **notifications: Any) -> dict[str, Any]:
    return modern(id, LISTEN, notifications=notifications)


def listen(harness: ModernServerHarness, id: Any = "l", **notifications: Any) -> RawExchange:
    talk = harness.ask(listening(id, **notifications))
    assert talk.status == 200
    return talk


def publish(harness: ModernServerHarness, method: str, **params: Any) -> None:
    harness.run_action(harness.server.publish, method, params or None)


def publish_all(harness: ModernServerHarness) -> None:
    for method in (TOOLS, PROMPTS, RESOURCES):
        publish(harness, method)
    publish(harness, UPDATED, uri="test://a")


# The acknowledgement


@requirement("SUBS-S-003", "SUBS-S-004", "SUBS-S-006", "SUBS-S-007", "SUBS-S-008", "MODERN-S-012")
@pytest.mark.parametrize("id", [1, "1", 0, ""])
def test_the_stream_begins_with_what_will_be_told(harness: ModernServerHarness, id: Any) -> None:
    publish_all(harness)
    talk = listen(harness, id, **EVERYTHING)
    assert talk.header("content-type") == STREAM
    assert talk.header("x-accel-buffering") == "no"
    publish(harness, TOOLS)
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
    harness.wait(1000)
    assert not talk.ended
    assert talk.body.endswith(b":\n\n")
    assert harness.events == [ListenersChanged()]
    assert not harness.server.is_busy


@pytest.fixture
def confirming(harness: ModernServerHarness) -> ModernServerHarness:
    """A server whose application acknowledges subscriptions to resources."""
    harness.server.app.confirms_listeners = True
    return harness


def asked(harness: ModernServerHarness) -> ListenRequest:
    (event,) = harness.events
    assert isinstance(event, ListenReceived)
    return event.request


@pytest.mark.parametrize("uris", [["test://a"], [], ["test://other"]], ids=str)
def test_an_application_can_acknowledge_resources_itself(
    confirming: ModernServerHarness, uris: list[str]
) -> None:
    both = ["test://a", "test://b"]
    talk = confirming.ask(listening("l", toolsListChanged=True, resourceSubscriptions=both))
    request = asked(confirming)
    assert request.uris == ("test://a", "test://b")
    assert talk.head is None
    assert not confirming.server.listened_resources
    assert confirming.run_action(request.acknowledge, uris)
    kept = [uri for uri in uris if uri in request.uris]
    honoured = {"toolsListChanged": True, **({"resourceSubscriptions": kept} if kept else {})}
    assert talk.messages[0]["params"]["notifications"] == honoured
    assert confirming.server.listened_resources == set(kept)
    assert not confirming.run_action(request.acknowledge, uris)
    assert len(talk.messages) == 1


def test_lists_alone_need_no_acknowledgement_of_the_application(
    confirming: ModernServerHarness,
) -> None:
    assert listen(confirming, toolsListChanged=True).messages


def test_an_acknowledgement_for_a_client_that_has_left(confirming: ModernServerHarness) -> None:
    talk = confirming.ask(listening("l", resourceSubscriptions=["test://a"]))
    request = asked(confirming)
    talk.lose_connection()
    assert not confirming.run_action(request.acknowledge, ["test://a"])
    assert not confirming.server.listened_resources


def test_a_server_that_stops_refuses_what_is_not_acknowledged(
    confirming: ModernServerHarness,
) -> None:
    uris = ["test://a"]
    gone, waiting = (confirming.ask(listening(id, resourceSubscriptions=uris)) for id in "ab")
    gone.lose_connection()
    confirming.run_action(confirming.server.shut_down)
    expect(waiting, 503, "shutting_down", id="b")


def test_what_is_not_acknowledged_counts_as_a_subscription() -> None:
    harness = ModernServerHarness(modern_app(), limits=Limits(max_subscriptions=1))
    harness.server.app.confirms_listeners = True
    harness.ask(listening("a", resourceSubscriptions=["test://a"]))
    refused = harness.ask(listening("b", resourceSubscriptions=["test://a"]))
    expect(refused, 503, "too_many_subscriptions", id="b")


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
    harness = ModernServerHarness(App("bench", capabilities=capabilities))
    talk = listen(harness, **EVERYTHING, somethingElse=True)
    assert talk.messages[0]["params"]["notifications"] == honoured
    before = len(talk.messages)
    publish_all(harness)
    assert len(talk.messages) == before + len(honoured)


@requirement("SUBS-S-001")
@pytest.mark.parametrize("nothing", [{}, dict.fromkeys(EVERYTHING, False), {"toolsListChanged": 1}])
def test_who_asks_for_nothing_is_told_nothing(
    harness: ModernServerHarness, nothing: dict[str, Any]
) -> None:
    """The subscription is acknowledged and completed: holding it open would tell nothing."""
    talk = listen(harness, **nothing)
    acknowledged, completed = talk.messages
    assert acknowledged["method"] == ACKNOWLEDGED
    assert acknowledged["params"]["notifications"] == {}
    assert completed["result"]["resultType"] == "complete"
    assert talk.ended
    publish_all(harness)
    assert len(talk.messages) == 2


@pytest.mark.parametrize("notifications", [None, [], "x", True])
def test_a_filter_that_is_none(harness: ModernServerHarness, notifications: Any) -> None:
    talk = harness.ask(modern(1, LISTEN, notifications=notifications))
    expect(talk, 400, "invalid_params", -32602, id=1)


def test_no_filter_at_all(harness: ModernServerHarness) -> None:
    expect(harness.ask(modern(1, LISTEN)), 400, "invalid_params", -32602, id=1)


def test_a_client_that_takes_no_streams(harness: ModernServerHarness) -> None:
    talk = harness.ask(listening(1), {"accept": "application/json"})
    expect(talk, 406, "not_acceptable")


# What is told


@requirement("SUBS-S-001", "SUBS-S-014", "SUBS-S-013")
@pytest.mark.both_eras
def test_each_is_told_what_it_has_asked_for_once(harness: ModernServerHarness) -> None:
    session = harness.open_session()
    tools = listen(harness, 1, toolsListChanged=True)
    both = listen(harness, 1, toolsListChanged=True, promptsListChanged=True)
    uris = listen(harness, 1, resourceSubscriptions=["test://a"])
    running, _ = harness.start()
    publish_all(harness)
    assert methods(tools) == [ACKNOWLEDGED, TOOLS]
    assert methods(both) == [ACKNOWLEDGED, TOOLS, PROMPTS]
    assert methods(uris) == [ACKNOWLEDGED, UPDATED]
    assert running.head is None
    assert methods(harness.get(session)) == [TOOLS, PROMPTS, RESOURCES]


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
def test_resources_are_told_by_uri(harness: ModernServerHarness, uri: Any, told: bool) -> None:
    talk = listen(harness, resourceSubscriptions=["test://a", "test://b/", 5, None])
    honoured = {"resourceSubscriptions": ["test://a", "test://b/"]}
    assert talk.messages[0]["params"]["notifications"] == honoured
    publish(harness, UPDATED, uri=uri)
    assert methods(talk) == [ACKNOWLEDGED] + [UPDATED] * told


def test_of_resources_without_a_uri_nothing_is_honoured(harness: ModernServerHarness) -> None:
    talk = listen(harness, resourceSubscriptions=[5, None])
    assert talk.messages[0]["params"]["notifications"] == {}
    assert talk.ended


def test_a_resource_without_a_name_is_nobodys(harness: ModernServerHarness) -> None:
    talk = listen(harness, resourceSubscriptions=["test://a"])
    publish(harness, UPDATED)
    assert methods(talk) == [ACKNOWLEDGED]


def test_a_resource_that_is_named_twice_is_told_once(harness: ModernServerHarness) -> None:
    talk = listen(harness, resourceSubscriptions=["test://a", "test://a", "test://a/", "test://"])
    other = listen(harness, 2, resourceSubscriptions=["test://a"])
    publish(harness, UPDATED, uri="test://a/b")
    assert methods(talk) == methods(other) == [ACKNOWLEDGED, UPDATED]
    talk.lose_connection()
    publish(harness, UPDATED, uri="test://a")
    assert methods(other) == [ACKNOWLEDGED, UPDATED, UPDATED]
    assert methods(talk) == [ACKNOWLEDGED, UPDATED]


def test_one_listener_is_told_of_so_many_resources_only() -> None:
    harness = ModernServerHarness(modern_app(), limits=Limits(max_resources_per_subscription=2))
    talk = listen(harness, resourceSubscriptions=["test://a", "test://b", "test://c"])
    honoured = {"resourceSubscriptions": ["test://a", "test://b"]}
    assert talk.messages[0]["params"]["notifications"] == honoured
    publish(harness, UPDATED, uri="test://c")
    assert methods(talk) == [ACKNOWLEDGED]


@pytest.mark.parametrize("uris", [None, "test://a", {}, True])
def test_resources_that_are_no_list(harness: ModernServerHarness, uris: Any) -> None:
    talk = listen(harness, resourceSubscriptions=uris)
    assert talk.messages[0]["params"]["notifications"] == {}


@requirement("SUBS-S-007")
def test_what_a_notification_says_is_kept(harness: ModernServerHarness) -> None:
    talk = listen(harness, 7, **EVERYTHING)
    publish(harness, UPDATED, uri="test://a", title="A", _meta={"mine": 1, SUBSCRIPTION_ID: "x"})
    assert talk.messages[1]["params"] == {
        "uri": "test://a",
        "title": "A",
        "_meta": {"mine": 1, SUBSCRIPTION_ID: 7},
    }


def test_only_changes_can_be_published(harness: ModernServerHarness) -> None:
    for method in (ACKNOWLEDGED, "notifications/message", "tools/list", "notifications/cancelled"):
        with pytest.raises(LocalProtocolError, match="publish"):
            harness.server.publish(method, now=0)
    with pytest.raises(LocalProtocolError, match="JSON"):
        harness.server.publish(TOOLS, {"x": object()}, now=0)


# Its end


@requirement("SUBS-S-009", "SUBS-S-013", "CANCEL-S-005")
def test_a_client_ends_it_by_going_away(harness: ModernServerHarness) -> None:
    talk = listen(harness, **EVERYTHING)
    body = talk.body
    talk.lose_connection()
    publish_all(harness)
    harness.run_action(harness.server.shut_down)
    talk.pull()
    assert (talk.body, talk.ended) == (body, False)
    assert harness.events == [ListenersChanged()] * 2


def test_the_application_is_told_which_resources_clients_listen_for(
    harness: ModernServerHarness,
) -> None:
    lists = listen(harness, toolsListChanged=True)
    assert harness.events == []
    talk = listen(harness, "2", **EVERYTHING)
    assert harness.events == [ListenersChanged()]
    assert harness.server.listened_resources == {"test://a"}
    talk.lose_connection()
    lists.lose_connection()
    assert harness.events == [ListenersChanged()] * 2
    assert harness.server.listened_resources == frozenset()


@requirement("SUBS-S-010", "SUBS-S-011", "SUBS-S-012", "CANCEL-S-002", "JSONRPC-S-002")
@pytest.mark.parametrize("id", [1, "1"])
def test_a_server_ends_it_with_a_result(harness: ModernServerHarness, id: Any) -> None:
    talk = listen(harness, id, **EVERYTHING)
    other = listen(harness, "other")
    harness.run_action(harness.server.drain)
    publish(harness, TOOLS)
    harness.run_action(harness.server.shut_down)
    result = {"resultType": "complete", "_meta": {SUBSCRIPTION_ID: id}}
    assert talk.messages[2:] == [{"jsonrpc": "2.0", "id": id, "result": result}]
    assert methods(talk) == [ACKNOWLEDGED, TOOLS, "answer"]
    assert (talk.ended, talk.aborted) == (True, False)
    assert methods(other) == [ACKNOWLEDGED, "answer"]
    publish_all(harness)
    assert methods(other) == [ACKNOWLEDGED, "answer"]
    assert harness.server.next_deadline() is None


def test_a_client_that_does_not_read_is_let_go() -> None:
    """What it misses it has to find out for itself: a clean end would look like nothing missed."""
    harness = ModernServerHarness(modern_app(), limits=Limits(max_unsent_bytes=200))
    slow, quick = (listen(harness, 1, toolsListChanged=True) for _ in range(2))
    slow.reads = False
    for _ in range(10):
        publish(harness, TOOLS)
    harness.wait(0.001)  # the last ones wait for others
    assert len(quick.messages) == 11
    slow.reads = True
    slow.pull()
    assert slow.aborted
    assert not slow.ended
    assert len(slow.messages) < 11
    publish(harness, TOOLS)
    assert len(quick.messages) == 12


def test_only_so_many_may_listen() -> None:
    harness = ModernServerHarness(modern_app(), limits=Limits(max_subscriptions=2))
    first = listen(harness, 1, toolsListChanged=True)
    listen(harness, 2, toolsListChanged=True)
    expect(harness.ask(listening(3)), 503, "too_many_subscriptions", id=3)
    first.lose_connection()
    listen(harness, 4, toolsListChanged=True)


@pytest.mark.parametrize("by", ["principal", "address"])
def test_one_client_cannot_use_all_subscriptions(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ModernServerHarness(modern_app(), limits=Limits(max_subscriptions_per_client=2))

    def ask(id: int, who: str) -> RawExchange:
        if by == "principal":
            return harness.ask(listening(id, toolsListChanged=True), principal=who)
        peer = None if not who else (f"10.0.0.{who}", 1)
        monkeypatch.setattr(RawExchange, "connection", ConnectionInfo(peer=peer))
        return harness.ask(listening(id, toolsListChanged=True))

    first, _ = ask(1, "1"), ask(2, "1")
    expect(ask(3, "1"), 503, "too_many_subscriptions", id=3)
    ask(4, "2")
    assert [ask(id, "").status for id in range(5, 9)] == [200] * 4, "it is not known who they are"
    first.lose_connection()
    assert ask(9, "1").status == 200


def test_a_uri_that_is_too_long_is_not_subscribed_to() -> None:
    harness = ModernServerHarness(modern_app(), limits=Limits(max_uri_length=10))
    talk = listen(harness, 1, resourceSubscriptions=["file:///xy", "file:///xyz", "file:///x"])
    acknowledged = talk.messages[0]["params"]["notifications"]
    assert acknowledged == {"resourceSubscriptions": ["file:///xy", "file:///x"]}


def test_a_listener_is_refused_like_any_request(harness: ModernServerHarness) -> None:
    expect(
        harness.ask(listening(1), {"mcp-method": "tools/list"}),
        400,
        "header_mismatch",
        -32020,
        id=1,
    )
    filter_ = {"toolsListChanged": True}
    harness.ask(modern(2, LISTEN, about=meta(logLevel="debug"), notifications=filter_))
    assert harness.server.next_deadline() is not None
