"""How many requests a client may send: more are refused before they run, with a time to wait."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import ConnectionInfo, Limits, LocalProtocolError, RateLimit
from sansmcp.events import CallCancelled, CallReceived
from sansmcp.http import RequestHead
from sansmcp.rates import TokenBuckets
from sansmcp.server.addresses import client_address, parse_networks

from .harness import (
    LATEST,
    RawExchange,
    ServerHarness,
    expect,
    initialize,
    notification,
    request,
)
from .modern.harness import ModernServerHarness, modern, modern_app
from .sse_harness import SseClient

LIMIT = RateLimit(0.5, burst=3)


def calls_of(harness: ServerHarness) -> int:
    return sum(isinstance(event, CallReceived) for event in harness.events)


def refused(talk: RawExchange, **more: Any) -> int:
    """The seconds to wait that a refusal names."""
    expect(talk, 429, "rate_limited", **more)
    seconds = talk.header("retry-after")
    assert seconds is not None
    assert f"wait for {seconds} s" in talk.error["message"]
    return int(seconds)


# The buckets


def test_a_burst_and_then_the_rate() -> None:
    buckets = TokenBuckets(LIMIT, 10)
    assert [buckets.take("a", 1, 100.0) for _ in range(5)] == [0.0, 0.0, 0.0, 2.0, 2.0]
    assert buckets.take("b", 1, 100.0) == 0.0
    assert buckets.take("a", 1, 101.5) == 0.5
    assert [buckets.take("a", 1, 102.0) for _ in range(2)] == [0.0, 2.0]
    assert [buckets.take("a", 1, 1000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 2.0]


def test_several_at_once_are_all_or_none() -> None:
    buckets = TokenBuckets(LIMIT, 10)
    assert buckets.take("a", 2, 0.0) == 0.0
    assert buckets.take("a", 2, 0.0) == 2.0
    assert buckets.take("a", 1, 0.0) == 0.0
    assert buckets.take("a", 100, 0.0) == 6.0
    assert buckets.take("a", 100, 6.0) == 0.0


def test_full_buckets_are_forgotten() -> None:
    buckets = TokenBuckets(LIMIT, 1000)
    for number in range(100):
        buckets.take(f"{number}", 1, float(number))
        assert len(buckets) <= 3


def test_buckets_that_are_full_at_the_same_time_are_forgotten_two_at_a_time() -> None:
    """So the work of a request is bounded, however many clients have been quiet."""
    buckets = TokenBuckets(LIMIT, 1000)
    for number in range(10):
        buckets.take(f"{number}", 1, 0.0)
    counts: list[int] = []
    for _ in range(6):
        buckets.take("a", 1, 100.0)
        counts.append(len(buckets))
    assert counts == [9, 7, 5, 3, 1, 1]


def test_there_are_not_more_buckets_than_allowed_and_the_quiet_ones_go_first() -> None:
    buckets = TokenBuckets(RateLimit(0.001, burst=1), 3)
    for name in ("a", "b", "c", "a", "d"):
        buckets.take(name, 1, 0.0)
        assert len(buckets) <= 3
    assert buckets.take("a", 1, 0.0) > 0
    assert buckets.take("b", 1, 0.0) == 0.0


def test_a_client_that_waits_as_long_as_it_was_told_is_never_refused_again() -> None:
    buckets = TokenBuckets(RateLimit(0.3, burst=7), 10)
    now = 12_345.678
    for _ in range(1000):
        if wait := buckets.take("a", 1, now):
            now += wait
            assert buckets.take("a", 1, now) == 0.0


def test_a_clock_that_is_put_back_makes_nobody_wait_longer_than_an_empty_bucket() -> None:
    buckets = TokenBuckets(LIMIT, 10)
    for _ in range(3):
        buckets.take("a", 1, 10_000.0)
    assert buckets.take("a", 1, 0.0) == 2.0
    assert buckets.take("a", 1, 2.0) == 0.0


@pytest.mark.parametrize(
    ("per_second", "burst"),
    [(0, 1), (-1, 1), (float("inf"), 1), (float("nan"), 1), ("1", 1), (1, 0), (1, 1.5), (1, True)],
)
def test_what_is_no_rate(per_second: Any, burst: Any) -> None:
    with pytest.raises(LocalProtocolError, match="must be"):
        RateLimit(per_second, burst)


# What counts


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", LATEST])
def test_requests_beyond_the_rate_are_refused_before_anything_runs(version: str) -> None:
    harness = ServerHarness(rate_limit=LIMIT)
    session = harness.open_session(version)
    for id in (1, 2):
        harness.post(request(id), session)
    assert calls_of(harness) == 2
    assert refused(harness.post(request(3), session), id=3) == 2
    harness.wait(0.9)
    assert refused(harness.post(request(3), session), id=3) == 2  # 1.1, rounded up
    harness.wait(0.2)
    assert refused(harness.post(request(3), session), id=3) == 1
    assert calls_of(harness) == 2
    harness.wait(1)
    harness.post(request(3), session)
    assert calls_of(harness) == 3


def test_what_ends_something_is_always_taken() -> None:
    harness = ServerHarness(rate_limit=LIMIT)
    session = harness.open_session(LATEST)
    for id in (1, 2):
        harness.post(request(id), session)
    for _ in range(10):
        assert harness.post(notification("x"), session).status == 202
        assert harness.post({"jsonrpc": "2.0", "id": 7, "result": {}}, session).status == 202
        assert harness.get(session).lose_connection().status == 200
    assert harness.post(request(3), session).status == 429
    harness.post(notification("notifications/cancelled", requestId=1), session)
    cancelled = [event for event in harness.events if isinstance(event, CallCancelled)]
    assert [event.call.request.id for event in cancelled] == [1]
    assert harness.send("DELETE", {"mcp-session-id": session}).status == 200


def test_initialize_counts() -> None:
    harness = ServerHarness(rate_limit=LIMIT)
    for _ in range(3):
        harness.open_session(LATEST)
    refused(harness.post(initialize(LATEST, {})), id=0)
    assert len(harness.server.sessions) == 3


def test_each_request_of_a_batch_counts() -> None:
    harness = ServerHarness(rate_limit=LIMIT)
    session = harness.open_session("2025-03-26")
    assert refused(harness.post([request(1), request(2), request(3)], session)) == 2
    assert calls_of(harness) == 0
    harness.post([request(1), notification("x"), request(2)], session)
    assert calls_of(harness) == 2
    assert refused(harness.post(request(3), session), id=3) == 2


def test_2026() -> None:
    harness = ModernServerHarness(modern_app(), rate_limit=LIMIT)
    for id in range(3):
        assert harness.ask(modern(id, "server/discover")).status == 200
    assert refused(harness.ask(modern(9, "server/discover")), id=9) == 2


def test_http_sse() -> None:
    harness = ServerHarness(http_sse="/sse", rate_limit=LIMIT)
    client = SseClient(harness)
    assert client.post(initialize("2024-11-05", {})).status == 202
    for id in (1, 2):
        assert client.post(request(id)).status == 202
    assert refused(client.post(request(3)), id=3) == 2
    assert calls_of(harness) == 2
    assert client.post(notification("x")).status == 202


def test_without_the_setting_nothing_is_counted() -> None:
    harness = ServerHarness()
    session = harness.open_session(LATEST)
    for id in range(100):
        assert harness.post(request(id), session).status != 429


# Whose requests


def _as(harness: ServerHarness, principal: str) -> RawExchange:
    talk = harness.post(initialize(LATEST, {}))
    harness.server.authenticated(harness.asked.pop(), principal, now=harness.now)
    harness.run_pending()
    return talk


def test_each_principal_has_its_own_share() -> None:
    harness = ServerHarness(authentication=True, rate_limit=LIMIT)
    for principal in ("ada", "eve"):
        assert [_as(harness, principal).status for _ in range(4)] == [200, 200, 200, 429]


def test_each_address_has_its_own_share(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ServerHarness(rate_limit=LIMIT)
    for peer in (("10.0.0.1", 1), ("10.0.0.2", 1), None):
        monkeypatch.setattr(RawExchange, "connection", ConnectionInfo(peer=peer))
        talks = [
            harness.post(initialize(LATEST, {}), headers={"x-forwarded-for": f"9.9.9.{number}"})
            for number in range(4)
        ]
        assert [talk.status for talk in talks] == [200, 200, 200, 429]


def test_proxies_that_are_trusted_report_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ServerHarness(rate_limit=LIMIT, trusted_proxies=("10.0.0.0/8",))
    monkeypatch.setattr(RawExchange, "connection", ConnectionInfo(peer=("10.0.0.1", 1)))
    for client in ("9.9.9.1", "9.9.9.2"):
        talks = [
            harness.post(
                initialize(LATEST, {}), headers={"x-forwarded-for": f"8.8.8.{number}, {client}"}
            )
            for number in range(4)
        ]
        assert [talk.status for talk in talks] == [200, 200, 200, 429]


def test_a_driver_that_knows_no_address() -> None:
    harness = ServerHarness(rate_limit=LIMIT)
    exchange = harness.server.open_exchange()
    head = RequestHead(method=b"POST", target=b"/mcp", headers=())
    exchange.begin(head)
    for _ in range(3):
        harness.open_session(LATEST)
    assert harness.post(initialize(LATEST, {})).status == 429


def address(peer: str | None, *trusted: str, **headers: str) -> str:
    pairs = tuple(
        (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
    )
    head = RequestHead(method=b"POST", target=b"/", headers=pairs)
    return client_address(head, peer, parse_networks(trusted))


@pytest.mark.parametrize(
    ("reported", "found"),
    [
        ("9.9.9.9", "9.9.9.9"),
        ("1.1.1.1, 9.9.9.9", "9.9.9.9"),
        ("1.1.1.1, 9.9.9.9, 10.0.0.2", "9.9.9.9"),
        ("1.1.1.1,9.9.9.9:4711,10.0.0.2:80", "9.9.9.9"),
        ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("unknown, 10.0.0.2", "10.0.0.2"),
        ("9.9.9.9, unknown", "10.0.0.1"),
        ("", "10.0.0.1"),
        (", ,", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2:3::4]:80", "2001:db8:1:2::/64"),
        ("::ffff:9.9.9.9", "9.9.9.9"),
    ],
)
def test_what_proxies_report(reported: str, found: str) -> None:
    trusted = ("10.0.0.0/8", "fd00::/8")
    assert address("10.0.0.1", *trusted, x_forwarded_for=reported) == found
    assert address("::ffff:10.0.0.1", *trusted, x_forwarded_for=reported) == found
    assert address("8.8.8.8", *trusted, x_forwarded_for=reported) == "8.8.8.8"
    assert address("10.0.0.1", x_forwarded_for=reported) == "10.0.0.1"


@pytest.mark.parametrize(
    ("reported", "found"),
    [
        ("for=9.9.9.9", "9.9.9.9"),
        ('For="[2001:db8:1:2:3::4]:80";proto=https', "2001:db8:1:2::/64"),
        ("for=1.1.1.1, proto=http;for=9.9.9.9;by=3.3.3.3, for=10.0.0.2", "9.9.9.9"),
        ("for=9.9.9.9, for=_hidden", "10.0.0.1"),
        ("by=9.9.9.9", "10.0.0.1"),
    ],
)
def test_what_proxies_report_in_the_standard_form(reported: str, found: str) -> None:
    assert address("10.0.0.1", "10.0.0.0/8", forwarded=reported) == found
    given = address("10.0.0.1", "10.0.0.0/8", forwarded=reported, x_forwarded_for="7.7.7.7")
    assert given == "7.7.7.7"


def test_addresses_that_are_none() -> None:
    assert address(None, "10.0.0.0/8", x_forwarded_for="9.9.9.9") == ""
    assert address("testclient", "10.0.0.0/8", x_forwarded_for="9.9.9.9") == "testclient"
    assert address("fe80::1%eth0") == "fe80::/64"


def test_a_long_chain_is_read_from_its_end() -> None:
    reported = ", ".join(["10.0.0.2"] * 100_000)
    assert address("10.0.0.1", "10.0.0.0/8", x_forwarded_for="9.9.9.9, " + reported) == "10.0.0.2"


@pytest.mark.parametrize("networks", ["10.0.0.0/8", ("10.0.0.1/8",), ("proxy",), (None,)])
def test_what_is_no_network(networks: Any) -> None:
    with pytest.raises(LocalProtocolError, match=r"tuple of str|such as '10"):
        ServerHarness(trusted_proxies=networks)


def test_the_buckets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ServerHarness(rate_limit=LIMIT, limits=Limits(max_rate_buckets=2))
    for number in range(10):
        peer = (f"10.0.0.{number}", 1)
        monkeypatch.setattr(RawExchange, "connection", ConnectionInfo(peer=peer))
        assert harness.post(initialize(LATEST, {})).status == 200
