"""A server on stdio that the checks of clients start: ``python -IS stdio_program.py PORT MANNERS``.

It is made without sansmcp, and takes only a moment to start. It is connected to PORT as long as it
lives. ``stubborn``: it and a child that it starts end neither with their input nor by SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import Any


def say(**members: Any) -> None:
    """Write a message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **members}) + "\n")
    sys.stdout.flush()


def initialize(version: str) -> dict[str, Any]:
    """What the handshake is answered with."""
    info = {"name": "stdio", "version": "1"}
    return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}


def call(arguments: dict[str, Any]) -> Any:
    """The one tool, which does what its arguments say."""
    sys.stderr.write(arguments.get("log", ""))
    sys.stderr.flush()
    sys.stdout.write(arguments.get("noise", ""))
    for number in range(arguments.get("flood", 0)):
        say(method="notifications/x", params={"number": number, "text": "x" * 16_000})
    if "exit" in arguments:
        os._exit(arguments["exit"])
    return arguments


def take(message: dict[str, Any]) -> None:
    """Answer a request."""
    params = message.get("params", {})
    match message["method"]:
        case "initialize":
            say(id=message["id"], result=initialize(params["protocolVersion"]))
        case "tools/call":
            say(id=message["id"], result=call(params["arguments"]))
        case "notifications/cancelled":
            say(method="notifications/x", params={"cancelled": params["requestId"]})
        case _:
            pass


def main(port: int, manners: str) -> None:
    """Answer until the end of the input, and longer."""
    if manners == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.fork()
    witness = socket.create_connection(("127.0.0.1", port))
    for line in sys.stdin.buffer:
        take(json.loads(line))
    while manners == "stubborn":
        signal.pause()
    witness.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
