"""An MCP client on your own client of httpx or httpx2, asynchronous or blocking.

    async with httpx.AsyncClient(auth=..., verify=...) as http:
        async with sansmcp_httpx.connect(url, http) as client:
            result = await client.call_tool("echo", {"text": "hi"}, timeout=30)

    with httpx.Client() as http, sansmcp_httpx.connect_blocking(url, http) as client:
        result = client.call_tool("echo", {"text": "hi"}, timeout=30)

Proxies, certificates, HTTP/2, authentication, cookies and event hooks are those of the HTTP client.
Closing it is up to you. The protocol is in :mod:`sansmcp`.

:func:`events` and :func:`events_blocking` read event streams that are not MCP.
"""

from ._blocking import BlockingClient, connect_blocking, log_out_blocking
from ._client import Client, connect, log_out
from ._events import events, events_blocking

__all__ = [
    "BlockingClient",
    "Client",
    "connect",
    "connect_blocking",
    "events",
    "events_blocking",
    "log_out",
    "log_out_blocking",
]
