"""What the clients of all adapters share, and the methods of a call, without an adapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sansmcp import BaseCall, Disconnected, LocalProtocolError, PendingResult
from sansmcp.base_client import (
    ping_method,
    prompt_call,
    resource_call,
    task_cancellation,
    task_id_of,
    tool_call,
)

from ..server.harness import ServerHarness
from ..server.modern.task_harness import TaskHarness, task_app, task_id

ARGUMENTS: list[Callable[[str, Any], object]] = [tool_call, prompt_call]


def test_the_calls_of_a_client() -> None:
    assert tool_call("x", None) == ("tools/call", {"name": "x", "arguments": {}})
    assert prompt_call("x", {"a": "b"}) == ("prompts/get", {"name": "x", "arguments": {"a": "b"}})
    assert resource_call("a:b") == ("resources/read", {"uri": "a:b"})
    assert task_cancellation("hX2") == ("tasks/cancel", {"taskId": "hX2"})


@pytest.mark.parametrize("arguments", [["a"], [], "", "a", 0, 5, (("a", 1),)])
@pytest.mark.parametrize("call", ARGUMENTS)
def test_arguments_that_are_no_mapping(call: Callable[[str, Any], object], arguments: Any) -> None:
    """A bare ValueError of dict(), or nothing for what is empty."""
    with pytest.raises(LocalProtocolError, match=r"^arguments must be a mapping .*, got "):
        call("x", arguments)


@pytest.mark.parametrize(
    ("version", "method"), [("2025-11-25", "ping"), ("2026-07-28", "server/discover")]
)
def test_a_sign_of_life(version: str, method: str) -> None:
    assert ping_method(version) == method


def test_the_id_of_a_task() -> None:
    assert task_id_of({"resultType": "task", "taskId": "hX2", "status": "working"}) == "hX2"
    assert task_id_of({"content": []}) is None
    assert task_id_of(5) is None


def test_a_promise_is_kept_once() -> None:
    kept, broken = PendingResult(), PendingResult()
    assert not kept.is_done
    kept.set_result(1)
    kept.set_result(2)
    broken.set_exception(Disconnected("gone"))
    broken.set_result(3)
    assert kept.is_done
    assert kept.result() == 1
    with pytest.raises(Disconnected):
        broken.result()


class BenchCall(BaseCall[int, None]):
    """A call of the bench."""

    harness: ServerHarness

    def wait_for_answer(self, id: int) -> int:
        return id

    def now(self) -> float:
        return self.harness.now

    def run_pending(self) -> None:
        self.harness.run_pending()


def test_a_handler_knows_the_access_of_its_request() -> None:
    harness = ServerHarness()
    _, call = harness.call(harness.open_session())
    assert (BenchCall(call).principal, BenchCall(call).scopes) == ("", frozenset())


def test_a_handler_talks_to_the_client() -> None:
    harness = ServerHarness()
    talk, call = harness.call(harness.open_session(), 5, token="t")
    handle = BenchCall(call)
    handle.harness = harness
    assert (handle.method, handle.request_id) == ("tools/call", 5)
    assert handle.params == {"_meta": {"progressToken": "t"}}
    handle.progress(1, 2, "m")
    handle.notify("notifications/x", {"a": 1})
    handle.disconnect(retry=1)
    assert [message["method"] for message in talk.messages] == [
        "notifications/progress",
        "notifications/x",
    ]
    assert talk.events[-1].retry == 1000
    assert talk.ended
    _, call = harness.call(harness.open_session(), method="tools/list")
    assert BenchCall(call).params == {}
    assert BenchCall(call).input_responses == {}
    assert BenchCall(call).saved_state is None


def test_a_handler_logs() -> None:
    harness = ServerHarness()
    talk, call = harness.call(harness.open_session())
    handle = BenchCall(call)
    handle.harness = harness
    handle.log("info", "text")
    handle.log("alert", {"a": 1}, logger="disk")
    assert [message["params"] for message in talk.messages] == [
        {"level": "info", "data": "text"},
        {"level": "alert", "data": {"a": 1}, "logger": "disk"},
    ]
    with pytest.raises(LocalProtocolError, match=r"level must be one of debug, .* got 'trace'"):
        handle.log("trace", "text")


def test_a_handler_makes_its_call_a_task() -> None:
    harness = TaskHarness(task_app(task="optional", restartable=True))
    talk, call = harness.call_tool()
    handle = BenchCall(call)
    handle.harness = harness
    assert not handle.is_task
    handle.become_task()
    assert handle.is_task
    handle.save_progress({"page": 1})
    assert harness.get(task_id(talk))["status"] == "working"


def test_a_handler_tells_the_session_at_once() -> None:
    """What it said waited for the next turn of something else."""
    harness = ServerHarness()
    session = harness.open_session(capabilities={"roots": {}})
    standalone = harness.get(session)
    calls = [
        harness.call(session)[1],
        harness.call(session)[1],
        harness.call(harness.open_session())[1],
    ]
    first, second, other = handles = [BenchCall(call) for call in calls]
    for handle in handles:
        handle.harness = harness
    first.peer.notify("notifications/x", {"a": 1})
    assert [message["method"] for message in standalone.messages] == ["notifications/x"]
    assert first.peer == second.peer != other.peer
    assert len({handle.peer for handle in handles}) == 2
    assert first.peer != session
    assert repr(first.peer) == repr(calls[0].peer)
    assert (first.peer.principal, first.peer.revision.name) == ("", "2025-11-25")
    assert first.peer.client_info == {"name": "bench", "version": "1"}
    assert first.peer.client_capabilities == {"roots": {}}
    with pytest.raises(LocalProtocolError):
        first.peer.notify("notifications/x", {"a": object()})


def test_a_handler_asks_the_client() -> None:
    harness = ServerHarness()
    session = harness.open_session(capabilities={"elicitation": {}})
    talk, call = harness.call(session)
    handle = BenchCall(call)
    handle.harness = harness
    id = handle.ask("elicitation/create", {"message": "name?"}, timeout=1)
    harness.run_pending()
    assert talk.messages[-1]["id"] == id
    with pytest.raises(LocalProtocolError):
        handle.ask("sampling/createMessage")
