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
    from ._request_tasks import RequestTaskClient
    from ._serving import THREADS, Call, RunningServer
    from ._signals import called_at
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
            "._request_tasks": ("RequestTaskClient",),
            "._serving": ("THREADS", "Call", "RunningServer"),
            "._signals": ("called_at",),
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
    "RequestTaskClient",
    "RunningServer",
    "StartTask",
    "Task",
    "TimeoutScheduler",
    "called_at",
    "current_loop",
    "perform",
    "wait_all_shielded",
]
