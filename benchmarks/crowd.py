"""One event of one stream, among a few open streams and among many: what the machines take for it.

Nothing is sent: message parts go in, effects and events come out.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable

from sansmcp import (
    App,
    BodyData,
    BodyEnd,
    Client,
    Idle,
    Limits,
    RequestHead,
    ResponseHead,
    Server,
    ServerExchange,
    encode_event,
)
from sansmcp.effects import ClientEffect, OpenExchange
from sansmcp.events import CallReceived
from sansmcp.testing import sequential_tokens

FEW, MANY = 100, 10_000
LIMITS = Limits(max_pending_calls=2 * MANY)
VERSION = "2025-11-25"
ROUNDS = 50
REPEATED = 20

Act = Callable[[], object]


def request(number: int) -> bytes:
    """A call that wants to hear of its progress."""
    about = {"name": "any", "_meta": {"progressToken": number}}
    return encoded("tools/call", about, id=number)


def encoded(method: str, params: object, **members: object) -> bytes:
    """A message."""
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **members}).encode()


def of_server(streams: int) -> Act:
    """A report of progress on the last of so many event streams."""
    app = App("streams")
    app.handler("tools/call")(print)  # is never called
    machine = Server(
        app, new_token=sequential_tokens(), sessions=False, resumable=False, limits=LIMITS
    )
    head = RequestHead(
        method=b"POST",
        target=b"/mcp",
        headers=(
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"accept", b"application/json, text/event-stream"),
        ),
    )
    done = itertools.count(1)
    happened: list[object] = []

    def settle(exchange: ServerExchange) -> None:
        machine.drive(lambda effect: None, happened.append)
        while not isinstance(machine.next_effect_of(exchange), Idle):
            pass

    def open_stream(number: int) -> Act:
        exchange = machine.open_exchange()
        for part in (head, BodyData(request(number)), BodyEnd()):
            machine.receive_part(exchange, part, now=number / 1000)
        happened.clear()
        settle(exchange)
        (received,) = happened
        assert isinstance(received, CallReceived)
        call = received.call

        def report() -> None:
            assert call.progress(next(done), now=number / 1000)
            settle(exchange)

        return report

    acts = [open_stream(number) for number in range(streams)]
    for act in acts:
        act()
    return acts[-1]


def of_client(streams: int) -> Act:
    """A report of progress that comes on the last of so many event streams."""
    machine = Client(
        "http://localhost/mcp",
        jitter=float,
        standalone_stream=False,
        versions=(VERSION,),
        limits=LIMITS,
    )
    opened: list[OpenExchange] = []
    happened: list[object] = []
    done = itertools.count(1)

    def perform(effect: ClientEffect) -> None:
        assert isinstance(effect, OpenExchange)
        opened.append(effect)

    def settle() -> None:
        machine.drive(perform, happened.append)

    def answer(*parts: ResponseHead | BodyData | BodyEnd) -> None:
        for part in parts:
            machine.receive_part(opened[-1].exchange, part, now=0.0)
            settle()

    machine.start(now=0.0)
    settle()
    info = {"protocolVersion": VERSION, "capabilities": {}, "serverInfo": {"name": "a"}}
    result = json.dumps({"jsonrpc": "2.0", "id": json.loads(opened[-1].body)["id"], "result": info})
    answer(
        ResponseHead(status=200, headers=((b"content-type", b"application/json"),)),
        BodyData(result.encode()),
        BodyEnd(),
    )
    answer(ResponseHead(status=202, headers=()), BodyEnd())

    def open_stream(number: int) -> Act:
        machine.call("tools/call", {"name": "any"}, now=number / 1000, timeout=1000.0)
        settle()
        answer(ResponseHead(status=200, headers=((b"content-type", b"text/event-stream"),)))
        token = json.loads(opened[-1].body)["params"]["_meta"]["progressToken"]

        def report() -> None:
            about = {"progressToken": token, "progress": next(done)}
            happened.clear()
            answer(BodyData(encode_event(encoded("notifications/progress", about))))
            assert happened

        return report

    acts = [open_stream(number) for number in range(streams)]
    for act in acts:
        act()
    return acts[-1]


MACHINES = {"server": of_server, "client": of_client}


def microseconds(act: Act) -> float:
    """Processor time of an event."""
    start = time.process_time()
    for _ in range(REPEATED):
        act()
    return (time.process_time() - start) / REPEATED * 1e6


def compared(of_machine: Callable[[int], Act]) -> tuple[float, float]:
    """Microseconds of an event among few streams and among many, each at best."""
    acts = of_machine(FEW), of_machine(MANY)
    rounds = [tuple(map(microseconds, acts)) for _ in range(ROUNDS)]
    few, many = (min(each) for each in zip(*rounds, strict=True))
    return few, many
