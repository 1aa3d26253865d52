"""The server on WSGI, under waitress."""

from __future__ import annotations

import socket

import waitress

import sansmcp_wsgi

from ..application import Application
from ..steps import blocking


def serve(port: int) -> None:
    """Serve the application, and print its URL."""
    application = Application(blocking, lambda call, seconds: call.sleep(seconds))
    mcp = sansmcp_wsgi.WsgiApp(application.app)
    application.publish = mcp.publish
    with socket.create_server(("localhost", port)) as listener:
        print(f"http://localhost:{listener.getsockname()[1]}/mcp", flush=True)
        waitress.serve(mcp, sockets=[listener], threads=20)
