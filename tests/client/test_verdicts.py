"""What clients remember about servers, and what the application allows them to try."""

from __future__ import annotations

import pytest

from sansmcp import (
    Era,
    KnownServers,
    NegotiationFailed,
    RequestRefused,
)

from .detection_harness import (
    JSON,
    SESSION_REQUIRED,
    by_http_sse,
    by_streamable_http,
    failure,
    started,
)
from .harness import URL, ClientHarness
from .process_harness import ProcessHarness
from .sse_harness import tell_endpoint


@pytest.fixture
def known_servers() -> KnownServers:
    """What is remembered after a server of HTTP+SSE was found out."""
    known_servers = KnownServers()
    harness = started(known_servers)
    harness.take().refuse(405)
    by_http_sse(harness)
    return known_servers


def test_the_next_client_begins_with_what_worked(known_servers: KnownServers) -> None:
    by_http_sse(started(known_servers))
    by_http_sse(started(known_servers))
    assert started(known_servers, URL + "2").take().method == "POST"


@pytest.mark.parametrize("how", ["400", "404", "405", "406", "stream", "initialize"])
def test_when_that_fails_the_rest_is_tried(known_servers: KnownServers, how: str) -> None:
    """The server was replaced by one of Streamable HTTP."""
    harness = started(known_servers)
    asked = harness.take("GET")
    if how.isdigit():
        asked.refuse(int(how), SESSION_REQUIRED, **JSON)
    else:
        asked.open_stream()
        if how == "stream":
            asked.event(b"{}")
        else:
            tell_endpoint(asked)
            harness.take().refuse(404)
    assert harness.requests[0].effect.url == URL
    by_streamable_http(harness)
    again = started(known_servers)
    by_streamable_http(again)


def test_what_failed_is_told_in_the_order_of_the_attempts(known_servers: KnownServers) -> None:
    harness = started(known_servers)
    harness.take("GET").refuse(406)
    harness.take().refuse(404)
    reported = failure(harness)
    assert isinstance(reported, NegotiationFailed)
    methods = [a.http_method for a in reported.attempts if isinstance(a, RequestRefused)]
    assert methods == ["GET", "POST"]


@pytest.mark.parametrize("status", [401, 503])
def test_what_decides_nothing_changes_nothing(known_servers: KnownServers, status: int) -> None:
    harness = started(known_servers)
    harness.take("GET").refuse(status)
    assert isinstance(failure(harness), RequestRefused)
    by_http_sse(started(known_servers))


def test_what_is_remembered_is_bounded() -> None:
    known_servers = KnownServers(limit=2)
    for number in (1, 2, 1, 3):
        known_servers.remember(f"{URL}/{number}", "http+sse", Era.LEGACY)
    begins = {number: started(known_servers, f"{URL}/{number}").requests for number in (1, 2, 3)}
    assert {number: asked.method for number, (asked,) in begins.items()} == {
        1: "GET",
        2: "POST",  # not used for the longest time
        3: "GET",
    }


def test_clients_that_share_nothing_remember_nothing(known_servers: KnownServers) -> None:
    harness = ClientHarness()
    harness.run_command(harness.client.start)
    assert harness.take().method == "POST"


def test_commands_are_remembered_too() -> None:
    known_servers = KnownServers()
    ProcessHarness(known_servers=known_servers).connect()
    assert known_servers.era("python server.py") is Era.LEGACY
    assert known_servers.era("python") is None


# What the application allows


@pytest.mark.parametrize(
    ("names", "methods"),
    [
        (["streamable-http"], ["POST"]),
        (["http+sse"], ["GET"]),
        (["http+sse", "streamable-http"], ["GET", "POST"]),
    ],
)
def test_only_what_is_allowed_is_tried(names: list[str], methods: list[str]) -> None:
    harness = ClientHarness(transports=tuple(names))
    harness.run_command(harness.client.start)
    for method in methods:
        harness.take(method).refuse(404)
    error = failure(harness)
    assert isinstance(error, RequestRefused if len(names) == 1 else NegotiationFailed)


def test_what_is_remembered_does_not_allow_it(known_servers: KnownServers) -> None:
    harness = ClientHarness(known_servers=known_servers, transports=("streamable-http",))
    harness.run_command(harness.client.start)
    by_streamable_http(harness)
