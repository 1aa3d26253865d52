"""The SSE decoder does what the WHATWG standard says, for every way of cutting its input."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import Idle, LocalProtocolError, RemoteProtocolError, SseDecoder, SseEvent

requirement = pytest.mark.requirement
LIMIT = 10_000


def decode(*chunks: bytes, limit: int = LIMIT) -> list[SseEvent]:
    """All blocks of a body that comes in these chunks and then ends."""
    decoder = SseDecoder(limit)
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    decoder.receive_eof()
    assert decoder.next_event() is Idle.NEED_DATA
    return events


def datas(*chunks: bytes, limit: int = LIMIT) -> list[str | None]:
    return [event.data for event in decode(*chunks, limit=limit)]


@requirement("SSE-C-001")
def test_ill_formed_utf8_becomes_replacement_characters() -> None:
    assert datas(b"data: a\xffb\xc3\n\n") == ["a\ufffdb\ufffd"]


@requirement("SSE-C-002")
@pytest.mark.parametrize("cut", range(4))
def test_one_byte_order_mark_is_dropped_at_the_start_only(cut: int) -> None:
    body = b"\xef\xbb\xbfdata: a\n\ndata: \xef\xbb\xbfb\n\n"
    assert datas(body[:cut], body[cut:]) == ["a", "\ufeffb"]
    assert datas(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n") == []


@requirement("SSE-C-003")
def test_lines_end_at_lf_cr_and_crlf_and_nowhere_else() -> None:
    assert datas(b"data: a\n\ndata: b\r\rdata: c\r\n\r\n") == ["a", "b", "c"]
    text = "a\u2028b\u2029c\x85d\x0be\x0cf"
    assert datas(b"data: " + text.encode() + b"\n\n") == [text]


@requirement("SSE-C-004")
def test_cr_and_lf_in_two_chunks_are_one_line_ending() -> None:
    assert datas(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == ["a\nb"]


def test_an_event_is_there_as_soon_as_the_cr_of_its_blank_line() -> None:
    decoder = SseDecoder(LIMIT)
    assert [event.data for event in decoder.feed(b"data: a\r\n\r")] == ["a"]
    assert decoder.feed(b"\n") == []


@requirement("SSE-C-006", "SSE-C-028")
def test_comments_have_no_effect() -> None:
    assert decode(b":\n\n: hello\n\n") == []
    assert datas(b"data: a\n: in between\ndata: b\n\n") == ["a\nb"]


@pytest.mark.parametrize("cut", [1, 3, 1000])
@pytest.mark.parametrize(
    ("body", "has_comments"),
    [
        (b":\n\n", True),
        (b": ping\r\n\r\n", True),
        (b"data: a\n\n:\n\n", True),
        (b"data: a\n: in between\ndata: b\n\n", True),
        (b"data: " + b"x" * 2000 + b"\n\n" + b": " + b"c" * 2000 + b"\n\n", True),
        (b"data: :\n\ndata:: b\n\n\n", False),
        (b"data: a\ndata: :\n\n", False),
    ],
)
def test_comments_are_recorded(body: bytes, has_comments: bool, cut: int) -> None:
    decoder = SseDecoder(10_000)
    for start in range(0, len(body), cut):
        decoder.feed(body[start : start + cut])
    assert decoder.has_comments is has_comments


@requirement("SSE-C-005", "SSE-C-007", "SSE-C-008", "SSE-C-009", "SSE-C-012")
@pytest.mark.parametrize(
    ("block", "data"),
    [
        (b"data: a", "a"),
        (b"data:a", "a"),
        (b"data:  a ", " a "),
        (b"data:\ta", "\ta"),
        (b"data: a:b: c", "a:b: c"),
        (b"data", ""),
        (b"data:", ""),
        (b"data: ", ""),
        (b"data\ndata", "\n"),
        (b"data: a\ndata\ndata: b", "a\n\nb"),
    ],
)
def test_fields_are_split_at_the_first_colon(block: bytes, data: str) -> None:
    assert datas(block + b"\n\n") == [data]


@requirement("SSE-C-010", "SSE-C-011")
def test_unknown_fields_are_ignored_and_names_are_literal() -> None:
    assert decode(b"DATA: a\nEvent: b\nfoo: c\n data: d\ndata : e\n\n") == []


@requirement("SSE-C-013")
def test_the_event_type_is_for_one_block_only() -> None:
    events = decode(b"event: a\ndata: 1\n\ndata: 2\n\nevent:\ndata: 3\n\n")
    assert [event.event for event in events] == ["a", "message", "message"]


@requirement("SSE-C-014", "SSE-C-015")
def test_ids_persist_until_the_next_one_and_nul_voids_one() -> None:
    events = decode(b"id: 1\ndata: a\n\ndata: b\n\nid: 2\0\ndata: c\n\nid\ndata: d\n\n")
    assert [event.id for event in events] == ["1", None, None, ""]
    assert [event.last_event_id for event in events] == ["1", "1", "1", ""]
    usual = decode(b"id: 1\ndata: a\n\ndata: b\n\nid: 2\ndata: c\n\n")  # without NUL, read at once
    assert [(event.id, event.last_event_id) for event in usual] == [
        ("1", "1"),
        (None, "1"),
        ("2", "2"),
    ]


@requirement("SSE-C-016", "SSE-C-018", "SSE-C-019")
def test_every_block_is_reported_and_says_whether_the_standard_dispatches_it() -> None:
    events = decode(b"id: 1\n\nevent: buffer_input\nid: 2\n\nid: 3\ndata:\n\nretry: 5\n\n")
    assert [(e.event, e.data, e.id, e.last_event_id, e.dispatched) for e in events] == [
        ("message", None, "1", "1", False),
        ("buffer_input", None, "2", "2", False),
        ("message", "", "3", "3", True),
        ("message", None, None, "3", False),
    ]


@requirement("SSE-C-017")
@pytest.mark.parametrize(
    ("value", "retry"),
    [
        (b"0", 0),
        (b"3000", 3000),
        (b"007", 7),
        (b"", None),
        (b"-5", None),
        (b"+3", None),
        (b"3_000", None),
        (b"1.5", None),
        (b" 5", None),
        (b"5 ", None),
        ("٣".encode(), None),
        (b"9" * 30, 9_999_999_999_999_999),
    ],
)
def test_only_ascii_digits_make_a_reconnection_time(value: bytes, retry: int | None) -> None:
    decoder = SseDecoder(LIMIT)
    events = decoder.feed(b"retry: " + value + b"\n")
    assert events == []  # it counts at once, before its block is complete
    assert decoder.reconnection_time == retry
    events = decoder.feed(b"data: x\n\n")
    assert [event.retry for event in events] == [retry]


def test_the_reconnection_time_is_the_last_that_has_come() -> None:
    decoder = SseDecoder(LIMIT)
    decoder.receive_data(b"retry: 1\n\nretry: 2\n\n\nretry: 3\nretry: x\nretry: 4")
    assert decoder.reconnection_time == 3
    while decoder.next_event() is not Idle.NEED_DATA:
        assert decoder.reconnection_time == 3
    decoder.receive_data(b"2\n\n")
    decoder.next_event()
    assert decoder.reconnection_time == 42


def test_after_an_error_nothing_is_read() -> None:
    decoder = SseDecoder(3)
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            decoder.feed(b"data: a\n\n")
    decoder.receive_data(b"a\n\n")
    with pytest.raises(RemoteProtocolError):
        decoder.next_event()


@requirement("SSE-C-020")
@pytest.mark.parametrize("rest", [b"data: b", b"data: b\n", b"id: 9\n", b"event: x\ndata: b\n"])
def test_an_unfinished_block_at_the_end_is_dropped(rest: bytes) -> None:
    decoder = SseDecoder(LIMIT)
    assert [event.data for event in decoder.feed(b"id: 1\ndata: a\n\n" + rest)] == ["a"]
    decoder.receive_eof()
    assert decoder.next_event() is Idle.NEED_DATA
    assert decoder.last_event_id == "1"


@pytest.mark.parametrize("method", ["feed", "receive_data"])
def test_nothing_comes_after_the_end(method: str) -> None:
    decoder = SseDecoder(LIMIT)
    decoder.receive_eof()
    with pytest.raises(LocalProtocolError):
        getattr(decoder, method)(b"data: a\n\n")


def test_a_resumed_stream_starts_with_the_id_it_was_left_at() -> None:
    decoder = SseDecoder(LIMIT, last_event_id="7")
    assert [event.last_event_id for event in decoder.feed(b"data: a\n\n")] == ["7"]


@pytest.mark.parametrize("size", [1, 3, 10_000])
@pytest.mark.parametrize(
    "body",
    [
        b"data: " + b"x" * 95 + b"\n\n",  # one line of 101
        b": " + b"x" * 99 + b"\n\n",  # a comment counts while it is a line
        b"data: " + b"x" * 60 + b"\nid: " + b"x" * 40 + b"\n\n",  # two lines of one event
    ],
)
def test_a_block_beyond_the_limit_is_an_error_in_any_chunking(body: bytes, size: int) -> None:
    good = b"data: a\n\n"
    decoder = SseDecoder(100)
    events: list[SseEvent] = []
    stream = good + body
    with pytest.raises(RemoteProtocolError) as caught:
        for start in range(0, len(stream), size):
            events += decoder.feed(stream[start : start + size])
        decoder.next_event()
    assert [event.data for event in events] == ["a"]
    assert caught.value.reason == "message_too_large"
    decoder.receive_data(b"data: late\n\n")
    with pytest.raises(RemoteProtocolError):
        decoder.next_event()
    assert caught.value.http_status == 413
    with pytest.raises(RemoteProtocolError):
        decoder.next_event()


def test_what_is_just_within_the_limit_passes_for_ever() -> None:
    body = b"data: " + b"x" * 94 + b"\n\n" + b": comment\n" * 50
    assert len(decode(body * 20, limit=100)) == 20


def test_comments_between_events_are_not_kept() -> None:
    comments = b":\n" * 2000 + b": one that has not ended"
    assert datas(comments, b"\ndata: a\n\n", limit=2000) == ["a"]


def test_ids_and_data_do_not_show_in_a_repr() -> None:
    event = decode(b"id: very-secret\ndata: " + b"x" * 500 + b"\n\n")[0]
    assert "very-secret" not in repr(event)
    assert len(repr(event)) < 300


LINES = st.sampled_from(
    [
        b"data: a",
        b"data",
        b"data: \xc3\xa4\xff",
        b"id: 1",
        b"id",
        b"id: \0",
        b"event: e",
        b"event:",
        b"retry: 10",
        b"retry: x",
        b": comment",
        b"foo",
        b"",
        b"",
        b"\xef\xbb\xbf",
        b"data: " + b"y" * 30,
    ]
)
BODIES = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r", b"\r\n"])), max_size=30).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


def reference(body: bytes) -> list[tuple[str, str | None, str | None, int | None, str]]:
    """The algorithm of the standard, word for word, on a whole body."""
    text = body.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]
    blocks: list[tuple[str, str | None, str | None, int | None, str]] = []
    last_event_id = ""
    fields: dict[str, list[str]] = {}
    for line in lines:
        if not line:
            ids = fields.get("id", [])
            last_event_id = ids[-1] if ids else last_event_id
            if fields:
                kind = fields.get("event", [""])[-1] or "message"
                data = "\n".join(fields["data"]) if "data" in fields else None
                retries = fields.get("retry", [])
                retry = int(retries[-1]) if retries else None
                blocks.append((kind, data, ids[-1] if ids else None, retry, last_event_id))
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            is_void = (name == "id" and "\0" in value) or (
                name == "retry" and not (value.isascii() and value.isdigit())
            )
            if name in ("data", "event", "id", "retry") and not is_void:
                fields.setdefault(name, []).append(value)
    return blocks


@given(body=BODIES, cuts=st.lists(st.integers(0, 300), max_size=12))
def test_any_chunking_gives_what_the_standard_says(body: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(body), *(min(cut, len(body)) for cut in cuts)})
    chunks = [body[start:end] for start, end in itertools.pairwise(edges)]
    for way in (chunks, [body], [body[i : i + 1] for i in range(len(body))]):
        events = decode(*way)
        assert [(e.event, e.data, e.id, e.retry, e.last_event_id) for e in events] == reference(
            body
        )


@given(body=BODIES, cut=st.integers(0, 300))
def test_a_stream_cut_anywhere_gives_no_event_that_the_whole_does_not(
    body: bytes, cut: int
) -> None:
    events = decode(body[:cut])
    assert decode(body)[: len(events)] == events


@given(body=BODIES, limit=st.integers(1, 60), size=st.integers(1, 50))
def test_the_limit_strikes_at_the_same_place_in_any_chunking(
    body: bytes, limit: int, size: int
) -> None:
    def run(chunks: list[bytes]) -> tuple[list[SseEvent], str | None]:
        decoder = SseDecoder(limit)
        events: list[SseEvent] = []
        try:
            for chunk in chunks:
                events += decoder.feed(chunk)
            decoder.next_event()
        except RemoteProtocolError as error:
            return events, error.reason
        return events, None

    assert run([body]) == run([body[i : i + size] for i in range(0, len(body), size)])


@pytest.mark.parametrize("convert", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("method", ["feed", "receive_data"])
def test_input_may_be_anything_with_a_buffer(convert: Any, method: str) -> None:
    """A memoryview worked until a CR came."""
    decoder = SseDecoder(1000)
    found: list[SseEvent] = []
    for chunk in (b"data: a\n\n", b"data: b", b"\r\n\r\ndata: c\r", b"\n\n"):
        found += getattr(decoder, method)(convert(chunk)) or ()
    while isinstance(event := decoder.next_event(), SseEvent):
        found.append(event)
    assert [event.data for event in found] == ["a", "b", "c"]
    for wrong in ("data: x", 5, None, [10]):
        with pytest.raises(LocalProtocolError, match="data must be bytes"):
            getattr(decoder, method)(wrong)
