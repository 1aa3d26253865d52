"""A server on stdio that dies again and again, and writes down each result that it has written.

    python -m tests.bridge.dying_server SECONDS FILE

It uses nothing of this library. It is killed ``SECONDS`` after its first call, even while it
writes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

CAPABILITIES: dict[str, Any] = {"tools": {}}
INFO = {"name": "dying", "version": "1"}


def result_of(request: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request; None for a method that this server does not have."""
    params = request.get("params", {})
    if request["method"] == "initialize":
        agreed = {"protocolVersion": params["protocolVersion"]}
        return {**agreed, "capabilities": CAPABILITIES, "serverInfo": INFO}
    if request["method"] == "tools/call":
        return {"content": [{"type": "text", "text": str(params["arguments"]["number"])}]}
    return None


def serve(seconds: float, record: int) -> None:
    is_dying = False
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = result_of(request)
        response: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        if result is None:
            response["error"] = {"code": -32601, "message": "Method not found"}
        else:
            response["result"] = result
        os.write(1, json.dumps(response).encode() + b"\n")
        if result is not None and "content" in result:
            os.write(record, result["content"][0]["text"].encode() + b"\n")
        if not is_dying and request["method"] == "tools/call":
            is_dying = True
            signal.setitimer(signal.ITIMER_REAL, seconds)  # SIGALRM ends the process


if __name__ == "__main__":
    serve(float(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT))
