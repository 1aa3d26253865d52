"""The blocking client, as its users see it: calls, events, threads and interrupts."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

import sansmcp
import sansmcp_blocking
from sansmcp import JsonRpcError, Limits, LocalProtocolError, RequestCancelled, RequestTimeout
from sansmcp.events import Closed, ProgressReceived, ServerNotified
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp.trace import Tracer
from sansmcp_blocking import Call
from sansmcp_pytest._checks.fake_server import Exchange, FakeServer

from ..stepping import wherever
from ..trio.programs import outside
from .conftest import PATIENCE, Start, ToolApp, wait_for_event


def test_importing_it_loads_no_event_loop() -> None:
    code = "from sansmcp_blocking import *; import sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=outside(), capture_output=True, check=True, text=True
    )
    loaded = done.stdout.split()
    assert "sansmcp_blocking" in loaded
    assert not {"asyncio", "trio", "concurrent.futures"}.intersection(loaded)


# Calls


@pytest.mark.parametrize("version", sansmcp.REVISIONS)
def test_every_method_at_every_revision(start: Start, version: str) -> None:
    serving = start()
    with sansmcp_blocking.connect(serving.url, versions=(version,)) as client:
        assert client.connected.version == version
        assert client.call_tool("echo", {"a": "ä\u2028"})["echo"] == {"a": "ä\u2028"}
        assert [tool["name"] for tool in client.list_tools()["tools"]] == ["echo"]
        client.ping(timeout=PATIENCE)
        client.notify("notifications/roots/list_changed")
        with pytest.raises(JsonRpcError) as caught:
            client.call("resources/list")
        assert caught.value.code == -32601


def test_several_calls_at_once(start: Start, world: ToolApp) -> None:
    all_there = threading.Barrier(3)

    @world.tool
    def meet(call: Call) -> Any:
        all_there.wait(PATIENCE)
        return {"name": call.params["arguments"]["name"]}

    serving = start()
    with sansmcp_blocking.connect(serving.url) as client:
        pending = [
            client.start_call("tools/call", {"name": "meet", "arguments": {"name": name}})
            for name in "abc"
        ]
        assert [each.result()["name"] for each in pending] == ["a", "b", "c"]
        assert pending[0].result()["name"] == "a"


def test_a_call_that_is_not_waited_for_any_longer_goes_on(start: Start, world: ToolApp) -> None:
    go_on = threading.Event()

    @world.tool
    def wait(call: Call) -> Any:
        wait_for_event(go_on)
        return {"done": True}

    serving = start()
    with sansmcp_blocking.connect(serving.url) as client:
        pending = client.start_call("tools/call", {"name": "wait"})
        with pytest.raises(TimeoutError):
            pending.result(timeout=0.01)
        go_on.set()
        assert pending.result()["done"]


def test_an_answer_that_came_in_time_may_be_read_late(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def answer(exchange: Exchange) -> None:
        exchange.result({"in": "time"})
        answered.set()

    with (
        FakeServer({"tools/call": answer}) as server,
        sansmcp_blocking.connect(server.url, standalone_stream=False) as client,
    ):
        pending = client.start_call("tools/call", {"name": "t"}, timeout=30)
        wait_for_event(answered)
        now = time.monotonic
        clock = SimpleNamespace(monotonic=lambda: now() + 50)
        monkeypatch.setattr("sansmcp_blocking._client.time", clock)
        assert pending.result() == {"in": "time"}


def test_a_call_that_is_cancelled_or_times_out_is_cancelled_at_the_server(
    start: Start, world: ToolApp
) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    @world.tool
    def hang(call: Call) -> Any:
        begun.set()
        wait_for_event(call.cancelled)
        cancelled.set()

    serving = start()
    with sansmcp_blocking.connect(serving.url) as client:
        pending = client.start_call("tools/call", {"name": "hang"})
        wait_for_event(begun)
        pending.cancel()
        pending.cancel()
        with pytest.raises(RequestCancelled):
            pending.result()
        wait_for_event(cancelled)
        with pytest.raises(RequestTimeout):
            client.call_tool("hang", timeout=0.05)
        assert client.call_tool("echo")["echo"] == {}


def test_progress_and_what_its_callback_does(start: Start, world: ToolApp) -> None:
    @world.tool
    def count(call: Call) -> Any:
        for step in range(1, 4):
            call.progress(step, 3, f"step {step}")
        return {}

    def stop(report: ProgressReceived) -> None:
        raise InterruptedError

    seen: list[tuple[float, str | None]] = []
    serving = start()
    with sansmcp_blocking.connect(serving.url) as client:
        client.call_tool(
            "count", on_progress=lambda report: seen.append((report.progress, report.message))
        )
        assert seen == [(1, "step 1"), (2, "step 2"), (3, "step 3")]
        with pytest.raises(InterruptedError):  # comes out of the method that waits
            client.call_tool("count", on_progress=stop)
        assert client.call_tool("echo")["echo"] == {}


def test_a_question_is_answered_by_a_function_that_makes_a_call_itself(
    start: Start, world: ToolApp
) -> None:
    @world.tool
    def ask(call: Call) -> Any:
        with pytest.raises(JsonRpcError) as caught:
            call.ask("sampling/createMessage", {})
        assert caught.value.code == -1
        return call.ask("elicitation/create", {"message": "?"})

    def answer(request: sansmcp.ServerRequest) -> Any:
        assert request.params["message"] == "?"
        return {"action": "accept", "content": client.call_tool("echo", {"a": 1})["echo"]}

    def refuse(request: sansmcp.ServerRequest) -> Any:
        raise JsonRpcError(-1, "not now")

    serving = start()
    with sansmcp_blocking.connect(
        serving.url,
        versions=HANDSHAKE_VERSIONS,
        capabilities={"elicitation": {}, "sampling": {}},
        request_handlers={"elicitation/create": answer, "sampling/createMessage": refuse},
    ) as client:
        assert client.call_tool("ask") == {"action": "accept", "content": {"a": 1}}


def test_a_question_that_nobody_answers_is_declined(
    start: Start, world: ToolApp, caplog: pytest.LogCaptureFixture
) -> None:
    codes: list[int] = []

    @world.tool
    def ask(call: Call) -> Any:
        for method in ("elicitation/create", "sampling/createMessage"):
            with pytest.raises(JsonRpcError) as caught:
                call.ask(method, {})
            codes.append(caught.value.code)
        return {}

    def fail(request: sansmcp.ServerRequest) -> Any:
        raise ValueError("secret")

    serving = start()
    with sansmcp_blocking.connect(
        serving.url,
        versions=HANDSHAKE_VERSIONS,
        capabilities={"elicitation": {}, "sampling": {}},
        request_handlers={"elicitation/create": fail},
    ) as client:
        client.call_tool("ask")
    assert codes == [-32603, -32601]
    assert "secret" in caplog.text


# Events


def test_events_are_taken_after_calls_or_waited_for(start: Start, world: ToolApp) -> None:
    @world.tool
    def tell(call: Call) -> Any:
        for number in range(3):
            call.notify("notifications/message", {"data": number})
        return {}

    serving = start()
    client = sansmcp_blocking.connect(serving.url, versions=HANDSHAKE_VERSIONS)
    events = client.events(0)
    assert list(events) == []
    client.call_tool("tell")
    numbers = [
        event.notification.params["data"]
        for event in client.events(0)
        if isinstance(event, ServerNotified) and event.notification.params is not None
    ]
    assert numbers == [0, 1, 2]
    serving.publish("notifications/tools/list_changed")
    match next(client.events(PATIENCE)):
        case ServerNotified(None, notification):
            assert notification.method == "notifications/tools/list_changed"
        case other:
            raise AssertionError(other)
    client.close()
    client.close()
    assert list(client.events()) == [Closed(None)]
    with pytest.raises(LocalProtocolError, match="closed"):
        client.ping()


def test_events_that_nobody_takes_hold_up_calls(
    start: Start, world: ToolApp, caplog: pytest.LogCaptureFixture
) -> None:
    @world.tool
    def chatter(call: Call) -> Any:
        for number in range(200):
            call.notify("n", {"number": number, "text": "x" * 20_000})
        return {"said": 200}

    serving = start(limits=Limits(max_unsent_bytes=10_000), resumable=False)
    limits = Limits(max_queued_events=5)
    with sansmcp_blocking.connect(serving.url, limits=limits) as client:
        events = client.events(PATIENCE)
        pending = client.start_call("tools/call", {"name": "chatter"})
        while "until events are taken" not in caplog.text:
            with pytest.raises(TimeoutError):
                pending.result(timeout=0.1)
        notified = (event for event in events if isinstance(event, ServerNotified))
        numbers = [(next(notified).notification.params or {})["number"] for _ in range(200)]
        assert numbers == list(range(200))
        assert pending.result()["said"] == 200


# Threads and interrupts


def test_a_second_thread_is_refused(start: Start, world: ToolApp) -> None:
    begun, go_on = threading.Event(), threading.Event()
    caught: list[Exception] = []

    @world.tool
    def wait(call: Call) -> Any:
        begun.set()
        wait_for_event(go_on)
        return {}

    def intrude() -> None:
        wait_for_event(begun)
        try:
            client.ping()
        except LocalProtocolError as error:
            caught.append(error)
        go_on.set()

    serving = start()
    with sansmcp_blocking.connect(serving.url) as client:
        intruder = threading.Thread(target=intrude)
        intruder.start()
        client.call_tool("wait")
        intruder.join()
    assert "Another thread" in str(caught[0])


@pytest.mark.parametrize("interrupted", ["the thread that waits", "another thread"])
def test_an_interrupt_ends_the_wait_and_cancels_the_call(
    start: Start, world: ToolApp, interrupted: str
) -> None:
    """A signal that has interrupted another thread ends no wait, and on Windows none does."""
    main = threading.main_thread().ident
    assert main is not None

    @world.tool
    def hang(call: Call) -> Any:
        here = interrupted == "another thread"
        signal.pthread_kill(threading.get_ident() if here else main, signal.SIGINT)
        wait_for_event(call.cancelled)
        cancelled.set()

    cancelled = threading.Event()
    serving = start(limits=Limits(stream_comment_interval=3600))  # a comment would end the wait
    with sansmcp_blocking.connect(serving.url) as client:
        with pytest.raises(KeyboardInterrupt):
            client.call_tool("hang")
        wait_for_event(cancelled)
        assert client.call_tool("echo")["echo"] == {}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_waits_for_the_machine(start: Start) -> None:
    """It comes in the middle of a step; the step is done, and then it is raised."""
    lines = 0
    interrupted_at = 0
    held_back: list[int] = []

    def write(line: str) -> None:
        nonlocal lines
        lines += 1
        if lines == interrupted_at:
            signal.raise_signal(signal.SIGINT)
            held_back.append(lines)

    def once(step: int) -> bool:
        nonlocal interrupted_at
        interrupted_at = lines + step
        try:
            client.call_tool("echo")
        except KeyboardInterrupt:
            assert held_back[-1] == interrupted_at
        interrupted_at = 0
        assert client.call_tool("echo", {"step": step})["echo"] == {"step": step}
        return len(held_back) == step

    serving = start()
    trace = Tracer("client", write)
    with sansmcp_blocking.connect(serving.url, trace=trace, standalone_stream=False) as client:
        client.call_tool("echo")
        assert wherever(once) > 3


def test_an_interrupt_in_a_function_of_the_application_comes_at_once(
    start: Start, world: ToolApp
) -> None:
    @world.tool
    def ask(call: Call) -> Any:
        return call.ask("elicitation/create", {})

    def answer(request: sansmcp.ServerRequest) -> Any:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the interrupt came later")

    serving = start()
    with sansmcp_blocking.connect(
        serving.url,
        versions=HANDSHAKE_VERSIONS,
        capabilities={"elicitation": {}},
        request_handlers={"elicitation/create": answer},
    ) as client:
        with pytest.raises(KeyboardInterrupt):
            client.call_tool("ask")
        assert client.call_tool("echo")["echo"] == {}


def test_a_handler_of_the_program_for_interrupts_is_left_alone(start: Start) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        serving = start()
        with sansmcp_blocking.connect(serving.url) as client:
            signal.raise_signal(signal.SIGINT)
            assert client.call_tool("echo")["echo"] == {}
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


def test_async_functions_are_refused(start: Start) -> None:
    """Nothing would ever await them."""

    async def waits(event: Any) -> Any:
        raise NotImplementedError

    serving = start()
    answers: Any = {"elicitation/create": waits}
    with pytest.raises(
        sansmcp.LocalProtocolError,
        match=r"request_handlers\['elicitation/create'\] is an async function, .*; use def, or",
    ):
        sansmcp_blocking.connect(serving.url, request_handlers=answers)
    report: Any = waits
    with sansmcp_blocking.connect(serving.url) as client:
        for make in (client.call_tool, client.start_call):
            with pytest.raises(
                sansmcp.LocalProtocolError, match="on_progress is an async function"
            ):
                make("ping", on_progress=report)
