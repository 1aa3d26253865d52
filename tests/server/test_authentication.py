"""Who makes a request: the machine asks, and does nothing with the request until it is told."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import ConnectionInfo, LocalProtocolError, Refusal, RemoteProtocolError
from sansmcp.events import CallReceived

from .harness import ServerHarness, expect, initialize, request

TOO_LARGE = {"content-length": "100000000"}


@pytest.fixture
def harness() -> ServerHarness:
    return ServerHarness(authentication=True)


def tell(harness: ServerHarness, outcome: Any) -> None:
    """Answer the last question of the machine."""
    harness.server.authenticated(harness.asked.pop(), outcome, now=harness.now)
    harness.run_pending()


def test_nothing_becomes_of_a_request_before_its_principal_is_known(harness: ServerHarness) -> None:
    """Servers on sockets of ours had no hook for who is calling."""
    talk = harness.post(initialize("2025-11-25", {}))
    assert (talk.head, harness.server.sessions, len(harness.asked)) == (None, (), 1)
    assert [*harness.asked[0].head.values(b"host")] == [b"localhost"]
    tell(harness, "ada")
    assert talk.status == 200
    assert [session.principal for session in harness.server.sessions] == ["ada"]
    session = talk.header("mcp-session-id")
    call = harness.post(request(1), session)
    tell(harness, "ada")
    (event,) = [event for event in harness.events if isinstance(event, CallReceived)]
    event.call.respond({}, now=0)
    harness.run_pending()
    assert call.status == 200
    stranger = harness.post(request(2), session)
    tell(harness, "eve")
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
    harness: ServerHarness, refusal: Refusal, status: int, reason: str, challenge: str | None
) -> None:
    talk = harness.post(initialize("2025-11-25", {}))
    tell(harness, refusal)
    expect(talk, status, reason)
    assert talk.header("www-authenticate") == challenge
    assert talk.error["message"] == refusal.message


@pytest.mark.parametrize("outcome", ["", None, b"ada", True, 1])
def test_what_is_no_principal(harness: ServerHarness, outcome: Any) -> None:
    talk = harness.post(initialize("2025-11-25", {}))
    with pytest.raises(LocalProtocolError, match="must return a principal"):
        harness.server.authenticated(harness.asked[0], outcome, now=0)
    assert talk.head is None
    harness.server.authentication_failed(harness.asked[0], now=0)
    harness.run_pending()
    expect(talk, 500, "authentication_failed", -32603)


@pytest.mark.parametrize(
    ("headers", "status"), [({"host": "evil"}, 403), ({"origin": "http://evil"}, 403)]
)
def test_pages_of_others_are_refused_before(
    harness: ServerHarness, headers: dict[str, str], status: int
) -> None:
    talk = harness.post(initialize("2025-11-25", {}), headers=headers)
    assert (talk.status, harness.asked) == (status, [])


def test_everything_else_is_refused_afterwards(harness: ServerHarness) -> None:
    """Not even which paths there are is told to strangers."""
    talk = harness.send("GET", {"accept": "a/b"}, target="/nothing")
    tell(harness, Refusal())
    assert talk.status == 401
    talk = harness.send("GET", {"accept": "a/b"}, target="/nothing")
    tell(harness, "ada")
    assert talk.status == 404


@pytest.mark.parametrize("outcome", ["ada", Refusal(), None])
def test_a_client_that_leaves_meanwhile(
    harness: ServerHarness, outcome: str | Refusal | None
) -> None:
    talk = harness.post(initialize("2025-11-25", {}))
    talk.lose_connection()
    for _ in range(2):
        if outcome is None:
            harness.server.authentication_failed(harness.asked[0], now=0)
        else:
            harness.server.authenticated(harness.asked[0], outcome, now=0)
        harness.run_pending()
    assert (talk.head, harness.server.sessions) == (None, ())


def test_a_server_that_ends_meanwhile(harness: ServerHarness) -> None:
    talk = harness.post(initialize("2025-11-25", {}))
    harness.server.shut_down(now=0)
    harness.run_pending()
    expect(talk, 503, "shutting_down")
    tell(harness, "ada")
    assert harness.server.sessions == ()


def test_a_server_that_ends_after_a_request_was_given_up() -> None:
    harness = ServerHarness(authentication=True)
    talk = harness.post(initialize("2025-11-25", {}))
    error = RemoteProtocolError("Too slow", reason="request_timeout", http_status=408)
    harness.server.refuse(talk.exchange, error, now=0)
    harness.server.shut_down(now=0)
    harness.run_pending()
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
