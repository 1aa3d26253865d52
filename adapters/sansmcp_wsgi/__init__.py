"""MCP as a WSGI application (PEP 3333), under any server with threads and in any framework.

    mcp = sansmcp_wsgi.WsgiApp(app)                             # gunicorn --threads 16 module:mcp
    DispatcherMiddleware(flask_app, {"/api": mcp})              # serves /api/mcp

All decisions are made by :mod:`sansmcp`; here is only what WSGI needs.
"""

from sansmcp_threads import Call

from ._app import WsgiApp

__all__ = ["Call", "WsgiApp"]
