"""MCP as an ASGI application, under any server and in any framework, on asyncio and on trio.

    mcp = sansmcp_asgi.asgi_app(app)                    # uvicorn yourmodule:mcp
    Starlette(routes=[Mount("/api", mcp)])              # serves /api/mcp
    Starlette(routes=[Route("/mcp", mcp)])              # serves /mcp

The protocol is in :mod:`sansmcp`; this package connects it with ASGI.
"""

from sansmcp_local import Call, ThreadCall

from ._app import AsgiApp, asgi_app

__all__ = ["AsgiApp", "Call", "ThreadCall", "asgi_app"]
