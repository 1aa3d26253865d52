"""A server on stdio that the checks of clients start: ``python -IS stdio_program.py PORT MANNERS``.

It does not import sansmcp, so that it starts fast. It stays connected to PORT while it runs. With
``stubborn``, it and a child that it starts ignore the end of their input and SIGTERM, and exit only
when PORT closes the connection.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from typing import Any


def say(**members: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **members}) + "\n")
    sys.stdout.flush()


def initialize(version: str) -> dict[str, Any]:
    """Return the result of the handshake."""
    info = {"name": "stdio", "version": "1"}
    return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}


def flood(count: int, witness: socket.socket) -> None:
    """Write many notifications, and report to the witness whether they are read."""
    if sys.platform == "win32":
        raise NotImplementedError
    data = b""
    for number in range(count):
        params = {"number": number, "text": "x" * 16_000}
        message = {"jsonrpc": "2.0", "method": "notifications/x", "params": params}
        data += json.dumps(message).encode() + b"\n"
    os.set_blocking(1, False)
    while data:
        if not any(select.select([], [1], [], 0.05)[1] for _ in range(10)):
            witness.sendall(b"held up")
            select.select([], [1], [])
        data = data[os.write(1, data[:65536]) :]
    os.set_blocking(1, True)
    witness.sendall(b"all was taken")


def call(arguments: dict[str, Any], witness: socket.socket) -> Any:
    """Run the only tool, which does what its arguments name."""
    sys.stderr.write(arguments.get("log", ""))
    sys.stderr.flush()
    sys.stdout.write(arguments.get("noise", ""))
    if "flood" in arguments:
        flood(arguments["flood"], witness)
    if "variables" in arguments:
        return {name: name in os.environ for name in arguments["variables"]}
    if "exit" in arguments:
        os._exit(arguments["exit"])
    return arguments


def take(message: dict[str, Any], witness: socket.socket) -> None:
    params = message.get("params", {})
    match message["method"]:
        case "initialize":
            say(id=message["id"], result=initialize(params["protocolVersion"]))
        case "tools/call":
            say(id=message["id"], result=call(params["arguments"], witness))
        case _:
            pass


def main(port: int, manners: str) -> None:
    """Respond until the end of the input; if stubborn, run until PORT disconnects."""
    witness = socket.create_connection(("127.0.0.1", port))
    if manners == "stubborn":
        if sys.platform == "win32":
            raise NotImplementedError
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        of_child = socket.create_connection(
            ("127.0.0.1", port)
        )  # the child may end before it connects
        if os.fork() == 0:
            witness.close()
            of_child.recv(1)
            return
        of_child.close()
    with witness:
        for line in sys.stdin.buffer:
            take(json.loads(line), witness)
        if manners == "stubborn":
            witness.recv(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
