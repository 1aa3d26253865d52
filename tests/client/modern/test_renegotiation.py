"""A server that does not speak the version of a call any more is asked again what it speaks."""

from __future__ import annotations

import pytest

from sansmcp import Disconnected, Era, JsonRpcError, NegotiationFailed
from sansmcp.events import CallCompleted, CallFailed, Closed, SessionExpired
from sansmcp.states import ClientState

from ..bench import LATEST, SESSION, Asked, Bench, initialized, response
from .bench import (
    MODERN,
    ModernBench,
    ModernProcess,
    discovered,
    ends,
    offered,
    refused_version,
)

requirement = pytest.mark.requirement


@pytest.fixture
def bench() -> ModernBench:
    return ModernBench(standalone_stream=False).connect()


def refuse(asked: Asked, *supported: str) -> None:
    """The server has become another one."""
    asked.answer(refused_version(asked.id, *supported), 400)


@requirement("VERS-C-003", "VERS-C-004", "MODERN-C-006")
@pytest.mark.parametrize("with_id", [True, False])
def test_the_call_is_made_again_though_it_may_change_something(
    bench: ModernBench, with_id: bool
) -> None:
    """For the server has not even looked at it."""
    handle, asked = bench.call("tools/call", params={"name": "pay"}, idempotent=False)
    error = refused_version(asked.id, MODERN)
    if not with_id:
        del error["id"]
    asked.answer(error, 400)
    probe = bench.take()
    probe.answer(discovered(probe.id))
    again = bench.take()
    assert again.json["params"]["name"] == "pay"
    assert again.id > probe.id > asked.id
    again.result({"paid": True})
    assert ends(bench) == [CallCompleted(handle, {"paid": True})]
    assert bench.client.next_deadline() is None


@pytest.mark.parametrize("status", [200, 400])
def test_that_is_done_once(bench: ModernBench, status: int) -> None:
    handle, asked = bench.call()
    refuse(asked, MODERN)
    probe = bench.take()
    probe.answer(discovered(probe.id))
    again = bench.take()
    again.answer(refused_version(again.id, MODERN), status)
    (end,) = ends(bench)
    assert isinstance(end, CallFailed)
    assert end.call == handle
    assert isinstance(end.error, JsonRpcError)
    assert end.error.code == -32022
    assert bench.client.state is ClientState.READY


@pytest.mark.both_eras
def test_a_server_that_has_become_older(bench: ModernBench) -> None:
    handle, asked = bench.call()
    refuse(asked, LATEST)
    probe = bench.take()
    probe.answer(refused_version(probe.id, LATEST), 400)
    opening = bench.take()
    assert offered(opening) == LATEST
    opening.answer(initialized(opening.id, LATEST), mcp_session_id=SESSION)
    bench.take().accept()
    assert bench.era() is Era.LEGACY
    again = bench.take()
    assert again.header("mcp-session-id") == SESSION
    assert "io.modelcontextprotocol/protocolVersion" not in again.json["params"]["_meta"]
    again.result()
    assert ends(bench) == [CallCompleted(handle, {})]


def test_a_server_that_has_nothing_in_common_any_more(bench: ModernBench) -> None:
    handle, asked = bench.call()
    refuse(asked, "2099-01-01")
    probe = bench.take()
    probe.answer(refused_version(probe.id, "2099-01-01"), 400)
    *_, failed, closed = bench.events
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, NegotiationFailed)
    assert isinstance(failed, CallFailed)
    assert failed.call == handle
    assert failed.error.__cause__ is closed.error


def test_what_else_is_under_way(bench: ModernBench) -> None:
    """What merely reads is asked again, the outcome of the rest is unknown."""
    lost, running = bench.call("tools/call")
    listing, _ = bench.call("tools/list")
    handle, asked = bench.call("tools/call")
    refuse(asked, MODERN)
    assert running.aborted
    (ended, expired) = bench.take_events()
    assert isinstance(ended, CallFailed)
    assert ended.call == lost
    assert isinstance(ended.error, Disconnected)
    assert "outcome is unknown" in str(ended.error)
    assert expired == SessionExpired((lost,))
    probe = bench.take()
    probe.answer(discovered(probe.id))
    assert [asked.json["method"] for asked in bench.requests] == ["tools/list", "tools/call"]
    for asked in tuple(bench.requests):
        asked.result()
    assert ends(bench) == [CallCompleted(listing, {}), CallCompleted(handle, {})]


def test_what_was_kept_of_the_other_server_is_not_used() -> None:
    bench = ModernBench(cache=True).connect()
    bench.call("tools/list")[1].result({"ttlMs": 60000, "tools": []})
    refuse(bench.call("tools/call")[1], MODERN)
    probe = bench.take()
    probe.answer(discovered(probe.id))
    bench.take().result()
    bench.call("tools/list")


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
    bench = Bench().connect()
    _, asked = bench.call()
    asked.answer(refused_version(asked.id, MODERN), 400)
    (end,) = ends(bench)
    assert isinstance(end, CallFailed)
    assert isinstance(end.error, JsonRpcError)
    assert bench.requests == []
