"""Client and server in one thread, without a socket: what an adapter does, step by step.

The client's effects are HTTP requests, and the server's effects are the parts of HTTP responses.
This file passes the parts from one to the other and prints them. With an HTTP stack in place of
``carry()``, it would be an adapter.
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
    """Return the parameters. ``carry()`` calls this handler."""
    return {"content": [{"type": "text", "text": f"{call.request.params}"}]}


def carry(client: sansmcp.Client, server: sansmcp.Server, request: OpenExchange) -> None:
    """Pass a request to the server, run its handler, and pass the response to the client."""
    print(f"-> {request.head.method.decode()} {request.body.decode()}")
    exchange = server.open_exchange()
    host = (b"host", b"localhost")  # every HTTP stack adds this header
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
    """Connect, call a tool, and print all events."""
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
