"""A protected server for the pages of one origin.

``python -m tests.browser.server KIND PORT ORIGIN`` runs it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import trio
import uvicorn
import waitress

import sansmcp
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_trio
from sansmcp_asgi import asgi_app
from sansmcp_cli import example
from sansmcp_wsgi import WsgiApp

HOST = "127.0.0.1"
ISSUER = "https://login.example.com"


def authenticate(head: Any, connection: Any) -> str | sansmcp.Refusal:
    """Take one token."""
    return "ada" if b"Bearer ada" in head.values(b"authorization") else sansmcp.Refusal()


def main(kind: str, port: int, origin: str) -> None:
    """Serve until the process is ended."""
    settings: dict[str, Any] = {
        "policy": sansmcp.SecurityPolicy(allowed_origins=(origin,), cors=True),
        "authenticate": authenticate,
        "protected_resource": sansmcp.ProtectedResource(
            resource=f"http://{HOST}:{port}/mcp", authorization_servers=(ISSUER,)
        ),
        "resumable": True,
        "limits": sansmcp.Limits(max_headers=40),
    }

    async def on_asyncio() -> None:
        await sansmcp_asyncio.serve(example.app, http=(HOST, port), **settings)

    async def on_trio() -> None:
        await sansmcp_trio.serve(example.app, http=(HOST, port), **settings)

    if kind == "asyncio":
        asyncio.run(on_asyncio())
    elif kind == "trio":
        trio.run(on_trio)
    elif kind == "blocking":
        with sansmcp_blocking.serve(example.blocking_app, http=(HOST, port), **settings) as serving:
            serving.wait()
    elif kind == "asgi":
        uvicorn.run(asgi_app(example.app, **settings), host=HOST, port=port, log_level="warning")
    else:
        application = WsgiApp(example.blocking_app, **settings)
        waitress.serve(application, host=HOST, port=port, threads=20)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
