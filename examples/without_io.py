"""Client and server in one thread, without a socket: what an adapter does, seen slowly.

The client says which HTTP requests it wants; the server says what to answer; this file carries the
parts from one to the other and prints them. Replace the middle by any HTTP stack, and that is an
adapter.
"""

from __future__ import annotations

import itertools
from typing import Any

import attrs

import sansmcp
from sansmcp import BodyData, BodyEnd, ConnectionLost, Idle
from sansmcp.effects import Abort, OpenExchange, SendBody, SendEnd, SendHead
from sansmcp.events import CallReceived

NOW = 0.0  # seconds, from any clock: this example needs no time

app = sansmcp.App("quiet", "1")


@app.handler("tools/call")
def call_tool(call: sansmcp.ServerCall) -> dict[str, Any]:
    """A handler is a plain function here; who calls it is decided below."""
    return {"content": [{"type": "text", "text": f"{call.request.params}"}]}


def carry(client: sansmcp.Client, server: sansmcp.Server, request: OpenExchange) -> None:
    """One HTTP exchange: the request in, the application's work, the response out."""
    print(f"-> {request.head.method.decode()} {request.body.decode()}")
    exchange = server.open_exchange()
    host = (b"host", b"localhost")  # every HTTP stack adds it
    head = attrs.evolve(request.head, headers=(host, *request.head.headers))
    for part in (head, BodyData(request.body), BodyEnd()):
        server.receive_part(exchange, part, now=NOW)
    while not isinstance(event := server.next_event(), Idle):
        if isinstance(event, CallReceived):
            handler = app.handlers[event.call.request.method]
            event.call.respond(handler(event.call), now=NOW)
    while not isinstance(effect := server.next_effect_of(exchange), Idle):
        print(f"<- {effect}")
        match effect:
            case SendHead(response):
                client.receive_part(request.exchange, response, now=NOW)
            case SendBody(data):
                client.receive_part(request.exchange, BodyData(data), now=NOW)
            case SendEnd():
                client.receive_part(request.exchange, BodyEnd(), now=NOW)
            case Abort():
                client.receive_part(request.exchange, ConnectionLost(), now=NOW)


def main() -> None:
    """Connect, call, and show what comes of it."""
    tokens = itertools.count()
    server = sansmcp.Server(
        app, new_token=lambda: f"not-a-secret-{next(tokens):09}", resumable=False
    )
    client = sansmcp.Client("http://localhost/mcp", jitter=lambda: 0.5, standalone_stream=False)
    client.start(now=NOW)
    client.call("tools/call", {"name": "any"}, now=NOW)
    while not isinstance(effect := client.next_effect(), Idle):
        if isinstance(effect, OpenExchange):
            carry(client, server, effect)
        while not isinstance(event := client.next_event(), Idle):
            print(f"   {event}")


if __name__ == "__main__":
    main()
