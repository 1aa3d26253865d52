"""MCP with blocking I/O: a client without threads, and a server whose handlers are functions.

    with sansmcp_blocking.connect("http://127.0.0.1:8000/mcp") as client:
        result = client.call_tool("echo", {"text": "hi"}, timeout=30)

    with sansmcp_blocking.serve(app, http=("127.0.0.1", 8000)) as serving:
        serving.wait()

The protocol is in :mod:`sansmcp`; this package does the I/O on sockets and pipes, runs handlers in
threads and keeps the deadlines.
"""

from typing import TYPE_CHECKING

from sansmcp import _lazy

if TYPE_CHECKING:
    from sansmcp_local import PendingCall
    from sansmcp_local._threads._call import Call
    from sansmcp_local._threads._client import TaskHandle

    from ._client import Client, connect, log_out
    from ._group import ClientGroup
    from ._server import RunningServer, serve
    from ._steps import SteppedClient, SteppedServer, connect_in_steps, serve_in_steps
else:
    __getattr__, __dir__ = _lazy.names(
        globals(),
        {
            "._client": ("Client", "connect", "log_out"),
            "._group": ("ClientGroup",),
            "._server": ("RunningServer", "serve"),
            "._steps": ("SteppedClient", "SteppedServer", "connect_in_steps", "serve_in_steps"),
            "sansmcp_local": ("PendingCall",),
            "sansmcp_local._threads._call": ("Call",),
            "sansmcp_local._threads._client": ("TaskHandle",),
        },
    )

__all__ = [
    "Call",
    "Client",
    "ClientGroup",
    "PendingCall",
    "RunningServer",
    "SteppedClient",
    "SteppedServer",
    "TaskHandle",
    "connect",
    "connect_in_steps",
    "log_out",
    "serve",
    "serve_in_steps",
]
