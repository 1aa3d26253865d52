"""The common parts of adapters for asyncio and trio, and the running event loop of either.

The loop offers just what adapters for both need. It is no layer for applications: it has neither
nurseries nor sockets, and cancels whole tasks only.
"""

from typing import TYPE_CHECKING

from sansmcp import _lazy

if TYPE_CHECKING:
    from ._asyncio import AsyncioTask, wait_all_shielded
    from ._client import AwaitableClient, Client, RequestHandler, perform
    from ._group import ClientGroup, StartTask
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
            "._group": ("ClientGroup", "StartTask"),
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
    "ClientGroup",
    "DeadlineTimer",
    "Event",
    "HttpExchange",
    "HttpServing",
    "Loop",
    "PendingResult",
    "RequestHandler",
    "RunningServer",
    "StartTask",
    "Task",
    "TimeoutScheduler",
    "current_loop",
    "perform",
    "wait_all_shielded",
]
