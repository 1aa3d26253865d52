"""What is measured: the same input for every parser, each in the way its users call it.

A parser returns how many messages it has found, so that a test can see that all of them did the
same work. Parsers of other projects are left out where they are not installed.
"""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, TypeAlias

import attrs

from sansmcp import (
    Batch,
    Idle,
    Limits,
    NdjsonDecoder,
    SseDecoder,
    decode_envelope,
    decode_message,
    encode_event,
    encode_line,
    encode_message,
)

from .readers import READERS, InNode, Reader

OURS = "sansmcp"
UNOPENED = "sansmcp, payloads unopened"
LIMITS = Limits()

Parser: TypeAlias = Callable[[], int]


@attrs.frozen
class Workload:
    """One input and those who parse it."""

    name: str
    count: int
    """Messages in the input."""
    parsers: Mapping[str, Parser]


def peer(name: str) -> ModuleType | None:
    """A module of another project, if it is installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


# Inputs


def request() -> bytes:
    """A small request: 150 bytes, as most are."""
    return encode(
        id=7,
        method="tools/call",
        params={
            "name": "get_weather",
            "arguments": {"city": "Berlin", "unit": "celsius"},
            "_meta": {"progressToken": 7},
        },
    )


def progress(number: int) -> bytes:
    """A small notification."""
    params = {
        "progressToken": 7,
        "progress": number,
        "total": 1000,
        "message": f"Reading file {number} of 1000",
    }
    return encode(method="notifications/progress", params=params)


def result(size: int) -> bytes:
    """The result of a tool: several pieces of text, with line breaks and some other letters."""
    text = 'def café(x):\n    return "naïve" if x else "plain"\n'
    piece = {"type": "text", "text": text * 10}
    count = size // len(json.dumps(piece, ensure_ascii=False))
    return encode(id=7, result={"content": [piece] * count, "isError": False})


def encode(**members: Any) -> bytes:
    """A message as most servers write it."""
    members = {"jsonrpc": "2.0", **members}
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()


def tool_stream(messages: list[bytes]) -> bytes:
    """An event stream as a server with resumption sends it: a priming event, ids, keep-alives."""
    blocks = [encode_event(b"", id="aGVsbG8td29ybGQtMTIz-0")]
    for number, message in enumerate(messages, 1):
        id = f"aGVsbG8td29ybGQtMTIz-{number}"
        blocks.append(encode_event(message, event="message", id=id))
        if number % 50 == 0:
            blocks.append(b":\n\n")
    return b"".join(blocks)


def cut(data: bytes, size: int) -> list[bytes]:
    """An input in pieces."""
    return [data[start : start + size] for start in range(0, len(data), size)]


# Event streams


def sse(chunks: list[bytes], read: Callable[[str], object]) -> dict[str, Parser]:
    """Those who read an event stream; ``read`` takes the data of each event."""

    def counted(texts: Iterable[str]) -> int:
        count = 0
        for text in texts:
            if text:
                read(text)
                count += 1
        return count

    def ours() -> int:
        decoder = SseDecoder(LIMITS.max_message_bytes)
        return counted(event.data or "" for chunk in chunks for event in decoder.feed(chunk))

    def by(reader: Reader) -> Parser:
        return lambda: counted(reader(chunks))

    parsers: dict[str, Parser] = {OURS: ours}
    if read is ignore:
        parsers["bytes.split"] = by(blocks_of)
        if node := InNode.reader(chunks):
            parsers["eventsource-parser (Node)"] = node
    return parsers | {name: by(reader) for name, reader in READERS.items()}


def blocks_of(chunks: list[bytes]) -> Iterator[str]:
    """What is between blank lines and says anything, without a look into it: the least there is."""
    rest = b""
    for chunk in chunks:
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            if len(block) > 40:  # neither a comment nor the priming event
                yield block.decode()


def ignore(text: str) -> None:
    """For those who only want the events."""


def conversation(chunks: list[bytes], messages: list[bytes]) -> dict[str, Parser]:
    """Those who read an event stream and the messages in it."""

    def by_json_alone() -> int:
        return sum(1 for message in messages if json.loads(message))

    parsers = {
        OURS: sse(chunks, lambda text: decode_message(text.encode(), LIMITS))[OURS],
        UNOPENED: sse(chunks, lambda text: decode_envelope(text.encode(), LIMITS))[OURS],
    }
    parsers["json.loads without SSE"] = by_json_alone
    by_json = sse(chunks, json.loads).get("httpx-sse")
    if by_json is not None:
        parsers["httpx-sse + json"] = by_json
    validate = mcp_validator()
    by_mcp = sse(chunks, validate).get("httpx2 (for mcp)") if validate else None
    if by_mcp is not None:
        parsers["mcp"] = by_mcp
    return parsers


# Messages


def messages(documents: list[bytes]) -> dict[str, Parser]:
    """Those who read JSON-RPC messages, and those who only read JSON."""

    def each(read: Callable[[bytes], object]) -> Parser:
        def parse() -> int:
            for document in documents:
                read(document)
            return len(documents)

        return parse

    parsers = {
        OURS: each(lambda data: decode_message(data, LIMITS)),
        UNOPENED: each(lambda data: decode_envelope(data, LIMITS)),
    }
    if validate := mcp_validator():
        parsers["mcp"] = each(validate)
    parsers["json.loads"] = each(json.loads)
    if msgspec := peer("msgspec.json"):
        parsers["msgspec, JSON only"] = each(msgspec.decode)
    if orjson := peer("orjson"):
        parsers["orjson, JSON only"] = each(orjson.loads)
    return parsers


def encoders(document: bytes) -> dict[str, Parser]:
    """Those who write a message, and those who only write JSON."""
    message, value = decode_message(document, LIMITS), json.loads(document)
    assert not isinstance(message, Batch)

    def times(write: Callable[[], object]) -> Parser:
        def parse() -> int:
            for _ in range(100):
                write()
            return 100

        return parse

    parsers = {OURS: times(lambda: encode_message(message))}
    if validate := mcp_validator():
        model: Any = validate(document)
        parsers["mcp"] = times(lambda: model.model_dump_json(by_alias=True, exclude_unset=True))
    parsers["json.dumps"] = times(lambda: json.dumps(value))
    if orjson := peer("orjson"):
        parsers["orjson, JSON only"] = times(lambda: orjson.dumps(value))
    return parsers


def mcp_validator() -> Callable[[str | bytes], object] | None:
    """What the official SDK reads a message with, as its transports call it."""
    types = peer("mcp_types") or peer("mcp.types")
    adapter: Any = getattr(types, "jsonrpc_message_adapter", None)
    return None if adapter is None else lambda data: adapter.validate_json(data, by_name=False)


# Lines


def lines(chunks: list[bytes]) -> dict[str, Parser]:
    """Those who read lines, as stdio has them."""

    def ours() -> int:
        decoder = NdjsonDecoder(LIMITS.max_message_bytes)
        count = 0
        for chunk in chunks:
            decoder.receive_data(chunk)
            while not isinstance(decoder.next_event(), Idle):
                count += 1
        return count

    def by_io() -> int:
        return sum(1 for line in io.BytesIO(b"".join(chunks)) if line)

    def by_split() -> int:
        return sum(1 for line in b"".join(chunks).split(b"\n") if line)

    return {OURS: ours, "io.BytesIO": by_io, "bytes.split": by_split}


def workloads() -> list[Workload]:
    """All that is measured."""
    count = 1000
    small = [progress(number) for number in range(1, count)] + [result(11_000)]
    large = [result(11_000)] * 50
    stream, long_stream = tool_stream(small), tool_stream(large)
    ndjson = b"".join(map(encode_line, small))
    rows = [{"id": n, "name": f"row {n}", "is_new": True, "tags": ["a", "b"]} for n in range(15000)]
    table = encode(id=7, result={"rows": rows})
    both = "SSE and JSON-RPC,"
    return [
        Workload("SSE, small events, 64 KiB", count, sse(cut(stream, 65536), ignore)),
        Workload("SSE, small events, 1460 B", count, sse(cut(stream, 1460), ignore)),
        Workload("SSE, small events, 64 B", count, sse(cut(stream, 64), ignore)),
        Workload("SSE, small events, 1 B", count, sse(cut(stream, 1), ignore)),
        Workload("SSE, 11 KB events, 64 KiB", 50, sse(cut(long_stream, 65536), ignore)),
        Workload("SSE, 11 KB events, 1460 B", 50, sse(cut(long_stream, 1460), ignore)),
        Workload(f"{both} small, 64 KiB", count, conversation(cut(stream, 65536), small)),
        Workload(f"{both} 11 KB, 64 KiB", 50, conversation(cut(long_stream, 65536), large)),
        Workload("JSON-RPC, request of 150 B", count, messages([request()] * count)),
        Workload("JSON-RPC, result of 11 KB", 50, messages(large)),
        Workload("JSON-RPC, result of 1 MB", 1, messages([result(1_000_000)])),
        Workload("JSON-RPC, table of 0.9 MB", 1, messages([table])),
        Workload("encode, request of 150 B", 100, encoders(request())),
        Workload("encode, result of 11 KB", 100, encoders(result(11_000))),
        Workload("NDJSON, small messages, 64 KiB", count, lines(cut(ndjson, 65536))),
        Workload("NDJSON, small messages, 1 KiB", count, lines(cut(ndjson, 1024))),
    ]
