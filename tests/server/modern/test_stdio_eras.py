"""Both eras in one process, one alone, and the end of it all."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp.events import (
    CallCancelled,
    ClientNotified,
    SessionClosed,
)

from ..harness import LATEST, initialize, notification, request
from ..pipe_harness import Pipe, reason, result
from .harness import (
    MODERN,
    modern,
    modern_app,
    notification_from,
)
from .lines import TOOLS, cancelled, complete, listening, refusal, told

requirement = pytest.mark.requirement

# Both eras in one process


@requirement("VERS-S-009", "VERS-S-010", "VERS-S-011", "MODERN-S-023")
@pytest.mark.both_eras
def test_both_eras_in_one_process() -> None:
    pipe = Pipe(modern_app())
    pipe.say(modern("before")).open("2025-06-18")
    old = pipe.call(1)
    new = pipe.say(modern(2)).harness.last_call()
    assert (old.peer.revision.name, new.peer.revision.name) == ("2025-06-18", MODERN)
    pipe.say(listening("l", toolsListChanged=True)).output = b""
    pipe.harness.run_action(pipe.harness.server.publish, TOOLS)
    pipe.harness.run_action(old.respond, {"era": "old"})
    pipe.harness.run_action(new.respond, {"era": "new"})
    assert pipe.run_pending().said == [
        told("l"),
        {"jsonrpc": "2.0", "method": TOOLS},
        result(1, {"era": "old"}),
        complete(2, era="new"),
    ]
    old = pipe.call(3)
    pipe.say(cancelled(3))
    assert not old.is_running
    assert pipe.say(request(7, "ping")).said == [result(7)]


@pytest.mark.both_eras
def test_what_belongs_to_no_era_is_told_the_versions() -> None:
    pipe = Pipe()
    assert refusal(pipe, request(1)) == (1, -32600, "not_initialized")
    assert refusal(pipe, [request(1)]) == (None, -32600, "batch_not_allowed")
    answer: Any = {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert pipe.say(answer, notification("notifications/x")).said == []


# A server of one era


@requirement("VERS-S-012")
@pytest.mark.parametrize("version", [LATEST, MODERN])
def test_alone_initialize_is_told_the_versions(version: str) -> None:
    pipe = Pipe(versions=(MODERN,))
    (answer,) = pipe.say(initialize(version)).said
    assert (answer["id"], reason(answer)) == (0, (-32022, "unsupported_version"))
    assert MODERN in answer["error"]["message"]
    assert answer["error"]["data"]["supported"] == [MODERN]
    assert answer["error"]["data"]["requested"] == version


def test_alone_everything_else_is_of_this_era() -> None:
    pipe = Pipe(versions=(MODERN,))
    for method in ("tools/call", "ping", "x"):
        assert refusal(pipe, request(1, method)) == (1, -32602, "meta_required")
    assert refusal(pipe, [request(1)]) == (None, -32600, "batch_not_allowed")
    assert pipe.say({"jsonrpc": "2.0", "id": 1, "result": {}}).said == []
    assert pipe.say(notification("notifications/x")).events == [ClientNotified]


@pytest.mark.both_eras
def test_an_older_server_tells_its_versions() -> None:
    pipe = Pipe(versions=("2025-06-18", LATEST))
    assert refusal(pipe, modern(1, "server/discover")) == (1, -32022, "unsupported_version")
    assert pipe.say(notification_from("notifications/x")).said == []
    assert pipe.events == []
    pipe.open().call()


# Its end


def test_calls_get_a_moment_when_the_input_ends() -> None:
    pipe = Pipe(modern_app())
    call = pipe.say(modern(1)).harness.last_call()
    pipe.say(listening("l", toolsListChanged=True)).output = b""
    pipe.end()
    assert not pipe.closed
    pipe.harness.run_action(call.respond, {})
    assert pipe.run_pending().said == [complete(1)]
    assert pipe.closed
    pipe.harness.run_action(pipe.harness.server.publish, TOOLS)
    assert pipe.run_pending().said == []


def test_calls_that_take_too_long_are_left_behind() -> None:
    pipe = Pipe(modern_app(), graceful_timeout=5.0)
    call = pipe.say(modern(1)).harness.last_call()
    pipe.end().wait(5)
    assert pipe.harness.events == [CallCancelled(call, "the input has ended")]
    assert pipe.closed
    assert not pipe.harness.server.is_busy


def test_a_client_that_does_not_listen_any_more() -> None:
    pipe = Pipe(modern_app())
    call = pipe.say(modern(1)).harness.last_call()
    pipe.say(listening("l", toolsListChanged=True))
    pipe.lose()
    assert pipe.harness.events == [CallCancelled(call, "the output is closed")]
    pipe.harness.run_action(pipe.harness.server.publish, TOOLS)
    pipe.harness.run_action(pipe.harness.server.shut_down)


@pytest.mark.both_eras
def test_what_runs_when_the_server_shuts_down_is_cancelled() -> None:
    pipe = Pipe(modern_app())
    call = pipe.say(modern(1)).harness.last_call()
    pipe.open()
    pipe.harness.run_action(pipe.harness.server.shut_down)
    assert isinstance(pipe.harness.events[0], CallCancelled)
    assert pipe.run_pending().events == [CallCancelled, SessionClosed]
    assert not call.is_running
    assert not pipe.harness.server.is_busy
    assert pipe.closed
