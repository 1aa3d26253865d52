"""JSON-RPC messages that harnesses and tests send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LATEST = "2025-11-25"
PING = b'{"jsonrpc":"2.0","id":7,"method":"ping"}'


def request(id: Any, method: str = "tools/call", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def response(id: Any, result: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": {} if result is None else result}


def error(id: Any, code: int = -1, message: str = "no", **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, **more}}


def initialize(
    version: str = LATEST, capabilities: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the first request of the handshake."""
    return request(
        0,
        "initialize",
        protocolVersion=version,
        capabilities=dict(capabilities or {}),
        clientInfo={"name": "bench", "version": "1"},
    )


def initialized(id: Any, version: str = LATEST) -> dict[str, Any]:
    """Return the server's response to it."""
    return response(
        id,
        {
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "server", "version": "1"},
        },
    )
