"""The thread of a store, which performs the operations of all event loops of a process.

Databases and their clients block the thread that uses them, so a store gives them one of its own.
Coroutines in any loop, of asyncio or trio, submit operations and wait. The thread takes all that
wait, performs them together, and so pays only once for what a batch can share: a transaction and
its synchronisation with the disk, or a round trip to a server.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

import attrs

from sansmcp import LocalProtocolError
from sansmcp_local import Event, Loop, current_loop

_logger = logging.getLogger("sansmcp")

_PAUSE_AFTER_ERROR = 1.0
"""Seconds until ``look`` is called again after it has raised an exception."""

Operation = TypeVar("Operation")
Returned = TypeVar("Returned")


@attrs.define(eq=False)
class _Submitted(Generic[Operation, Returned]):
    """An operation, and the coroutine that waits for it."""

    operation: Operation
    size: int
    loop: Loop
    is_done: Event
    outcome: Returned | Exception | None = None
    """What it has returned or raised; None also before it is done."""


class StoreWorker(Generic[Operation, Returned]):
    """Performs the operations of a store in a thread, in batches.

    The thread starts with the first operation, or with :meth:`wake`. It never starts earlier, so a
    process can make a store and then fork. A process that has forked later gets a new thread; the
    operations that its parent has submitted remain with the parent.

    The thread is a daemon: a process that does not call :meth:`close` can end, and loses the
    operations that still wait.

    Thread-safe.
    """

    def __init__(
        self,
        perform: Callable[[Sequence[Operation]], Sequence[Returned | Exception]],
        *,
        look: Callable[[], float | None] | None = None,
        name: str,
        max_operations: int = 32,
        max_bytes: int = 2**18,
    ) -> None:
        """Prepare the worker.

        Args:
            perform: performs operations, in the thread. Returns what each one returns or raises, in
                their order. If it raises an exception itself, all of them fail with it.
            look: is called in the thread after each batch, after :meth:`wake`, and when the seconds
                have passed that it returned last; None waits for one of the others.
            name: of the thread.
            max_operations: of a batch.
            max_bytes: of a batch; its first operation may be larger.
        """
        self._perform = perform
        self._look = look
        self._name = name
        self._max_operations = max_operations
        self._max_bytes = max_bytes
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition()
        """Guards all that follows; notified when the thread has something to do."""
        self._waiting: deque[_Submitted[Operation, Returned]] = deque()
        self._thread: threading.Thread | None = None
        self._must_look = False
        self._is_closed = False

    async def submit(self, operation: Operation, size: int = 0) -> Returned:
        """Have an operation performed. Returns what it returns, and raises what it raises.

        If the coroutine is cancelled while it waits, the operation is performed all the same.

        Args:
            operation: for ``perform``.
            size: its bytes, for the bound on a batch.

        Raises:
            LocalProtocolError: the store is closed.
            RuntimeError: the system has no thread for the store.
        """
        loop = current_loop()
        # Without the types in the call, with which Python takes five times as long.
        submitted: _Submitted[Operation, Returned] = _Submitted(operation, size, loop, loop.event())
        self._check_process()
        with self._changed:
            if self._is_closed:
                raise LocalProtocolError("The store is closed")
            self._start()
            self._waiting.append(submitted)
        await submitted.is_done.wait()
        outcome = submitted.outcome
        if not isinstance(outcome, Exception):
            return outcome  # type: ignore[return-value]  # pyright: ignore[reportReturnType]
        try:
            raise outcome
        finally:
            # Its traceback has this frame, so together they would wait for the garbage collector.
            del outcome, submitted

    def wake(self) -> None:
        """Call ``look`` soon, in the thread. Without effect when the store is closed."""
        self._check_process()
        with self._changed:
            if not self._is_closed:
                self._start()
                self._must_look = True

    def close(self) -> None:
        """Perform what waits, and end the thread; return when it has ended.

        If all operations of a batch fail, those that remain fail with the last one's exception, so
        that a store that is out of reach costs the time of one batch at most.

        A second call has no effect.
        """
        self._check_process()
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _check_process(self) -> None:
        # The thread of the parent does not exist here, and may have held the lock.
        if self._process != os.getpid():
            is_closed = self._is_closed
            self._reset()
            self._is_closed = is_closed

    def _start(self) -> None:
        """Start the thread, or wake it; called with the lock."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self._thread = thread  # after that: a system without threads may have one later
        else:
            self._changed.notify()

    # In the thread

    def _run(self) -> None:
        pause: float | None = None
        while (batch := self._next_batch(pause)) is not None:
            if batch:
                self._complete(batch, self._outcomes(batch))
            pause = self._look_again()

    def _look_again(self) -> float | None:
        """Call ``look``. Returns the seconds until the next time."""
        if self._look is None:
            return None
        try:
            return self._look()
        except Exception:  # without the thread every operation would wait for ever
            _logger.exception("%s: an unexpected error", self._name)
            return _PAUSE_AFTER_ERROR

    def _next_batch(self, pause: float | None) -> list[_Submitted[Operation, Returned]] | None:
        """Wait for operations. Returns none when it is time to look, and None to end the thread."""
        batch: list[_Submitted[Operation, Returned]] = []
        size = 0
        with self._changed:
            if not (self._waiting or self._must_look or self._is_closed):
                self._changed.wait(pause)
            self._must_look = False
            if self._is_closed and not self._waiting:
                return None
            while self._waiting and len(batch) < self._max_operations:
                size += self._waiting[0].size
                if batch and size > self._max_bytes:
                    break
                batch.append(self._waiting.popleft())
        return batch

    def _outcomes(
        self, batch: list[_Submitted[Operation, Returned]]
    ) -> Sequence[Returned | Exception]:
        try:
            outcomes = self._perform([each.operation for each in batch])
            assert len(outcomes) == len(batch), "perform must return an outcome for each operation"
        except Exception as error:
            outcomes = [error] * len(batch)
        if self._is_closed and all(isinstance(each, Exception) for each in outcomes):
            with self._changed:
                rest = list(self._waiting)
                self._waiting.clear()
            self._complete(rest, [outcomes[-1]] * len(rest))
        return outcomes

    def _complete(
        self,
        batch: list[_Submitted[Operation, Returned]],
        outcomes: Sequence[Returned | Exception],
    ) -> None:
        """Wake the coroutines that wait for these operations, those of one loop at once."""
        by_loop: dict[Hashable, list[_Submitted[Operation, Returned]]] = {}
        for submitted, outcome in zip(batch, outcomes, strict=True):
            submitted.outcome = outcome
            by_loop.setdefault(submitted.loop.key, []).append(submitted)
        for completed in by_loop.values():
            with suppress(RuntimeError):  # the loop has ended
                completed[0].loop.run_soon(_wake_all, [each.is_done for each in completed])


def _wake_all(events: list[Event]) -> None:
    for event in events:
        event.set()
