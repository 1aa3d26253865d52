"""What servers are asked, as bytes."""

from __future__ import annotations

import json
from typing import Any

from .measuring import LEGACY, MODERN

_META = "io.modelcontextprotocol/"


def message(
    method: str, params: dict[str, Any], version: str = MODERN, id: int | None = 7
) -> dict[str, Any]:
    """A request, or with ``id`` None a notification."""
    if version == MODERN:
        nothing: dict[str, object] = {}
        about = {f"{_META}protocolVersion": version, f"{_META}clientCapabilities": nothing}
        params = {**params, "_meta": {**params.get("_meta", {}), **about}}
    found = {"jsonrpc": "2.0", "method": method, "params": params}
    return found if id is None else {**found, "id": id}


def handshake() -> list[dict[str, Any]]:
    """What opens a session: a request, and the notification that follows its answer."""
    about = {"name": "benchmark", "version": "1"}
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": about}
    return [
        message("initialize", params, LEGACY),
        message("notifications/initialized", {}, LEGACY, None),
    ]


def post(message: dict[str, Any], port: int, version: str = MODERN, session: str = "") -> bytes:
    """A message with its head."""
    method, params = message["method"], message["params"]
    lines = [
        "POST /mcp HTTP/1.1",
        f"host: 127.0.0.1:{port}",
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        f"mcp-protocol-version: {version}",
    ]
    if version == MODERN:
        lines.append(f"mcp-method: {method}")
        lines += [f"mcp-name: {params['name']}"] if "name" in params else []
    lines += [f"mcp-session-id: {session}"] if session else []
    body = json.dumps(message)
    lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", body]).encode()


def get(port: int, session: str) -> bytes:
    """A request for the standalone stream of a session."""
    lines = [
        "GET /mcp HTTP/1.1",
        f"host: 127.0.0.1:{port}",
        "accept: text/event-stream",
        f"mcp-protocol-version: {LEGACY}",
        f"mcp-session-id: {session}",
    ]
    return "\r\n".join([*lines, "", ""]).encode()
