"""What is read costs in proportion to its length, however it is cut and whatever it says."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeAlias

import pytest

from sansmcp import EventId, Limits, RemoteProtocolError, decode_message, encode_event
from sansmcp.codecs import headers, json

from .decoders import (
    DECODERS,
    EVENTS,
    LINES,
    PING,
    REQUESTS,
    RESPONSES,
    Decoder,
    Input,
    client,
    ndjson,
    ndjson_beyond_limit,
    post,
    repeat,
    server,
    sse,
    sse_by_feed,
)
from .work import allocated, growth, is_linear_in_time, pieces_of, steps

TOO_MUCH = 8
"""Growth between what is linear, 4, and what is quadratic, 16."""

Cut: TypeAlias = Callable[[], Iterable[int]]
"""Gives the sizes of chunks; what is left after them is the last chunk."""

CHUNKINGS: dict[str, tuple[int, Cut]] = {
    "whole": (32, lambda: ()),
    "powers of two": (32, lambda: (2**power for power in itertools.count())),
    "seven bytes": (2, lambda: itertools.repeat(7)),
    "byte by byte": (1, lambda: itertools.repeat(1)),
}
"""How to cut an input, and how long it has to be for that to show anything."""

WAITING = (sse, sse_by_feed)
"""Decoders that let about a KiB wait before they look at it, and copy more than 16 KiB in parts:
inputs tell nothing of which the longest is not several times as long as that.
"""

LONG = {
    "CR only",
    "blank lines",
    "comments in one block",
    "many ids in one block",
    "unknown fields",
}
"""What keeps a decoder of events busy for long: its relatives always run."""
SILENT = [EVENTS[name] for name in (*LONG, "CR LF", "keep-alives")]
"""What is no event. A whole chunk of it is one piece of work, of which only the most memory counts:
it shows no more where it is longer, and takes long.
"""
STREAMS = [
    pytest.param(
        *(decoder, make),
        id=f"{name}: {what}",
        marks=[pytest.mark.thorough] if decoder in WAITING and what in LONG else [],
    )
    for name, (decoder, inputs) in DECODERS.items()
    for what, make in inputs.items()
]
KIB = 1024


def prepared(decoder: Decoder, make: Input, size: int, cut: Iterable[int] = ()) -> Iterator[None]:
    """A decoder about to read an input of this size."""
    return decoder(list(pieces_of(make(size), cut)))


def too_steep(
    decoder: Decoder, make: Input, cost: Callable[[Iterable[object]], int], shortest: int
) -> dict[str, float]:
    """The chunkings whose cost grows faster than the input."""

    def steepness(length: int, cut: Cut) -> float:
        return growth(lambda size: cost(prepared(decoder, make, size, cut())), length * shortest)

    longest = 8
    if decoder in WAITING and cost is steps:
        shortest, longest = KIB, 2  # many times a KiB, which takes long to trace
    elif decoder in WAITING:
        shortest, longest = 4 * KIB, 4 if make in SILENT else 32
    found = {
        name: steepness(min(length, longest), cut) for name, (length, cut) in CHUNKINGS.items()
    }
    return {name: steepness for name, steepness in found.items() if steepness > TOO_MUCH}


@pytest.mark.parametrize(("decoder", "make"), STREAMS)
def test_steps_are_linear_for_every_chunking(decoder: Decoder, make: Input) -> None:
    assert too_steep(decoder, make, steps, 32) == {}


@pytest.mark.parametrize(("decoder", "make"), STREAMS)
def test_copies_are_linear_for_every_chunking(decoder: Decoder, make: Input) -> None:
    # What a client connection lets wait is noise in inputs that are much shorter than that.
    assert too_steep(decoder, make, allocated, 512 if decoder is client else 128) == {}


def test_requests_that_are_sent_ahead_are_not_copied_for_each_answer() -> None:
    def prepare(size: int) -> Iterable[object]:
        return prepared(server, repeat(post(PING)), size)

    assert growth(lambda size: allocated(prepare(size)), 32 * KIB) < TOO_MUCH


@pytest.mark.parametrize(
    ("decoder", "make"),
    [
        pytest.param(sse, EVENTS["one line without end"], id="SSE: no line"),
        pytest.param(sse, EVENTS["one data line"], id="SSE: one line"),
        pytest.param(sse_by_feed, EVENTS["a huge id"], id="SSE: a huge id"),
        pytest.param(ndjson, LINES["one line"], id="NDJSON: one line"),
        pytest.param(ndjson_beyond_limit, LINES["one line"], id="NDJSON: beyond the limit"),
        pytest.param(server, REQUESTS["a long body"], id="server connection: a long body"),
        pytest.param(client, RESPONSES["a long body"], id="client connection: a long body"),
    ],
)
def test_one_long_line_in_pieces_takes_linear_time(decoder: Decoder, make: Input) -> None:
    def prepare(size: int) -> Iterable[object]:
        return prepared(decoder, make, size, itertools.repeat(KIB))

    assert is_linear_in_time(prepare, 128 * KIB)


@pytest.mark.parametrize(
    ("decoder", "make"),
    [
        pytest.param(sse, EVENTS["tiny data lines"], id="SSE: one event"),
        pytest.param(sse, EVENTS["blank lines"], id="SSE: blank lines"),
        pytest.param(sse, EVENTS["CR only"], id="SSE: CR"),
        pytest.param(sse, EVENTS["comments in one block"], id="SSE: comments"),
        pytest.param(sse_by_feed, EVENTS["events"], id="SSE: events"),
        pytest.param(ndjson, LINES["many lines"], id="NDJSON"),
        pytest.param(client, RESPONSES["an event stream"], id="client connection"),
    ],
)
def test_many_short_lines_at_once_take_linear_time(decoder: Decoder, make: Input) -> None:
    assert is_linear_in_time(lambda size: prepared(decoder, make, size), 2 * KIB)


# Functions that take all at once


def once(function: Callable[[], object]) -> Iterator[None]:
    """One piece of work, which may end in a refusal."""
    with suppress(RemoteProtocolError):
        function()
    yield


DOCUMENTS: dict[str, Input] = {
    "one string": repeat(b"x", b'"', b'"'),
    "a string without end": repeat(b"x", b'"'),
    "escaped quotes": repeat(rb"\"", b'"', b'"'),
    "backslashes": repeat(rb"\\", b'"', b'"'),
    "halves of characters": repeat(rb"\ud83d ", b'"', b'"'),
    "numbers": repeat(b"1,", b"[", b"1]"),
    "spaces": repeat(b" ", end=b"1"),
    "lines before an error": repeat(b"\n", end=b"x"),
    "a long integer": repeat(b"9"),
    "long integers": repeat(b"9" * json.MAX_DIGITS + b",", b"[", b"1]"),
    "a long fraction": repeat(b"1", b"0."),
    "a long exponent": repeat(b"9", b"1e-"),
    "short strings": repeat(b'"ab",', b"[", b"1]"),
    "empty arrays": repeat(b"[],", b"[", b"1]"),
    "arrays as deep as allowed": repeat(b"[" * 60 + b"]" * 60 + b",", b"[", b"1]"),
    "one array that is too deep": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "brackets without end": repeat(b"["),
    "names": lambda size: b"{" + b",".join(b'"%d":1' % n for n in range(size // 9)) + b"}",
    "one name twice": lambda size: (
        b'{"0":1,' + b",".join(b'"%d":1' % n for n in range(size // 9)) + b"}"
    ),
    "one name always": repeat(b'"a":1,', b"{", b'"a":1}'),
    "colons in a string": repeat(b":", b'["', b'"]'),
    "NaN at the end": repeat(b"1,", b"[", b"NaN]"),
    "broken UTF-8 at the end": repeat(b"x", b'"', b'\xff"'),
}


@pytest.mark.parametrize("decode", [json.decode, json.decode_stdlib])
@pytest.mark.parametrize("make", DOCUMENTS.values(), ids=DOCUMENTS)
def test_json_takes_linear_time(decode: Callable[[bytes, int], object], make: Input) -> None:
    def prepare(size: int) -> Iterable[object]:
        data = make(size)
        return once(lambda: decode(data, 64))

    assert is_linear_in_time(prepare, 16 * KIB)


_FRESH = itertools.count()
"""What Accept says is remembered, but not what nobody has said before."""
LIMITS = Limits(max_batch_messages=1_000_000)
FUNCTIONS: dict[str, tuple[Callable[[bytes], object], Input]] = {
    "a batch": (
        lambda data: decode_message(data, LIMITS),
        repeat(b'{"jsonrpc":"2.0","method":"a"},', b"[", b"1]"),
    ),
    "an event id": (lambda data: EventId.decode(data.decode()), repeat(b"a-")),
    "an event id of digits": (lambda data: EventId.decode(data.decode()), repeat(b"1", b"a-")),
    "Accept": (
        lambda data: headers.accepts([b"%d," % next(_FRESH), data], headers.JSON),
        repeat(b"a/b;q=0.1,"),
    ),
    "Accept with many parameters": (
        lambda data: headers.accepts([b"%d," % next(_FRESH), data], headers.JSON),
        repeat(b";q"),
    ),
    "Accept in many headers": (
        lambda data: headers.accepts([b"a/b"] * (len(data) // 3), headers.JSON),
        repeat(b"a/b"),
    ),
    "a header that is repeated": (
        lambda data: headers.single([b"%d" % n for n in range(len(data) // 8)]),
        repeat(b"x"),
    ),
    "headers by their names": (
        lambda data: headers.by_name(tuple((b"x", b"") for _ in range(len(data) // 4))),
        repeat(b"x:\r\n"),
    ),
    "an event of many lines": (encode_event, repeat(b"a\r")),
    "an event of CR LF": (encode_event, repeat(b"\r\n")),
    "encoding nulls": (lambda data: json.encode([None] * len(data)), repeat(b"x")),
    "encoding text": (lambda data: json.encode(data.decode()), repeat(b'"')),
}


@pytest.mark.parametrize(("function", "make"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_small_codecs_are_linear(function: Callable[[bytes], object], make: Input) -> None:
    def prepare(size: int) -> Iterable[object]:
        data = make(size)
        return once(lambda: function(data))

    assert growth(lambda size: steps(prepare(size)), KIB) < TOO_MUCH
    assert growth(lambda size: allocated(prepare(size)), 4 * KIB) < TOO_MUCH
    assert is_linear_in_time(prepare, 4 * KIB)


# The measures see what they are for: decoders that are quadratic, each in its own way. What is
# quadratic fails all tries, of which two are enough to see that.


def copying(chunks: Iterable[bytes]) -> Iterator[None]:
    """Copies what it has for each chunk."""
    held = b""
    for chunk in chunks:
        held = held + chunk
        yield


def walking(chunks: Iterable[bytes]) -> Iterator[None]:
    """Looks at each byte again for each chunk, in Python."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        for byte in held:
            if byte == 10:
                break
        yield


def searching(chunks: Iterable[bytes]) -> Iterator[None]:
    """Looks at each byte again for each chunk, in C."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        held.find(b"\n")
        yield


def shifting(chunks: Iterable[bytes]) -> Iterator[None]:
    """Moves all lines that are left for each line that it takes."""
    for chunk in chunks:
        waiting = chunk.split(b"\n")
        while waiting:
            waiting.pop(0)
            yield


def test_the_steps_show_a_decoder_that_looks_at_everything_again() -> None:
    assert "byte by byte" in too_steep(walking, LINES["one line"], steps, 32)
    assert too_steep(copying, LINES["one line"], steps, 32) == {}


def test_the_copies_show_a_decoder_that_copies_everything_again() -> None:
    assert "byte by byte" in too_steep(copying, LINES["one line"], allocated, 128)
    assert too_steep(walking, LINES["one line"], allocated, 128) == {}


def test_the_time_shows_a_decoder_that_searches_everything_again() -> None:
    def prepare(size: int) -> Iterable[object]:
        return prepared(searching, repeat(b"x"), size, itertools.repeat(KIB))

    assert not is_linear_in_time(prepare, 128 * KIB, tries=2)


def test_the_time_shows_a_decoder_that_moves_everything_again() -> None:
    def prepare(size: int) -> Iterable[object]:
        return prepared(shifting, LINES["blank lines"], size)

    assert not is_linear_in_time(prepare, 2 * KIB, tries=2)
