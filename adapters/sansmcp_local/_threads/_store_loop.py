"""The event loop in which an asynchronous store works for a server that has none."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from .._log import log_unexpected

if TYPE_CHECKING:
    import asyncio  # else imported when an asynchronous store is used: most servers have none

_Work: TypeAlias = Callable[..., Coroutine[Any, Any, None]]


class StoreLoop:
    """Run coroutines and functions in an asyncio loop in a thread of its own.

    The thread starts with the first use. After :meth:`end` it ends as soon as nothing is left to
    do. What is started later gets a thread again, which ends in the same way.
    """

    _loop: asyncio.AbstractEventLoop | None
    """None if no thread is there."""
    _thread: threading.Thread | None
    """The last one that was started."""
    _submitted: int
    """What was submitted and has not ended."""

    def __init__(self) -> None:
        self._begin()

    def spawn(self, work: _Work, *arguments: Any) -> None:
        """Start a task for an async function. May be called from any thread."""
        self._submit(self._start_task, work, arguments)

    def call(self, work: Callable[[], object]) -> None:
        """Call a function in the thread, after everything that was submitted before.

        May be called from any thread.
        """
        self._submit(self._call, work)

    def end(self, seconds: float) -> bool:
        """End the thread when it has nothing left to do, and wait for that.

        After ``seconds``, all tasks are cancelled, and get as long to end.

        Returns:
            False if a task was cancelled.
        """
        if self._process != os.getpid():
            return True  # this process was forked, and has no such thread
        with self._lock:
            self._is_ending = True
            self._stop_if_idle()
            thread = self._thread
        if thread is None:
            return True
        thread.join(seconds)
        is_idle = not thread.is_alive()
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._loop = None
        thread.join(seconds)
        return is_idle

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._loop = None
        self._thread = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._submitted = 0
        self._is_ending = False

    def _submit(self, start: Callable[..., None], *arguments: Any) -> None:
        if self._process != os.getpid():
            self._begin()
        with self._lock:
            loop = self._loop or self._start_thread()
            loop.call_soon_threadsafe(start, *arguments)
            self._submitted += 1

    def _start_thread(self) -> asyncio.AbstractEventLoop:
        import asyncio

        loop = asyncio.new_event_loop()
        # A daemon thread: a store that never returns must not keep the program from exiting.
        thread = threading.Thread(target=_run, args=(loop,), name="sansmcp store", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no more
            loop.close()
            raise
        self._loop, self._thread, self._submitted = loop, thread, 0
        return loop

    # In the thread

    def _start_task(self, work: _Work, arguments: tuple[Any, ...]) -> None:
        import asyncio

        task = asyncio.get_running_loop().create_task(work(*arguments))
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            log_unexpected(error)
        self._ended()

    def _call(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:
            log_unexpected(error)
        self._ended()

    def _ended(self) -> None:
        import asyncio

        with self._lock:
            if self._loop is asyncio.get_running_loop():  # else it is stopped already
                self._submitted -= 1
                self._stop_if_idle()

    def _stop_if_idle(self) -> None:
        if self._loop is not None and self._is_ending and not self._submitted:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped, and close it."""
    import asyncio

    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
