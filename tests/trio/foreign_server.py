"""A server made without sansmcp, and not well: ``python -IS foreign_server.py MANNERS WITNESS``.

It only takes a moment to start. MANNERS is a comma-separated list; WITNESS is the port of whoever
wants to know how long this process, and what it starts, live.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

VERSION = "2025-11-25"


class Server:
    """Answers; ``manners`` is how it does all else."""

    def __init__(self, manners: set[str], witness: socket.socket | None) -> None:
        self.manners = manners
        self.witness = witness

    def tell(self, word: str) -> None:
        if self.witness is not None:
            self.witness.sendall(f"{word}\n".encode())

    def run(self) -> None:
        self.tell(f"pid:{os.getpid()}")
        signal.signal(signal.SIGTERM, self.terminated)
        if "silent" in self.manners:
            self.tell("silent")
            wait_for_ever()
        for line in sys.stdin.buffer:
            self.take(json.loads(line))
        self.tell("eof")
        if self.manners & {"deaf", "stubborn"}:
            wait_for_ever()

    def terminated(self, *_: object) -> None:
        self.tell("terminated")
        if "stubborn" not in self.manners:
            os._exit(0)

    def take(self, message: dict[str, Any]) -> None:
        if "id" not in message:
            return
        if "noisy" in self.manners:
            self.write(b"Loading...\n\n\xff\xfe broken\n42\n{\n")
        params = message.get("params", {})
        if message["method"] == "initialize":
            info = {"name": "foreign", "version": "1"}
            result: Any = {"protocolVersion": VERSION, "capabilities": {}, "serverInfo": info}
        else:
            result = getattr(self, message["method"].replace("/", "_"))(**params)
        self.answer(id=message["id"], result=result)

    def answer(self, **members: Any) -> None:
        end = b"\r\n" if "noisy" in self.manners else b"\n"
        self.write(json.dumps({"jsonrpc": "2.0", **members}).encode() + end)

    def write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    # Methods

    def ping(self, **_: Any) -> Any:
        return {}

    def about(self, **_: Any) -> Any:
        return {"cwd": str(Path.cwd()), "mark": os.environ.get("MARK"), "size": len(os.environ)}

    def log(self, lines: list[str], **_: Any) -> Any:
        sys.stderr.buffer.write(b"\xff broken\n" + "".join(f"{line}\n" for line in lines).encode())
        sys.stderr.buffer.flush()
        return {}

    def flood(self, count: int, **_: Any) -> Any:
        for number in range(count):
            self.answer(method="notifications/message", params={"number": number})
        return {}

    def hang(self, **_: Any) -> Any:
        self.tell("hanging")
        wait_for_ever()

    def hang_up(self, **_: Any) -> Any:
        os.close(1)
        return wait_for_ever()

    def leave(self, status: int, **_: Any) -> Any:
        print("I\nhave to go", file=sys.stderr, flush=True)
        os._exit(status)


def wait_for_ever() -> None:
    while True:
        signal.pause()


def start_child(witness: socket.socket | None, *, quiet: bool) -> None:
    """A child that ends by nothing but SIGKILL; all streams are open in it, unless it is quiet."""
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if quiet:
            for descriptor in (0, 1, 2):
                os.close(descriptor)
        own = connection(sys.argv[2])
        assert own is not None
        own.sendall(b"child\n")
        if witness is not None:
            witness.close()
        wait_for_ever()


def connection(port: str) -> socket.socket | None:
    return None if port == "0" else socket.create_connection(("127.0.0.1", int(port)))


if __name__ == "__main__":
    manners, port = set(sys.argv[1].split(",")), sys.argv[2]
    if "failing" in manners:
        sys.exit("no configuration")
    to_witness = connection(port)
    for kind in manners & {"parent", "quiet-parent"}:
        start_child(to_witness, quiet=kind == "quiet-parent")
    Server(manners, to_witness).run()
