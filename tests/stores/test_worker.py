"""The thread of a store: coroutines of any loop submit operations, and batches are performed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import trio

from sansmcp import LocalProtocolError
from sansmcp_stores._worker import StoreWorker


class Recorder:
    """Performs operations, and notes the batches; an operation that is an exception fails."""

    def __init__(self) -> None:
        self.batches: list[list[object]] = []
        self.threads: set[int] = set()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.has_begun = threading.Event()

    def perform(self, operations: Sequence[object]) -> Sequence[object]:
        self.threads.add(threading.get_ident())
        self.batches.append(list(operations))
        self.has_begun.set()
        assert self.may_go_on.wait(20)
        if "all fail" in operations:
            raise OSError("all fail")
        return [each if isinstance(each, Exception) else (each, "done") for each in operations]


def run_asyncio(work: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await work()

    return asyncio.run(main())


on_both = pytest.mark.parametrize("run", [run_asyncio, trio.run])
Run = Callable[[Callable[[], Awaitable[Any]]], Any]


@contextmanager
def working(
    recorder: Recorder, **settings: Any
) -> Generator[StoreWorker[object, object], None, None]:
    worker = StoreWorker[object, object](recorder.perform, name="test", **settings)
    try:
        yield worker
    finally:
        recorder.may_go_on.set()
        worker.close()


@on_both
def test_an_operation_returns_what_it_returns(run: Run) -> None:
    recorder = Recorder()
    with working(recorder) as worker:
        assert run(lambda: worker.submit(1)) == (1, "done")
        with pytest.raises(KeyError, match="its own"):
            run(lambda: worker.submit(KeyError("its own")))
        with pytest.raises(OSError, match="all fail"):
            run(lambda: worker.submit("all fail"))
        assert run(lambda: worker.submit(2)) == (2, "done")
    assert len(recorder.threads) == 1
    assert threading.get_ident() not in recorder.threads


def test_what_waits_is_one_batch() -> None:
    """A bounded one; each operation has an outcome of its own."""
    recorder = Recorder()
    recorder.may_go_on.clear()

    async def main(worker: StoreWorker[object, object]) -> list[Any]:
        first = asyncio.ensure_future(worker.submit("first"))
        await asyncio.to_thread(recorder.has_begun.wait, 20)
        sizes = [1, 1, 1, 1, 50, 60, 200]
        rest = [
            asyncio.ensure_future(worker.submit(ValueError() if number == 2 else number, size))
            for number, size in enumerate(sizes)
        ]
        await asyncio.sleep(0)
        recorder.may_go_on.set()
        return await asyncio.gather(first, *rest, return_exceptions=True)

    with working(recorder, max_operations=4, max_bytes=100) as worker:
        outcomes = asyncio.run(main(worker))
    assert [len(batch) for batch in recorder.batches] == [1, 4, 1, 1, 1]
    assert isinstance(outcomes.pop(3), ValueError)
    assert outcomes == [(each, "done") for each in ("first", 0, 1, 3, 4, 5, 6)]


def test_several_loops_at_once() -> None:
    recorder = Recorder()

    async def on_asyncio() -> list[Any]:
        return await asyncio.gather(*(worker.submit(number) for number in range(50)))

    async def on_trio() -> list[Any]:
        found: list[Any] = []

        async def submit(number: int) -> None:
            found.append(await worker.submit(number))

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(submit, number)
        return sorted(found)

    with working(recorder) as worker:
        results: list[Any] = []
        runs: list[tuple[Any, Any]] = [(run_asyncio, on_asyncio), (trio.run, on_trio)] * 2

        def run_in_thread(run: Any, work: Any) -> None:
            results.append(run(work))

        threads = [threading.Thread(target=run_in_thread, args=each) for each in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert results == [[(number, "done") for number in range(50)]] * 4
    assert len(recorder.threads) == 1


@on_both
def test_a_loop_is_woken_once_for_each_batch(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from sansmcp_local._loop._asyncio import AsyncioLoop
    from sansmcp_local._loop._trio import TrioLoop

    wakings: list[int] = []
    for kind in (AsyncioLoop, TrioLoop):
        run_soon = kind.run_soon

        def count(self: Any, work: Any, events: Any, run_soon: Any = run_soon) -> None:
            wakings.append(len(events))
            run_soon(self, work, events)

        monkeypatch.setattr(kind, "run_soon", count)
    recorder = Recorder()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(worker.submit, number)

    async def main_asyncio() -> None:
        await asyncio.gather(*(worker.submit(number) for number in range(20)))

    with working(recorder) as worker:
        run(main if run is trio.run else main_asyncio)
    assert wakings == [len(batch) for batch in recorder.batches]


@on_both
def test_a_cancelled_caller_loses_nothing(run: Run) -> None:
    """Its operation is performed, and nobody hears of it."""
    recorder = Recorder()
    recorder.may_go_on.clear()

    async def cancel_asyncio() -> None:
        tasks = [asyncio.ensure_future(worker.submit(name)) for name in ("busy", "cancelled")]
        await asyncio.to_thread(recorder.has_begun.wait, 20)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def cancel_trio() -> None:
        async with trio.open_nursery() as nursery:
            for name in ("busy", "cancelled"):
                nursery.start_soon(worker.submit, name)
            await trio.to_thread.run_sync(recorder.has_begun.wait, 20)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    with working(recorder) as worker:
        run(cancel_trio if run is trio.run else cancel_asyncio)
    assert sorted(str(each) for batch in recorder.batches for each in batch) == [
        "busy",
        "cancelled",
    ]


def test_a_closed_worker_takes_nothing() -> None:
    recorder = Recorder()
    with working(recorder) as worker:
        worker.close()
        worker.close()
        worker.wake()
        with pytest.raises(LocalProtocolError, match="closed"):
            asyncio.run(worker.submit(1))
    assert not recorder.batches


def _close_while_two_wait(operations: tuple[str, str, str]) -> tuple[Recorder, list[Any]]:
    """Close a worker of batches of one operation, while it performs the first of three."""
    recorder = Recorder()
    recorder.may_go_on.clear()

    async def main() -> list[Any]:
        tasks = [asyncio.ensure_future(worker.submit(each)) for each in operations]
        await asyncio.to_thread(recorder.has_begun.wait, 20)
        closing = threading.Thread(target=worker.close)
        closing.start()
        while True:  # submit() refuses as soon as close() has begun
            try:
                await asyncio.wait_for(worker.submit("late"), 0.01)
            except LocalProtocolError:
                break
            except asyncio.TimeoutError:
                pass
        recorder.may_go_on.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(closing.join, 20)
        return outcomes

    with working(recorder, max_operations=1) as worker:
        return recorder, asyncio.run(main())


def test_what_waits_is_performed_when_the_worker_closes() -> None:
    recorder, outcomes = _close_while_two_wait(("a", "b", "c"))
    assert outcomes == [("a", "done"), ("b", "done"), ("c", "done")]
    assert [batch for batch in recorder.batches if batch != ["late"]] == [["a"], ["b"], ["c"]]


def test_what_waits_fails_with_the_store_when_the_worker_closes() -> None:
    """A store that is out of reach costs the time of one batch, not of each that waits."""
    recorder, outcomes = _close_while_two_wait(("all fail", "b", "c"))
    assert [str(each) for each in outcomes] == ["all fail"] * 3
    assert [each for batch in recorder.batches for each in batch] == ["all fail"]


def test_looking() -> None:
    """After each batch, when woken, and after the pause that it returned."""
    recorder = Recorder()
    looks: list[threading.Event] = [threading.Event() for _ in range(5)]
    numbers = iter(range(5))

    def look() -> float | None:
        number = next(numbers)
        looks[number].set()
        if number == 2:
            raise ValueError("a bug")
        return 0.001 if number == 3 else None

    with working(recorder, look=look) as worker:
        assert not recorder.threads
        worker.wake()
        assert looks[0].wait(20)
        asyncio.run(worker.submit(1))
        assert looks[1].wait(20)
        worker.wake()
        assert looks[2].wait(20)
        worker.wake()  # the thread is alive
        assert looks[3].wait(20)
        assert looks[4].wait(20)


def test_a_process_that_does_not_close() -> None:
    """It ends, also while the thread has something to do."""
    program = """
import asyncio, time
from sansmcp_stores._worker import StoreWorker

worker = StoreWorker(lambda numbers: numbers, look=lambda: 0.001, name="test")
slow = StoreWorker(lambda numbers: time.sleep(3600), name="slow")

async def main():
    asyncio.ensure_future(slow.submit(0))
    print(await worker.submit(7))

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("is_used_before", [False, True])
def test_a_process_that_forks(is_used_before: bool) -> None:
    """Both have a thread of their own; what the parent submitted is performed there, once."""
    recorder = Recorder()
    with working(recorder) as worker:
        thread = threading.Thread(target=lambda: asyncio.run(worker.submit("parent")))
        if is_used_before:
            recorder.may_go_on.clear()
            thread.start()
            assert recorder.has_begun.wait(20)
        child = os.fork()
        if not child:
            status = 1
            try:
                recorder.may_go_on = threading.Event()
                recorder.may_go_on.set()
                assert asyncio.run(worker.submit("child")) == ("child", "done")
                assert recorder.batches[is_used_before:] == [["child"]]
                worker.close()
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert status == 0
        recorder.may_go_on.set()
        if is_used_before:
            thread.join(20)
        assert asyncio.run(worker.submit("after")) == ("after", "done")


@on_both
def test_a_system_without_threads_that_has_one_later(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with working(recorder) as worker:

        async def main() -> object:
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", fail)
                with pytest.raises(RuntimeError, match="can't start new thread"):
                    await worker.submit("refused")
            return await worker.submit("one")

        assert run(main) == ("one", "done")
    assert recorder.batches == [["one"]]
