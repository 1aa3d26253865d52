"""The simulated network does what it says."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from sansmcp import (
    App,
    Client,
    InputRequest,
    InputRequired,
    Limits,
    MemoryStore,
    ReconnectPolicy,
    Server,
    ServerCall,
)
from sansmcp.events import (
    CallCancelled,
    CallCompleted,
    CallFailed,
    ClientResponseReceived,
    Closed,
    ServerNotified,
    ServerRequestReceived,
)
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp.testing import Link, Pair, VirtualClock, sequential_tokens
from sansmcp.types import assert_never


def pair_of(
    handler: Callable[[ServerCall], Any],
    *,
    link: Link | None = None,
    store_delay: Callable[[], float] = lambda: 0.0,
    **settings: Any,
) -> Pair:
    app = App("pair")
    app.handler("tools/call")(handler)
    client = Client("http://localhost/mcp", jitter=lambda: 0.5, standalone_stream=False, **settings)
    server = Server(app, new_token=sequential_tokens(), limits=client.limits)
    link = link or Link(lambda: 0.5)
    pair = Pair(client, server, link, store=MemoryStore(), store_delay=store_delay)
    client.start(now=0.0)
    return pair


def empty(call: ServerCall) -> dict[str, str]:
    return {}


def ends(pair: Pair) -> list[CallCompleted | CallFailed]:
    return [event for event in pair.events if isinstance(event, CallCompleted | CallFailed)]


def test_time_passes_only_when_nothing_is_left_to_do() -> None:
    clock = VirtualClock()
    seen: list[tuple[float, str]] = []
    clock.call_later(2.0, lambda: seen.append((clock.now, "b")))
    clock.call_at(1.0, lambda: seen.append((clock.now, "a")))
    clock.call_at(-5.0, lambda: seen.append((clock.now, "past")))
    while clock.next_time is not None:
        clock.run_next()
    assert seen == [(0.0, "past"), (1.0, "a"), (2.0, "b")]


def test_a_handler_that_asks() -> None:
    def handler(call: ServerCall) -> Generator[float | int, Any, Any]:
        id = call.ask("elicitation/create", timeout=30, now=call.driver.clock.now)
        answered = yield id
        assert isinstance(answered, ClientResponseReceived)
        return answered.result()

    pair = pair_of(handler, capabilities={"elicitation": {}}, versions=HANDSHAKE_VERSIONS)
    pair.client.call("tools/call", now=0.0)
    pair.run(1.0)
    (asked,) = [event for event in pair.events if isinstance(event, ServerRequestReceived)]
    pair.client.respond(asked.request.id, {"x": 1}, now=pair.clock.now)
    pair.run(2.0)
    (end,) = ends(pair)
    assert isinstance(end, CallCompleted)
    assert end.result == {"x": 1}


def test_a_handler_that_fails() -> None:
    def handler(call: ServerCall) -> Generator[float, None, None]:
        yield 0.1
        raise ValueError("secret")

    pair = pair_of(handler)
    pair.client.call("tools/call", now=0.0)
    pair.run(5.0)
    (end,) = ends(pair)
    assert isinstance(end, CallFailed)
    assert "Internal error" in str(end.error)


def test_a_handler_that_is_cancelled() -> None:
    closed: list[bool] = []

    def handler(call: ServerCall) -> Generator[float, None, None]:
        try:
            yield 1000.0
        finally:
            closed.append(True)

    pair = pair_of(handler)
    handle = pair.client.call("tools/call", now=0.0)
    pair.run(5.0)
    pair.client.cancel(handle, now=pair.clock.now)
    pair.run(2000.0)
    assert closed == [True]


def test_a_network_that_is_down() -> None:
    pair = pair_of(empty, link=Link(lambda: 0.5, up=False))
    pair.run()
    event = pair.events[-1]
    assert isinstance(event, Closed)
    assert "connection refused" in str(event.error)
    assert 15.0 < pair.clock.now <= 30.0


def test_connections_are_used_again_until_the_server_closes_them() -> None:
    pair = pair_of(empty)
    for _ in range(3):
        pair.client.call("tools/call", now=pair.clock.now)
        pair.run(pair.clock.now + 1.0)
    pair.run(100.0)
    pair.client.call("tools/call", now=pair.clock.now)
    pair.run(101.0)
    assert len(ends(pair)) == 4
    pair.client.close(now=pair.clock.now)
    pair.run(102.0)
    assert isinstance(pair.events[-1], Closed)
    assert pair.server.sessions == ()


def test_an_exchange_without_a_connection_can_be_given_up() -> None:
    pair = pair_of(empty, link=Link(lambda: 0.5, up=False))
    pair.client.close(now=0.0)
    pair.run()
    assert pair.events == [Closed(None)]


def test_what_arrived_before_a_break_is_delivered_however_late() -> None:
    def handler(call: ServerCall) -> Generator[float, None, dict[str, int]]:
        for number in range(30):
            call.notify(f"n{number}", {"x": "y" * 100}, now=call.driver.clock.now)
            yield 0.01
        return {}

    link = Link(lambda: 0.5, mean_cut=5000)
    limits = Limits(max_queued_events=5)
    pair = pair_of(handler, limits=limits, link=link, versions=HANDSHAKE_VERSIONS)
    pair.client.call("tools/call", now=0.0)
    pair.run(0.1)
    pair.takes_events = False
    pair.run(5.0)
    assert pair.cuts == 1
    pair.takes_events = True
    pair.run(60.0)
    names = [
        event.notification.method for event in pair.events if isinstance(event, ServerNotified)
    ]
    assert names == [f"n{number}" for number in range(30)]


def test_an_application_that_takes_no_events_holds_up_the_server() -> None:
    def handler(call: ServerCall) -> Generator[float, None, dict[str, int]]:
        for number in range(50):
            call.notify(f"n{number}", {"x": "y" * 100}, now=call.driver.clock.now)
            yield 0.01
        return {}

    pair = pair_of(handler, limits=Limits(max_queued_events=5), link=Link(lambda: 0.5, window=500))
    pair.client.call("tools/call", now=0.0)
    pair.run(0.03)
    pair.takes_events = False
    pair.run(10.0)
    before = len(pair.events)
    pair.takes_events = True
    pair.run(20.0)
    names = [
        event.notification.method for event in pair.events if isinstance(event, ServerNotified)
    ]
    assert before < 5
    assert names == [f"n{number}" for number in range(50)]
    assert len(ends(pair)) == 1


def test_a_store_that_fails() -> None:
    def handler(call: ServerCall) -> dict[str, str]:
        call.notify("n", now=call.driver.clock.now)
        return {}

    pair = pair_of(handler, store_delay=lambda: -1.0, versions=HANDSHAKE_VERSIONS)
    pair.client.call("tools/call", now=0.0)
    pair.run(60.0)  # the store is tried again for half a minute
    assert [type(event) for event in pair.events[1:]] == [ServerNotified, CallCompleted]


def test_machines_that_keep_each_other_busy_are_found() -> None:
    pair = pair_of(empty)

    def again() -> None:
        pair.clock.call_later(0.0, again)

    again()
    with pytest.raises(AssertionError, match="still busy"):
        pair.run(steps=100)


def test_cuts_are_counted_and_pieces_are_cut_anywhere() -> None:
    link = Link(lambda: 0.25, mean_cut=100, fragments=True)
    assert link.lifetime() == 50
    assert link.pieces(b"abcdefghi") == [b"abc", b"defghi"]
    assert link.pieces(b"a") == [b"a"]
    pair = pair_of(empty, link=link, reconnect=ReconnectPolicy(max_attempts=0))
    pair.run(100.0)
    assert pair.cuts == 1
    assert isinstance(pair.events[-1], Closed)


def test_what_cannot_be_is_an_error() -> None:
    with pytest.raises(TypeError, match="Unexpected value: 'x'"):
        assert_never("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def two_instances(handler: Callable[[ServerCall], Any], slowness: float = 0.0) -> Pair:
    app = App("pair")
    app.handler("tools/call")(handler)
    client = Client(
        "http://localhost/mcp",
        jitter=lambda: 0.5,
        standalone_stream=False,
        versions=HANDSHAKE_VERSIONS,
    )
    first, second = (
        Server(app, new_token=sequential_tokens(name), shared_store=True)
        for name in ("first", "second")
    )
    return Pair(
        client,
        first,
        Link(lambda: 0.5),
        others=(second,),
        store=MemoryStore(),
        store_delay=lambda: slowness,
    )


@pytest.mark.parametrize("after", [0.005, 0.5, 1.5, 2.5, 3.5, 30.0])
def test_an_instance_is_killed_in_the_middle_of_anything(after: float) -> None:
    """A request is on its way; its session is looked up; the handler works; it has answered."""

    def handler(call: ServerCall) -> Generator[float, None, dict[str, bool]]:
        yield 1.0
        return {"first": call.driver.server_for(call) is first}

    pair = two_instances(handler, slowness=1.0)
    first, second = pair.servers
    pair.client.start(now=0.0)
    pair.run(10.0)
    pair.route = lambda: first
    pair.client.call("tools/call", idempotent=True, now=10.0)
    pair.run(10.0 + after)
    pair.kill(first)
    pair.route = lambda: second
    pair.run(120.0)
    assert pair.servers == [second]
    (end,) = ends(pair)
    assert isinstance(end, CallCompleted)
    assert end.result == {"first": after == 30.0}


def test_a_call_is_cancelled_while_its_handler_waits_for_input() -> None:
    def handler(call: ServerCall) -> InputRequired:
        return InputRequired({"a": InputRequest("roots/list")})

    pair = pair_of(handler, capabilities={"roots": {}}, versions=("2025-03-26",))
    pair.server = Server(pair.server.app, new_token=sequential_tokens(), resumable=False)
    pair.servers = [pair.server]
    handle = pair.client.call("tools/call", now=0.0)
    pair.run(1.0)
    pair.client.cancel(handle, now=pair.clock.now)
    pair.run(2.0)
    assert any(isinstance(event, CallCancelled) for event in pair.server_events)


def test_requests_go_to_one_instance_after_the_other() -> None:
    pair = two_instances(empty)
    pair.client.start(now=0.0)
    pair.run(5.0)
    for _ in range(4):
        pair.client.call("tools/call", now=pair.clock.now)
        pair.run(pair.clock.now + 1)
    assert len(ends(pair)) == 4
    assert [len(server.sessions) for server in pair.servers] == [1, 1]


def test_connections_break_once() -> None:
    pair = pair_of(empty)
    pair.run(1.0)
    pair.client.call("tools/call", idempotent=True, now=pair.clock.now)
    pair.client.call("tools/call", now=pair.clock.now)
    pair.run(1.005)
    pair.break_connections()
    pair.break_connections()
    pair.run(60.0)
    assert {type(end) for end in ends(pair)} == {CallFailed, CallCompleted}
