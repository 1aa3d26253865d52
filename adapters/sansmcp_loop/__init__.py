"""The event loop that is running, asyncio's or trio's: the little that adapters for both need.

It is no layer on which applications could be written: no nurseries, no sockets, no cancellation but
that of whole tasks.
"""

from typing import TYPE_CHECKING

from sansmcp import later

if TYPE_CHECKING:
    from ._client import Answerer, AwaitableClient, Client, perform
    from ._loops import Event, Loop, Task, current_loop
    from ._machine import Clock, Promise, Timekeeper
    from ._serving import THREADS, Call, Serving
else:
    __getattr__, __dir__ = later.names(
        globals(),
        {
            "._client": ("Answerer", "AwaitableClient", "Client", "perform"),
            "._loops": ("Event", "Loop", "Task", "current_loop"),
            "._machine": ("Clock", "Promise", "Timekeeper"),
            "._serving": ("THREADS", "Call", "Serving"),
        },
    )

__all__ = [
    "THREADS",
    "Answerer",
    "AwaitableClient",
    "Call",
    "Client",
    "Clock",
    "Event",
    "Loop",
    "Promise",
    "Serving",
    "Task",
    "Timekeeper",
    "current_loop",
    "perform",
]
