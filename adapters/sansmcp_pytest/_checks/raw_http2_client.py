"""A client of stdio-v2 that sends the requests that a check specifies, by the package h2."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from types import TracebackType
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, DataReceived, Event, ResponseReceived, StreamEnded

from sansmcp.meta_keys import CAPABILITIES, CLIENT_INFO, VERSION
from sansmcp.types import Self

from .adapter_under_test import ServerUnderTest
from .check import MOMENT, expect
from .servers import LEGACY, MODERN

_INFO = {"name": "peer", "version": "1"}


class Http2Process:
    """A server process, and the streams of the client at its pipes."""

    def __init__(self, subject: ServerUnderTest) -> None:
        self._command = list(subject.stdio_command("v2"))
        self._http2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._legacy: dict[str, str] = {}
        """The headers of the session; empty at 2026-07-28."""
        self._headers: dict[int, dict[str, str]] = {}
        self._bodies: defaultdict[int, bytes] = defaultdict(bytes)
        self._ended: set[int] = set()
        self.has_room = True
        """True if the client opens the windows of its streams as data arrives."""

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, bufsize=0)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._http2.initiate_connection()
        self._http2.increment_flow_control_window(100_000_000)
        self._write()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._input.close()
        self._output.close()

    def open(self) -> None:
        """Initialize a session; later requests belong to it."""
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": _INFO}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        stream = self.post(json.dumps(message).encode(), {})
        self.result(stream)
        session = self._headers[stream]["mcp-session-id"]
        self._legacy = {"mcp-protocol-version": LEGACY, "mcp-session-id": session}
        done = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}'
        self._wait_for(self.post(done, self._legacy))

    def call(self, tool: str, **arguments: Any) -> int:
        """Call a tool, without waiting for its result. Returns the stream."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        headers = self._legacy
        if not headers:
            params["_meta"] = {VERSION: MODERN, CAPABILITIES: {}, CLIENT_INFO: _INFO}
            headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": tool}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return self.post(json.dumps(message).encode(), headers)

    def post(self, body: bytes, headers: dict[str, str]) -> int:
        """Send a POST, and wait until all of its body was sent. Returns the stream."""
        stream = self._http2.get_next_available_stream_id()
        named = {
            ":method": "POST",
            ":scheme": "http",
            ":authority": "localhost",
            ":path": "/mcp",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **headers,
        }
        self._http2.send_headers(stream, list(named.items()))
        while body:
            size = min(
                self._http2.local_flow_control_window(stream),
                self._http2.max_outbound_frame_size,
                len(body),
            )
            self._http2.send_data(stream, body[:size])
            body = body[size:]
            self._write()
            if not size:
                self._read()
        self._http2.end_stream(stream)
        self._write()
        return stream

    def reset(self, stream: int) -> None:
        """Cancel the request of a stream."""
        self._http2.reset_stream(stream, ErrorCodes.CANCEL)
        self._write()

    def message(self, stream: int) -> dict[str, Any]:
        """Wait for the end of a response, and return its last message."""
        self._wait_for(stream)
        body = self._bodies[stream].decode()
        if self._headers[stream]["content-type"] == "text/event-stream":
            body = body.strip().rpartition("data:")[2]
        message: dict[str, Any] = json.loads(body)
        return message

    def result(self, stream: int) -> Any:
        """Wait for the end of a response, and return the result in it."""
        message = self.message(stream)
        expect("result" in message, f"a response without a result: {message}")
        return message["result"]

    def received(self, stream: int) -> int:
        """Return how many bytes of a body have come."""
        return len(self._bodies[stream])

    def take(self, stream: int, size: int) -> None:
        """Open the window of a stream by so many bytes."""
        self._http2.increment_flow_control_window(size, stream)
        self._write()

    def end(self) -> int:
        """Close the input of the process, and read all that it sends. Returns its exit status."""
        self._input.close()
        while self._read():
            pass
        return self._process.wait(MOMENT)

    def _wait_for(self, stream: int) -> None:
        while stream not in self._ended:
            expect(self._read(), "the server has ended its output before the response")

    def _write(self) -> None:
        data = memoryview(self._http2.data_to_send())
        while data:
            data = data[self._input.write(data) :]

    def _read(self) -> bool:
        """Take what the server sends next. Returns False at the end of its output."""
        data = self._output.read(65536)
        for event in self._http2.receive_data(data) if data else ():
            self._take(event)
        if data and not self._input.closed:
            self._write()
        return bool(data)

    def _take(self, event: Event) -> None:
        match event:
            case ResponseReceived(stream_id=int(stream)):
                pairs = [(str(name), str(value)) for name, value in event.headers or ()]
                self._headers[stream] = dict(pairs)
            case DataReceived(stream_id=int(stream)):
                self._bodies[stream] += event.data or b""
                if self.has_room:
                    size = event.flow_controlled_length or 0
                    self._http2.acknowledge_received_data(size, stream)
            case StreamEnded(stream_id=int(stream)):
                self._ended.add(stream)
            case ConnectionTerminated():
                expect(not event.error_code, f"the server ends the connection: {event}")
            case _:
                pass
