"""The common parts of blocking adapters: handlers in threads, and clients.

The I/O is done elsewhere: by the selector loop of :mod:`sansmcp_blocking`, the threads of a WSGI
server under :mod:`sansmcp_wsgi`, httpx, or a function that makes one HTTP request
(:func:`connect`).
"""

from typing import TYPE_CHECKING

from sansmcp import _lazy

if TYPE_CHECKING:
    from sansmcp_local import DriverSettings

    from ._call import Call, ThreadCall
    from ._client import Client, ConcurrentClient, PendingCall, check_plain
    from ._driver import ThreadedServerCall, ThreadedServerDriver
    from ._fetch import Fetch, FetchClient, connect, on_abort
    from ._group import ClientGroup
    from ._thread_pool import ThreadPool
else:
    __getattr__, __dir__ = _lazy.names(
        globals(),
        {
            "._call": ("Call", "ThreadCall"),
            "._client": ("Client", "ConcurrentClient", "PendingCall", "check_plain"),
            "._fetch": ("Fetch", "FetchClient", "connect", "on_abort"),
            "._group": ("ClientGroup",),
            "._driver": ("ThreadedServerCall", "ThreadedServerDriver"),
            "._thread_pool": ("ThreadPool",),
            "sansmcp_local": ("DriverSettings",),
        },
    )

__all__ = [
    "Call",
    "Client",
    "ClientGroup",
    "ConcurrentClient",
    "DriverSettings",
    "Fetch",
    "FetchClient",
    "PendingCall",
    "ThreadCall",
    "ThreadPool",
    "ThreadedServerCall",
    "ThreadedServerDriver",
    "check_plain",
    "connect",
    "on_abort",
]
