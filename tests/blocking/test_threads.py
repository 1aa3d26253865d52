"""The threads in which handlers run: how many, and for how long."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import sansmcp_blocking
from sansmcp import LocalProtocolError
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp_blocking import Call
from sansmcp_local import ThreadPool
from sansmcp_local._threads._driver import ThreadedServerCall

from .conftest import PATIENCE, Start, ToolApp, wait_for_event


def test_more_calls_than_threads_wait_their_turn(start: Start, world: ToolApp) -> None:
    running: list[int] = []
    lock = threading.Lock()

    @world.tool
    def work(call: Call) -> Any:
        with lock:
            running.append(len(running))
            seen = len(running)
        call.cancelled.wait(0.01)
        with lock:
            running.pop()
        return {"seen": seen}

    serving = start(threads=2)
    with sansmcp_blocking.connect(serving.url) as client:
        pending = [client.start_call("tools/call", {"name": "work"}) for _ in range(10)]
        assert {each.result()["seen"] for each in pending} <= {1, 2}


def test_where_the_system_has_no_more_threads_those_that_there_are_suffice(
    start: Start, world: ToolApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    @world.tool
    def work(call: Call) -> Any:
        call.cancelled.wait(0.001)
        return {"number": call.params["arguments"]["n"]}

    monkeypatch.setattr("sansmcp_local._threads._thread_pool._IDLE_THREAD_TIMEOUT", 10 * PATIENCE)
    serving = start(threads=8)
    with sansmcp_blocking.connect(serving.url) as client:
        client.call_tool("work", {"n": -1})

        def fail(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", fail)
        pending = [
            client.start_call("tools/call", {"name": "work", "arguments": {"n": number}})
            for number in range(10)
        ]
        assert [each.result()["number"] for each in pending] == list(range(10))


def test_a_thread_is_kept_for_the_next_call_and_not_for_longer(
    start: Start, world: ToolApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sansmcp_local._threads._thread_pool._IDLE_THREAD_TIMEOUT", 10 * PATIENCE)
    seen: set[threading.Thread] = set()

    @world.tool
    def work(call: Call) -> Any:
        seen.add(threading.current_thread())
        return {}

    serving = start()
    with sansmcp_blocking.connect(serving.url) as client:
        for _ in range(20):
            client.call_tool("work")
        assert len(seen) < 20
        pending = [client.start_call("tools/call", {"name": "work"}) for _ in range(20)]
        for each in pending:
            each.result()
    assert len(seen) < 40
    serving.close()
    for thread in seen:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_thread_ends_that_gets_nothing_to_do(
    start: Start, world: ToolApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sansmcp_local._threads._thread_pool._IDLE_THREAD_TIMEOUT", 0.001)
    seen: list[threading.Thread] = []

    @world.tool
    def work(call: Call) -> Any:
        seen.append(threading.current_thread())
        return {}

    serving = start()
    with sansmcp_blocking.connect(serving.url) as client:
        for _ in range(3):
            client.call_tool("work")
            seen[-1].join(PATIENCE)
            assert not seen[-1].is_alive()


def test_a_call_whose_turn_comes_too_late_is_not_begun(
    start: Start, world: ToolApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, cancelled = threading.Event(), threading.Event(), threading.Event()
    come = threading.Semaphore(0)
    worked: list[Any] = []

    @world.tool
    def work(call: Call) -> Any:
        worked.append(call.params["arguments"])
        begun.set()
        wait_for_event(go_on)
        return {}

    class WatchedCall(ThreadedServerCall):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            come.release()

        def cancel(self) -> None:
            super().cancel()
            cancelled.set()

    monkeypatch.setattr("sansmcp_local._threads._driver.ThreadedServerCall", WatchedCall)
    serving = start(threads=1)
    with sansmcp_blocking.connect(serving.url, versions=HANDSHAKE_VERSIONS) as client:
        first = client.start_call("tools/call", {"name": "work", "arguments": 1})
        wait_for_event(begun)
        second = client.start_call("tools/call", {"name": "work", "arguments": 2})
        for _ in range(2):
            assert come.acquire(timeout=PATIENCE)
        second.cancel()
        wait_for_event(cancelled)
        go_on.set()
        first.result()
        client.call_tool("work")
    assert worked == [1, {}]


def test_threads_that_there_are_not(start: Start) -> None:
    with pytest.raises(LocalProtocolError, match="There must be a thread for handlers, not 0"):
        start(threads=0)


def test_what_is_refused_because_there_are_no_threads_is_not_run_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool, ran, done = ThreadPool(1), list[str](), threading.Event()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            pool.submit(lambda: ran.append("refused"))
    pool.submit(lambda: ran.append("later"))
    pool.submit(done.set)
    assert done.wait(PATIENCE)
    assert ran == ["later"]
