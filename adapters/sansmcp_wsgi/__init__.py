"""MCP as a WSGI application (PEP 3333), under any server with threads and in any framework.

    mcp = sansmcp_wsgi.WsgiApp(app)                             # gunicorn --threads 16 module:mcp
    DispatcherMiddleware(flask_app, {"/api": mcp})              # serves /api/mcp

The protocol is in :mod:`sansmcp`; this package connects it with WSGI.
"""

from sansmcp_local._threads._call import Call

from ._app import WsgiApp

__all__ = ["Call", "WsgiApp"]
