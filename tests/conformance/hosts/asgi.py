"""The server on ASGI, under uvicorn."""

from __future__ import annotations

import asyncio
import socket

import uvicorn

import sansmcp_asgi

from ..application import Application
from ..steps import awaiting


def serve(port: int) -> None:
    """Serve the application, and print its URL."""
    application = Application(awaiting, lambda call, seconds: asyncio.sleep(seconds))
    mcp = sansmcp_asgi.asgi_app(application.app)
    application.publish = mcp.publish
    with socket.create_server(("localhost", port)) as listener:
        print(f"http://localhost:{listener.getsockname()[1]}/mcp", flush=True)
        uvicorn.Server(uvicorn.Config(mcp, log_level="warning")).run(sockets=[listener])
