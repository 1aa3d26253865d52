"""A server of 2025-06-18 over HTTP that answers with whatever a test gives it."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sansmcp_local import load_json

INITIALIZED: Mapping[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "plain", "version": "1"},
}
TOOLS: Mapping[str, Any] = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
USUAL: Mapping[str, Any] = {"initialize": INITIALIZED, "tools/list": TOOLS}


def _filled(notification: Mapping[str, Any], call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a notification, with the token of the call if it is about progress."""
    if notification["method"] != "notifications/progress":
        return notification
    token = call["_meta"]["progressToken"]
    return {**notification, "params": {**notification["params"], "progressToken": token}}


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about a client that has left."""


@contextmanager
def plain_server(
    answers: Mapping[str, Any], before: tuple[Mapping[str, Any], ...] = ()
) -> Generator[str, None, None]:
    """Serve in a thread; gives the URL.

    Args:
        answers: by method, a result, or a function of the parameters that returns one; beside
            those of the handshake. A result with a member ``error`` is an error response.
        before: notifications that are sent before the answer of each tools/call; a progress token
            is filled in.
    """
    known: dict[str, Any] = {**USUAL, **answers}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request: dict[str, Any] = load_json(
                self.rfile.read(int(self.headers["Content-Length"]))
            )
            if "id" not in request:
                self._send(202, b"", "text/plain")
                return
            params: dict[str, Any] = request.get("params") or {}
            answer: Any = known.get(
                request["method"], {"error": {"code": -32601, "message": "none"}}
            )
            answer = answer(params) if callable(answer) else answer
            message: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
            is_error = isinstance(answer, dict) and "error" in answer
            message |= answer if is_error else {"result": answer}
            if before and request["method"] == "tools/call":
                self._stream([*(_filled(each, params) for each in before), message])
            else:
                self._send(200, json.dumps(message).encode(), "application/json")

        def _stream(self, messages: list[Mapping[str, Any]]) -> None:
            body = "".join(f"data: {json.dumps(each)}\n\n" for each in messages)
            self._send(200, body.encode(), "text/event-stream")

        def _send(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self._send(405, b"", "text/plain")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with _Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            server.shutdown()
            thread.join()
