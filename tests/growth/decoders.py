"""Everything that reads bytes, driven the same way: chunks in, one piece of work after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeAlias

from sansmcp import (
    App,
    Client,
    ClientConnection,
    Idle,
    NdjsonDecoder,
    RemoteProtocolError,
    Server,
    ServerConnection,
    SseDecoder,
)
from sansmcp.codecs.delimited_buffer import DelimitedBuffer
from sansmcp.effects import OpenExchange
from sansmcp.testing import sequential_tokens

from ..messages import PING as PING

Decoder: TypeAlias = Callable[[Iterable[bytes]], Iterator[None]]
"""Reads chunks; stops after each piece of work, however small."""

Input: TypeAlias = Callable[[int], bytes]
"""Makes an input of about so many bytes."""

NOTIFICATION = b'{"jsonrpc":"2.0","method":"notifications/message"}'
_UNLIMITED = 1 << 30


def sse(chunks: Iterable[bytes]) -> Iterator[None]:
    decoder = SseDecoder(_UNLIMITED)
    for chunk in chunks:
        decoder.receive_data(chunk)
        yield
        while not isinstance(decoder.next_event(), Idle):
            yield


def sse_by_feed(chunks: Iterable[bytes]) -> Iterator[None]:
    decoder = SseDecoder(_UNLIMITED)
    for chunk in chunks:
        decoder.feed(chunk)
        yield


def sse_beyond_limit(chunks: Iterable[bytes]) -> Iterator[None]:
    decoder = SseDecoder(16)
    for chunk in chunks:
        with suppress(RemoteProtocolError):
            decoder.feed(chunk)
        yield


def ndjson(chunks: Iterable[bytes]) -> Iterator[None]:
    decoder = NdjsonDecoder(_UNLIMITED)
    for chunk in chunks:
        decoder.receive_data(chunk)
        yield
        while not isinstance(decoder.next_event(), Idle):
            yield


def ndjson_beyond_limit(chunks: Iterable[bytes]) -> Iterator[None]:
    decoder = NdjsonDecoder(16)
    for chunk in chunks:
        decoder.receive_data(chunk)
        yield
        event: bytes | Idle = b""
        while not isinstance(event, Idle):
            with suppress(RemoteProtocolError):
                event = decoder.next_event()
            yield


def pieces(chunks: Iterable[bytes]) -> Iterator[None]:
    buffer = DelimitedBuffer(_UNLIMITED)
    for chunk in chunks:
        buffer.waiting += chunk
        yield
        while buffer.next_delimited(b"\n"):
            yield


def server(chunks: Iterable[bytes]) -> Iterator[None]:
    """A connection of a server that answers pings by itself."""
    machine = Server(App("growth"), new_token=sequential_tokens(), sessions=False, resumable=False)
    connection = ServerConnection(machine, now=0.0)
    for chunk in chunks:
        connection.receive_data(chunk, now=0.0)
        yield
        while not isinstance(connection.next_effect(), Idle):
            yield
        machine.drive(_ignore, _ignore)
        yield


def client(chunks: Iterable[bytes]) -> Iterator[None]:
    """A connection of a client that has just asked to ``initialize``."""
    machine = Client("http://localhost/mcp", jitter=lambda: 0.5, standalone_stream=False)
    machine.start(now=0.0)
    effect = machine.next_effect()
    assert isinstance(effect, OpenExchange)
    connection = ClientConnection(machine)
    connection.begin(effect)
    for chunk in chunks:
        connection.receive_data(chunk, now=0.0)
        yield
        machine.drive(_ignore, _ignore)
        yield


def _some(inputs: dict[str, Input], *names: str) -> dict[str, Input]:
    return {name: inputs[name] for name in names}


def _ignore(happening: object) -> None:
    pass


def repeat(unit: bytes, start: bytes = b"", end: bytes = b"") -> Input:
    """An input that says the same thing again and again."""
    return lambda size: start + unit * (size // len(unit)) + end


def post(body: bytes) -> bytes:
    """A request with this body."""
    return _request(b"content-length: %d\r\n" % len(body)) + body


def _request(headers: bytes) -> bytes:
    return (
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"accept: application/json, text/event-stream\r\n" + headers + b"\r\n"
    )


def _chunked(unit: bytes, body: bytes) -> bytes:
    pieces = [body[start : start + len(unit)] for start in range(0, len(body), len(unit))]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def _stream(events: bytes) -> bytes:
    return STREAM_HEAD + _chunked(b"x" * 64, events)


LINES: dict[str, Input] = {
    "one line": repeat(b"x", end=b"\n"),
    "one line without end": repeat(b"x"),
    "many lines": repeat(b"{}\n"),
    "blank lines": repeat(b"\n"),
    "CR only": repeat(b"\r"),
    "CR LF": repeat(b"\r\n"),
}
EVENTS: dict[str, Input] = {
    **_some(LINES, "one line without end", "blank lines", "CR only", "CR LF"),
    "one data line": repeat(b"x", b"data: ", b"\n\n"),
    "tiny data lines": repeat(b"data:x\n", end=b"\n"),
    "events": repeat(b"data: {}\n\n"),
    "events with ids": repeat(b"event: message\nid: t-1\ndata: {}\n\n"),
    "keep-alives": repeat(b":\n\n"),
    "comments in one block": repeat(b":\n"),
    "unknown fields": repeat(b"a\n"),
    "colons": repeat(b":", b"data", b"\n\n"),
    "a huge id": repeat(b"1", b"id: ", b"\n\n"),
    "a huge event type": repeat(b"x", b"event: ", b"\ndata\n\n"),
    "a huge retry": repeat(b"9", b"retry: ", b"\n\n"),
    "many ids in one block": repeat(b"id:1\n", end=b"\n"),
    "broken UTF-8": repeat(b"\xff", b"data: ", b"\n\n"),
}
REQUESTS: dict[str, Input] = {
    "a long header": lambda size: _request(b"x-long: %s\r\n" % (b"x" * size)),
    "many headers": lambda size: _request(b"x: y\r\n" * (size // 6)),
    "a head without end": lambda size: _request(b"x: y\r\n" * (size // 6))[:-2],
    "a request line without end": repeat(b"x", b"GET /"),
    "garbage": repeat(b"x"),
    "a long body": lambda size: post(PING[:-1] + b',"params":{"a":"%s"}}' % (b"x" * size)),
    "tiny chunks": lambda size: (
        _request(b"transfer-encoding: chunked\r\n")
        + _chunked(b"x", PING[:-1] + b" " * (size // 6) + b"}")
    ),
    "a chunk size without end": lambda size: (
        _request(b"transfer-encoding: chunked\r\n") + b"1;" + b"x" * size
    ),
}
RESPONSES: dict[str, Input] = {
    "a long header": lambda size: b"HTTP/1.1 200 OK\r\nx-long: %s\r\n\r\n" % (b"x" * size),
    "a long body": lambda size: (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
        % (size, b" " * size)
    ),
    "a long refusal": lambda size: (
        b"HTTP/1.1 400 Bad Request\r\ncontent-length: %d\r\n\r\n%s" % (size, b" " * size)
    ),
    "an event stream": lambda size: _stream(b"data: %s\n\n" % NOTIFICATION * (size // 64)),
    "one long event": lambda size: _stream(b"data: %s" % (b"x" * size)),
    "keep-alives": lambda size: _stream(b":\n\n" * (size // 3)),
}

DECODERS: dict[str, tuple[Decoder, dict[str, Input]]] = {
    "SSE": (sse, EVENTS),
    "SSE by feed()": (sse_by_feed, _some(EVENTS, "one data line", "events", "CR only")),
    "NDJSON": (ndjson, LINES),
    "NDJSON beyond its limit": (ndjson_beyond_limit, _some(LINES, "one line", "many lines")),
    "piece buffer": (pieces, _some(LINES, "one line", "many lines")),
    "server connection": (server, REQUESTS),
    "client connection": (client, RESPONSES),
}
