"""What is measured: the same input for every parser, each in the way its users call it.

A parser returns how many messages it has found, so that a test can see that all of them did the
same work. Parsers of other projects are left out where they are not installed.
"""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    encode_line,
    encode_message,
)
from sansmcp.codecs.delimited_buffer import CR_BYTE

from .corpus import CUTS, KINDS, MANY, streams
from .readers import READERS, InNode, Reader

OURS = "sansmcp"
UNOPENED = "sansmcp, payloads unopened"
FLOORS = {
    UNOPENED,
    "bytes.split",
    "eventsource-parser (Node)",
    "json.loads without SSE",
    "msgspec, JSON only",
    "orjson, JSON only",
    "io.BytesIO",
}
"""What does less than the others, or in another language: how fast it could be at best."""

MOST_CHUNKS = 1000
"""Where a large event has more, some parsers take seconds, since they take quadratic time."""

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


def cut(data: bytes, size: int) -> list[bytes]:
    """An input in pieces."""
    return [data[start : start + size] for start in range(0, len(data), size)]


# Event streams


def sse(
    chunks: list[bytes], read: Callable[[str], object], *, node: bool = False
) -> dict[str, Parser]:
    """Those who read an event stream; ``read`` takes the data of each event.

    ``node``: in Node.js, too, which takes a second, and chunks of one size.
    """

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
        if node and (in_node := InNode.reader(chunks)):
            parsers["eventsource-parser (Node)"] = in_node
    return parsers | {name: by(reader) for name, reader in READERS.items()}


def blocks_of(chunks: list[bytes]) -> Iterator[str]:
    """What is between blank lines and says anything, without a look into it: the least there is."""
    blank = b"\r\n\r\n" if CR_BYTE in chunks[0] else b"\n\n"
    rest = b""
    for chunk in chunks:
        *blocks, rest = (rest + chunk).split(blank)
        for block in blocks:
            if len(block) > 40:  # neither a comment nor the priming event
                yield block.decode()


def ignore(text: str) -> None:
    """For those who only want the events."""


def conversation(chunks: list[bytes], messages: Sequence[bytes]) -> dict[str, Parser]:
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


def messages(documents: Sequence[bytes]) -> dict[str, Parser]:
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

    count = times_to_write(document)

    def times(write: Callable[[], object]) -> Parser:
        def parse() -> int:
            for _ in range(count):
                write()
            return count

        return parse

    parsers = {OURS: times(lambda: encode_message(message))}
    if validate := mcp_validator():
        model: Any = validate(document)
        parsers["mcp"] = times(lambda: model.model_dump_json(by_alias=True, exclude_unset=True))
    parsers["json.dumps"] = times(lambda: json.dumps(value))
    if orjson := peer("orjson"):
        parsers["orjson, JSON only"] = times(lambda: orjson.dumps(value))
    return parsers


def times_to_write(document: bytes) -> int:
    """How often a message is written."""
    return max(1, min(100, 1_000_000 // len(document)))


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
    """All that is measured, table by table: what is before the first comma names the table."""
    return [
        *event_streams(),
        *conversations(),
        *(
            Workload(f"JSON-RPC, {kind}", len(each), messages(each))
            for kind, documents in KINDS.items()
            for each in [documents()]
        ),
        *(
            Workload(f"encode, {kind}", times_to_write(document), encoders(document))
            for kind, documents in KINDS.items()
            for document in [documents()[-1]]
        ),
        *(
            Workload(f"lines, small, {name}", MANY, lines(cut(ndjson, size)))
            for ndjson in [b"".join(map(encode_line, KINDS["small, 140 B"]()))]
            for name, size in (("64 KiB", 65536), ("1 KiB", 1024))
        ),
    ]


def event_streams() -> Iterator[Workload]:
    """Each stream, cut in each way."""
    for name, stream in streams().items():
        for cut_name, size in CUTS.items():
            chunks = stream.cut(size)
            if len(chunks) > MOST_CHUNKS:
                continue
            node = name == "small, 140 B, LF" and size is not None
            parsers = sse(chunks, ignore, node=node)
            yield Workload(f"SSE, {name}, {cut_name}", len(stream.messages), parsers)
    stream = streams()["small, 140 B, LF"]
    for size in (64, 1):
        parsers = sse(stream.cut(size), ignore, node=True)
        yield Workload(f"SSE, small, 140 B, LF, {size} B", len(stream.messages), parsers)


def conversations() -> Iterator[Workload]:
    """Each stream with the messages in it, event by event and in large chunks."""
    for name, stream in streams().items():
        for cut_name in ("one event", "64 KiB"):
            parsers = conversation(stream.cut(CUTS[cut_name]), stream.messages)
            yield Workload(f"SSE + JSON-RPC, {name}, {cut_name}", len(stream.messages), parsers)
