"""One large message on every way through the library, fed in pieces that are made on the way.

Each function takes a number of bytes, carries one message of that size, and returns what is held at
the end, so that only what the library takes is measured: the message as it came, as it is, and what
is made of it in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sansmcp import (
    App,
    Client,
    ClientConnection,
    Idle,
    Limits,
    NdjsonDecoder,
    Response,
    Server,
    ServerConnection,
    SseDecoder,
    decode_envelope,
    decode_message,
    encode_event,
    encode_message,
)
from sansmcp.effects import OpenExchange, SendBytes
from sansmcp.events import CallReceived
from sansmcp.testing import sequential_tokens

LIMITS = Limits(max_message_bytes=1 << 30, max_request_bytes=1 << 30)
PIECE = b"x" * 65536
RESULT = b'{"jsonrpc":"2.0","id":1,"result":{"text":"'

Decode = Callable[[bytes, Limits], object]


def text_within(start: bytes, size: int, end: bytes) -> Iterator[bytes]:
    """A document with one long text in it, in pieces."""
    yield start
    for _ in range(size // len(PIECE)):
        yield PIECE
    yield end


def event(size: int, decode: Decode) -> object:
    """A message that comes as an event."""
    decoder = SseDecoder(LIMITS.max_message_bytes)
    for piece in text_within(b"data: " + RESULT, size, b'"}}\n\n'):
        for block in decoder.feed(piece):
            assert block.data is not None
            data, block.data = block.data.encode(), None  # as the client does
            return decode(data, LIMITS)
    raise AssertionError("no event")


def line(size: int, decode: Decode) -> object:
    """A message that comes as a line."""
    decoder = NdjsonDecoder(LIMITS.max_message_bytes)
    for piece in text_within(RESULT, size, b'"}}\n'):
        decoder.receive_data(piece)
        found = decoder.next_event()
        if not isinstance(found, Idle):
            return decode(found, LIMITS)
    raise AssertionError("no line")


def _answered(parts: Callable[[bytes, bytes], Iterable[bytes]]) -> object:
    """What a client makes of the answer to its ``initialize``, whose text is long."""
    machine = Client(
        "http://localhost/mcp",
        jitter=float,
        standalone_stream=False,
        versions=("2025-11-25",),
        limits=LIMITS,
    )
    machine.start(now=0.0)
    asked = machine.next_effect()
    assert isinstance(asked, OpenExchange)
    connection = ClientConnection(machine)
    connection.begin(asked)
    start = (
        b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},'
        b'"serverInfo":{"name":"a","version":"1"},"instructions":"'
    )
    happened: list[object] = []
    for part in parts(start, b'"}}'):
        connection.receive_data(part, now=0.0)
        machine.drive(lambda effect: None, happened.append)
    assert happened
    return happened


def response(size: int) -> object:
    """A client reads the body of a response."""
    return _answered(
        lambda start, end: text_within(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
            % (len(start) + size // len(PIECE) * len(PIECE) + len(end), start),
            size,
            end,
        )
    )


def response_as_event(size: int) -> object:
    """A client reads an event of a response."""
    return _answered(
        lambda start, end: text_within(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: " + start,
            size,
            end + b"\n\n",
        )
    )


def _served(parts: Iterable[bytes], *, notify: bool, answer: int) -> object:
    """What a server makes of a request, and of its answer."""
    app = App("large")
    app.handler("tools/call")(print)  # is never called
    machine = Server(
        app, new_token=sequential_tokens(), sessions=False, resumable=False, limits=LIMITS
    )
    connection = ServerConnection(machine, now=0.0)
    sent = 0
    happened: list[object] = []

    def settle() -> None:
        nonlocal sent
        machine.drive(lambda effect: None, happened.append)
        while not isinstance(effect := connection.next_effect(), Idle):
            sent += len(effect.data) if isinstance(effect, SendBytes) else 0

    for part in parts:
        connection.receive_data(part, now=0.0)
        settle()
    (received,) = (each for each in happened if isinstance(each, CallReceived))
    if notify:
        received.call.notify("notifications/message", {"level": "info"}, now=0.0)
        settle()
    received.call.respond({"text": "x" * answer}, now=0.0)
    settle()
    assert sent > answer
    return happened


def _request(size: int) -> Iterator[bytes]:
    start = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"'
    end = b'"}}'
    length = len(start) + size // len(PIECE) * len(PIECE) + len(end)
    head = (
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"accept: application/json, text/event-stream\r\ncontent-length: %d\r\n\r\n" % length
    )
    return text_within(head + start, size, end)


LARGE: dict[str, Callable[[int], object]] = {
    "event, opened": lambda size: event(size, decode_message),
    "event, unopened": lambda size: event(size, decode_envelope),
    "line, opened": lambda size: line(size, decode_message),
    "line, unopened": lambda size: line(size, decode_envelope),
    "response, by a client": response,
    "response as an event, by a client": response_as_event,
    "request, by a server": lambda size: _served(_request(size), notify=False, answer=1),
    "result, by a server": lambda size: _served(_request(0), notify=False, answer=size),
    "result as an event, by a server": lambda size: _served(_request(0), notify=True, answer=size),
    "result, encoded": lambda size: encode_message(Response(1, {"text": "x" * size})),
    "result, encoded as an event": lambda size: encode_event(
        encode_message(Response(1, {"text": "x" * size}))
    ),
}
"""All ways, by name."""
