"""A client of another make that sends a JSON-RPC batch over HTTP: ours sends none.

Source: 2025-03-26, basic: Batching.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import h11

from sansmcp import Idle, SseDecoder

from .network import Wire

if TYPE_CHECKING:
    from .peers import Instance
    from .simulator import World

VERSION = "2025-03-26"
PRINCIPAL = "batcher"
UNKNOWN = "com.example/unknown"
_PATIENCE = 600.0
"""Seconds: longer than handlers run, slow stores and all."""


class Batcher:
    """A client of another make: opens a session, posts one batch, and reads what comes of it."""

    def __init__(self, world: World, name: str, first: Instance, calls: tuple[str, ...]) -> None:
        self.world = world
        self.name = name
        self._calls = calls
        self._instance = first
        self._answers: Counter[int] = Counter()
        self._session = b""
        self._wire: Wire | None = None
        self._wires: list[Wire] = []
        params = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": name}}
        self._post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self._look(self._opened)

    @property
    def _is_broken(self) -> bool:
        return any(wire.swallows for wire in self._wires) or not self._instance.is_alive

    def _post(self, body: Any) -> None:
        """Send a request by a connection of its own."""
        data = json.dumps(body).encode()
        lines = [
            b"POST /mcp HTTP/1.1",
            b"host: localhost",
            b"accept: application/json, text/event-stream",
            b"content-type: application/json",
            b"authorization: " + self.world.credentials(PRINCIPAL),
            b"content-length: %d" % len(data),
        ]
        if self._session:
            lines.append(b"mcp-session-id: " + self._session)
        name = f"{self.name} wire {len(self._wires)}"
        self._wire = Wire(self.world, name, self._instance, None, None)
        self._wires.append(self._wire)
        self._wire.send(b"\r\n".join(lines) + b"\r\n\r\n" + data)

    def _look(self, then: Callable[[h11.Response, bytes], None], waited: float = 0.0) -> None:
        """Wait until the response is complete."""
        assert self._wire is not None
        response = _read(self._wire.seen)
        if response is not None:
            self._wire.close()
            then(*response)
        elif self._is_broken or self.world.is_closing:
            self._wire.close()
        elif waited > _PATIENCE:
            self._wire.close()
            self._lacks("has no whole answer")
        else:
            pause = 0.5 if waited < 30 else 10.0
            self.world.clock.call_later(pause, lambda: self._look(then, waited + pause))

    def _opened(self, response: h11.Response, body: bytes) -> None:
        if response.status_code != 200 or not self._instance.is_alive:
            return  # it is stopping, or has no room
        self._session = dict(response.headers).get(b"mcp-session-id", b"")
        if self.world.shared and self._session:
            alive = [each for each in self.world.instances if each.is_alive]
            self._instance = self.world.fates.pick(f"{self.name} route", alive)
        batch: list[Any] = [
            {
                "jsonrpc": "2.0",
                "id": number,
                "method": "tools/call",
                "params": {"name": "t", "arguments": {"call": call}},
            }
            for number, call in enumerate(self._calls, 1)
        ]
        greeting = {"from": self.name, "number": 1}
        batch += [
            {"jsonrpc": "2.0", "method": "notifications/com.example/hello", "params": greeting},
            {"jsonrpc": "2.0", "id": 98, "method": "ping"},
            {"jsonrpc": "2.0", "id": 99, "method": UNKNOWN},
        ]
        self.world.tell(f"{self.name} posts a batch of {len(batch)}")
        self._post(batch)
        self._look(self._answered)

    def _answered(self, response: h11.Response, body: bytes) -> None:
        if response.status_code != 200:
            self._lacks(f"is refused: {response.status_code} {body!r:.200}")
            return
        self.world.reach("batch answered")
        is_stream = dict(response.headers)[b"content-type"].startswith(b"text/event-stream")
        if is_stream:
            self.world.reach("batch answered by a stream")
        for message in _messages(body) if is_stream else json.loads(body):
            if "method" not in message:
                self._take(message)
        wanted = {*range(1, len(self._calls) + 1), 98, 99}
        if set(self._answers) != wanted:
            self._lacks(f"gets answers to {sorted(self._answers)}, not to {sorted(wanted)}")

    def _take(self, message: Any) -> None:
        id, fail = message["id"], self.world.fail
        self._answers[id] += 1
        if self._answers[id] > 1:
            fail("one end", f"{self.name}: {id} is answered twice")
        if id == 99 and message["error"]["code"] != -32601:
            self._lacks(f"gets {message} to an unknown method")
        if id <= len(self._calls) and "result" in message:
            call = self._calls[id - 1]
            if message["result"]["call"] != call:
                fail("results", f"{call} gets the result of {message['result']['call']}")

    def _lacks(self, what: str) -> None:
        """Its batch has gone wrong, which needs a cause."""
        excuses = {
            "store",
            "hiccup",
            "cut off",
            "evicted",
            "jump",
            "end",
            "stop",
            "sessions",
            "kill",
            "rate",
        }
        if not (self.world.causes & excuses or self._is_broken):
            self.world.fail("causes", f"{self.name} {what} (of {sorted(self.world.causes)})")


def _read(data: bytes) -> tuple[h11.Response, bytes] | None:
    """The response, if it is complete."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "localhost")]))
    connection.send(h11.EndOfMessage())
    if data:
        connection.receive_data(data)
    response, body = None, b""
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Response):
            response = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif event is h11.NEED_DATA:
            return None
    assert response is not None
    return response, body


def _messages(body: bytes) -> Iterator[Any]:
    """The messages of an event stream."""
    decoder = SseDecoder(1 << 30)
    decoder.receive_data(body)
    while not isinstance(event := decoder.next_event(), Idle):
        if event.data:
            message = json.loads(event.data)
            yield from message if isinstance(message, list) else [message]
