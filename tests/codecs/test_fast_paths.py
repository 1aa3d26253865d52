"""What is read in one go is read as if it were read slowly: compared with the simplest readers."""

from __future__ import annotations

import itertools
import json as standard
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sansmcp import (
    Idle,
    LocalProtocolError,
    NdjsonDecoder,
    RemoteProtocolError,
    SseDecoder,
    SseEvent,
)
from sansmcp.codecs import json

# Event streams

PIECES = st.sampled_from(
    [
        *(b"data: ", b"data:", b"data", b"id: ", b"id:", b"event: ", b"event:", b"retry: ", b"7"),
        *(b"\n", b"\r", b"\r\n", b"\n\n", b"\0", b" ", b":", b"x", b"\xef\xbb\xbf", b"\xff"),
        *(b"\xc3", b"\xa9", "\u2028".encode(), b"data: a\n\n", b"id: 1\nevent: e\ndata: b\n\n"),
        *(b"event: e\nid: 2\ndata: c\n\n", b": keep\n\n", b"y" * 1100, b"z" * 17_000),
    ]
)
BODIES = st.lists(PIECES | st.binary(max_size=3), max_size=40).map(b"".join)
SIZES = st.lists(st.integers(1, 3000) | st.integers(1, 12), min_size=1, max_size=8)
LIMITS = st.integers(1, 80) | st.integers(1000, 40_000)


def cut(body: bytes, sizes: list[int]) -> list[bytes]:
    chunks: list[bytes] = []
    start = 0
    for size in itertools.cycle(sizes):
        if start >= len(body):
            return chunks
        chunks.append(body[start : start + size])
        start += size
    return chunks


def read_slowly(body: bytes, limit: int) -> tuple[list[SseEvent], bool, int | None]:
    """Blocks, whether the limit struck, and the last reconnection time: word for word, one way.

    The limit is for the bytes of a block, its line feeds among them but for the last two, and for
    each comment before it. A block is known to be too large only when these two should have come.
    """
    events: list[SseEvent] = []
    fields: dict[str, list[str]] = {}
    held, last_id = 0, ""
    retry: int | None = None
    lines = re.split(rb"\r\n|\r|\n", body)
    for number, line in enumerate(lines):
        line = line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line
        is_last = number == len(lines) - 1
        is_comment = not held and line.startswith(b":")
        if line and held + len(line) > limit + (is_last and not is_comment):
            return events, True, retry
        if is_last:
            break
        text = line.decode("utf-8", "replace")
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if not text:
            if "id" in fields:
                last_id = fields["id"][-1]
            if fields:
                events.append(
                    SseEvent(
                        fields.get("event", [""])[-1] or "message",
                        "\n".join(fields["data"]) if "data" in fields else None,
                        fields.get("id", [None])[-1],
                        int(fields["retry"][-1]) if "retry" in fields else None,
                        last_id,
                    )
                )
            fields, held = {}, 0
        elif not is_comment:
            held += len(line) + 1
        if (
            name in ("data", "event")
            or (name == "id" and "\0" not in value)
            or (name == "retry" and re.fullmatch("[0-9]+", value))
        ):
            fields.setdefault(name, []).append(value)
            retry = int(value) if name == "retry" else retry
    return events, False, retry


@given(BODIES, SIZES, LIMITS)
@example(b"\nretry: 5\n", [100], 1000)
@example(b"data: a\n\n" * 3000, [30_000], 40_000)
@example(b"data: a\n\n" * 3000 + b"retry: 5\n", [30_000], 100)
def test_an_event_stream_is_read_as_if_line_by_line(
    body: bytes, sizes: list[int], limit: int
) -> None:
    events, is_beyond, retry = read_slowly(body, limit)
    decoder = SseDecoder(limit)
    found: list[SseEvent] = []
    has_failed = False
    for chunk in [*cut(body, sizes), b""]:
        try:
            found += decoder.feed(chunk)
            assert decoder.last_event_id == (found[-1].last_event_id if found else "")
            if len(chunk) % 2:
                _ = decoder.reconnection_time  # whoever asks changes nothing
        except RemoteProtocolError:
            has_failed = True
    try:
        assert decoder.next_event() is Idle.NEED_DATA
    except RemoteProtocolError:
        has_failed = True
    assert (found, has_failed) == (events, is_beyond)
    if not has_failed:
        assert decoder.reconnection_time == retry


LONG = b"data: " + b"x" * 1100
HEAD = b"event: e\nid: 1\n"
MIXED = (HEAD + LONG + b"\n\n") * 3 + b":\n\n" + (HEAD + b"data: a\n\n") * 20 + HEAD + LONG


@pytest.mark.parametrize(
    "chunks",
    [
        [LONG + b"\n", b"\n"],
        [LONG + b"\r", b"\ndata: a\r\n\r", b"\n"],
        [LONG + b"\n", b"data: a\nda", b"ta: b\ndata: c", b"\n\ndata: d\n\n"],
        [LONG, b"y\nid: 1\nretry: 9\n", b": z\n\ndata: a\n\n"],
        [b": " + LONG, b"\n\n", b"data: a\n\n"],
        [b"data: a\n" * 200, b"data: b\n" * 200 + b"\n"],
        [b":\n" * 1000 + b"data: a\n", b"\n"],
        [b"event: e\n" + LONG[:1000] + b"\0\n" + b"id: \0\n" * 10, b"id: 1\n\n"],
        [b"id: 1\n" + b"data: a\n" * 600 + b"\n" + b"data: b\n" * 600 + b"\n"],
        [b"data: a\n" * 600 + b"\n\n" + b"id: 1\ndata: b\n" * 600 + b"\ndata: c\n\n"],
        [b"data: a\r\n" * 600 + b"\r\ndata: b\r\n\r", b"\n" + b"data: c\r\n" * 600 + b"\r\n"],
        [b"data: a\r\nid: 1\r\n\n\ndata: b\n\ndata: c\r\n\r\n"],
        [MIXED, b"\n\n"],
        [MIXED.replace(b"\n", b"\r\n"), b"\r\n\r", b"\n"],
        [HEAD, MIXED.replace(b"\n\n", b"\r\n\r\n"), b"\n\n"],
        [MIXED.replace(b"a\n\n", b"a\rid: 2\n\n"), b"\n\n"],
        [HEAD + LONG + b"\rdata: b\r\n\r\n" + MIXED, b"\n\n"],
        [HEAD + LONG + b"\n\n" + LONG + b"\rdata: b", b"\r\r"],
        [HEAD + b"id: \0\n" + LONG + b"\n\nid: 2\0\n" + LONG + b"\n\n"],
        [b"data: a\n\n", b"data: b\rid: 1\r\n\r\n", b"id: 2\rid: 3\r\ndata: c\r\n\r\n"],
        [b"data: a\n\n", b"event: a\revent: b\r\ndata: d\r\n\r\n"],
    ],
)
def test_a_long_block_may_be_cut_anywhere(chunks: list[bytes]) -> None:
    decoder = SseDecoder(1 << 30)
    found = [event for chunk in chunks for event in decoder.feed(chunk)]
    expected = read_slowly(b"".join(chunks), 1 << 30)
    assert (found, False, decoder.reconnection_time) == expected
    assert found


def test_a_limit_is_above_zero() -> None:
    with pytest.raises(LocalProtocolError, match="limit must be above zero, and is 0"):
        SseDecoder(0)


@given(BODIES, SIZES)
def test_ids_count_when_their_event_is_taken(body: bytes, sizes: list[int]) -> None:
    decoder = SseDecoder(1 << 30)
    found: list[SseEvent] = []
    for number, chunk in enumerate(cut(body, sizes)):
        decoder.receive_data(chunk)
        while number % 3 and isinstance(event := decoder.next_event(), SseEvent):
            found.append(event)
            assert decoder.last_event_id == event.last_event_id
    found += decoder.feed(b"")
    assert (found, False, decoder.reconnection_time) == read_slowly(body, 1 << 30)


# Lines of stdio


@given(BODIES, SIZES, LIMITS)
def test_lines_are_read_as_if_one_by_one(body: bytes, sizes: list[int], limit: int) -> None:
    expected: list[bytes | None] = []
    for line in body.split(b"\n"):
        if len(line) > limit:
            expected.append(None)
        elif line.strip(b" \t\r"):
            expected.append(line.removesuffix(b"\r"))
    decoder = NdjsonDecoder(limit)
    found: list[bytes | None] = []
    for chunk in [*cut(body, sizes), None]:
        if chunk is None:
            decoder.receive_eof()
        else:
            decoder.receive_data(chunk)
        while True:
            try:
                event = decoder.next_event()
            except RemoteProtocolError:
                found.append(None)
                continue
            if isinstance(event, Idle):
                break
            found.append(event)
    assert found == expected


# JSON

STRINGS = st.sampled_from(
    ['"a"', '"b"', '"\\u0061"', '"\\u003a"', '":"', '"\\""', '"[]{"', '"\\\\"', '"é"', '"\\n"']
)
DOCUMENTS = st.recursive(
    STRINGS | st.sampled_from(["1", "1e5", "-0.50", "null", "true", "[]", "{}", " [ ] "]),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda each: f"[{','.join(each)}]")
        | st.lists(st.tuples(STRINGS, inner), max_size=4).map(
            lambda pairs: f"{{{' ,'.join(f'{name}:{value}' for name, value in pairs)}}}"
        )
    ),
    max_leaves=20,
)
PADDING = st.sampled_from(
    [
        f'"{text}"'
        for text in (
            *("", "x" * 1100, "x" * 1100 + r"\n", "[" * 1100, "x" * 4200),
            *("\u5b57" * 1500, "\u5b57," * 1500, r"\u5b57" * 800),
        )
    ]
)


@given(DOCUMENTS, PADDING, st.integers(1, 8))
@example("[" * 63 + "]" * 63, f'"{"x" * 1100}"', 64)
@example("[" * 64 + "]" * 64, f'"{"x" * 1100}"', 64)
@example("[" * 64 + "]" * 64, f'"{"x" * 1100}\\n"', 64)
@example('{"a":1,"a":":","b":"\\u003a"}', '""', 64)
def test_json_is_read_as_the_rules_tell_it(document: str, padding: str, depth: int) -> None:
    data = f"[{document},{padding}]".encode()

    def outcome(decode: Any) -> tuple[str, Any]:
        try:
            return "value", decode(data, depth)
        except RemoteProtocolError as error:
            return "refused", error.reason

    plain = outcome(json.decode_stdlib)
    assert repr(outcome(json.decode)) == repr(plain)
    if plain[0] == "value":
        assert plain[1] == standard.loads(data)
