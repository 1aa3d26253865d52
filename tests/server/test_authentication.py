"""Who makes a request: the machine asks, and does nothing with the request until it is told."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import ConnectionInfo, LocalProtocolError, Refusal, RemoteProtocolError
from sansmcp.events import CallReceived

from .bench import Bench, expect, initialize, request

TOO_LARGE = {"content-length": "100000000"}


@pytest.fixture
def bench() -> Bench:
    return Bench(authentication=True)


def tell(bench: Bench, outcome: Any) -> None:
    """Answer the last question of the machine."""
    bench.server.authenticated(bench.asked.pop(), outcome, now=bench.now)
    bench.settle()


def test_nothing_becomes_of_a_request_before_its_principal_is_known(bench: Bench) -> None:
    """Row C9 of the review: servers on sockets of ours had no hook for who is calling."""
    talk = bench.post(initialize("2025-11-25", {}))
    assert (talk.head, bench.server.sessions, len(bench.asked)) == (None, (), 1)
    assert [*bench.asked[0].head.values(b"host")] == [b"localhost"]
    tell(bench, "ada")
    assert talk.status == 200
    assert [session.principal for session in bench.server.sessions] == ["ada"]
    session = talk.header("mcp-session-id")
    call = bench.post(request(1), session)
    tell(bench, "ada")
    (event,) = [event for event in bench.events if isinstance(event, CallReceived)]
    event.call.respond({}, now=0)
    bench.settle()
    assert call.status == 200
    stranger = bench.post(request(2), session)
    tell(bench, "eve")
    assert stranger.status == 404


@pytest.mark.parametrize(
    ("refusal", "status", "reason", "challenge"),
    [
        (Refusal(), 401, "unauthorized", "Bearer"),
        (Refusal(401, "m", challenge='Basic realm="x"'), 401, "unauthorized", 'Basic realm="x"'),
        (Refusal(403, "m"), 403, "forbidden", None),
        (Refusal(429, "m", reason="too_fast"), 429, "too_fast", None),
    ],
)
def test_a_refusal(
    bench: Bench, refusal: Refusal, status: int, reason: str, challenge: str | None
) -> None:
    talk = bench.post(initialize("2025-11-25", {}))
    tell(bench, refusal)
    expect(talk, status, reason)
    assert talk.header("www-authenticate") == challenge
    assert talk.error["message"] == refusal.message


@pytest.mark.parametrize("outcome", ["", None, b"ada", True, 1])
def test_what_is_no_principal(bench: Bench, outcome: Any) -> None:
    talk = bench.post(initialize("2025-11-25", {}))
    with pytest.raises(LocalProtocolError, match="must return a principal"):
        bench.server.authenticated(bench.asked[0], outcome, now=0)
    assert talk.head is None
    bench.server.authentication_failed(bench.asked[0], now=0)
    bench.settle()
    expect(talk, 500, "authentication_failed", -32603)


@pytest.mark.parametrize(
    ("headers", "status"), [({"host": "evil"}, 403), ({"origin": "http://evil"}, 403)]
)
def test_pages_of_others_are_refused_before(
    bench: Bench, headers: dict[str, str], status: int
) -> None:
    talk = bench.post(initialize("2025-11-25", {}), headers=headers)
    assert (talk.status, bench.asked) == (status, [])


def test_everything_else_is_refused_afterwards(bench: Bench) -> None:
    """Not even which paths there are is told to strangers."""
    talk = bench.send("GET", {"accept": "a/b"}, target="/nothing")
    tell(bench, Refusal())
    assert talk.status == 401
    talk = bench.send("GET", {"accept": "a/b"}, target="/nothing")
    tell(bench, "ada")
    assert talk.status == 404


@pytest.mark.parametrize("outcome", ["ada", Refusal(), None])
def test_a_client_that_leaves_meanwhile(bench: Bench, outcome: str | Refusal | None) -> None:
    talk = bench.post(initialize("2025-11-25", {}))
    talk.gone()
    for _ in range(2):
        if outcome is None:
            bench.server.authentication_failed(bench.asked[0], now=0)
        else:
            bench.server.authenticated(bench.asked[0], outcome, now=0)
        bench.settle()
    assert (talk.head, bench.server.sessions) == (None, ())


def test_a_server_that_ends_meanwhile(bench: Bench) -> None:
    talk = bench.post(initialize("2025-11-25", {}))
    bench.server.shut_down(now=0)
    bench.settle()
    expect(talk, 503, "shutting_down")
    tell(bench, "ada")
    assert bench.server.sessions == ()


def test_a_server_that_ends_after_a_request_was_given_up() -> None:
    bench = Bench(authentication=True)
    talk = bench.post(initialize("2025-11-25", {}))
    error = RemoteProtocolError("Too slow", reason="request_timeout", http_status=408)
    bench.server.refuse(talk.exchange, error, now=0)
    bench.server.shut_down(now=0)
    bench.settle()
    expect(talk, 408, "request_timeout")


@pytest.mark.parametrize("status", [200, 399, 600, True, "401"])
def test_refusals_that_are_none(status: Any) -> None:
    with pytest.raises(LocalProtocolError, match="400 to 599"):
        Refusal(status)


@pytest.mark.parametrize("challenge", ["", "a\r\nb: c", "\u00e4", 1])
def test_challenges_that_cannot_be_sent(challenge: Any) -> None:
    with pytest.raises(LocalProtocolError, match="visible ASCII"):
        Refusal(challenge=challenge)


def test_what_is_known_of_a_connection_shows_no_secrets() -> None:
    info = ConnectionInfo(peer=("::1", 1), environ={"HTTP_AUTHORIZATION": "secret"})
    assert "secret" not in repr(info)
