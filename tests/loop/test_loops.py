"""The little that both event loops are asked to do, they do alike."""

from __future__ import annotations

import asyncio
import math
import sys
from contextvars import ContextVar

import pytest

from sansmcp_local import Event, Loop, PendingResult, TimeoutScheduler, current_loop

from ..asgi.loops import PATIENCE, Run, until

NAME: ContextVar[str] = ContextVar("NAME", default="nobody")


def test_there_is_no_loop() -> None:
    with pytest.raises(RuntimeError, match="async function"):
        current_loop()


def test_a_loop_has_one_key(run: Run) -> None:
    keys: list[object] = []

    async def main() -> None:
        assert current_loop().key == current_loop().key
        keys.append(current_loop().key)

    run(main)
    run(main)
    assert keys[0] != keys[1]


def test_a_loop_knows_who_runs_in_it(run: Run) -> None:
    loops: list[Loop] = []

    async def main() -> None:
        loops.append(current_loop())
        assert [loop.is_here() for loop in loops] == [*[False] * (len(loops) - 1), True]

    run(main)
    run(main)
    assert not any(loop.is_here() for loop in loops)


def test_time_limits(run: Run) -> None:
    async def main() -> None:
        loop = current_loop()
        event = loop.event()
        before = loop.now()
        assert not await loop.within(0.01, event.wait)
        assert loop.now() - before >= 0.01
        assert not await loop.within(-1, event.wait)
        event.set()
        assert await loop.within(float("inf"), event.wait)

    run(main)


def test_the_work_within_a_limit_goes_on_as_if_it_were_awaited(run: Run) -> None:
    steps: list[str] = []

    async def main() -> None:
        loop = current_loop()

        async def nothing() -> None:
            steps.append("done")

        async def fail(waits: int) -> None:
            for _ in range(waits):
                await loop.checkpoint()
            raise ValueError(waits)

        async def clean_up() -> None:
            try:
                await loop.event().wait()
            finally:
                steps.append("cleaned up")

        async def wait_twice() -> None:
            await loop.checkpoint()
            steps.append("waited")
            await loop.event().wait()

        assert await loop.within(PATIENCE, nothing)
        for waits in range(3):
            with pytest.raises(ValueError, match=str(waits)):
                await loop.within(PATIENCE, fail, waits)
        assert not await loop.within(0.01, clean_up)
        assert not await loop.within(0.01, wait_twice)

    run(main)
    assert steps == ["done", "cleaned up", "waited"]


def test_work_that_waits_for_nothing_has_no_timer(run: Run) -> None:
    async def main() -> None:
        loop = current_loop()

        async def sleepless() -> bool:
            return await loop.within(-1, nothing)

        async def nothing() -> None:
            """Return at once."""

        assert await sleepless()

    run(main)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there it runs in a task of its own")
def test_work_within_a_limit_that_is_dropped_is_closed() -> None:
    closed: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            closed.append(True)

    async def main() -> None:
        dropped = current_loop().within(PATIENCE, work)
        dropped.send(None)
        assert not closed
        dropped.close()
        assert closed

    asyncio.run(main())


def test_a_cancellation_is_not_lost_as_the_work_ends(run: Run) -> None:
    async def main() -> None:
        loop = current_loop()
        for turns in range(5):
            event, ended = loop.event(), loop.event()

            async def wait(event: Event = event, ended: Event = ended) -> None:
                try:
                    await loop.within(PATIENCE, event.wait)
                    await loop.event().wait()
                finally:
                    ended.set()

            task = loop.spawn(wait)
            for _ in range(5):
                await loop.checkpoint()
            event.set()
            for _ in range(turns):
                await loop.checkpoint()
            task.cancel()
            await ended.wait()

    run(main)


def test_a_task_has_the_variables_of_its_creator(run: Run) -> None:
    seen: list[str] = []

    async def look() -> None:
        seen.append(NAME.get())

    async def main() -> None:
        NAME.set("ada")
        current_loop().spawn(look)
        await until(lambda: bool(seen))

    run(main)
    assert seen == ["ada"]


def test_what_a_task_raises_is_logged(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("lost")

    async def main() -> None:
        current_loop().spawn(fail)
        await until(lambda: "lost" in caplog.text)

    run(main)


def test_a_task_that_is_cancelled_at_once_begins(run: Run) -> None:
    """Otherwise what it was to await would be lost, without a trace."""
    steps: list[str] = []

    async def work() -> None:
        steps.append("begun")
        try:
            await current_loop().event().wait()
        finally:
            steps.append("ended")

    async def main() -> None:
        task = current_loop().spawn(work)
        task.cancel()
        await until(lambda: len(steps) == 2)
        task.cancel()

    run(main)
    assert steps == ["begun", "ended"]


def test_what_has_to_be_done_is_done_though_cancelled(run: Run) -> None:
    steps: list[str] = []

    async def main() -> None:
        loop = current_loop()
        begun, go_on, ended = loop.event(), loop.event(), loop.event()

        async def leave() -> None:
            begun.set()
            await go_on.wait()
            steps.append("left")

        async def work() -> None:
            try:
                await loop.run_shielded(leave)
                await loop.checkpoint()
                steps.append("not cancelled")
            finally:
                ended.set()

        task = loop.spawn(work)
        await begun.wait()
        task.cancel()
        await loop.checkpoint()
        await loop.checkpoint()
        go_on.set()
        await ended.wait()

    run(main)
    assert steps == ["left"]


def test_a_promise_is_kept_once(run: Run) -> None:
    async def main() -> None:
        kept, broken = PendingResult(current_loop().event()), PendingResult(current_loop().event())
        assert not kept.is_done
        kept.set_result(1)
        kept.set_exception(ValueError())
        assert (kept.is_done, await kept.wait()) == (True, 1)
        broken.set_exception(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            await broken.wait()

    run(main)


class Machine:
    """Wants to be told the time at a moment that the test says."""

    def __init__(self) -> None:
        self.deadline: float | None = None
        self.times: list[float] = []

    def next_deadline(self) -> float:
        return math.inf if self.deadline is None else self.deadline

    def handle_timeout(self) -> None:
        self.times.append(current_loop().now())
        self.deadline = None


def test_the_machine_is_told_of_earlier_deadlines(run: Run) -> None:
    async def main() -> None:
        loop = current_loop()
        machine = Machine()
        scheduler = TimeoutScheduler(loop, machine.next_deadline, machine.handle_timeout)
        deadline = 0.0
        for seconds in (60.0, 0.01):
            machine.deadline = deadline = loop.now() + seconds
            changed = scheduler.state_changed
            scheduler.reschedule()
            assert changed.is_set()
            await loop.checkpoint()
        await until(lambda: bool(machine.times))
        assert machine.times[0] >= deadline
        scheduler.stop()

    run(main)


def test_a_deadline_that_moves_away_is_kept(run: Run) -> None:
    async def main() -> None:
        loop = current_loop()
        machine = Machine()
        scheduler = TimeoutScheduler(loop, machine.next_deadline, machine.handle_timeout)
        deadline = 0.0
        for seconds in (0.01, 0.05):
            machine.deadline = deadline = loop.now() + seconds
            scheduler.reschedule()
            await loop.checkpoint()
        await until(lambda: bool(machine.times))
        assert machine.times[0] >= deadline
        scheduler.stop()

    run(main)


def test_a_scheduler_that_is_stopped_wakes_the_tasks_and_no_machine(run: Run) -> None:
    async def main() -> None:
        loop = current_loop()
        machine = Machine()
        scheduler = TimeoutScheduler(loop, machine.next_deadline, machine.handle_timeout)
        machine.deadline = loop.now()
        scheduler.reschedule()
        changed = scheduler.state_changed
        scheduler.stop()
        assert changed.is_set()
        scheduler.reschedule()
        assert not await loop.within(0.02, scheduler.state_changed.wait)
        assert machine.times == []

    run(main)


def test_what_a_timer_raises_is_logged(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("lost")

    async def main() -> None:
        timer = current_loop().timer(fail)
        for _ in range(2):
            caplog.clear()
            timer.set(current_loop().now())
            await until(lambda: "lost" in caplog.text)
        timer.stop()

    run(main)
