"""A server that the checks of clients start, with the arguments PORT MANNERS TRANSPORT.

It does not import sansmcp, so that it starts fast, and shares no code with the client. TRANSPORT is
``stdio``, for which ``python -IS`` is enough, or ``stdio-v2``, which needs the package h2. It stays
connected to PORT while it runs. With the manners ``stubborn``, it and a child that it starts ignore
the end of their input and SIGTERM, and exit only when PORT closes the connection.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from h2.events import Event


def notifications(count: int) -> list[dict[str, Any]]:
    """Return many notifications, which are more than a pipe takes."""
    params = [{"number": number, "text": "x" * 16_000} for number in range(count)]
    return [{"jsonrpc": "2.0", "method": "notifications/x", "params": each} for each in params]


def is_ready(reads: list[int], writes: list[int]) -> bool:
    """Wait for half a second until one of the descriptors is ready.

    Ten times decide, because a process that was stopped meanwhile sees time pass once.
    """
    return any(any(select.select(reads, writes, [], 0.05)[:2]) for _ in range(10))


def call(arguments: dict[str, Any]) -> Any:
    """Run the only tool, which does what its arguments name."""
    sys.stderr.write(arguments.get("log", ""))
    sys.stderr.flush()
    sys.stdout.write(arguments.get("noise", ""))
    sys.stdout.flush()
    if "variables" in arguments:
        return {name: name in os.environ for name in arguments["variables"]}
    if "exit" in arguments:
        os._exit(arguments["exit"])
    return arguments


# Lines


class Lines:
    """Takes and sends messages as lines."""

    def __init__(self, witness: socket.socket) -> None:
        self._witness = witness

    def run(self) -> None:
        """Respond until the end of the input."""
        for line in sys.stdin.buffer:
            self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message["method"]:
            case "initialize":
                version, info = params["protocolVersion"], {"name": "stdio", "version": "1"}
                result: dict[str, Any] = {"protocolVersion": version}
                result["capabilities"] = {"tools": {}}
                self._say(message, {**result, "serverInfo": info})
            case "tools/call":
                if "flood" in params["arguments"]:
                    self._flood(params["arguments"]["flood"])
                self._say(message, call(params["arguments"]))
            case _:
                pass

    def _say(self, request: dict[str, Any], result: Any) -> None:
        message = {"jsonrpc": "2.0", "id": request["id"], "result": result}
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    def _flood(self, count: int) -> None:
        """Write many notifications, and report to the witness whether they are read."""
        if sys.platform == "win32":
            raise NotImplementedError
        data = b"".join(json.dumps(each).encode() + b"\n" for each in notifications(count))
        os.set_blocking(1, False)
        while data:
            if not is_ready([], [1]):
                self._witness.sendall(b"held up")
                select.select([], [1], [])
            data = data[os.write(1, data[:65536]) :]
        os.set_blocking(1, True)
        self._witness.sendall(b"all was taken")


# HTTP/2


class Streams:
    """Takes and sends messages as streams of HTTP/2, at 2026-07-28."""

    def __init__(self, witness: socket.socket) -> None:
        from h2.config import H2Configuration
        from h2.connection import H2Connection

        self._witness = witness
        self._connection = H2Connection(H2Configuration(client_side=False))
        self._connection.initiate_connection()
        self._requests: dict[int, bytes] = {}
        self._responses: dict[int, bytes] = {}
        """What is left of each response, by stream."""
        self._held: list[tuple[int, Any]] = []
        """The streams and ids of calls that wait until another releases them."""
        self._resets: list[int] = []
        """The error codes with which the client has reset streams."""
        self._output = b""

    def run(self) -> None:
        """Respond until the end of the input."""
        if sys.platform == "win32":
            raise NotImplementedError
        os.set_blocking(1, False)
        while True:
            self._fill()
            writes = [1] if self._output else []
            if (writes or self._responses) and not is_ready([0], writes):
                self._witness.sendall(b"held up")
            readable, writable, _ = select.select([0], writes, [])
            if writable:
                self._output = self._output[os.write(1, self._output[:65536]) :]
            if readable:
                data = os.read(0, 65536)
                if not data:
                    return
                self._take(self._connection.receive_data(data))

    def _fill(self) -> None:
        """Put as much of the responses into the output as the windows of the client allow."""
        connection = self._connection
        for stream, rest in list(self._responses.items()):
            while rest and (room := connection.local_flow_control_window(stream)) > 0:
                size = min(room, connection.max_outbound_frame_size)
                connection.send_data(stream, rest[:size])
                rest = rest[size:]
            self._responses[stream] = rest
            if not rest:
                del self._responses[stream]
                connection.end_stream(stream)
        self._output += connection.data_to_send()

    def _take(self, events: Iterable[Event]) -> None:
        from h2 import events as http2

        for event in events:
            match event:
                case http2.RequestReceived(stream_id=int(stream)):
                    self._requests[stream] = b""
                case http2.DataReceived(stream_id=int(stream)):
                    self._requests[stream] += event.data or b""
                    size = event.flow_controlled_length or 0
                    self._connection.acknowledge_received_data(size, stream)
                case http2.StreamEnded(stream_id=int(stream)):
                    self._respond(stream, json.loads(self._requests.pop(stream)))
                case http2.StreamReset(stream_id=int(stream)):
                    self._responses.pop(stream, None)
                    self._held = [each for each in self._held if each[0] != stream]
                    self._resets.append(int(event.error_code or 0))
                case _:
                    pass

    def _respond(self, stream: int, message: dict[str, Any]) -> None:
        if message["method"] == "server/discover":
            result: dict[str, Any] = {"supportedVersions": ["2026-07-28"]}
            result["capabilities"] = {"tools": {}}
            self._say(stream, message["id"], {**result, "resultType": "complete"})
            return
        arguments = message["params"]["arguments"]
        if "hold" in arguments:
            self._held.append((stream, message["id"]))
            return
        if "release" in arguments:
            for held in self._held:
                self._say(*held, {"resultType": "complete", "held": True})
            self._held = []
        result = {"resultType": "complete", **call(arguments)}
        if "resets" in arguments:
            result["resets"] = self._resets
        self._say(stream, message["id"], result, notifications(arguments.get("flood", 0)))

    def _say(self, stream: int, id: Any, result: Any, before: Iterable[Any] = ()) -> None:
        """Respond, with an event stream that ends with the result."""
        headers = [(":status", "200"), ("content-type", "text/event-stream")]
        self._connection.send_headers(stream, headers)
        messages = [*before, {"jsonrpc": "2.0", "id": id, "result": result}]
        events = [f"data: {json.dumps(each)}\n\n" for each in messages]
        self._responses[stream] = "".join(events).encode()


def main(port: int, manners: str, transport: str) -> None:
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
        (Streams if transport == "stdio-v2" else Lines)(witness).run()
        if manners == "stubborn":
            witness.recv(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
