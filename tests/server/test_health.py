"""The health answer: what load balancers are told, and strangers are not."""

from __future__ import annotations

import pytest

from sansmcp import LocalProtocolError, ServerOptions

from .harness import RawExchange, ServerHarness
from .test_store_retries import failing as failing_call
from .test_store_retries import repetitions

PATH = "/healthz"
OK = {"status": "ok", "store": "ok"}
DRAINING = {"status": "draining", "store": "ok"}


def ask(harness: ServerHarness, method: str = "GET", target: str = PATH) -> RawExchange:
    """As a load balancer asks: by an address, and without credentials."""
    return harness.send(method, {"host": None, "origin": "http://elsewhere"}, target=target)


@pytest.mark.parametrize("target", [PATH, f"{PATH}/", f"{PATH}?a=b"])
@pytest.mark.parametrize("authentication", [True, False])
def test_anybody_may_ask(target: str, authentication: bool) -> None:
    harness = ServerHarness(health_path=PATH, authentication=authentication)
    answer = ask(harness, target=target)
    assert (answer.status, answer.json, answer.ended) == (200, OK, True)
    assert answer.header("cache-control") == "no-store"
    assert (harness.asked, harness.server.sessions) == ([], ())


def test_it_is_off_by_default() -> None:
    harness = ServerHarness()
    assert harness.send("GET", target=PATH).status == 404


def test_other_paths_are_checked_as_before() -> None:
    harness = ServerHarness(health_path=PATH)
    assert ask(harness, target="/mcp").status == 403
    assert harness.send("GET", target=f"{PATH}/more").status == 404


def test_head_has_no_body() -> None:
    answer = ask(ServerHarness(health_path=PATH), "HEAD")
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_is_only_read(method: str) -> None:
    answer = ask(ServerHarness(health_path=PATH), method)
    assert (answer.status, answer.header("allow")) == (405, "GET, HEAD")


def test_a_lame_duck_serves_calls_and_sends_load_balancers_away() -> None:
    harness = ServerHarness(health_path=PATH)
    harness.server.enter_lame_duck(now=harness.now)
    assert harness.server.is_leaving
    answer = ask(harness)
    assert (answer.status, answer.json) == (503, DRAINING)
    talk, call = harness.call(harness.open_session())
    harness.run_action(call.respond, {})
    assert (talk.status, talk.ended) == (200, True)


def test_a_server_that_drains_is_not_healthy() -> None:
    harness = ServerHarness(health_path=PATH)
    assert not harness.server.is_leaving
    harness.server.drain(now=harness.now)
    assert harness.server.is_leaving
    answer = ask(harness)
    assert (answer.status, answer.json) == (503, DRAINING)


def test_a_store_that_fails_is_named_and_does_not_make_it_unhealthy() -> None:
    harness, *_ = failing_call(health_path=PATH)
    assert ask(harness).json == OK
    repetitions(harness, 5)
    answer = ask(harness)
    assert (answer.status, answer.json) == (200, {"status": "ok", "store": "failing"})
    harness.wait(2)  # not tried since: this is what is known
    assert ask(harness).json["store"] == "failing"
    while harness.waiting:
        harness.use_store_once()
    assert ask(harness).json == OK


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/sse", "/messages"])
def test_a_path_that_is_taken(path: str) -> None:
    with pytest.raises(LocalProtocolError, match="health_path must be a path of its own"):
        ServerOptions(http_sse="/sse", health_path=path)


@pytest.mark.parametrize("path", ["healthz", "/a?b", ""])
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(LocalProtocolError, match="health_path must be a path like '/mcp'"):
        ServerOptions(health_path=path)
