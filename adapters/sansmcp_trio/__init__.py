"""MCP on trio: a client and a server over TCP, TLS and stdio.

    async with sansmcp_trio.connect("http://127.0.0.1:8000/mcp") as client:
        result = await client.call_tool("echo", {"text": "hi"}, timeout=30)

    await sansmcp_trio.serve(app, http=("127.0.0.1", 8000))

The protocol is in :mod:`sansmcp`; this package does the I/O and keeps the deadlines.
"""

from typing import TYPE_CHECKING

from sansmcp import _lazy

if TYPE_CHECKING:
    from sansmcp_local import Call, TaskHandle, ThreadCall

    from ._client import Client, connect, log_out
    from ._group import ClientGroup
    from ._server import RunningServer, serve
else:
    __getattr__, __dir__ = _lazy.names(
        globals(),
        {
            "._client": ("Client", "connect", "log_out"),
            "._group": ("ClientGroup",),
            "._server": ("RunningServer", "serve"),
            "sansmcp_local": ("Call", "TaskHandle", "ThreadCall"),
        },
        extra=("trio", "trio"),
    )

__all__ = [
    "Call",
    "Client",
    "ClientGroup",
    "RunningServer",
    "TaskHandle",
    "ThreadCall",
    "connect",
    "log_out",
    "serve",
]
