"""A server that does not speak the version of a call any more is asked again what it speaks."""

from __future__ import annotations

import pytest

from sansmcp import Disconnected, Era, JsonRpcError, NegotiationFailed
from sansmcp.events import CallCompleted, CallFailed, Closed, SessionExpired
from sansmcp.states import ClientState

from ..harness import LATEST, SESSION, Asked, ClientHarness, initialized, response
from .harness import (
    MODERN,
    ModernClientHarness,
    ModernProcess,
    discovered,
    ends,
    offered,
    refused_version,
)

requirement = pytest.mark.requirement


@pytest.fixture
def harness() -> ModernClientHarness:
    return ModernClientHarness(standalone_stream=False).connect()


def refuse(asked: Asked, *supported: str) -> None:
    """The server has become another one."""
    asked.answer(refused_version(asked.id, *supported), 400)


@requirement("VERS-C-003", "VERS-C-004", "MODERN-C-006")
@pytest.mark.parametrize("with_id", [True, False])
def test_the_call_is_made_again_though_it_may_change_something(
    harness: ModernClientHarness, with_id: bool
) -> None:
    """For the server has not even looked at it."""
    handle, asked = harness.call("tools/call", params={"name": "pay"}, idempotent=False)
    error = refused_version(asked.id, MODERN)
    if not with_id:
        del error["id"]
    asked.answer(error, 400)
    probe = harness.take()
    probe.answer(discovered(probe.id))
    again = harness.take()
    assert again.json["params"]["name"] == "pay"
    assert again.id > probe.id > asked.id
    again.result({"paid": True})
    assert ends(harness) == [CallCompleted(handle, {"paid": True})]
    assert harness.client.next_deadline() is None


@pytest.mark.parametrize("code", [-32020, -32022])
@pytest.mark.parametrize("status", [200, 404, 500])
def test_an_error_of_a_handler_repeats_no_call_whatever_its_code(
    harness: ModernClientHarness, code: int, status: int
) -> None:
    """Those about the request itself have the status 400."""
    handle, asked = harness.call("tools/call", params={"name": "pay"}, idempotent=False)
    error = {**refused_version(asked.id, MODERN)["error"], "code": code}
    asked.answer({"jsonrpc": "2.0", "id": asked.id, "error": error}, status)
    (end,) = ends(harness)
    assert isinstance(end, CallFailed)
    assert end.call == handle
    assert isinstance(end.error, JsonRpcError)
    assert end.error.code == code
    assert harness.requests == []


@pytest.mark.parametrize("status", [200, 400])
def test_that_is_done_once(harness: ModernClientHarness, status: int) -> None:
    handle, asked = harness.call()
    refuse(asked, MODERN)
    probe = harness.take()
    probe.answer(discovered(probe.id))
    again = harness.take()
    again.answer(refused_version(again.id, MODERN), status)
    (end,) = ends(harness)
    assert isinstance(end, CallFailed)
    assert end.call == handle
    assert isinstance(end.error, JsonRpcError)
    assert end.error.code == -32022
    assert harness.client.state is ClientState.READY


@pytest.mark.both_eras
def test_a_server_that_has_become_older(harness: ModernClientHarness) -> None:
    handle, asked = harness.call()
    refuse(asked, LATEST)
    probe = harness.take()
    probe.answer(refused_version(probe.id, LATEST), 400)
    opening = harness.take()
    assert offered(opening) == LATEST
    opening.answer(initialized(opening.id, LATEST), mcp_session_id=SESSION)
    harness.take().accept()
    assert harness.era() is Era.LEGACY
    again = harness.take()
    assert again.header("mcp-session-id") == SESSION
    assert "io.modelcontextprotocol/protocolVersion" not in again.json["params"]["_meta"]
    again.result()
    assert ends(harness) == [CallCompleted(handle, {})]


def test_a_server_that_has_nothing_in_common_any_more(harness: ModernClientHarness) -> None:
    handle, asked = harness.call()
    refuse(asked, "2099-01-01")
    probe = harness.take()
    probe.answer(refused_version(probe.id, "2099-01-01"), 400)
    *_, failed, closed = harness.events
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, NegotiationFailed)
    assert isinstance(failed, CallFailed)
    assert failed.call == handle
    assert failed.error.__cause__ is closed.error


def test_what_else_is_under_way(harness: ModernClientHarness) -> None:
    """What merely reads is asked again, the outcome of the rest is unknown."""
    lost, running = harness.call("tools/call")
    listing, _ = harness.call("tools/list")
    handle, asked = harness.call("tools/call")
    refuse(asked, MODERN)
    assert running.aborted
    (ended, expired) = harness.take_events()
    assert isinstance(ended, CallFailed)
    assert ended.call == lost
    assert isinstance(ended.error, Disconnected)
    assert "outcome is unknown" in str(ended.error)
    assert expired == SessionExpired((lost,))
    probe = harness.take()
    probe.answer(discovered(probe.id))
    assert [asked.json["method"] for asked in harness.requests] == ["tools/list", "tools/call"]
    for asked in tuple(harness.requests):
        asked.result()
    assert ends(harness) == [CallCompleted(listing, {}), CallCompleted(handle, {})]


def test_what_was_kept_of_the_other_server_is_not_used() -> None:
    harness = ModernClientHarness(cache=True).connect()
    harness.call("tools/list")[1].result({"ttlMs": 60000, "tools": []})
    refuse(harness.call("tools/call")[1], MODERN)
    probe = harness.take()
    probe.answer(discovered(probe.id))
    harness.take().result()
    harness.call("tools/list")


def test_on_stdio_the_process_goes_on() -> None:
    process = ModernProcess().connect()
    handle, id = process.make()
    process.say(refused_version(id, MODERN))
    (probe,) = process.written
    assert probe["method"] == "server/discover"
    process.say(discovered(probe["id"]))
    (again,) = process.written
    assert again["method"] == "tools/call"
    process.say(response(again["id"]))
    assert ends(process) == [CallCompleted(handle, {})]
    assert process.done == ["StartProcess"]


@pytest.mark.both_eras
def test_in_a_session_it_is_an_error_like_any_other() -> None:
    harness = ClientHarness().connect()
    _, asked = harness.call()
    asked.answer(refused_version(asked.id, MODERN), 400)
    (end,) = ends(harness)
    assert isinstance(end, CallFailed)
    assert isinstance(end.error, JsonRpcError)
    assert harness.requests == []
