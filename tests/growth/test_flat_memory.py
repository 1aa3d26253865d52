"""Memory is bounded by what is under way and by the limits, not by how long or how much is said."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterable, Iterator

import pytest

from sansmcp import (
    Entry,
    Limits,
    MemoryStore,
    RemoteProtocolError,
    StreamKey,
)
from sansmcp.codecs import json
from tests.appending import append

from . import decoders
from .decoders import Decoder, Input, repeat
from .work import NOISE, held, run, tracing

KIB = 1024


def peak(pieces: Iterable[object]) -> int:
    """The most memory that some work takes at any time."""
    with tracing():
        before = held()
        tracemalloc.reset_peak()
        run(pieces)
        return tracemalloc.get_traced_memory()[1] - before


# Endless input that says nothing, or too much

ENDLESS: dict[str, tuple[Decoder, bytes]] = {
    "SSE: keep-alives": (decoders.sse, b":\n\n"),
    "SSE: comments in one block": (decoders.sse, b":\n"),
    "SSE: blank lines": (decoders.sse, b"\r\n"),
    "SSE: pings": (decoders.sse_by_feed, b"event: ping\ndata\n\n"),
    "SSE: ids": (decoders.sse_by_feed, b"id: 1\n\n"),
    "SSE: a line beyond the limit": (decoders.sse_beyond_limit, b"data: x"),
    "NDJSON: blank lines": (decoders.ndjson, b" \r\n"),
    "NDJSON: a line beyond the limit": (decoders.ndjson_beyond_limit, b"x" * 100),
    "server connection: requests": (decoders.server, decoders.post(decoders.PING)),
    "server connection: garbage": (decoders.server, b"x" * KIB),
    "client connection: keep-alives": (decoders.client, b"3\r\n:\n\n\r\n"),
}

CONNECTIONS = (decoders.server, decoders.client)


@pytest.mark.parametrize(("decoder", "chunk"), ENDLESS.values(), ids=ENDLESS)
def test_an_endless_input_leaves_nothing(decoder: Decoder, chunk: bytes) -> None:
    start = decoders.STREAM_HEAD if decoder is decoders.client else b""
    with tracing():
        work = decoder(itertools.chain([start + chunk], itertools.repeat(chunk)))
        run(itertools.islice(work, 500))
        before = held()
        run(itertools.islice(work, 2000 if decoder in CONNECTIONS else 40_000))
        assert held() < before + NOISE


# What one message takes


@pytest.mark.parametrize(
    "make",
    [
        repeat(b"[],", b"[", b"1]"),
        repeat(b"{},", b"[", b"1]"),
        repeat(b'{"a":1},', b"[", b"1]"),
        repeat(b'"ab",', b"[", b"1]"),
        repeat(b"[" * 60 + b"]" * 60 + b",", b"[", b"1]"),
        repeat(b"["),
    ],
)
def test_no_json_document_takes_fifty_times_its_size(make: Input) -> None:
    data = make(64 * KIB)

    def decode() -> Iterator[object]:
        try:
            yield json.decode(data, 64)
        except RemoteProtocolError as error:
            yield error

    assert peak(decode()) < 50 * len(data)


@pytest.mark.parametrize("line", [b"data\n", b"data:x\n", b"data:xy\n", b"data:\xc3\xa9\n"])
def test_no_block_of_an_event_stream_takes_twenty_times_its_size(line: bytes) -> None:
    data = line * (64 * KIB // len(line))
    assert peak(decoders.sse([data])) < 20 * len(data)


# The store


SESSIONS = 50


def fill(store: MemoryStore, streams: Iterable[int], size: int = 100) -> None:
    """Store two messages in each of some streams, a thousand streams a second."""
    for number in streams:
        key = StreamKey("", f"session-{number % SESSIONS}", f"stream-{number}")
        entries = (Entry(1, bytes(size)), Entry(2, bytes(size)))
        append(store, key, entries, now=number / 1000)


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(Limits(max_stored_entries=1000), id="count"),
        pytest.param(Limits(max_stored_bytes=100 * KIB), id="bytes"),
        pytest.param(Limits(max_stored_age=0.5), id="age"),
    ],
)
def test_the_store_keeps_no_more_than_it_may_after_thousands_of_streams(limits: Limits) -> None:
    with tracing():
        store = MemoryStore(limits)
        fill(store, range(2000))
        before = held()
        fill(store, range(2000, 8000))
        assert held() < before + 4 * KIB
    assert store.count <= limits.max_stored_entries
    assert store.size <= limits.max_stored_bytes


def test_a_message_takes_less_than_a_kibibyte_beside_its_own_size() -> None:
    with tracing():
        before = held()
        store = MemoryStore()
        fill(store, range(1000), 1)
        assert held() - before < store.count * KIB


def test_a_session_that_is_dropped_gives_back_what_the_store_kept() -> None:
    with tracing():
        before = held()
        store = MemoryStore()
        fill(store, range(2000), KIB)
        full = held() - before
        for number in range(SESSIONS):
            store.drop("", f"session-{number}")
        assert held() - before < full / 4
        fill(store, [10**7])
        assert held() - before < full / 40
