"""The event loop that is running, asyncio's or trio's: the little that adapters for both need.

It is no layer on which applications could be written: no nurseries, no sockets, no cancellation but
that of whole tasks.
"""

from typing import TYPE_CHECKING

from sansmcp import _lazy

if TYPE_CHECKING:
    from ._asyncio import AsyncioTask, wait_all_shielded
    from ._client import AwaitableClient, Client, RequestHandler, perform
    from ._http import HttpExchange, HttpServing
    from ._loops import DeadlineTimer, Event, Loop, Task, current_loop
    from ._machine import PendingResult, TimeoutScheduler
    from ._serving import THREADS, Call, RunningServer
else:
    __getattr__, __dir__ = _lazy.names(
        globals(),
        {
            "._asyncio": ("AsyncioTask", "wait_all_shielded"),
            "._client": ("RequestHandler", "AwaitableClient", "Client", "perform"),
            "._http": ("HttpExchange", "HttpServing"),
            "._loops": ("DeadlineTimer", "Event", "Loop", "Task", "current_loop"),
            "._machine": ("PendingResult", "TimeoutScheduler"),
            "._serving": ("THREADS", "Call", "RunningServer"),
        },
    )

__all__ = [
    "THREADS",
    "AsyncioTask",
    "AwaitableClient",
    "Call",
    "Client",
    "DeadlineTimer",
    "Event",
    "HttpExchange",
    "HttpServing",
    "Loop",
    "PendingResult",
    "RequestHandler",
    "RunningServer",
    "Task",
    "TimeoutScheduler",
    "current_loop",
    "perform",
    "wait_all_shielded",
]
