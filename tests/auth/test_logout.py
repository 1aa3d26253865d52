"""Logging out: the tokens are revoked at their issuer, and deleted whether that worked or not."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from sansmcp import Client
from sansmcp.auth.http import REQUEST_TIMEOUT
from sansmcp.auth.options import Authorization
from sansmcp.auth.runner import LOGOUT_TIMEOUT
from sansmcp.auth.saved import Saved
from sansmcp.auth.steps import Obtained
from sansmcp.effects import LoadCredentials, LockCredentials, SaveCredentials
from sansmcp.errors import AuthorizationFailed, LocalProtocolError
from sansmcp.events import Closed
from sansmcp.states import AuthorizationState

from .bench import ASM, PRM, RESOURCE, SERVER, Bench, World

REVOKE = "https://as.example/revoke"


def logged_in(*, gives_refresh: bool = True, **more: Any) -> World:
    """A world in which a client has logged in; requests from now on are those of the logout."""
    documents = {PRM: RESOURCE, ASM: {**SERVER, **more}}
    world = World(documents=documents, gives_refresh=gives_refresh)
    world.answers[REVOKE] = lambda asked: (200, b"")
    Bench(world).start().refused()
    world.asked.clear()
    return world


def log_out(world: World) -> Bench:
    bench = Bench(world)
    bench.flow.log_out(0.0)
    bench.run()
    return bench


def tokens_of(world: World) -> Any:
    (document,) = world.stored.values()
    return Saved.parse(document).tokens


def test_the_refresh_token_is_revoked() -> None:
    world = logged_in(revocation_endpoint=REVOKE)
    bench = log_out(world)
    assert bench.urls == [ASM, REVOKE]
    assert world.asked[-1].form == {
        "token": "refresh-1",
        "token_type_hint": "refresh_token",
        "client_id": "client-of-as.example",
    }
    assert [type(end) for end in bench.ends] == [Obtained]
    assert bench.flow.state is AuthorizationState.IDLE
    assert tokens_of(world) is None
    assert world.locked == set()


def test_the_access_token_is_revoked_where_there_is_no_other() -> None:
    world = logged_in(gives_refresh=False, revocation_endpoint=REVOKE)
    log_out(world)
    assert world.asked[-1].form["token"] == "token-1"
    assert world.asked[-1].form["token_type_hint"] == "access_token"


def test_a_server_without_the_endpoint() -> None:
    world = logged_in()
    bench = log_out(world)
    assert "its metadata name no revocation_endpoint" in str(bench.error)
    assert (bench.urls, tokens_of(world)) == ([ASM], None)


def test_tokens_go_to_no_other_origin_than_they_came_from() -> None:
    """Metadata with the login and the tokens of an honest issuer, and an endpoint of their own."""
    world = logged_in(revocation_endpoint="https://evil.example/revoke")
    bench = log_out(world)
    assert "a revocation_endpoint at another origin, https://evil.example" in str(bench.error)
    assert (bench.urls, tokens_of(world)) == ([ASM], None)


def test_metadata_without_pkce_are_enough() -> None:
    world = logged_in()
    document = {**SERVER, "revocation_endpoint": REVOKE}
    del document["code_challenge_methods_supported"]
    world.documents[ASM] = document
    assert [type(end) for end in log_out(world).ends] == [Obtained]


def test_without_a_login_nothing_is_requested_and_stored() -> None:
    world = World()
    assert [type(end) for end in log_out(world).ends] == [Obtained]
    assert (world.asked, world.stored, world.locked) == ([], {}, set())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((400, {"error": "unsupported_token_type"}), "HTTP 400: unsupported_token_type"),
        ((200, {"error": "invalid_token", "error_description": "refresh-1"}), "invalid_token"),
        ((302, b"", {"location": "https://10.0.0.1/"}), "HTTP 302"),
        ("reset", "sent no response: reset"),
    ],
)
def test_a_server_that_does_not_revoke(answer: Any, said: str) -> None:
    world = logged_in(revocation_endpoint=REVOKE)
    world.answers[REVOKE] = lambda asked: answer
    bench = log_out(world)
    assert bench.error.reason == "not_revoked"
    assert said in str(bench.error)
    assert "Authorization failed at the revocation" in str(bench.error)
    assert "https://as.example has not revoked the refresh token" in str(bench.error)
    assert "refresh-1" not in str(bench.error)
    assert (tokens_of(world), world.locked) == (None, set())


def test_the_wait_is_bounded() -> None:
    """The first request without an answer is the last."""
    world = logged_in(revocation_endpoint=REVOKE)
    world.answers[ASM] = lambda asked: None
    bench = log_out(world)
    bench.wait()
    assert bench.now == REQUEST_TIMEOUT
    assert (bench.error.reason, tokens_of(world)) == ("not_revoked", None)


def test_the_whole_logout_is_bounded() -> None:
    """Each answer comes in time, and each leads to another request."""
    world = logged_in(revocation_endpoint=REVOKE)
    (key,) = world.stored
    world.locked.add(key)
    bench = log_out(world)
    while bench.now < 44.0:
        bench.wait()
    world.locked.clear()
    world.answers[ASM] = lambda asked: None
    bench.wait()
    asked = bench.now
    assert 44.0 <= asked < 45.0
    bench.wait()
    assert bench.now == LOGOUT_TIMEOUT - 10.0 < asked + REQUEST_TIMEOUT
    assert "has not revoked the refresh token" in str(bench.error)
    assert "sent no response within 50 s of the logout" in str(bench.error)
    assert (bench.error.reason, tokens_of(world), world.locked) == ("not_revoked", None, set())


@pytest.mark.parametrize("effect", [LoadCredentials, LockCredentials, SaveCredentials])
def test_a_storage_that_does_not_return(effect: type) -> None:
    """The password of a keyring is asked for, and the person has left."""
    world = logged_in(revocation_endpoint=REVOKE)
    world.silent.add(effect)
    bench = log_out(world)
    assert bench.ends == []
    bench.wait()
    assert bench.now == LOGOUT_TIMEOUT
    assert "the logout has taken 60 s, and still waits for that" in str(bench.error)
    assert bench.error.reason == "effect_failed"
    assert world.locked == set()
    assert tokens_of(world) is not None


def test_a_client_that_is_not_known_any_more() -> None:
    world = logged_in(revocation_endpoint=REVOKE)
    ((key, document),) = world.stored.items()
    world.stored[key] = document.replace('"auth_method":"none"', '"auth_method":"x"').replace(
        '"client_id":"client-of-as.example"', '"client_id":"other"', 1
    )
    bench = log_out(world)
    assert "is not known here any more" in str(bench.error)
    assert (world.asked, tokens_of(world)) == ([], None)


def test_a_storage_that_another_process_has_locked() -> None:
    world = logged_in(revocation_endpoint=REVOKE)
    (key,) = world.stored
    world.locked.add(key)
    bench = log_out(world)
    while not bench.ends:
        bench.wait()
    assert bench.error.reason == "lock_held"
    assert tokens_of(world) is not None


def test_a_logout_that_is_broken_off_releases_the_lock() -> None:
    world = logged_in(revocation_endpoint=REVOKE)
    world.answers[REVOKE] = lambda asked: None
    bench = log_out(world)
    assert world.locked
    bench.flow.close()
    bench.run()
    assert (bench.flow.state, world.locked) == (AuthorizationState.CLOSED, set())
    assert bench.flow.deadline == math.inf
    assert tokens_of(world) is not None


# The client


def client(**settings: Any) -> Client:
    settings.setdefault("authorization", Authorization())
    return Client(
        "https://h.example/mcp",
        jitter=lambda: 0.5,
        random_bytes=random.Random(1).randbytes,
        wall_clock=lambda: 0.0,
        **settings,
    )


def events_of(machine: Client) -> list[Closed]:
    found: list[Closed] = []
    while isinstance(event := machine.next_event(), Closed):
        found.append(event)
    return found


def test_a_client_logs_out_instead_of_starting() -> None:
    machine = client()
    machine.log_out(now=0.0)
    with pytest.raises(LocalProtocolError, match="not connected"):
        machine.call("tools/list", now=0.0)
    for again in (machine.start, machine.log_out):
        with pytest.raises(LocalProtocolError, match=r"log_out\(\) was called before"):
            again(now=0.0)
    lock = machine.next_effect()
    assert isinstance(lock, LockCredentials)
    machine.auth_completed(lock, True, now=0.0)
    load = machine.next_effect()
    assert isinstance(load, LoadCredentials)
    machine.auth_completed(load, None, now=0.0)
    assert events_of(machine) == [Closed(None)]
    with pytest.raises(LocalProtocolError, match="the client is closed"):
        machine.log_out(now=0.0)


def test_a_logout_that_fails_is_the_reason_of_the_end() -> None:
    machine = client()
    machine.log_out(now=0.0)
    lock = machine.next_effect()
    assert isinstance(lock, LockCredentials)
    machine.auth_failed(lock, "it burns", now=0.0)
    (closed,) = events_of(machine)
    assert isinstance(closed.error, AuthorizationFailed)
    assert "it burns" in str(closed.error)


def test_a_client_without_authorization_cannot_log_out() -> None:
    with pytest.raises(LocalProtocolError, match="needs the setting authorization"):
        client(authorization=None).log_out(now=0.0)
