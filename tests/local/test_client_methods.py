"""The methods of clients, in both styles, by what they ask of a driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import sansmcp
from sansmcp.events import Connected
from sansmcp_local import AwaitableClient, BlockingClient

Act = Callable[[Any], Any]


class Recorder:
    """A blocking driver that returns what it is asked."""

    def __init__(self, result: Any = None, version: str = "2025-11-25") -> None:
        self.core = sansmcp.Client("http://localhost/mcp", jitter=float)
        self.connected = Connected(
            transport="t", version=version, server_info={}, capabilities={"tools": {}}
        )
        self.is_closed = False
        self.shown = "shown"
        self.result = result
        self.asked: list[tuple[Any, ...]] = []

    def call(
        self, method: str, params: Any, on_progress: Any, settings: Any, *, detach: bool = False
    ) -> Any:
        self.asked.append((method, params, on_progress, settings, detach))
        return self.result

    def attach(self, task_id: str, on_progress: Any, timeout: Any, total_timeout: Any) -> Any:
        self.asked.append(("attach", task_id, on_progress, timeout, total_timeout))
        return self.result

    def notify(self, method: str, params: Any, meta: Any) -> None:
        self.asked.append((method, params, meta))

    def complete_login(self, url: str) -> bool:
        self.asked.append((url,))
        return True

    def close(self) -> None:
        self.is_closed = True


class AsyncRecorder:
    """The same for an event loop."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.recorder, name)
        if not callable(found):
            return found

        async def act(*arguments: Any, **named: Any) -> Any:
            return found(*arguments, **named)

        return act


def in_blocking(recorder: Recorder, act: Act) -> Any:
    return act(BlockingClient(recorder))


def in_asyncio(recorder: Recorder, act: Act) -> Any:
    driver: Any = AsyncRecorder(recorder)

    async def run() -> Any:
        result = act(AwaitableClient(driver))
        return await result if hasattr(result, "__await__") else result

    return asyncio.run(run())


Style = Callable[[Recorder, Act], Any]


@pytest.fixture(params=[in_blocking, in_asyncio])
def style(request: pytest.FixtureRequest) -> Style:
    """Calls a method, and returns its result."""
    style: Style = request.param
    return style


ASKED: list[tuple[Act, str, Mapping[str, Any] | None]] = [
    (lambda client: client.list_tools(), "tools/list", None),
    (lambda client: client.list_tools("next"), "tools/list", {"cursor": "next"}),
    (lambda client: client.list_resources(), "resources/list", None),
    (lambda client: client.list_resource_templates(), "resources/templates/list", None),
    (lambda client: client.read_resource("a:b"), "resources/read", {"uri": "a:b"}),
    (lambda client: client.list_prompts(), "prompts/list", None),
    (lambda client: client.get_prompt("p"), "prompts/get", {"name": "p", "arguments": {}}),
    (
        lambda client: client.get_prompt("p", {"a": "b"}),
        "prompts/get",
        {"name": "p", "arguments": {"a": "b"}},
    ),
    (lambda client: client.call_tool("t"), "tools/call", {"name": "t", "arguments": {}}),
    (lambda client: client.ping(), "ping", None),
]


@pytest.mark.parametrize(("act", "method", "params"), ASKED)
def test_a_method_sends_its_request(
    style: Style, act: Act, method: str, params: Mapping[str, Any] | None
) -> None:
    recorder = Recorder({"some": "result"})
    assert style(recorder, act) == {"some": "result"}
    assert recorder.asked == [(method, params, None, {}, False)]


def test_a_ping_to_a_server_that_has_none(style: Style) -> None:
    recorder = Recorder(version="2026-07-28")
    style(recorder, lambda client: client.ping(timeout=2))
    assert recorder.asked == [("server/discover", None, None, {"timeout": 2}, False)]


def test_a_tool_call_passes_its_options_on(style: Style) -> None:
    recorder = Recorder()
    settings = {"timeout": 1, "total_timeout": 2, "idempotent": True}
    style(recorder, lambda client: client.call_tool("t", {"a": 1}, on_progress=print, **settings))
    params = {"name": "t", "arguments": {"a": 1}}
    assert recorder.asked == [("tools/call", params, print, settings, False)]


def test_a_task(style: Style) -> None:
    recorder = Recorder({"resultType": "task", "taskId": "hX2", "status": "working"})
    task = style(recorder, lambda client: client.start_task("t", timeout=1))
    params: dict[str, Any] = {"name": "t", "arguments": {}}
    assert recorder.asked == [("tools/call", params, None, {"timeout": 1}, True)]
    assert (task.id, task.value) == ("hX2", None)
    assert "hX2" not in repr(task)
    recorder.result = 5
    assert style(recorder, lambda client: client.task("hX2").result(timeout=3)) == 5
    assert style(recorder, lambda client: client.task("hX2").cancel()) == 5
    assert recorder.asked[1:] == [
        ("attach", "hX2", None, 3, None),
        ("tasks/cancel", {"taskId": "hX2"}, None, {}, False),
    ]


@pytest.mark.parametrize("result", [{"content": []}, 5])
def test_a_call_that_was_no_task(style: Style, result: Any) -> None:
    recorder = Recorder(result)
    task = style(recorder, lambda client: client.start_task("t"))
    assert (task.id, task.value) == (None, result)
    assert repr(task) == "TaskHandle(id=None)"
    recorder.asked.clear()

    assert style(recorder, lambda _: task.result()) == result
    assert style(recorder, lambda _: task.cancel()) == result
    assert recorder.asked == []


def test_a_handle_without_an_id_cannot_be_got_again(style: Style) -> None:
    """It would look like a task whose result is None."""
    with pytest.raises(sansmcp.LocalProtocolError, match="task_id must be str, and is NoneType"):
        style(Recorder(), lambda client: client.task(None))


def test_what_else_a_client_has(style: Style) -> None:
    recorder = Recorder()
    style(recorder, lambda client: client.notify("n", {"a": 1}, meta={"b": 2}))
    assert style(recorder, lambda client: client.complete_login("http://localhost/back"))
    assert recorder.asked == [("n", {"a": 1}, {"b": 2}), ("http://localhost/back",)]
    assert style(recorder, lambda client: (client.has_tools, client.is_closed)) == (True, False)
    assert style(recorder, repr).endswith("Client shown>")


PUBLIC = frozenset(
    {"call", "call_tool", "complete_login", "connected", "events", "get_prompt", "get_skill"}
    | {"has_tools", "is_closed", "list_prompts", "list_resource_templates", "list_resources"}
    | {"list_tools", "notify", "ping", "prompts", "read_resource", "read_skill"}
    | {"resource_templates", "resources", "skills", "start_task", "task", "tools"}
)


def test_only_what_an_application_uses_is_offered() -> None:
    """The methods of the driver were among those that an editor completes."""
    import sansmcp_asyncio
    import sansmcp_blocking
    import sansmcp_httpx
    import sansmcp_trio

    for module in (sansmcp_asyncio, sansmcp_trio, sansmcp_httpx):
        assert _offered(module.Client) == PUBLIC | {"aclose"}
    assert _offered(sansmcp_blocking.Client) == PUBLIC | {"close", "start_call"}
    assert _offered(sansmcp_blocking.SteppedClient) == PUBLIC | {"close", "start_call", "step"}
    assert _offered(sansmcp_httpx.BlockingClient) == PUBLIC - {"events"} | {"close"}


def _offered(kind: type[object]) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if not name.startswith("_"))
